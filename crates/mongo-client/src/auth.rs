//! Proves to a server who we are: SCRAM by `saslStart` and `saslContinue` (driver specification "Authentication").
//!
//! MongoDB hashes a password for SCRAM-SHA-1 with MD5 before, and takes a password for SCRAM-SHA-256 as SASLprep
//! prepares it.

use md5::{Digest, Md5};
use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_scram::{Binding, Hash, Scram, Sha1, Sha256, Wrong, prepared};
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::client::Client;
use crate::error::{malformed, number_of, protocol};
use crate::settings::{Login, Mechanism};

/// RFC 7677, section 4, and the driver specification "Authentication": with fewer, a server in between could try passwords
/// against the proof in little time.
const MIN_ITERATIONS: u32 = 4096;
/// Each iteration costs two hashes before anything is proven. MongoDB has 15,000 for SHA-256 and 10,000 for SHA-1 unless
/// its administrator raised them; this many take a second or two in the sandbox.
const MAX_ITERATIONS: u32 = 1_000_000;
/// The server may ask for an empty message after its proof, once.
const MAX_ROUNDS: usize = 2;

impl Client {
    /// Logs in. Errors: `mongo_18`, `auth_unsupported`, `server_not_proven`, `scram_iterations`.
    pub(crate) fn log_in(&mut self, login: &Login) -> Result<()> {
        let offered = self.hello().mechanisms.clone();
        match mechanism(login, &offered)? {
            Mechanism::ScramSha256 => {
                let password = prepared(&login.password);
                self.scram::<Sha256>(login, "SCRAM-SHA-256", &password)
            }
            Mechanism::ScramSha1 => {
                let password = md5_of(&login.user, &login.password);
                self.scram::<Sha1>(login, "SCRAM-SHA-1", &password)
            }
        }
    }

    fn scram<H: Hash>(&mut self, login: &Login, mechanism: &str, password: &str) -> Result<()> {
        let scram = Scram::<H>::new(Binding::Unsupported, &login.user).map_err(wrong)?;
        let mut start = Builder::new();
        start
            .int32("saslStart", 1)
            .string("mechanism", mechanism)
            .binary("payload", scram.message().as_bytes())
            .open_document("options")
            .boolean("skipEmptyExchange", true)
            .close();
        let reply = self.quiet_command(&login.source, start).map_err(refused)?;
        let first = Step::read(reply.document()?)?;
        let answer = scram.prove(password, &first.payload, MIN_ITERATIONS..=MAX_ITERATIONS);
        let answer = answer.map_err(wrong)?;
        let mut message = answer.message.clone().into_bytes();
        let mut unproven = Some(answer);
        for _ in 0..MAX_ROUNDS {
            let mut step = Builder::new();
            step.int32("saslContinue", 1)
                .value("conversationId", &Value::Int32(first.conversation))
                .binary("payload", &message);
            let reply = self.quiet_command(&login.source, step).map_err(refused)?;
            let step = Step::read(reply.document()?)?;
            if let Some(answer) = unproven.take() {
                answer.verify(&step.payload).map_err(wrong)?;
            }
            if step.is_done {
                return Ok(());
            }
            message.clear();
        }
        Err(protocol("a login that does not end"))
    }
}

/// An answer to a step of a login.
struct Step {
    conversation: i32,
    payload: Vec<u8>,
    is_done: bool,
}

impl Step {
    fn read(document: Document<'_>) -> Result<Self> {
        let conversation = document.get("conversationId").map_err(malformed)?;
        let conversation = conversation.and_then(|id| id.as_whole());
        let conversation = conversation.and_then(|id| i32::try_from(id).ok());
        let payload = match document.get("payload").map_err(malformed)? {
            Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
            _ => return Err(protocol("a step of a login without a payload")),
        };
        let is_done = document.get("done").map_err(malformed)?;
        Ok(Self {
            conversation: conversation.unwrap_or(1),
            payload,
            is_done: is_done.is_some_and(|done| done.is_true()),
        })
    }
}

