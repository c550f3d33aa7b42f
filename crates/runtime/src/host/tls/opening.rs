//! The plaintext bytes of a connection before TLS begins.
//!
//! PostgreSQL's client asks for TLS in plaintext with eight bytes and gets one byte back (manual,
//! "Message Flow", "SSL Session Encryption"). If TLS is required, the host rejects everything else.
//! In every mode it reads the answer to the request alone: plaintext behind the answer stays in the
//! socket, where [`is_followed`] finds it.

use std::net::TcpStream;

/// The message `SSLRequest`.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The answer of a server that does no TLS.
const NO: u8 = b'N';

/// The bytes that were sent and received so far.
#[derive(Debug, Default)]
pub struct Opening {
    /// Bytes of `SSLRequest`, as long as nothing else was sent.
    asked: usize,
    /// Something else was sent.
    plain: bool,
    answer: Option<u8>,
}

/// Why the host rejects plaintext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// The server answered that it does not support TLS.
    ServerHasNone,
    /// The guest continues without TLS.
    GuestGoesOn,
}

impl Opening {
    /// Whether `data` may be sent.
    pub fn may_write(&self, data: &[u8], required: bool) -> Result<(), Blocked> {
        if required && !self.continues_request(data) {
            return Err(self.blocked());
        }
        Ok(())
    }

    /// Gets the bytes that were sent.
    pub fn wrote(&mut self, data: &[u8]) {
        if self.continues_request(data) {
            self.asked += data.len();
        } else {
            self.plain |= !data.is_empty();
        }
    }

    /// How many bytes of `max` may be read.
    pub fn may_read(&self, max: usize, required: bool) -> Result<usize, Blocked> {
        if required && self.answer.is_some() {
            return Err(self.blocked());
        }
        let awaits_answer = self.asked == SSL_REQUEST.len() && self.answer.is_none();
        let one = required || (awaits_answer && !self.plain);
        Ok(if one { 1 } else { max })
    }

    /// Gets the bytes that were read.
    pub fn read(&mut self, data: &[u8]) {
        self.answer = self.answer.or(data.first().copied());
    }

    fn continues_request(&self, data: &[u8]) -> bool {
        !self.plain && SSL_REQUEST[self.asked..].starts_with(data)
    }

    fn blocked(&self) -> Blocked {
        match self.answer {
            Some(NO) => Blocked::ServerHasNone,
            _ => Blocked::GuestGoesOn,
        }
    }
}

/// True when the socket already holds a byte, which a server that waits for TLS does not send.
pub fn is_followed(stream: &TcpStream) -> std::io::Result<bool> {
    match stream.peek(&mut [0]) {
        Ok(0) => Err(std::io::Error::other("the server closed the connection")),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_and_one_byte_pass_where_tls_is_required() {
        let mut opening = Opening::default();
        assert_eq!(opening.may_write(b"hello", true), Err(Blocked::GuestGoesOn));
        for part in [&SSL_REQUEST[..3], &SSL_REQUEST[3..]] {
            assert_eq!(opening.may_write(part, true), Ok(()));
            opening.wrote(part);
        }
        assert_eq!(opening.may_write(&[0], true), Err(Blocked::GuestGoesOn));
        assert_eq!(opening.may_read(4096, true), Ok(1));
        opening.read(b"N");
        assert_eq!(opening.may_read(1, true), Err(Blocked::ServerHasNone));
        assert_eq!(opening.may_write(&[0], true), Err(Blocked::ServerHasNone));
    }

    #[test]
    fn elsewhere_the_answer_alone_is_cut_to_one_byte() {
        let mut opening = Opening::default();
        assert_eq!(opening.may_read(4096, false), Ok(4096));
        opening.wrote(&SSL_REQUEST);
        assert_eq!(opening.may_read(4096, false), Ok(1));
        opening.read(b"N");
        assert_eq!(opening.may_write(b"hello", false), Ok(()));
        assert_eq!(opening.may_read(4096, false), Ok(4096));
        let mut other = Opening::default();
        other.wrote(b"hello");
        other.wrote(&SSL_REQUEST);
        assert_eq!(other.may_read(4096, false), Ok(4096));
    }
}
