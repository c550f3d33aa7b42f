//! One request without the host: HTTP/1.1 in plaintext, so that a connector's unit tests can ask a server of
//! their own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Body, Request, Response};
use crate::{Error, ErrorKind, Result};

/// Bytes of an answer's head, as the host has them.
const MAX_HEAD_BYTES: u64 = 64 << 10;
const READ_BYTES: u64 = 64 << 10;

/// Asks and waits for the head of the answer.
pub fn exchange(request: &Request) -> Result<Response> {
    if request.url.is_https() {
        let text = "a connector that runs natively supports http:// only";
        return Err(Error::config("no_http", text)
            .hint("run the connector as a component: the host provides TLS"));
    }
    let head = head(request)?;
    let stream = connect(request)?;
    let sent = (&stream)
        .write_all(head.as_bytes())
        .and_then(|()| (&stream).write_all(&request.body));
    let mut reader = BufReader::new(stream);
    let (status, headers) = match read_head(&mut reader) {
        Ok(head) => head,
        // A server may answer before it has read everything.
        Err(error) => return Err(sent.map_or_else(|error| lost(&error), |()| error)),
    };
    let left = left(status, &headers)?;
    Ok(Response {
        status,
        headers,
        url: request.url.clone(),
        body: Box::new(Received { reader, left }),
    })
}

/// A request that is sent when its answer is asked for.
pub struct Pending(Request);

/// Keeps a request.
pub fn start(request: &Request) -> Result<Pending> {
    Ok(Pending(request.clone()))
}

impl Pending {
    /// Asks and waits for the head of the answer.
    pub fn finish(self) -> Result<Response> {
        exchange(&self.0)
    }
}

