//! TLS on a connection of a guest: rustls over the non-blocking socket.
//!
//! The policy is the operator's ([`crate::grants::tls`]); the guest says when TLS begins and sees
//! the plaintext. Nothing here waits: a blocked call returns the events to poll the socket for.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::bindings::types::{Error, ErrorKind};
use crate::grants::Grants;
use crate::grants::tls::Policy;

mod certificate;
pub mod explain;
pub mod opening;
mod pem;
#[cfg(test)]
mod tests;
mod verify;

/// How far a piece of work on a non-blocking socket came.
pub enum Step<T> {
    /// To its end.
    Done(T),
    /// It continues when the socket is ready for this.
    Wait(PollFlags),
}

/// Why a connection is not usable any more.
#[derive(Debug)]
pub enum Broken {
    /// By the system.
    Io(std::io::Error),
    /// By TLS.
    Tls(rustls::Error),
    /// The other side closed while the session was being agreed on.
    ClosedInHandshake,
}

/// A TLS session. Its buffers are rustls's: 16 KiB of plaintext and one record (or 64 KiB of
/// handshake) on the way in, [`MAX_UNSENT`] on the way out.
pub struct Session {
    tls: ClientConnection,
    /// The socket has ended, with or without a `close_notify`.
    ended: bool,
    /// Met after bytes that are handed out first.
    failed: Option<Broken>,
}

/// Records that are taken in before the caller checks its deadline again.
const MAX_ROUNDS: usize = 256;
/// Plaintext that is taken from a guest before the socket takes its ciphertext.
const MAX_UNSENT: usize = 64 << 10;

fn internal(error: rustls::Error) -> Error {
    Error::new(ErrorKind::Internal, "tls_handshake", error)
}

/// The rustls configuration for a session of this policy. Error: `tls_bad_file`.
pub fn client_config(policy: &Policy, grants: &Grants) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verify::Verifier {
        trust: pem::trust(policy, grants)?,
        checks_name: policy.checks_name(),
        algorithms: provider.signature_verification_algorithms,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(internal)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &policy.identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = pem::identity(identity, policy.names, grants)?;
            let setting = policy.names.key();
            config.with_client_auth_cert(chain, key).map_err(|error| {
                let (what, hint) = match error {
                    rustls::Error::InconsistentKeys(_) => (
                        format!("and {} do not fit together", identity.cert.text),
                        format!("set {setting} to the key of the certificate"),
                    ),
                    _ => (
                        "contains a key of an unsupported kind".to_owned(),
                        "use an RSA key of 2048 to 8192 bits, ECDSA P-256 or P-384, or Ed25519"
                            .to_owned(),
                    ),
                };
                pem::bad_file(setting, &identity.key, &what).hint(hint)
            })?
        }
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

