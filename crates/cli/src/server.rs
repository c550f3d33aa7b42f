//! Commands that work on a server: which one, with which token, and its errors as those of the command.

use std::path::Path;

use rapidbyte::{Class, Failure};
use rapidbyte_serve::{Client, ClientError};
use serde_json::Value;

use crate::args::{Common, OnServer, Pipeline};
use crate::output::Output;

const SERVER: &str = "RAPIDBYTE_SERVER";
const TOKEN: &str = "RAPIDBYTE_TOKEN";
const CERTIFICATES: &str = "RAPIDBYTE_CA_FILE";

/// The server that the command names, or else the variable RAPIDBYTE_SERVER. `None`: the command works here.
pub fn client(named: &OnServer, output: &Output) -> Result<Option<Client>, Failure> {
    let Some(url) = named.server.clone().or(variable(SERVER)?) else {
        return Ok(None);
    };
    let (token, certificates) = (variable(TOKEN)?, variable(CERTIFICATES)?);
    let client = Client::new(
        &url,
        token.as_deref(),
        certificates.as_deref().map(Path::new),
    );
    let client = client.map_err(failure)?;
    if client.exposes_token() {
        let text = format!(
            "the token crosses the network as plain text: {} does not begin with https://",
            client.url()
        );
        output.warn(&text);
    }
    Ok(Some(client))
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let value = value.into_string().map_err(|_| {
        let text = format!("the value of the variable {name} is not UTF-8");
        Failure::new(Class::Config, "invalid_argument", text).hint("set it again, or remove it")
    })?;
    Ok(Some(value))
}

/// Refuses options that have no meaning for a server: each with whether it was given.
pub fn refuse(options: &[(&str, bool)], common: &Common) -> Result<(), Failure> {
    let of_all = [("--env-file", common.env_file.is_some())];
    let Some((option, _)) = options
        .iter()
        .chain(&of_all)
        .find(|(_, is_given)| *is_given)
    else {
        return Ok(());
    };
    let text = format!("{option} does not work with a server");
    let hint = format!(
        "remove {option}; or run the file on this machine, without --server and the variable {SERVER}"
    );
    Err(Failure::new(Class::Config, "invalid_argument", text).hint(hint))
}

/// The name of a pipeline of a server.
pub fn name(pipeline: &Pipeline) -> Result<&str, Failure> {
    pipeline.file.to_str().ok_or_else(|| {
        let text = "the name of the pipeline is not UTF-8";
        Failure::new(Class::Config, "invalid_argument", text)
            .hint("give the name of a pipeline of the server")
    })
}

/// An error of the client.
pub fn failure(error: ClientError) -> Failure {
    let text = error.to_string();
    match error {
        ClientError::InvalidUrl(_) => Failure::new(Class::Config, "invalid_argument", text)
            .hint("write a URL such as http://127.0.0.1:8465"),
        ClientError::InvalidToken => Failure::new(Class::Config, "invalid_argument", text)
            .hint(format!("set the variable {TOKEN} to a token of the server")),
        ClientError::Certificates(..) => Failure::new(Class::Config, "invalid_argument", text)
            .hint(format!("set the variable {CERTIFICATES} to a file with certificates (PEM)")),
        ClientError::Unreachable(..) => {
            Failure::new(Class::Environment, "server_unreachable", text).hint(
                "check that the server runs, and its URL; a run that has begun there goes on: rapidbyte runs NAME --server URL",
            )
        }
        ClientError::Unexpected(..) => Failure::new(Class::Environment, "server_unknown", text)
            .hint("check the URL: it is the one that `rapidbyte serve` prints"),
        // An error of the engine on the server is that of a run on this machine.
        ClientError::Refused { error, .. } if error["class"].is_string() => failure_of(&error),
        ClientError::Refused {
            status, code, hint, ..
        } => {
            let class = match (status, code.as_str()) {
                (_, "already_running" | "too_many_runs") => Class::Busy,
                (401 | 403, _) => Class::Environment,
                (400..=499, _) => Class::Config,
                _ => Class::Environment,
            };
            let hint = match status {
                401 => Some(format!(
                    "set the variable {TOKEN}: `rapidbyte serve token add` makes a token on the server"
                )),
                _ => hint,
            };
            with_hint(Failure::new(class, &code, text), hint)
        }
    }
}