fn connect(request: &Request) -> Result<TcpStream> {
    let (host, port) = (request.url.host(), request.url.port());
    let failed = |error: std::io::Error| {
        let text = format!("cannot connect to {host}:{port}: {error}");
        Error::new(ErrorKind::Connection, "connect_failed", text)
    };
    let addresses = (host, port).to_socket_addrs().map_err(failed)?;
    let mut last = std::io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, request.timeout) {
            Ok(stream) => {
                // Zero means for ever, which nobody asks for.
                let timeout = Some(request.timeout.max(Duration::from_millis(1)));
                let set = stream.set_read_timeout(timeout);
                set.and_then(|()| stream.set_write_timeout(timeout))
                    .map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn head(request: &Request) -> Result<String> {
    let method = request.method.name();
    let (url, body) = (&request.url, &request.body);
    let mut head = format!("{method} {} HTTP/1.1\r\n", url.path_with_query());
    let mut add = |name: &str, value: &str| {
        // The value may be a secret.
        if name.is_empty() || (name.to_owned() + value).contains(['\r', '\n', '\0']) {
            let text = "a header's name or value has forbidden characters";
            return Err(Error::config("http_invalid_header", text));
        }
        head.push_str(&format!("{name}: {value}\r\n"));
        Ok(())
    };
    add("host", &url.authority())?;
    add("connection", "close")?;
    for header in &request.headers {
        add(&header.name, &header.value)?;
    }
    if request.method.has_body() {
        add("content-length", &body.len().to_string())?;
    }
    head.push_str("\r\n");
    Ok(head)
}

type Head = (u16, Vec<(String, String)>);

fn read_head(reader: &mut impl BufRead) -> Result<Head> {
    loop {
        let mut head = reader.by_ref().take(MAX_HEAD_BYTES);
        let first = line(&mut head)?;
        let status = first
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok())
            .ok_or_else(|| broken(&format!("{first:?} is not a line of HTTP/1.1")))?;
        let mut headers = Vec::new();
        loop {
            let text = line(&mut head)?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text
                .split_once(':')
                .ok_or_else(|| broken(&format!("{text:?} is not a header")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        // The statuses below say that the answer is still to come.
        if status >= 200 {
            return Ok((status, headers));
        }
    }
}

fn line(reader: &mut impl BufRead) -> Result<String> {
    let mut bytes = Vec::new();
    reader
        .read_until(b'\n', &mut bytes)
        .map_err(|error| lost(&error))?;
    if bytes.pop() != Some(b'\n') {
        return Err(ends_early());
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\r').to_owned())
}

/// The rest of a body.
enum Left {
    Bytes(u64),
    /// Of the chunk.
    Chunk(u64),
    UntilClosed,
}

fn left(status: u16, headers: &[(String, String)]) -> Result<Left> {
    let value = |name: &str| {
        let mut named = headers.iter().filter(|(key, _)| key == name);
        named.next().map(|(_, value)| value.as_str())
    };
    if matches!(status, 204 | 304) {
        return Ok(Left::Bytes(0));
    }
    if value("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Ok(Left::Chunk(0));
    }
    match value("content-length") {
        None => Ok(Left::UntilClosed),
        Some(text) => match text.parse() {
            Ok(bytes) => Ok(Left::Bytes(bytes)),
            Err(_) => Err(broken(&format!("content-length: {text}"))),
        },
    }
}

struct Received {
    reader: BufReader<TcpStream>,
    left: Left,
}

impl Body for Received {
    fn read(&mut self) -> Result<Vec<u8>> {
        if let Left::Chunk(0) = self.left {
            let size = line(&mut self.reader.by_ref().take(MAX_HEAD_BYTES))?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16)
                .map_err(|_| broken(&format!("{size:?} is not the size of a chunk")))?;
            self.left = match size {
                0 => Left::Bytes(0),
                size => Left::Chunk(size),
            };
        }
        let most = match self.left {
            Left::Bytes(left) | Left::Chunk(left) => left.min(READ_BYTES),
            Left::UntilClosed => READ_BYTES,
        };
        // A server that keeps the connection sends nothing more.
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut piece = vec![0; usize::try_from(most).map_err(Error::internal)?];
        let length = self.reader.read(&mut piece).map_err(|error| lost(&error))?;
        piece.truncate(length);
        if length == 0 && !matches!(self.left, Left::UntilClosed) {
            return Err(ends_early());
        }
        match &mut self.left {
            Left::Bytes(left) => *left -= length as u64,
            Left::Chunk(left) => {
                *left -= length as u64;
                if *left == 0 {
                    // The line break behind the chunk.
                    line(&mut self.reader.by_ref().take(2))?;
                }
            }
            Left::UntilClosed => {}
        }
        Ok(piece)
    }
}

fn ends_early() -> Error {
    let text = "the connection ended before the response was complete";
    Error::new(ErrorKind::Connection, "connection_lost", text)
}

fn broken(text: &str) -> Error {
    Error::new(ErrorKind::Connection, "http_protocol", text)
}

fn lost(error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => {
            Error::new(ErrorKind::Transient, "timeout", "no data arrived in time")
        }
        _ => Error::new(ErrorKind::Connection, "connection_lost", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::http::{Retry, Url};

    /// A server that gives these answers, one to each connection; then it is gone.
    fn server(answers: &'static [&'static str]) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(&stream);
                let mut length = 0;
                loop {
                    let line = line(&mut reader).unwrap();
                    if let Some(bytes) = line.strip_prefix("content-length: ") {
                        length = bytes.parse().unwrap();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                reader.read_exact(&mut vec![0; length]).unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
        });
        Url::parse(&format!("http://127.0.0.1:{port}/x?a=1")).unwrap()
    }

    fn body(request: &Request) -> Result<String> {
        let body = request.send()?.expect_success()?.body(100)?;
        Ok(String::from_utf8(body).unwrap())
    }

    #[test]
    fn a_unit_test_sees_answers_and_retries_as_the_host_gives_them() {
        let url = server(&[
            "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 4\r\n\r\nbusy",
            "HTTP/1.1 200 OK\r\nX-Page: 1\r\ncontent-length: 2\r\n\r\nab",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nuntil the end",
        ]);
        let response = Request::get(url.clone()).send().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.header("x-page").as_deref(), Some("1"));
        assert_eq!(response.body(10).unwrap(), b"ab");
        assert_eq!(body(&Request::post(url.clone(), "body")).unwrap(), "abc");
        assert_eq!(body(&Request::get(url)).unwrap(), "until the end");
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        let url = server(&[
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
            "HTTP/1.1 200 OK\r\ncontent",
            "220 mail.example ESMTP ready\r\n",
        ]);
        let code = || {
            body(&Request::get(url.clone()).retry(Retry::NEVER))
                .unwrap_err()
                .code
        };
        let codes = [(); 4].map(|()| code());
        assert_eq!(
            codes,
            [
                "connection_lost",
                "connection_lost",
                "connection_lost",
                "http_protocol"
            ]
        );
        let secure = Request::get(Url::parse("https://127.0.0.1:1/").unwrap());
        assert_eq!(secure.send().unwrap_err().code, "no_http");
    }
}