/// The stronger mechanism of those that the server has for the user. A server that names none gets SHA-256.
fn mechanism(login: &Login, offered: &[String]) -> Result<Mechanism> {
    if let Some(mechanism) = login.mechanism {
        return Ok(mechanism);
    }
    let offers = |mechanism: Mechanism| offered.iter().any(|name| name == mechanism.name());
    if offered.is_empty() || offers(Mechanism::ScramSha256) {
        Ok(Mechanism::ScramSha256)
    } else if offers(Mechanism::ScramSha1) {
        Ok(Mechanism::ScramSha1)
    } else {
        Err(unsupported(&offered.join(", ")))
    }
}

fn unsupported(methods: &str) -> Error {
    let text = format!("the server asks for {methods}, which this client does not support");
    Error::new(ErrorKind::Auth, "auth_unsupported", text)
        .hint("give the user SCRAM-SHA-256 or SCRAM-SHA-1: db.updateUser with `mechanisms`")
}

/// The password as MongoDB stores it for SCRAM-SHA-1.
fn md5_of(user: &str, password: &str) -> String {
    let hash = Md5::digest(format!("{user}:mongo:{password}"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A login that the server refuses, whatever number it has.
fn refused(mut error: Error) -> Error {
    if number_of(&error).is_some() && matches!(error.kind, ErrorKind::Config) {
        error.kind = ErrorKind::Auth;
        error.hint.get_or_insert_with(|| {
            "check user, password, authSource and authMechanism of the URL".into()
        });
    }
    error
}

fn wrong(wrong: Wrong) -> Error {
    let auth = |code, text| Error::new(ErrorKind::Auth, code, text);
    match wrong {
        // It does not know the password either, or does not speak SCRAM.
        Wrong::Message(what) => auth(
            "server_not_proven",
            format!("the server breaks SCRAM: {what}"),
        )
        .hint("check the host and use tls=true: somebody may stand between client and server"),
        Wrong::Iterations(count) => {
            // More digits than a number has are many.
            let is_few = count.parse().is_ok_and(|count: u32| count < MIN_ITERATIONS);
            let (limit, change) = match is_few {
                true => (format!("the least is {MIN_ITERATIONS}"), "raise"),
                false => (format!("the limit is {MAX_ITERATIONS}"), "lower"),
            };
            auth(
                "scram_iterations",
                format!("the server asks for {count} iterations of SCRAM, and {limit}"),
            )
            .hint(format!(
                "check the host and use tls=true: somebody may stand between client and server; or {change} the server's \
                 scramSHA256IterationCount or scramIterationCount and set the password again"
            ))
        }
        Wrong::Refused(why) => auth(
            "mongo_18",
            format!("the server refuses the proof of the password: {why}"),
        )
        .hint("check user, password and authSource of the URL"),
        Wrong::NoNonce(error) => Error::internal(format!("no random numbers: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(mechanism: Option<Mechanism>) -> Login {
        Login {
            user: "u".into(),
            password: "p".into(),
            source: "admin".into(),
            mechanism,
        }
    }

    #[test]
    fn the_strongest_mechanism_of_the_user_is_used() {
        let both = ["SCRAM-SHA-1".to_owned(), "SCRAM-SHA-256".to_owned()];
        let chosen = |wanted, offered: &[String]| {
            mechanism(&login(wanted), offered).map_err(|error| error.code)
        };
        assert_eq!(chosen(None, &both), Ok(Mechanism::ScramSha256));
        assert_eq!(chosen(None, &both[..1]), Ok(Mechanism::ScramSha1));
        assert_eq!(chosen(None, &[]), Ok(Mechanism::ScramSha256));
        assert_eq!(
            chosen(Some(Mechanism::ScramSha1), &both),
            Ok(Mechanism::ScramSha1)
        );
        let code = chosen(None, &["GSSAPI".to_owned()]).unwrap_err();
        assert_eq!(code, "auth_unsupported");
    }

    #[test]
    fn a_password_for_sha_1_is_hashed_before() {
        // printf 'user:mongo:pencil' | md5sum
        assert_eq!(md5_of("user", "pencil"), "1c33006ec1ffd90f9cadcbcc0e118200");
    }
}
