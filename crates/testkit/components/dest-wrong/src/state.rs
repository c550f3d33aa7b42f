//! The files of one stream.

use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

/// A state of a test is small.
const MAX_BYTES: u32 = 1 << 16;

/// Where a stream lies.
pub struct Place {
    /// One line for each row.
    pub rows: String,
    state: String,
    look: String,
    lock: String,
}

/// What is known of a stream.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub struct State {
    pub epoch: u64,
    pub seq: u64,
    pub cursor: Option<String>,
    pub run_id: String,
    pub complete: bool,
    pub rows: u64,
}

impl Place {
    /// The paths of `rows`, of the state to be written and of the state to be read.
    pub fn new(paths: [&String; 3], stream: &str) -> Self {
        // What is granted for every stream is granted for one of this name too.
        let lock = paths[1].replace("{stream}", &format!("{stream}_lock"));
        let [rows, state, look] = paths.map(|path| path.replace("{stream}", stream));
        Self {
            rows,
            state,
            look,
            lock,
        }
    }

    /// None when no run was let in.
    pub fn read(&self) -> Result<Option<State>> {
        if files::find(&self.look)?.is_empty() {
            return Ok(None);
        }
        let text = files::open(&self.look)?.read(0, MAX_BYTES)?;
        let state = serde_json::from_slice(&text);
        state.map(Some).map_err(Error::internal)
    }

    pub fn write(&self, state: &State) -> Result<()> {
        let text = serde_json::to_vec(state).map_err(Error::internal)?;
        put(&self.state, &text)
    }

    pub fn has_rows(&self) -> Result<bool> {
        Ok(!files::find(&self.rows)?.is_empty())
    }

    /// Lets so many rows be seen.
    pub fn show(&self, rows: u64) -> Result<()> {
        let lines: String = (0..rows).map(|n| format!("{{\"n\": {n}}}\n")).collect();
        put(&self.rows, lines.as_bytes())
    }

    /// Lets none be seen.
    pub fn hide(&self) -> Result<()> {
        files::remove(&self.rows)
    }

    pub fn lock(&self) -> Result<()> {
        if !files::find(&self.lock)?.is_empty() {
            return Err(Error::new(
                ErrorKind::Config,
                "locked",
                "another run writes",
            ));
        }
        put(&self.lock, b"")
    }

    pub fn unlock(&self) -> Result<()> {
        files::remove(&self.lock)
    }
}

fn put(path: &str, bytes: &[u8]) -> Result<()> {
    let mut output = files::create(path)?;
    output.write(bytes)?;
    output.commit()
}
