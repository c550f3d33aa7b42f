//! Reads a connection URL into keywords.
//!
//! The host of the sandbox cuts the URL in the same way when it derives the grant: the query
//! begins at the first `?`, the hosts end at the first `/` after the scheme and begin after the
//! last `@` before that. No message repeats the URL, because it may hold a password.

use percent_encoding::percent_decode_str;
use rapidbyte_sdk::{Error, Result};

use super::keywords::{KNOWN, Keywords, URL, bad_at, nearest};

const ENCODE: &str = "in a user, a password or a database, write / as %2F, ? as %3F, # as %23, @ \
     as %40, : as %3A, % as %25";

pub(super) fn read(url: &str, keywords: &mut Keywords) -> Result<()> {
    let rest = ["postgres://", "postgresql://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme))
        .ok_or_else(|| {
            bad("not a URL that begins with postgres:// or postgresql://")
                .hint("write postgres://user:password@host:port/database")
        })?;
    if rest.contains('#') {
        return Err(bad("a # that is not encoded").hint(ENCODE));
    }
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = before.split_once('/').unwrap_or((before, ""));
    if database.contains('@') {
        return Err(bad("an @ after a /").hint(ENCODE));
    }
    if let Some((login, _)) = authority.rsplit_once('@') {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        set(keywords, "user", decoded(user, "the user")?)?;
        set(keywords, "password", decoded(password, "the password")?)?;
    }
    let addresses = authority
        .rsplit_once('@')
        .map_or(authority, |(_, addresses)| addresses);
    read_addresses(addresses, keywords)?;
    set(keywords, "database", decoded(database, "the database")?)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        read_parameter(pair, keywords)?;
    }
    Ok(())
}

/// `a:1,b,[::1]:3`.
fn read_addresses(addresses: &str, keywords: &mut Keywords) -> Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for address in addresses.split(',') {
        let (name, port) = match address.strip_prefix('[') {
            Some(rest) => rest
                .split_once(']')
                .and_then(|(name, port)| match port {
                    "" => Some((name, "")),
                    port => Some((name, port.strip_prefix(':')?)),
                })
                .ok_or_else(|| bad("an IPv6 address without its closing bracket"))?,
            None => address.split_once(':').unwrap_or((address, "")),
        };
        if port.contains(':') {
            return Err(bad("an IPv6 address without brackets").hint("write [::1]:5432"));
        }
        names.push(decoded(name, "a host")?);
        ports.push(port);
    }
    set(keywords, "host", names.join(","))?;
    if ports.iter().any(|port| !port.is_empty()) {
        set(keywords, "port", ports.join(","))?;
    }
    Ok(())
}

fn read_parameter(pair: &str, keywords: &mut Keywords) -> Result<()> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(bad("a parameter without `=`").hint(
            "write name=value, with & between \
             parameters",
        ));
    };
    let name = decoded(name, "the name of a parameter")?;
    let value = decoded(value, &format!("the parameter `{name}`"))?;
    let (name, value) = match (name.as_str(), value.as_str()) {
        ("dbname", _) => ("database", value),
        // JDBC's spelling, which libpq takes too.
        ("ssl", "true") => ("sslmode", "require".into()),
        _ => (name.as_str(), value),
    };
    match KNOWN.iter().find(|known| **known == name) {
        // The host grants what stands before the path, and nothing else.
        Some(&("host" | "port")) => Err(bad(format!("`{name}` as a parameter")).hint(
            "write the servers before the database: postgres://user@host1:5432,host2/database",
        )),
        Some(known) => set(keywords, known, value),
        None => {
            let hint = match nearest(name, &KNOWN) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("known are {}", KNOWN.join(", ")),
            };
            Err(bad(format!("unknown parameter `{name}`")).hint(hint))
        }
    }
}

fn set(keywords: &mut Keywords, keyword: &'static str, value: String) -> Result<()> {
    keywords.set(keyword, value, URL.into())
}

/// Percent-decodes; `what` names the part for an error.
fn decoded(text: &str, what: &str) -> Result<String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let is_code = after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit());
        if !is_code {
            return Err(bad(format!("a % without two hexadecimal digits in {what}")).hint(ENCODE));
        }
        rest = after;
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| bad(format!("{what} is not UTF-8")))?;
    Ok(decoded.into_owned())
}

fn bad(what: impl std::fmt::Display) -> Error {
    bad_at(URL, what)
}
