//! One request over `wasi:http`.

use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingResponse,
    Method as WasiMethod, OutgoingBody, OutgoingRequest, RequestOptions, Scheme, http_error_code,
};
use wasip2::io::streams::{InputStream, StreamError};

use super::{Body, Method, Request, Response};
use crate::{Error, ErrorKind, Result};

/// Bytes that are written, and asked for, at a time.
const WRITE_BYTES: usize = 4 << 10;
const READ_BYTES: u64 = 256 << 10;

/// Asks and waits for the head of the answer.
pub fn exchange(request: &Request) -> Result<Response> {
    start(request)?.finish()
}

/// A request that was sent.
pub struct Pending {
    answer: FutureIncomingResponse,
    url: super::Url,
}

/// Sends a request.
pub fn start(request: &Request) -> Result<Pending> {
    let outgoing = outgoing(request)?;
    let options = RequestOptions::new();
    let timeout = u64::try_from(request.timeout.as_nanos()).unwrap_or(u64::MAX);
    let set = options
        .set_connect_timeout(Some(timeout))
        .and_then(|()| options.set_first_byte_timeout(Some(timeout)))
        .and_then(|()| options.set_between_bytes_timeout(Some(timeout)));
    set.map_err(|()| Error::internal("the host refused the time-outs"))?;
    let body = match request.body.is_empty() {
        true => None,
        false => Some(outgoing.body().map_err(|()| invalid("its body"))?),
    };
    let answer = handle(outgoing, Some(options)).map_err(|code| explain(&code))?;
    if let Some(body) = body {
        write(body, &request.body);
    }
    Ok(Pending {
        answer,
        url: request.url.clone(),
    })
}

impl Pending {
    /// Waits for the head of the answer.
    pub fn finish(self) -> Result<Response> {
        self.answer.subscribe().block();
        let response = match self.answer.get() {
            Some(Ok(Ok(response))) => response,
            Some(Ok(Err(code))) => return Err(explain(&code)),
            Some(Err(())) | None => return Err(Error::internal("the response was lost")),
        };
        let headers = response.headers().entries().into_iter();
        let headers =
            headers.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()));
        let body = response.consume().map_err(|()| invalid("its response"))?;
        let stream = body.stream().map_err(|()| invalid("its response"))?;
        Ok(Response {
            status: response.status(),
            headers: headers.collect(),
            url: self.url,
            body: Box::new(Received {
                stream,
                _body: body,
                _response: response,
            }),
        })
    }
}

fn outgoing(request: &Request) -> Result<OutgoingRequest> {
    let mut list: Vec<(String, Vec<u8>)> = request
        .headers
        .iter()
        .map(|header| (header.name.clone(), header.value.clone().into_bytes()))
        .collect();
    if request.method.has_body() {
        let length = request.body.len().to_string();
        list.push(("content-length".into(), length.into_bytes()));
    }
    // The value of a header may be a secret.
    let fields = Fields::from_list(&list).map_err(|_| {
        let text = "a header's name or value has forbidden characters";
        Error::config("http_invalid_header", text)
    })?;
    let outgoing = OutgoingRequest::new(fields);
    let method = match request.method {
        Method::Get => WasiMethod::Get,
        Method::Post => WasiMethod::Post,
        Method::Put => WasiMethod::Put,
        Method::Delete => WasiMethod::Delete,
    };
    let scheme = match request.url.is_https() {
        true => Scheme::Https,
        false => Scheme::Http,
    };
    outgoing
        .set_method(&method)
        .and_then(|()| outgoing.set_scheme(Some(&scheme)))
        .and_then(|()| outgoing.set_authority(Some(&request.url.authority())))
        .and_then(|()| outgoing.set_path_with_query(Some(&request.url.path_with_query())))
        .map_err(|()| invalid("its URL"))?;
    Ok(outgoing)
}

/// A server may answer before it has read everything, so bytes that could not be written are not
/// an error.
fn write(body: OutgoingBody, bytes: &[u8]) {
    let Ok(stream) = body.write() else { return };
    let written = bytes
        .chunks(WRITE_BYTES)
        .try_for_each(|piece| stream.blocking_write_and_flush(piece));
    drop(stream);
    if written.is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
}

/// Dropped in this order: each belongs to the next one.
struct Received {
    stream: InputStream,
    _body: IncomingBody,
    _response: IncomingResponse,
}

impl Body for Received {
    fn read(&mut self) -> Result<Vec<u8>> {
        loop {
            match self.stream.blocking_read(READ_BYTES) {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Ok(piece),
                Err(StreamError::Closed) => return Ok(Vec::new()),
                Err(StreamError::LastOperationFailed(error)) => {
                    return Err(match http_error_code(&error) {
                        Some(code) => explain(&code),
                        None => said(&error.to_debug_string()),
                    });
                }
            }
        }
    }
}

fn invalid(what: &str) -> Error {
    let text = format!("the host refused the request: {what}");
    Error::new(ErrorKind::Internal, "http_invalid_request", text)
}

fn lost(text: &str) -> Error {
    Error::new(ErrorKind::Connection, "connection_lost", text)
}

fn explain(code: &ErrorCode) -> Error {
    match code {
        ErrorCode::InternalError(Some(text)) => said(text),
        other => lost(&format!("{other:?}")),
    }
}

/// The host says `code: message`, and a hint on the next line; of a body that breaks off its
/// library says what it is about before.
fn said(text: &str) -> Error {
    let text = text.strip_prefix("internal error: ").unwrap_or(text);
    let (what, hint) = match text.split_once('\n') {
        Some((what, hint)) => (what, Some(hint)),
        None => (text, None),
    };
    let Some((code, message)) = what.split_once(": ") else {
        return lost(text);
    };
    let mut error = Error::new(kind_of(code), code, message);
    error.hint = hint.map(str::to_owned);
    error
}

fn kind_of(code: &str) -> ErrorKind {
    match code {
        "network_not_granted"
        | "address_not_granted"
        | "tls_bad_setting"
        | "tls_bad_file"
        | "tls_disabled"
        | "tls_required" => ErrorKind::Config,
        "tls_wrong_name" | "tls_no_san" | "tls_expired" | "tls_unknown_ca" | "tls_self_signed" => {
            ErrorKind::Auth
        }
        "timeout" => ErrorKind::Transient,
        "http_head_too_large" => ErrorKind::Data,
        "http_invalid_request" | "too_many_connections" => ErrorKind::Internal,
        _ => ErrorKind::Connection,
    }
}
