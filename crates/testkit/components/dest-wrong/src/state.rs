//! The files of one stream.

use std::sync::Arc;

use arrow_array::RecordBatch;
use rapidbyte_columnar::{File, FileWriter, Kind, Limits, WriteOptions};
use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

/// A state of a test is small.
const MAX_BYTES: u32 = 1 << 16;
/// Bytes that one call reads of a file.
const READ_BYTES: u32 = 1 << 20;
/// For reading a file of rows: a test writes a few thousand rows.
const LIMITS: Limits = Limits {
    batch_bytes: 1 << 20,
    max_record_bytes: 1 << 24,
};
/// Parts of one run that are looked for, where nobody says how many it staged.
const MAX_PARTS: u64 = 4;

/// The place of a stream.
#[derive(Clone)]
pub struct Place {
    /// An Arrow file of the committed rows.
    pub rows: String,
    again: String,
    state: String,
    look: String,
    lock: String,
    /// Where parts are staged, with `{part}` for the part's name.
    part: String,
    look_part: String,
}

/// The progress of a stream.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub struct State {
    pub epoch: u64,
    pub seq: u64,
    pub cursor: Option<String>,
    pub run_id: String,
    pub complete: bool,
    pub rows: u64,
    /// Of a place for rejects.
    #[serde(default)]
    pub rejects: Vec<Kept>,
}

/// A reject that is kept.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Kept {
    pub id: String,
    pub pipeline: String,
    pub stream: String,
    pub run_id: String,
    pub data: Vec<u8>,
    pub is_cut: bool,
    pub location: Option<String>,
    pub column: Option<String>,
    pub code: String,
    pub message: String,
    pub read_with: Option<String>,
}

impl Place {
    /// The paths of `rows`, the same to be read, of the state to be written and to be read.
    pub fn new(paths: [&String; 4], stream: &str) -> Self {
        // A grant for every stream covers each of these names too.
        let beside =
            |path: &String, name: &str| path.replace("{stream}", &format!("{stream}_{name}"));
        let lock = beside(paths[2], "lock");
        let (part, look_part) = (beside(paths[2], "{part}"), beside(paths[3], "{part}"));
        let [rows, again, state, look] = paths.map(|path| path.replace("{stream}", stream));
        Self {
            rows,
            again,
            state,
            look,
            lock,
            part,
            look_part,
        }
    }

    /// The same with what a pipeline knows of the stream and stages for it.
    pub fn of(self, pipeline: &str) -> Self {
        let of = |path: String| match path.rsplit_once('.') {
            Some((name, end)) => format!("{name}_{pipeline}.{end}"),
            None => format!("{path}_{pipeline}"),
        };
        Self {
            state: of(self.state),
            look: of(self.look),
            part: of(self.part),
            look_part: of(self.look_part),
            ..self
        }
    }

    /// None when the file does not exist.
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

    /// The rows that can be seen.
    pub fn shown(&self) -> Result<Vec<RecordBatch>> {
        match self.has_rows()? {
            true => batches(&self.again),
            false => Ok(Vec::new()),
        }
    }

    /// Lets these rows be seen, in place of others.
    pub fn show(&self, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<()> {
        put_batches(&self.rows, schema, rows)
    }

    /// Lets none be seen.
    pub fn hide(&self) -> Result<()> {
        files::remove(&self.rows)
    }

    pub fn stage(&self, part: &str, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<()> {
        put_batches(&self.part.replace("{part}", part), schema, rows)
    }

    pub fn staged(&self, part: &str) -> Result<Vec<RecordBatch>> {
        batches(&self.look_part.replace("{part}", part))
    }

    pub fn unstage(&self, part: &str) -> Result<()> {
        files::remove(&self.part.replace("{part}", part))
    }

    /// Parts that runs before `epoch` left.
    pub fn leavings(&self, epoch: u64) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for name in (1..epoch).flat_map(|epoch| (0..MAX_PARTS).map(move |n| part(epoch, n))) {
            if !files::find(&self.look_part.replace("{part}", &name))?.is_empty() {
                found.push(name);
            }
        }
        Ok(found)
    }

    /// Makes a file beside the rows.
    pub fn leave(&self) -> Result<()> {
        put(&self.lock, b"")
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

/// The name of a run's part.
pub fn part(epoch: u64, number: u64) -> String {
    format!("part{epoch}_{number}")
}

fn put(path: &str, bytes: &[u8]) -> Result<()> {
    let mut output = files::create(path)?;
    output.write(bytes)?;
    output.commit()
}

fn put_batches(path: &str, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<()> {
    let options = WriteOptions::default();
    let writer = FileWriter::new(Kind::Arrow, schema.clone(), &options, Vec::new());
    let mut writer = writer.map_err(Error::internal)?;
    for batch in rows {
        writer.write(batch).map_err(Error::internal)?;
    }
    put(path, &writer.finish().map_err(Error::internal)?)
}

fn batches(path: &str) -> Result<Vec<RecordBatch>> {
    let input = files::open(path)?;
    let mut bytes = Vec::new();
    loop {
        let piece = input.read(bytes.len() as u64, READ_BYTES)?;
        if piece.is_empty() {
            break;
        }
        bytes.extend(piece);
    }
    let file = File::open(Kind::Arrow, Arc::new(bytes)).map_err(Error::internal)?;
    let mut reader = file.read(None, LIMITS).map_err(Error::internal)?;
    let mut rows = Vec::new();
    while let Some(batch) = reader.next_batch().map_err(Error::internal)? {
        rows.push(batch);
    }
    Ok(rows)
}