/// The error of a run, as the server shows it.
pub fn failure_of(error: &Value) -> Failure {
    let text = |key: &str| error.get(key)?.as_str().map(str::to_owned);
    let code = text("code").unwrap_or_else(|| "internal".to_owned());
    let class = match (text("class").as_deref(), code.as_str()) {
        (Some("cancelled"), _) | (None, "cancelled") => Class::Cancelled,
        (Some("config"), _) | (None, "unknown_pipeline" | "reads_queue") => Class::Config,
        (Some("environment"), _) => Class::Environment,
        (Some("contract"), _) => Class::Contract,
        (Some("busy"), _) | (None, "already_running" | "already_queued") => Class::Busy,
        _ => Class::Run,
    };
    let message = text("message").unwrap_or_else(|| "the run did not succeed".to_owned());
    let mut failure = with_hint(Failure::new(class, &code, message), text("hint"));
    failure.location = text("location");
    failure.key = text("key");
    failure.stream = text("stream");
    failure.column = text("column");
    failure.connector = text("connector");
    let list = |key: &str| error[key].as_array().into_iter().flatten();
    let committed = list("committed").filter_map(|name| name.as_str().map(str::to_owned));
    failure.streams.committed = committed.collect();
    // Failures of streams have no failures of their own.
    let failures = list("failures").filter(|one| one["failures"].is_null());
    failure.streams.failures = failures.map(failure_of).collect();
    failure
}

fn with_hint(failure: Failure, hint: Option<String>) -> Failure {
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_of_a_run_has_the_exit_code_of_a_local_run() {
        for (error, code) in [
            (
                json!({ "class": "contract", "code": "value_does_not_fit" }),
                4,
            ),
            (
                json!({ "class": "environment", "code": "connect_failed" }),
                3,
            ),
            (json!({ "class": "busy", "code": "already_running" }), 5),
            (json!({ "class": "config", "code": "unknown_key" }), 2),
            (json!({ "class": "run", "code": "x" }), 1),
            (json!({ "code": "cancelled" }), 130),
            (json!({ "code": "run_timeout" }), 1),
            (json!({ "code": "unknown_pipeline" }), 2),
            (Value::Null, 1),
        ] {
            assert_eq!(failure_of(&error).exit_code(), code, "{error}");
        }
        let failure = failure_of(&json!({
            "class": "run", "code": "streams_failed", "message": "m", "hint": "h", "committed": ["a"],
            "failures": [{ "class": "contract", "code": "c", "message": "n", "stream": "s", "column": "k" }],
        }));
        let text = failure.to_string();
        assert!(
            text.contains("error[streams_failed]") && text.contains("h"),
            "{text}"
        );
        let first = &failure.streams.failures[0];
        assert_eq!(
            (first.stream.as_deref(), first.column.as_deref()),
            (Some("s"), Some("k"))
        );
        assert_eq!(failure.streams.committed, ["a"]);
    }

    #[test]
    fn a_refusal_keeps_the_code_of_the_server() {
        let of = |status, code: &str| {
            failure(ClientError::Refused {
                status,
                code: code.into(),
                message: "m".into(),
                hint: Some("h".into()),
                error: Value::Null,
            })
        };
        for (status, code, exit) in [
            (409, "already_running", 5),
            (429, "too_many_runs", 5),
            (404, "unknown_pipeline", 2),
            (409, "reads_queue", 2),
            (401, "unauthorized", 3),
            (403, "scope_missing", 3),
            (503, "store_busy", 3),
        ] {
            let failure = of(status, code);
            assert_eq!((&*failure.code, failure.exit_code()), (code, exit));
            assert!(failure.hint.is_some());
        }
        let hint = of(401, "unauthorized").hint.expect("a hint");
        assert!(hint.contains("RAPIDBYTE_TOKEN"), "{hint}");
    }
}
