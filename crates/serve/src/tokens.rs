//! The tokens of a server: a file with the hashes of secrets that were shown once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::spool::{PRIVATE_FILE, make_private};
use crate::store::{TokenLimits, hexadecimal, now_ms};

/// Tokens of a server.
const MAX_TOKENS: usize = 10_000;
/// Bytes of their file.
const MAX_FILE: u64 = 16 << 20;
const FILE: &str = "tokens.json";
const PREFIX: &str = "rb";

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Sending bodies, and following their jobs.
    Ingest,
    /// Looking at pipelines, runs and jobs.
    Read,
    /// Reading, and also starting, cancelling and replaying.
    Operate,
}

impl Action {
    const ALL: [Self; 3] = [Self::Ingest, Self::Read, Self::Operate];

    /// Its name in scopes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// A right: an action for one pipeline, or for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scope {
    action: Action,
    pipeline: Option<String>,
}

impl TryFrom<String> for Scope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (action, pipeline) = match text.split_once(':') {
            Some((action, pipeline)) => (action, Some(pipeline)),
            None => (text.as_str(), None),
        };
        let known = Action::ALL.into_iter().find(|known| known.name() == action);
        match (known, pipeline) {
            (Some(action), None | Some("*")) => Ok(Self {
                action,
                pipeline: None,
            }),
            (Some(action), Some(pipeline)) if !pipeline.is_empty() => Ok(Self {
                action,
                pipeline: Some(pipeline.to_owned()),
            }),
            _ => Err(format!(
                "{text:?} is not a scope: write ingest, read or operate, alone or with a pipeline, such as ingest:orders"
            )),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        match scope.pipeline {
            Some(pipeline) => format!("{}:{pipeline}", scope.action.name()),
            None => scope.action.name().to_owned(),
        }
    }
}

impl Scope {
    /// The pipeline that it is for. `None`: it is for all.
    pub fn pipeline(&self) -> Option<&str> {
        self.pipeline.as_deref()
    }

    fn allows(&self, action: Action, pipeline: Option<&str>) -> bool {
        let is_enough =
            self.action == action || self.action == Action::Operate && action == Action::Read;
        let is_of = self.pipeline.is_none() || self.pipeline.as_deref() == pipeline;
        is_enough && is_of
    }
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name in the secret, by which it is removed.
    pub id: String,
    /// Who has it, in the words of the operator.
    pub name: String,
    /// The SHA-256 of the secret, in hexadecimal.
    sha256: String,
    /// Its rights.
    pub scopes: Vec<Scope>,
    /// Requests a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Bytes of bodies a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Rows a second at most. They are counted when a run has committed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_second: Option<u64>,
    /// Pending jobs at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_jobs: Option<u64>,
    /// When it was made, in milliseconds since 1970-01-01.
    pub created_ms: i64,
}

/// A token that is not made yet.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Who gets it.
    pub name: String,
    /// Its rights.
    pub scopes: Vec<Scope>,
    /// Requests a second at most.
    pub requests_per_second: Option<u64>,
    /// Bytes of bodies a second at most.
    pub bytes_per_second: Option<u64>,
    /// Rows a second at most. They are counted when a run has committed them.
    pub rows_per_second: Option<u64>,
    /// Pending jobs at most.
    pub open_jobs: Option<u64>,
}

impl Token {
    /// The id in a secret.
    pub fn id_of(secret: &str) -> Option<&str> {
        let mut parts = secret.split('_');
        let (prefix, id) = (parts.next()?, parts.next()?);
        (prefix == PREFIX).then_some(id)
    }

    /// Whether the secret with this hash is the token's. Takes the same time whatever the hash.
    pub fn is(&self, sha256: &str) -> bool {
        self.sha256.as_bytes().ct_eq(sha256.as_bytes()).into()
    }

    /// The limits that the store keeps. `None` for a token without them.
    pub fn limits(&self) -> Option<TokenLimits> {
        let is_limited = self.open_jobs.is_some() || self.rows_per_second.is_some();
        is_limited.then(|| TokenLimits {
            id: self.id.clone(),
            open_jobs: self.open_jobs,
            rows_per_second: self.rows_per_second,
        })
    }

    /// Whether it allows this. Without a pipeline: for all of them.
    pub fn allows(&self, action: Action, pipeline: Option<&str>) -> bool {
        let mut scopes = self.scopes.iter();
        scopes.any(|scope| scope.allows(action, pipeline))
    }
}

/// The SHA-256 of a secret, in hexadecimal. A secret has 256 random bits, so that it needs no slow hash.
pub fn sha256(secret: &str) -> String {
    hexadecimal(digest(&SHA256, secret.as_bytes()).as_ref())
}

/// The file of the tokens, in the folder of a server.
#[derive(Debug, Clone)]
pub struct TokenFile {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    tokens: Vec<Token>,
}

