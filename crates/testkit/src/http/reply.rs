//! The answers of a server.

use std::io::{Read, Write};

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    /// With its length.
    Whole(Vec<u8>),
    /// In pieces that say their length.
    Chunked(Vec<Vec<u8>>),
    /// Up to the end of the connection.
    UntilClosed(Vec<u8>),
    /// Announces this length, and has another.
    Lying(Vec<u8>, usize),
    /// Begins, then stalls until the client leaves.
    Stalled(Vec<u8>),
    /// The same bytes until the client leaves.
    Endless(Vec<u8>),
    /// These bytes and nothing else: no head either.
    Raw(Vec<u8>),
}

impl Reply {
    fn new(body: Body) -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            body,
        }
    }

    /// 200 with a JSON text.
    pub fn json(text: impl Into<String>) -> Self {
        let reply = Self::new(Body::Whole(text.into().into_bytes()));
        reply.header("content-type", "application/json")
    }

    /// A status with a text.
    pub fn status(status: u16, text: impl Into<String>) -> Self {
        Self {
            status,
            ..Self::new(Body::Whole(text.into().into_bytes()))
        }
    }

    /// 302 to another place.
    pub fn redirect(to: impl Into<String>) -> Self {
        Self::status(302, "").header("location", to)
    }

    /// 200 in pieces of chunked encoding.
    pub fn chunked<T: Into<Vec<u8>>>(pieces: impl IntoIterator<Item = T>) -> Self {
        Self::new(Body::Chunked(pieces.into_iter().map(Into::into).collect()))
    }

    /// 200 without a length.
    pub fn until_closed(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Body::UntilClosed(bytes.into()))
    }

    /// 200 with a wrong length.
    pub fn lying(bytes: impl Into<Vec<u8>>, length: usize) -> Self {
        Self::new(Body::Lying(bytes.into(), length))
    }

    /// 200 that begins, says that more comes, and sends nothing more.
    pub fn stalled(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Body::Stalled(bytes.into()))
    }

    /// 200 that never ends.
    pub fn endless(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Body::Endless(bytes.into()))
    }

    /// Bytes that need not be HTTP.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Body::Raw(bytes.into()))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends it; an endless one until the client has left.
    pub(super) fn send<C: Read + Write + ?Sized>(&self, client: &mut C) -> std::io::Result<()> {
        let length = match &self.body {
            Body::Raw(bytes) => {
                client.write_all(bytes)?;
                return client.flush();
            }
            Body::Whole(bytes) => Some(bytes.len()),
            Body::Lying(_, length) => Some(*length),
            Body::Stalled(bytes) => Some(bytes.len() + 1),
            Body::Chunked(_) | Body::UntilClosed(_) | Body::Endless(_) => None,
        };
        let mut head = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", self.status);
        if let Some(length) = length {
            head += &format!("content-length: {length}\r\n");
        }
        if matches!(self.body, Body::Chunked(_)) {
            head += "transfer-encoding: chunked\r\n";
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        client.write_all(format!("{head}\r\n").as_bytes())?;
        self.send_body(client)?;
        client.flush()
    }

    fn send_body<C: Read + Write + ?Sized>(&self, client: &mut C) -> std::io::Result<()> {
        match &self.body {
            Body::Raw(_) => Ok(()),
            Body::Whole(bytes) | Body::UntilClosed(bytes) | Body::Lying(bytes, _) => {
                client.write_all(bytes)
            }
            Body::Chunked(pieces) => {
                for piece in pieces {
                    client.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
                    client.write_all(piece)?;
                    client.write_all(b"\r\n")?;
                }
                client.write_all(b"0\r\n\r\n")
            }
            Body::Stalled(bytes) => {
                client.write_all(bytes)?;
                client.flush()?;
                // The client says nothing more: this ends when it leaves, or after a while.
                client.read(&mut [0]).map(|_| ())
            }
            Body::Endless(bytes) => loop {
                client.write_all(bytes)?;
            },
        }
    }
}
