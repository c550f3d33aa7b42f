//! The URLs of requests: http and https, by RFC 3986, without a user and a fragment.

use std::fmt;

use crate::{Error, Result};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    https: bool,
    /// In lower case; an IPv6 address in brackets.
    host: String,
    port: Option<u16>,
    /// Begins with a slash.
    path: String,
    /// Without the question mark.
    query: Option<String>,
}

/// A longer one is refused.
const MAX_BYTES: usize = 16 << 10;

impl Url {
    /// Reads an absolute URL. A fragment is left out; characters that a path or query may not have are
    /// percent-encoded.
    ///
    /// # Errors
    /// `http_invalid_url` (config); the text of the URL is not in it, because it may hold a secret.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(invalid(format!("it has more than {MAX_BYTES} bytes")));
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| invalid("it does not begin with https:// or http://"))?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(invalid("its scheme is neither https nor http")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (host, port) = host_and_port(authority)?;
        let (path, query) = path_and_query(rest);
        Ok(Self {
            https,
            host,
            port,
            path: without_dots(&path),
            query,
        })
    }

    /// Resolves `reference` as in a document of this URL: absolute, or relative to it.
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub fn join(&self, reference: &str) -> Result<Self> {
        let scheme = reference.split(['/', '?', '#']).next().unwrap_or_default();
        if scheme.contains(':') {
            return Self::parse(reference);
        }
        if let Some(rest) = reference.strip_prefix("//") {
            let scheme = if self.https { "https" } else { "http" };
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        if reference.len() > MAX_BYTES {
            return Err(invalid(format!("it has more than {MAX_BYTES} bytes")));
        }
        let (path, query) = path_and_query_of(reference);
        let mut joined = self.clone();
        if path.is_empty() {
            joined.query = query.or(joined.query);
            return Ok(joined);
        }
        joined.query = query;
        joined.path = if path.starts_with('/') {
            without_dots(&path)
        } else {
            let folder = self.path.rfind('/').map_or("/", |at| &self.path[..=at]);
            without_dots(&format!("{folder}{path}"))
        };
        Ok(joined)
    }

    /// The same with `path` after its own, with one slash between them.
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub fn under(&self, path: &str) -> Result<Self> {
        let mut base = self.clone();
        if !base.path.ends_with('/') && !path.is_empty() {
            base.path.push('/');
        }
        let (path, query) = path_and_query_of(path.trim_start_matches('/'));
        base.path = without_dots(&format!("{}{path}", base.path));
        if base.path.len() > MAX_BYTES {
            return Err(invalid(format!("it has more than {MAX_BYTES} bytes")));
        }
        base.query = query.or(base.query);
        Ok(base)
    }

    /// The same with these parameters. One of a name that is there already takes its place.
    ///
    /// # Errors
    /// `http_invalid_url` where it becomes too long.
    pub fn with_query<'a>(
        mut self,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        for (name, value) in parameters {
            let name = encode_component(name);
            let pair = format!("{name}={}", encode_component(value));
            let before = self.query.take().unwrap_or_default();
            let is_other = |p: &&str| !p.is_empty() && p.split('=').next() != Some(&name);
            let mut pairs: Vec<&str> = before.split('&').filter(is_other).collect();
            pairs.push(&pair);
            let query = pairs.join("&");
            if query.len() > MAX_BYTES {
                return Err(invalid(format!("it has more than {MAX_BYTES} bytes")));
            }
            self.query = Some(query);
        }
        Ok(self)
    }

    /// True for https.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// The host's name or address, without brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, the scheme's own if none was written.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.https { 443 } else { 80 })
    }

    /// True if both have one scheme, host and port.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.https, &self.host, self.port()) == (other.https, &other.host, other.port())
    }

    /// The path; it begins with a slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// For messages: a query may hold a secret.
    pub fn without_query(&self) -> String {
        let mut url = self.clone();
        url.query = None;
        url.to_string()
    }

    pub(super) fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    pub(super) fn path_with_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>)> {
    if authority.contains('@') {
        return Err(invalid("it contains a user and password").hint(
            "write credentials as settings of the connector beside the URL, such as auth: { type: basic, … } of \
             source-http",
        ));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = match port {
        None | Some("") => None,
        Some(port) => Some(
            port.parse::<u16>()
                .ok()
                .filter(|n| *n > 0 && port.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| invalid("its port is not a number from 1 to 65535"))?,
        ),
    };
    let name = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let is_host = match name {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    if host.is_empty() || !is_host {
        return Err(invalid("its host is neither a name nor an address")
            .hint("write a name with other letters in its ASCII form, xn--…"));
    }
    Ok((host.to_ascii_lowercase(), port))
}

fn path_and_query(rest: &str) -> (String, Option<String>) {
    let (path, query) = path_and_query_of(rest);
    match path.is_empty() {
        true => ("/".into(), query),
        false => (path, query),
    }
}

fn path_and_query_of(reference: &str) -> (String, Option<String>) {
    let reference = reference.split('#').next().unwrap_or_default();
    match reference.split_once('?') {
        Some((path, query)) => (allowed(path), Some(allowed(query))),
        None => (allowed(reference), None),
    }
}

/// Percent-encodes characters that are not allowed there. Encoded characters stay encoded.
fn allowed(text: &str) -> String {
    let may = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b);
    encode(text, may)
}

/// Percent-encodes everything but letters, digits and `-._~`, for a name or a value in a query, or
/// a part of a path.
pub fn encode_component(text: &str) -> String {
    encode(text, |b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
}

fn encode(text: &str, may: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if may(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// RFC 3986, 5.2.4: without `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut ends_in_folder = false;
    for part in path.split('/').skip(1) {
        ends_in_folder = matches!(part, "." | "..");
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let slash = if ends_in_folder && !parts.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{slash}", parts.join("/"))
}

fn invalid(why: impl fmt::Display) -> Error {
    Error::config(
        "http_invalid_url",
        format!("not a URL that can be requested: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap_or_else(|e| panic!("{text}: {}", e.message))
    }

    #[test]
    fn urls_are_read_and_written() {
        for (text, expected) in [
            ("https://A.example.com", "https://a.example.com/"),
            ("HTTP://a:80?x=1#y", "http://a:80/?x=1"),
            (
                "http://[::1]:8080/a%20b c/ü",
                "http://[::1]:8080/a%20b%20c/%C3%BC",
            ),
            ("http://a/b/../c/./d/..", "http://a/c/"),
            ("http://a/../../x", "http://a/x"),
            ("http://a:/x", "http://a/x"),
        ] {
            assert_eq!(url(text).to_string(), expected, "{text}");
        }
        let both = (
            url("http://[::1]").host().to_owned(),
            url("https://a").port(),
        );
        assert_eq!(both, ("::1".to_owned(), 443));
    }

    #[test]
    fn an_invalid_url_is_refused_and_not_repeated() {
        for text in [
            "",
            "a.example.com",
            "ftp://a/secret",
            "http://",
            "http://u:secret@a/",
            "http://a:0/secret",
            "http://a:+80/",
            "http://a:99999/",
            "http://a b/secret",
            "http://a\\@b/",
            "http://[::1/",
            "http://[x]/",
            "http://ü/",
            "http://a\r\nx:1/",
        ] {
            let error = Url::parse(text).expect_err(text);
            assert_eq!(error.code, "http_invalid_url", "{text}");
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
        assert!(Url::parse(&format!("http://a/{}", "x".repeat(20_000))).is_err());
    }

    #[test]
    fn references_are_resolved_as_by_rfc_3986() {
        let base = url("http://a/b/c/d?q");
        for (reference, expected) in [
            ("http://g/", "http://g/"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d?q"),
            ("#s", "http://a/b/c/d?q"),
            ("..", "http://a/b/"),
            ("../..", "http://a/"),
            ("../../../g", "http://a/g"),
            ("g?x=a/../b:c", "http://a/b/c/g?x=a/../b:c"),
        ] {
            let joined = base.join(reference).map(|url| url.to_string());
            assert_eq!(joined.unwrap(), expected, "{reference}");
        }
        assert!(base.join("mailto:x").is_err());
        assert_eq!(
            base.under("/x/y?z").unwrap().to_string(),
            "http://a/b/c/d/x/y?z"
        );
        assert_eq!(
            url("http://a/v1/").under("x").unwrap().to_string(),
            "http://a/v1/x"
        );
    }

    #[test]
    fn parameters_are_encoded_and_take_the_place_of_older_ones() {
        let with = |text: &str, pairs: &[(&str, &str)]| {
            url(text)
                .with_query(pairs.iter().copied())
                .unwrap()
                .to_string()
        };
        assert_eq!(
            with("http://a", &[("a b", "c&d=é")]),
            "http://a/?a%20b=c%26d%3D%C3%A9"
        );
        assert_eq!(
            with("http://a/?x=1&page=1&y=2", &[("page", "2")]),
            "http://a/?x=1&y=2&page=2"
        );
    }
}