impl TokenFile {
    /// That of the server with this folder.
    pub fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Whether the file is there.
    pub fn exists(&self) -> bool {
        self.folder.join(FILE).exists()
    }

    /// All tokens. None if there is no file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> io::Result<Vec<Token>> {
        let path = self.folder.join(FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let text = format!("{}: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
            Ok(file) => file,
        };
        if file.metadata()?.len() > MAX_FILE {
            return Err(io::Error::other("the file of tokens is too large"));
        }
        let contents: Contents = serde_json::from_reader(io::BufReader::new(file))?;
        match contents.version {
            1 => Ok(contents.tokens),
            version => Err(io::Error::other(format!(
                "the file of tokens has version {version}, and this program knows version 1"
            ))),
        }
    }

    /// Makes a token. Returns it and its secret, which is stored nowhere.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, new: NewToken) -> io::Result<(Token, String)> {
        let _alone = self.lock()?;
        let mut tokens = self.read()?;
        if tokens.len() >= MAX_TOKENS {
            return Err(io::Error::other(format!(
                "there are {MAX_TOKENS} tokens already"
            )));
        }
        let id = loop {
            let id = random::<4>()?;
            if tokens.iter().all(|token| token.id != id) {
                break id;
            }
        };
        let secret = format!("{PREFIX}_{id}_{}", random::<32>()?);
        let token = Token {
            id,
            name: new.name,
            sha256: sha256(&secret),
            scopes: new.scopes,
            requests_per_second: new.requests_per_second,
            bytes_per_second: new.bytes_per_second,
            rows_per_second: new.rows_per_second,
            open_jobs: new.open_jobs,
            created_ms: now_ms(),
        };
        tokens.push(token.clone());
        self.write(tokens)?;
        Ok((token, secret))
    }

    /// Removes the token with this id. Returns whether it was there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remove(&self, id: &str) -> io::Result<bool> {
        let _alone = self.lock()?;
        let mut tokens = self.read()?;
        let before = tokens.len();
        tokens.retain(|token| token.id != id);
        if tokens.len() == before {
            return Ok(false);
        }
        self.write(tokens)?;
        Ok(true)
    }

    /// Two commands at once change the file one after the other.
    fn lock(&self) -> io::Result<File> {
        make_private(&self.folder)?;
        let file = private().open(self.folder.join("tokens.lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn write(&self, tokens: Vec<Token>) -> io::Result<()> {
        let contents = Contents { version: 1, tokens };
        let new = self.folder.join("tokens.new");
        let mut file = private().open(&new)?;
        file.set_len(0)?;
        serde_json::to_writer_pretty(&mut file, &contents)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(new, self.folder.join(FILE))?;
        File::open(&self.folder)?.sync_all()
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE);
    options
}

/// Random bytes in hexadecimal.
fn random<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(hexadecimal(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        Scope::try_from(text.to_owned()).expect("a scope")
    }

    #[test]
    fn scopes_are_of_one_pipeline_or_of_all() {
        let orders = scope("ingest:orders");
        assert!(orders.allows(Action::Ingest, Some("orders")));
        assert!(!orders.allows(Action::Ingest, Some("other")));
        assert!(!orders.allows(Action::Ingest, None));
        assert!(!orders.allows(Action::Read, Some("orders")));
        let all = scope("operate:*");
        assert!(all.allows(Action::Operate, None) && all.allows(Action::Read, Some("x")));
        assert!(!all.allows(Action::Ingest, Some("x")));
        for wrong in ["", "write", "ingest:", "Ingest", "ingest:a:"] {
            let read = Scope::try_from(wrong.to_owned());
            assert_eq!(read.is_ok(), wrong == "ingest:a:", "{wrong}");
        }
    }

    #[test]
    fn a_token_is_stored_as_a_hash_and_removed_by_its_id() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TokenFile::of(&folder.path().join("new"));
        assert!(file.read().expect("no tokens").is_empty());
        let new = || NewToken {
            name: "web".into(),
            scopes: vec![scope("read")],
            requests_per_second: None,
            bytes_per_second: Some(7),
            rows_per_second: None,
            open_jobs: Some(3),
        };
        let (first, secret) = file.add(new()).expect("a token");
        let (second, _) = file.add(new()).expect("a token");
        assert_eq!(Token::id_of(&secret), Some(first.id.as_str()));
        assert!(first.is(&sha256(&secret)) && !second.is(&sha256(&secret)));
        let path = folder.path().join("new").join(FILE);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(!text.contains(&secret[12..]));
        assert_eq!(
            file.read().expect("tokens"),
            [first.clone(), second.clone()]
        );
        assert!(file.remove(&first.id).expect("removed"));
        assert!(!file.remove(&first.id).expect("not there"));
        assert_eq!(file.read().expect("tokens"), [second]);
        fs::write(path, "{}").expect("written");
        assert!(file.read().is_err());
    }
}
