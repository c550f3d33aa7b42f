//! Finds a server that will do, and opens a session on it (driver specifications "Server Selection" and "MongoDB
//! Handshake").
//!
//! Only servers that the URL names are asked: the host of the sandbox grants no others. A member that is not the primary
//! says who is, so that an error can name it.

use rapidbyte_sdk::connection::Connection;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::client::Client;
use crate::compression::Compression;
use crate::error::number_of;
use crate::hello::{self, Hello};
use crate::settings::{Host, ReadPreference, Settings, Tls};
use crate::wire::{Deadline, Wire};

/// CommandNotFound: the server knows `hello` under its older name only.
const COMMAND_NOT_FOUND: i32 = 59;
/// MongoDB 3.6, the first with OP_MSG.
const LEAST_WIRE_VERSION: i32 = 6;
const NO_PRIMARY: &str = "no_primary";
/// The code of the host for a handshake that fails.
const TLS_HANDSHAKE: &str = "tls_handshake";
const MAYBE_NO_TLS: &str = "remove tls=true from the URL if the server does not speak TLS; else read its log, and check \
     what is between it and this machine";
const MAYBE_TLS: &str = "set tls=true in the URL if the server expects TLS; else read its log: it restarted, or it is not \
     MongoDB 3.6 or later";
const UNREACHABLE: &str = "check host, port and firewall, and that the server runs and listens \
     there (net.bindIp)";

/// Which members of a replica set will do, in one pass over the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Primary,
    Secondary,
    Any,
}

