//! The head of a request has one meaning: a proxy in front of the server, a browser and the server itself read the same host
//! in it. hyper has refused what is no HTTP (RFC 9112), such as bare CR, folded lines and wrong lengths, and ends the
//! connection behind a request with `Transfer-Encoding` and `Content-Length`.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version};

use crate::answer::Refusal;

/// Headers that have one value (RFC 9110). A proxy in front of the server may go by the first of two, or by the last.
static SINGLE: [HeaderName; 5] = [
    HOST,
    ORIGIN,
    CONTENT_TYPE,
    AUTHORIZATION,
    HeaderName::from_static("sec-fetch-site"),
];

/// Refuses a head that two readers may understand in two ways.
///
/// # Errors
/// `repeated_header`, `invalid_host`.
pub fn of_one_meaning(uri: &Uri, version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    of_single_values(headers)?;
    of_one_host(uri, version, headers)
}

fn of_single_values(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    let Some(name) = SINGLE.iter().find(is_repeated) else {
        return Ok(());
    };
    let text = format!("the request has the header {name} more than once");
    Err(Refusal::new(
        StatusCode::BAD_REQUEST,
        "repeated_header",
        text,
        "send the header once; a proxy must replace it, and not add another one",
    ))
}

/// RFC 9112, section 3.2: one host, which the request line and `Host` agree on.
fn of_one_host(uri: &Uri, version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |text: String| {
        let hint =
            "send one Host with a name or an address and a port, and a path in the request line";
        Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "invalid_host",
            text,
            hint,
        ))
    };
    // HTTP/1.0 does not have the header, and neither do the checks of some load balancers. The request line may name the
    // host (section 3.2.2).
    if version >= Version::HTTP_11 && !headers.contains_key(HOST) {
        return refuse("the request has no Host".into());
    }
    let Some(host) = host_of(uri, headers) else {
        return Ok(());
    };
    if name_of(host).is_none() {
        return refuse(format!(
            "the Host {host:?} is not one name or address with a port"
        ));
    }
    match uri.authority() {
        Some(other) if !other.as_str().eq_ignore_ascii_case(host) => refuse(format!(
            "the request line names {:?}, and the Host is {host:?}",
            other.as_str()
        )),
        _ => Ok(()),
    }
}

/// The host that a request names: in its header, or without one in its request line. `None` if it names none.
pub fn host_of<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    match headers.get(HOST) {
        Some(host) => Some(host.to_str().unwrap_or("")),
        None => uri.authority().map(Authority::as_str),
    }
}

/// The name or the address in a `Host`, without its port. `None` for anything else.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            let is_of_name = |byte: u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~')
            };
            if name.is_empty() || !name.bytes().all(is_of_name) {
                return None;
            }
            (name, port)
        }
    };
    let is_port = match port.strip_prefix(':') {
        // The grammar allows a port without digits.
        Some(digits) => {
            digits.is_empty()
                || digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok()
        }
        None => port.is_empty(),
    };
    is_port.then_some(name)
}

/// Refuses a web page whose name was made to point here: its requests have its name.
///
/// # Errors
/// `foreign_host`.
pub fn of_this_machine(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(host) = host_of(uri, headers) else {
        return Ok(());
    };
    let is_here = name_of(host).is_some_and(|name| {
        let is_loopback = name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        is_loopback || name.eq_ignore_ascii_case("localhost")
    });
    if is_here {
        return Ok(());
    }
    let text = format!("the Host {host:?} is not this machine");
    let hint = "use localhost or 127.0.0.1, or make a token: rapidbyte serve token add";
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        "foreign_host",
        text,
        hint,
    ))
}
