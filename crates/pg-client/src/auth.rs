//! Proves to a server who we are.
//!
//! PostgreSQL manual, "Authentication Methods" and "SASL Authentication". The exchange ends with
//! AuthenticationOk, which the caller reads on from.

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;
use rapidbyte_scram::{Binding, Scram, Sha256, Wrong, prepared};
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::config::{ChannelBinding, Settings};
use crate::error::{protocol, unsendable};
use crate::wire::{Deadline, Wire, server_error};

/// The most messages of a server during a login; it asks for proof once.
const MAX_ROUNDS: usize = 8;
/// Each iteration costs two hashes before anything is proven. A server has 4096 iterations unless its
/// administrator raised `scram_iterations`; this many take a second or two in the sandbox.
const MAX_ITERATIONS: u32 = 1_000_000;

/// The facts about the TLS session that a login needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    pub is_tls: bool,
    /// For channel binding; empty when there is none.
    pub end_point: Vec<u8>,
}

/// A refusal, and whether the server had asked for proof before it came.
pub(crate) struct Refusal {
    pub error: Error,
    pub was_asked: bool,
}

/// Answers the server until it accepts the login.
pub(crate) fn log_in(
    wire: &mut Wire,
    settings: &Settings,
    session: &Session,
    deadline: Deadline,
) -> Result<(), Refusal> {
    let mut was_asked = false;
    exchange(wire, settings, session, deadline, &mut was_asked)
        .map_err(|error| Refusal { error, was_asked })
}

fn exchange(
    wire: &mut Wire,
    settings: &Settings,
    session: &Session,
    deadline: Deadline,
    was_asked: &mut bool,
) -> Result<()> {
    let requires_binding = settings.channel_binding == ChannelBinding::Require;
    let (mut is_bound, mut is_proven) = (false, false);
    for _ in 0..MAX_ROUNDS {
        let message = wire.next(deadline)?;
        let unbound = || {
            Error::new(
                ErrorKind::Auth,
                "channel_binding_missing",
                "channel_binding=require is set, but the server asks for another method",
            )
            .hint("use SCRAM over TLS on the server, or channel_binding=prefer")
            .at(&settings.location)
        };
        match message {
            Message::AuthenticationOk if requires_binding && !is_bound => return Err(unbound()),
            Message::AuthenticationOk => return Ok(()),
            Message::ErrorResponse(body) => return Err(server_error(&body)),
            _ if is_proven => return Err(protocol("it continues after SCRAM was complete")),
            Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_)
                if requires_binding =>
            {
                return Err(unbound());
            }
            Message::AuthenticationCleartextPassword => {
                let password = password(settings)?.as_bytes();
                frontend::password_message(password, &mut wire.output).map_err(unsendable)?;
            }
            Message::AuthenticationMd5Password(body) => {
                let password = password(settings)?.as_bytes();
                let hash = md5_hash(settings.user.as_bytes(), password, body.salt());
                frontend::password_message(hash.as_bytes(), &mut wire.output)
                    .map_err(unsendable)?;
            }
            Message::AuthenticationSasl(body) => {
                *was_asked = true;
                is_bound = scram(wire, settings, session, &body, deadline)?;
                is_proven = true;
                continue;
            }
            Message::AuthenticationGss | Message::AuthenticationKerberosV5 => {
                return Err(unsupported("Kerberos (GSSAPI)"));
            }
            Message::AuthenticationSspi => return Err(unsupported("SSPI")),
            Message::AuthenticationScmCredential => return Err(unsupported("SCM credentials")),
            _ => return Err(protocol("no response to the start-up message")),
        }
        *was_asked = true;
        wire.send(deadline)?;
    }
    Err(protocol("it asks for two proofs"))
}

/// Runs SCRAM to the server's own proof; true when it was bound to the TLS session.
fn scram(
    wire: &mut Wire,
    settings: &Settings,
    session: &Session,
    body: &AuthenticationSaslBody,
    deadline: Deadline,
) -> Result<bool> {
    let offered: Vec<&str> = body.mechanisms().collect().map_err(protocol)?;
    let (mechanism, binding) = mechanism(&offered, settings.channel_binding, session)?;
    let password = password(settings)?;
    let scram = Scram::<Sha256>::new(binding, "").map_err(wrong)?;
    frontend::sasl_initial_response(mechanism, scram.message().as_bytes(), &mut wire.output)
        .map_err(unsendable)?;
    wire.send(deadline)?;
    let answer = match wire.next(deadline)? {
        Message::AuthenticationSaslContinue(body) => {
            let answer = scram.prove(&prepared(password), body.data(), 1..=MAX_ITERATIONS);
            answer.map_err(wrong)?
        }
        Message::ErrorResponse(body) => return Err(server_error(&body)),
        _ => return Err(protocol("no response to SCRAM's first message")),
    };
    frontend::sasl_response(answer.message.as_bytes(), &mut wire.output).map_err(unsendable)?;
    wire.send(deadline)?;
    match wire.next(deadline)? {
        Message::AuthenticationSaslFinal(body) => answer.verify(body.data()).map_err(wrong)?,
        Message::ErrorResponse(body) => return Err(server_error(&body)),
        _ => return Err(protocol("no response to SCRAM's last message")),
    }
    Ok(mechanism == SCRAM_SHA_256_PLUS)
}