impl Session {
    /// A session that has not sent anything yet. Errors: `tls_bad_file`, `tls_handshake` for a
    /// host that cannot be a name of a certificate.
    pub fn new(host: &str, policy: &Policy, grants: &Grants) -> Result<Self, Error> {
        let config = client_config(policy, grants)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let text = format!("`{host}` is not a name that a certificate can have");
            Error::new(ErrorKind::Config, "tls_handshake", text)
        })?;
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(internal)?;
        tls.set_buffer_limit(Some(MAX_UNSENT));
        Ok(Self {
            tls,
            ended: false,
            failed: None,
        })
    }

    /// Continues the handshake.
    pub fn handshake(&mut self, stream: &TcpStream) -> Result<Step<()>, Broken> {
        for _ in 0..MAX_ROUNDS {
            let sent = self.send(stream)?;
            if !self.tls.is_handshaking() {
                let rest = Step::Wait(PollFlags::OUT);
                return Ok(if sent { Step::Done(()) } else { rest });
            }
            if self.ended {
                return Err(Broken::ClosedInHandshake);
            }
            if !self.receive(stream)? {
                return Ok(Step::Wait(self.awaited()));
            }
        }
        Ok(Step::Wait(self.awaited()))
    }

    /// The channel binding of the agreed session; may be empty.
    pub fn end_point(&self) -> Vec<u8> {
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        certificates
            .first()
            .map_or_else(Vec::new, |first| certificate::end_point(first))
    }

    /// Fills the buffer as far as bytes are there; zero is the end that the other side declared.
    pub fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> Result<Step<usize>, Broken> {
        let mut filled = 0;
        for _ in 0..MAX_ROUNDS {
            match self.tls.reader().read(&mut buffer[filled..]) {
                Ok(0) => return Ok(Step::Done(filled)),
                Ok(len) => {
                    filled += len;
                    continue;
                }
                Err(error) if error.kind() == Io::WouldBlock => {}
                Err(_) if filled > 0 => return Ok(Step::Done(filled)),
                Err(error) => return Err(Broken::Io(error)),
            }
            if filled == 0
                && let Some(broken) = self.failed.take()
            {
                return Err(broken);
            }
            match self.receive(stream) {
                Ok(true) => {}
                Ok(false) if filled == 0 => return Ok(Step::Wait(self.awaited())),
                Ok(false) => return Ok(Step::Done(filled)),
                Err(broken) if filled == 0 => return Err(broken),
                Err(broken) => {
                    self.failed = Some(broken);
                    return Ok(Step::Done(filled));
                }
            }
        }
        Ok(match filled {
            0 => Step::Wait(self.awaited()),
            _ => Step::Done(filled),
        })
    }

    /// True when a read would give bytes, the end or an error without waiting.
    pub fn is_readable(&mut self, stream: &TcpStream) -> bool {
        for _ in 0..MAX_ROUNDS {
            let ready = match self.tls.process_new_packets() {
                Ok(state) => state.plaintext_bytes_to_read() > 0 || state.peer_has_closed(),
                Err(_) => true,
            };
            if ready || self.ended || self.failed.is_some() {
                return true;
            }
            match self.receive(stream) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(broken) => self.failed = Some(broken),
            }
        }
        false
    }

    /// Sends bytes from the beginning of `rest`, which becomes what is left; done when nothing
    /// is, and all of it has gone to the socket.
    pub fn write(&mut self, stream: &TcpStream, rest: &mut &[u8]) -> Result<Step<()>, Broken> {
        loop {
            let taken = self.tls.writer().write(rest).map_err(Broken::Io)?;
            *rest = &rest[taken..];
            let sent = self
                .send(stream)
                .map_err(|lost| self.last_word(stream, lost))?;
            if !sent {
                return Ok(Step::Wait(PollFlags::OUT));
            }
            if rest.is_empty() {
                return Ok(Step::Done(()));
            }
        }
    }

    /// Why the other side closed the connection, if it said so before.
    fn last_word(&mut self, stream: &TcpStream, lost: Broken) -> Broken {
        match self.receive(stream) {
            Err(said @ Broken::Tls(_)) => said,
            _ => lost,
        }
    }

    /// Says that nothing more comes, as far as the socket takes it.
    pub fn end(&mut self, stream: &TcpStream) {
        self.tls.send_close_notify();
        // The connection ends in any case.
        let _ = self.send(stream);
    }

    /// The events to poll the socket for before the next byte can come.
    fn awaited(&self) -> PollFlags {
        if self.tls.wants_write() {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        }
    }

    /// True when everything has gone to the socket.
    fn send(&mut self, mut stream: &TcpStream) -> Result<bool, Broken> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut stream) {
                Ok(0) => return Err(Broken::Io(Io::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == Io::Interrupted => {}
                Err(error) if error.kind() == Io::WouldBlock => return Ok(false),
                Err(error) => return Err(Broken::Io(error)),
            }
        }
        Ok(true)
    }

    /// Takes in what the socket has, and answers what TLS itself has to answer. False when the
    /// socket has nothing now.
    fn receive(&mut self, mut stream: &TcpStream) -> Result<bool, Broken> {
        match self.tls.read_tls(&mut stream) {
            Ok(len) => self.ended = len == 0,
            Err(error) if error.kind() == Io::Interrupted => return Ok(true),
            Err(error) if error.kind() == Io::WouldBlock => return Ok(false),
            Err(error) => return Err(Broken::Io(error)),
        }
        let processed = self.tls.process_new_packets();
        // This sends an answer or an alert; the next read reports an error of the socket.
        let _ = self.send(stream);
        processed.map(|_| true).map_err(Broken::Tls)
    }
}