impl Client {
    /// Connects to the first of the hosts that will do. Counts as the phase `connect`.
    ///
    /// Errors, with what to check: `connect_failed` and `timeout` when no server answers; `no_primary` when none of them
    /// accepts writes; `replica_set_differs`; `server_too_old`; `mongo_18` and others of a login.
    pub fn connect(settings: &Settings) -> Result<Self> {
        let _phase = phase::enter(Kind::Connect);
        let mut failures = Vec::new();
        for wanted in passes(settings) {
            failures.clear();
            for host in &settings.hosts {
                match reach(host, settings, *wanted) {
                    Ok(client) => return Ok(client),
                    Err(error) if is_worth_another(&error) => failures.push((host, error)),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(summary(failures, settings))
    }
}

fn passes(settings: &Settings) -> &'static [Wanted] {
    if settings.is_direct {
        return &[Wanted::Any];
    }
    match settings.read_preference {
        ReadPreference::Primary => &[Wanted::Primary],
        ReadPreference::PrimaryPreferred => &[Wanted::Primary, Wanted::Any],
        ReadPreference::Secondary => &[Wanted::Secondary],
        ReadPreference::SecondaryPreferred => &[Wanted::Secondary, Wanted::Any],
        ReadPreference::Nearest => &[Wanted::Any],
    }
}

/// Another host is tried when this one cannot be reached or will not do, and not when it refuses us.
fn is_worth_another(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Connection | ErrorKind::Transient | ErrorKind::RateLimited(_)
    ) || [NO_PRIMARY, TLS_HANDSHAKE].contains(&error.code.as_str())
}

fn summary(mut failures: Vec<(&Host, Error)>, settings: &Settings) -> Error {
    if failures.len() == 1
        && let Some((_, error)) = failures.pop()
    {
        return error;
    }
    let has_no_primary = failures.iter().any(|(_, error)| error.code == NO_PRIMARY);
    let is_transient = |error: &Error| matches!(error.kind, ErrorKind::Transient);
    let (kind, code) = match failures.iter().any(|(_, error)| is_transient(error)) {
        _ if failures
            .iter()
            .all(|(_, error)| error.code == TLS_HANDSHAKE) =>
        {
            // A server that was silent would be silent again.
            let may_pass = |error: &Error| matches!(error.kind, ErrorKind::Connection);
            match failures.iter().any(|(_, error)| may_pass(error)) {
                true => (ErrorKind::Connection, TLS_HANDSHAKE),
                false => (ErrorKind::Auth, TLS_HANDSHAKE),
            }
        }
        // An election ends.
        true if has_no_primary => (ErrorKind::Transient, NO_PRIMARY),
        true => (ErrorKind::Transient, "connect_failed"),
        false => (ErrorKind::Connection, "connect_failed"),
    };
    let each: Vec<String> = failures
        .iter()
        .map(|(host, error)| {
            let host = host.to_string();
            let message = error.message.strip_prefix(&format!("{host}: "));
            format!("{host}: {}", message.unwrap_or(&error.message))
        })
        .collect();
    let text = format!("no server is usable: {}", each.join("; "));
    let hint = match code {
        TLS_HANDSHAKE => MAYBE_NO_TLS,
        _ => UNREACHABLE,
    };
    Error::new(kind, code, text)
        .hint(hint)
        .at(&settings.location)
}

fn reach(host: &Host, settings: &Settings, wanted: Wanted) -> Result<Client> {
    let deadline = Deadline::after(settings.connect_timeout);
    let opened = open(host, settings, deadline).and_then(|mut client| {
        check(&client, settings, wanted)?;
        if let Some(login) = &settings.login {
            client.set_reply_timeout(deadline.left());
            client.log_in(login)?;
        }
        Ok(client)
    });
    let mut client = opened.map_err(|error| explain(error, host, settings))?;
    client.wire.admitted();
    client.set_reply_timeout(settings.reply_timeout);
    Ok(client)
}

/// Connects, begins TLS and says hello.
fn open(host: &Host, settings: &Settings, deadline: Deadline) -> Result<Client> {
    let connection = Connection::connect(&host.name, host.port, deadline.left())?;
    if settings.tls != Tls::Off {
        let begun = connection.start_tls(&host.name, deadline.left());
        begun.map_err(|error| without_tls(error, settings))?;
    }
    let mut client = Client {
        wire: Wire::new(connection, &settings.compressors),
        host: host.clone(),
        hello: Hello::default(),
        read_preference: settings.read_preference,
        reply_timeout: deadline.left(),
        is_unusable: false,
        asked: None,
    };
    let said = client.quiet_command("admin", hello::command(settings, false)?);
    let said = said.map_err(|error| unanswered(error, settings));
    let reply = match said {
        Err(error) if number_of(&error) == Some(COMMAND_NOT_FOUND) => {
            client.set_reply_timeout(deadline.left());
            client.quiet_command("admin", hello::command(settings, true)?)?
        }
        said => said?,
    };
    client.hello = Hello::read(reply.document()?)?;
    // The order of the URL counts.
    let both = settings.compressors.iter().copied();
    let compressor = { both }.find(|one| client.hello.compressors.contains(one));
    client.wire.compression = compressor.map(|compressor| Compression {
        compressor,
        zlib_level: settings.zlib_level,
    });
    Ok(client)
}

/// The error of a handshake with a server that may not speak TLS: it waits for the rest of a message, ends the
/// connection, or sends something else.
fn without_tls(error: Error, settings: &Settings) -> Error {
    match error.code.as_str() {
        // A server that takes the handshake for the beginning of a message does so each time: no retry.
        "timeout" => {
            let ms = settings.connect_timeout.as_millis();
            let text = format!(
                "the server did not answer the TLS handshake within {ms} ms (connectTimeoutMS)"
            );
            Error::new(ErrorKind::Auth, TLS_HANDSHAKE, text).hint(MAYBE_NO_TLS)
        }
        // The server may restart, so the run retries. Other kinds are about certificates.
        TLS_HANDSHAKE | "connection_lost" if matches!(error.kind, ErrorKind::Connection) => {
            Error::new(error.kind, TLS_HANDSHAKE, error.message).hint(MAYBE_NO_TLS)
        }
        _ => error,
    }
}

/// The error of a greeting that is not answered: without TLS, the server may expect it.
fn unanswered(error: Error, settings: &Settings) -> Error {
    let unanswered = ["connection_lost", "timeout"];
    match settings.tls == Tls::Off && unanswered.contains(&error.code.as_str()) {
        true => error.hint(MAYBE_TLS),
        false => error,
    }
}

/// Whether this server will do.
fn check(client: &Client, settings: &Settings, wanted: Wanted) -> Result<()> {
    let (hello, host) = (client.hello(), client.host());
    if hello.max_wire_version < LEAST_WIRE_VERSION {
        let version = hello.max_wire_version;
        let text = format!("{host}: the server knows version {version} of the protocol at most");
        return Err(Error::config("server_too_old", text)
            .hint("use MongoDB 3.6 or later")
            .at(&settings.location));
    }
    if let Some(wanted) = &settings.replica_set
        && hello.set_name.as_ref() != Some(wanted)
    {
        let found = match &hello.set_name {
            Some(found) => format!("a member of the replica set {found}"),
            None => "not a member of a replica set".to_owned(),
        };
        let text = format!("{host}: the server is {found}, and replicaSet={wanted} is set");
        return Err(Error::config("replica_set_differs", text)
            .hint("correct replicaSet of the URL, or remove it")
            .at(&settings.location));
    }
    let is_wanted = match wanted {
        Wanted::Any => true,
        Wanted::Primary => hello.is_writable,
        // A mongos reads from where the read preference says.
        Wanted::Secondary => hello.is_secondary || hello.is_mongos,
    };
    if is_wanted {
        return Ok(());
    }
    if wanted == Wanted::Secondary {
        let text = format!("{host}: the server is not a secondary");
        return Err(Error::new(ErrorKind::Transient, "no_secondary", text)
            .hint("name a secondary in the URL, or set readPreference=secondaryPreferred")
            .at(&settings.location));
    }
    let text = format!("{host}: the server does not accept writes: it is not a primary");
    let error = match &hello.primary {
        Some(primary)
            if !settings
                .hosts
                .iter()
                .any(|host| hello::is_named(primary, host)) =>
        {
            let text = format!("{text}, but {primary} is");
            Error::config(NO_PRIMARY, text).hint(format!("name {primary} in the URL, too"))
        }
        _ => Error::new(ErrorKind::Transient, NO_PRIMARY, text)
            .hint("name all members of the replica set in the URL, and check rs.status()"),
    };
    Err(error.at(&settings.location))
}

/// Says where a failure was, and what to check.
fn explain(mut error: Error, host: &Host, settings: &Settings) -> Error {
    let host = host.to_string();
    if !error.message.starts_with(&host) {
        error.message = format!("{host}: {}", error.message);
    }
    if error.code == "timeout" {
        let ms = settings.connect_timeout.as_millis();
        error.message = format!("{host}: not connected within {ms} ms (connectTimeoutMS)");
    }
    let unreached = ["connect_failed", "connection_lost", "timeout"];
    if error.hint.is_none() && unreached.contains(&error.code.as_str()) {
        error = error.hint(UNREACHABLE);
    }
    if error.location.is_none() {
        error = error.at(&settings.location);
    }
    error
}