fn mechanism(
    offered: &[&str],
    wanted: ChannelBinding,
    session: &Session,
) -> Result<(&'static str, Binding)> {
    let can_bind = session.is_tls && !session.end_point.is_empty();
    let offers = |mechanism| offered.contains(&mechanism);
    if can_bind && offers(SCRAM_SHA_256_PLUS) && wanted != ChannelBinding::Disable {
        let binding = Binding::EndPoint(session.end_point.clone());
        return Ok((SCRAM_SHA_256_PLUS, binding));
    }
    if wanted == ChannelBinding::Require {
        let why = if !session.is_tls {
            "the connection has no TLS"
        } else if can_bind {
            "the server does not offer it"
        } else {
            "the signature of the server's certificate does not allow it"
        };
        return Err(Error::new(
            ErrorKind::Auth,
            "channel_binding_missing",
            format!("channel_binding=require is set, but {why}"),
        )
        .hint(
            "use sslmode=verify-full with a server that supports binding, or \
             channel_binding=prefer",
        ));
    }
    if !offers(SCRAM_SHA_256) {
        return Err(unsupported(&format!("SASL by {}", offered.join(", "))));
    }
    // Says to the server whether we could have: so that nobody in between hides its offer.
    let binding = if can_bind && wanted != ChannelBinding::Disable {
        Binding::Unoffered
    } else {
        Binding::Unsupported
    };
    Ok((SCRAM_SHA_256, binding))
}

fn password(settings: &Settings) -> Result<&str> {
    settings.password.as_deref().ok_or_else(|| {
        Error::new(
            ErrorKind::Auth,
            "password_missing",
            format!("the server asks for the password of {}", settings.user),
        )
        .hint("add the password to the connection, as ${VARIABLE} rather than in plain text")
        .at(&settings.location)
    })
}

fn wrong(wrong: Wrong) -> Error {
    let auth = |code, text| Error::new(ErrorKind::Auth, code, text);
    match wrong {
        // It does not know the password either, or does not speak SCRAM.
        Wrong::Message(what) => auth(
            "server_not_proven",
            format!("the server breaks SCRAM: {what}"),
        )
        .hint(
            "check the host and use sslmode=verify-full: somebody may stand between client and \
                 server",
        ),
        Wrong::Iterations(count) => auth(
            "scram_iterations",
            format!(
                "the server asks for {count} iterations of SCRAM, and the limit is \
                     {MAX_ITERATIONS}"
            ),
        )
        .hint(
            "check the host and use sslmode=verify-full: somebody may stand between client and \
                 server; or lower the server's scram_iterations and set the password again",
        ),
        // As PostgreSQL itself says it, which sends an error of its own instead.
        Wrong::Refused(why) => auth(
            "pg_28P01",
            format!("the server refuses the proof of the password: {why}"),
        )
        .hint("check the user and the password"),
        Wrong::NoNonce(error) => Error::internal(format!("no random numbers: {error}")),
    }
}

fn unsupported(method: &str) -> Error {
    Error::new(
        ErrorKind::Auth,
        "auth_unsupported",
        format!("the server asks for {method}, which this client does not support"),
    )
    .hint("in the server's pg_hba.conf, give this user scram-sha-256, md5, password or trust")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(end_point: &[u8]) -> Session {
        Session {
            is_tls: true,
            end_point: end_point.into(),
        }
    }

    #[test]
    fn scram_is_bound_where_both_can() {
        let both = [SCRAM_SHA_256_PLUS, SCRAM_SHA_256];
        let chosen = |offered: &[&str], wanted, session: &Session| {
            mechanism(offered, wanted, session)
                .map(|(name, _)| name)
                .map_err(|error| error.code)
        };
        let (bind, plain) = (session(&[1]), Session::default());
        let prefer = ChannelBinding::Prefer;
        assert_eq!(chosen(&both, prefer, &bind), Ok(SCRAM_SHA_256_PLUS));
        assert_eq!(chosen(&both, prefer, &plain), Ok(SCRAM_SHA_256));
        assert_eq!(chosen(&both, prefer, &session(&[])), Ok(SCRAM_SHA_256));
        assert_eq!(
            chosen(&both, ChannelBinding::Disable, &bind),
            Ok(SCRAM_SHA_256)
        );
        for (offered, session) in [(&both[..], &plain), (&both[1..], &bind)] {
            let code = chosen(offered, ChannelBinding::Require, session).unwrap_err();
            assert_eq!(code, "channel_binding_missing");
        }
        let code = chosen(&["OAUTHBEARER"], prefer, &plain).unwrap_err();
        assert_eq!(code, "auth_unsupported");
    }
}
