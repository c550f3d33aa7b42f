//! Finds a server that accepts the login, and opens a session on it.
//!
//! The order of hosts and the steps of `sslmode` are libpq's (PostgreSQL manual, "Database Connection
//! Control Functions" and "SSL Support"), but that a TLS handshake that fails is never a reason to go
//! on without TLS.

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use rapidbyte_sdk::connection::Connection;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::auth::{Refusal, Session, log_in};
use crate::client::Client;
use crate::config::{Host, Settings, SslMode, TargetSession};
use crate::error::{protocol, unsendable};
use crate::tls;
use crate::wire::{Deadline, Wire, server_error};

impl Client {
    /// Connects to the first of the hosts that will do. Counts as the phase `connect`.
    ///
    /// Errors, with what to check: `connect_failed` and `timeout` when no server answers; of the
    /// server `pg_28P01` and `pg_28000` (kind auth), `pg_3D000` (config), `pg_53300` and `pg_57P03`
    /// (transient); `tls_required`; `auth_unsupported`; `password_missing`; `no_such_session` when
    /// the only host is not of the wanted kind; `connect_failed` when none of several will do.
    pub fn connect(settings: &Settings) -> Result<Self> {
        let _phase = phase::enter(Kind::Connect);
        let mut failures = Vec::new();
        for wanted in passes(settings.target_session) {
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

/// The kind of session that each pass over the hosts asks for.
fn passes(target: TargetSession) -> &'static [TargetSession] {
    match target {
        TargetSession::Any => &[TargetSession::Any],
        TargetSession::ReadWrite => &[TargetSession::ReadWrite],
        TargetSession::ReadOnly => &[TargetSession::ReadOnly],
        TargetSession::Primary => &[TargetSession::Primary],
        TargetSession::Standby => &[TargetSession::Standby],
        TargetSession::PreferStandby => &[TargetSession::Standby, TargetSession::Any],
    }
}

/// As in libpq, another host is tried when this one cannot be reached or will not do, and not
/// when it refuses us.
fn is_worth_another(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Connection | ErrorKind::Transient | ErrorKind::RateLimited(_)
    ) || error.code == NO_SUCH_SESSION
}

fn summary(mut failures: Vec<(&Host, Error)>, settings: &Settings) -> Error {
    if failures.len() == 1
        && let Some((_, error)) = failures.pop()
    {
        return error;
    }
    let is_transient = |error: &Error| matches!(error.kind, ErrorKind::Transient);
    let kind = if failures.iter().any(|(_, error)| is_transient(error)) {
        ErrorKind::Transient
    } else {
        ErrorKind::Connection
    };
    let each: Vec<String> = failures
        .iter()
        .map(|(host, error)| {
            let host = host.to_string();
            let message = error.message.strip_prefix(&format!("{host}: "));
            format!("{host}: {}", message.unwrap_or(&error.message))
        })
        .collect();
    Error::new(
        kind,
        "connect_failed",
        format!("no server is usable: {}", each.join("; ")),
    )
    .hint(UNREACHABLE)
    .at(&settings.location)
}

const UNREACHABLE: &str = "check host, port and firewall, and that the server runs and listens \
     there (listen_addresses)";
const NO_SUCH_SESSION: &str = "no_such_session";

/// One host, with and without TLS as `sslmode` says.
fn reach(host: &Host, settings: &Settings, wanted: TargetSession) -> Result<Client> {
    let deadline = Deadline::after(settings.connect_timeout);
    let first = match settings.sslmode {
        SslMode::Allow => SslMode::Disable,
        mode => mode,
    };
    let opened = open(host, settings, first, deadline).or_else(|(refusal, was_tls)| {
        // A server may want the other way for us: its pg_hba.conf decides before it asks for proof.
        let second = match settings.sslmode {
            SslMode::Allow if tls::AVAILABLE && !was_tls => SslMode::Require,
            SslMode::Prefer if was_tls => SslMode::Disable,
            _ => return Err(refusal.error),
        };
        if refusal.was_asked || !refusal.error.code.starts_with("pg_28") {
            return Err(refusal.error);
        }
        // The first refusal is about the way that was wanted.
        open(host, settings, second, deadline).map_err(|_| refusal.error)
    });
    let mut client = opened.map_err(|error| explain(error, host, settings))?;
    if !client.is_wanted(wanted)? {
        client.close();
        let what = match wanted {
            TargetSession::ReadWrite => "read-only",
            TargetSession::ReadOnly => "not read-only",
            TargetSession::Primary => "a standby",
            _ => "not a standby",
        };
        return Err(
            Error::config(NO_SUCH_SESSION, format!("{host}: the server is {what}"))
                .hint("name all servers of the cluster, or change target_session_attrs")
                .at(&settings.location),
        );
    }
    Ok(client)
}

/// Connects, agrees on TLS and logs in; the flag says whether TLS was in use at a refusal.
fn open(
    host: &Host,
    settings: &Settings,
    mode: SslMode,
    deadline: Deadline,
) -> Result<Client, (Refusal, bool)> {
    let unasked = |error| Refusal {
        error,
        was_asked: false,
    };
    let (connection, session) =
        secure(host, settings, mode, deadline).map_err(|error| (unasked(error), false))?;
    let refused = |refusal| (refusal, session.is_tls);
    let mut wire = Wire::new(connection);
    greet(&mut wire, settings, deadline).map_err(|error| refused(unasked(error)))?;
    log_in(&mut wire, settings, &session, deadline).map_err(refused)?;
    wire.admitted();
    begin(wire, host, deadline).map_err(|error| refused(unasked(error)))
}

/// Connects and begins TLS where the mode and the server want it.
pub(crate) fn secure(
    host: &Host,
    settings: &Settings,
    mode: SslMode,
    deadline: Deadline,
) -> Result<(Connection, Session)> {
    let connection = Connection::connect(&host.name, host.port, deadline.left())?;
    let is_optional = mode <= SslMode::Prefer;
    if mode <= SslMode::Allow || (is_optional && !tls::AVAILABLE) {
        return Ok((connection, Session::default()));
    }
    let mut request = bytes::BytesMut::new();
    frontend::ssl_request(&mut request);
    connection.write(&request, deadline.left())?;
    // Not a byte more: what follows belongs to TLS.
    match connection.read(1, deadline.left())?.as_slice() {
        b"S" => {
            let end_point = tls::start(&connection, &host.name, deadline.left())?;
            let session = Session {
                is_tls: true,
                end_point,
            };
            Ok((connection, session))
        }
        b"N" if is_optional => Ok((connection, Session::default())),
        b"N" => Err(Error::config(
            "tls_required",
            format!("{host}: the server does not offer TLS, and sslmode requires it"),
        )
        .hint(
            "switch TLS on in the server (ssl = on), or set sslmode=prefer if others on the \
                 network may read the data",
        )
        .at(&settings.location)),
        b"" => Err(Error::new(
            ErrorKind::Connection,
            "connection_lost",
            format!("{host}: the server closed the connection after the request for TLS"),
        )
        .hint("check that a PostgreSQL server listens there; it may be starting or stopping")),
        _ => Err(protocol("neither yes nor no to the request for TLS")),
    }
}

/// Sends the start-up message. Only parameters that poolers know too: they refuse any other, and
/// what is set afterwards, outside a transaction, they pass on to whoever comes next.
fn greet(wire: &mut Wire, settings: &Settings, deadline: Deadline) -> Result<()> {
    let mut parameters = vec![
        ("user", settings.user.as_str()),
        ("database", settings.database.as_str()),
        ("application_name", settings.application_name.as_str()),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, YMD"),
        ("TimeZone", "UTC"),
    ];
    if let Some(options) = &settings.options {
        parameters.push(("options", options));
    }
    frontend::startup_message(parameters, &mut wire.output)
        .map_err(|error| unsendable(error).at(&settings.location))?;
    wire.send(deadline)
}

/// Reads the messages of the server after it has accepted the login.
fn begin(mut wire: Wire, host: &Host, deadline: Deadline) -> Result<Client> {
    let mut key = (0, 0);
    loop {
        match wire.next(deadline)? {
            Message::BackendKeyData(body) => key = (body.process_id(), body.secret_key()),
            Message::ReadyForQuery(body) => {
                let mut client = Client::new(wire, host.clone(), key.0, key.1);
                client.ready(body.status())?;
                return Ok(client);
            }
            Message::ErrorResponse(body) => return Err(server_error(&body)),
            _ => return Err(protocol("a message before the start of the session")),
        }
    }
}

/// Says where a failure was, and what to check.
fn explain(mut error: Error, host: &Host, settings: &Settings) -> Error {
    let host = host.to_string();
    if !error.message.starts_with(&host) {
        error.message = format!("{host}: {}", error.message);
    }
    if error.code == "timeout" {
        let seconds = settings.connect_timeout.as_secs();
        error.message = format!("{host}: not connected within {seconds} s (connect_timeout)");
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

impl Client {
    fn is_wanted(&mut self, wanted: TargetSession) -> Result<bool> {
        let (question, yes) = match wanted {
            TargetSession::Any | TargetSession::PreferStandby => return Ok(true),
            TargetSession::ReadWrite => ("SHOW transaction_read_only", "off"),
            TargetSession::ReadOnly => ("SHOW transaction_read_only", "on"),
            TargetSession::Primary => ("SELECT pg_catalog.pg_is_in_recovery()", "f"),
            TargetSession::Standby => ("SELECT pg_catalog.pg_is_in_recovery()", "t"),
        };
        let answers = self.simple_query(question)?;
        let answer = answers.first().map(crate::rows::Rows::single).transpose()?;
        Ok(answer == Some(yes))
    }
}
