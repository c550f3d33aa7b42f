//! Which page comes next, and that the pages end.

use std::collections::HashSet;

use rapidbyte_sdk::http::Url;
use rapidbyte_sdk::prelude::*;
use serde_json::value::RawValue;

use crate::client::{Answer, Param};
use crate::json::{Path, entries, items, scalar};
use crate::settings::{Pages, Settled};

/// Pages of one read; each is remembered by eight bytes.
const MAX_PAGES: usize = 1_000_000;
/// Characters of an answer that a message shows.
const SHOWN_CHARS: usize = 80;
/// Keys of an answer that a message shows.
const SHOWN_KEYS: usize = 20;

/// Where a page is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first one, of those that have no number.
    First,
    /// By a number: of the page, or of the records before it.
    Number(u64),
    /// By what the page before says.
    Cursor(String),
    /// By its URL.
    Url(Url),
}

/// Goes from page to page, each of them once.
pub(crate) struct Pager {
    pages: Pages,
    /// Hashes of places that were named.
    seen: HashSet<u64>,
    /// The hash of the page before, if it had records.
    last: Option<u64>,
}

impl Pager {
    pub fn new(pages: &Pages) -> Self {
        Self {
            pages: pages.clone(),
            seen: HashSet::new(),
            last: None,
        }
    }

    /// The first page.
    pub fn first(&self) -> Place {
        match &self.pages {
            Pages::Numbered { start, .. } => Place::Number(*start),
            _ => Place::First,
        }
    }

    /// The parameters that a request for this page adds.
    pub fn params(&self, place: &Place) -> Vec<Param> {
        let number = |name: &str, value: u64| Param {
            name: name.into(),
            text: value.to_string(),
            is_number: true,
        };
        match (&self.pages, place) {
            (Pages::Numbered { param, size, .. }, Place::Number(at)) => {
                let mut params = vec![number(param, *at)];
                params.extend(size.as_ref().map(|(name, size)| number(name, *size)));
                params
            }
            (Pages::Cursor { param, .. }, Place::Cursor(text)) => vec![Param {
                name: param.clone(),
                text: text.clone(),
                is_number: false,
            }],
            _ => Vec::new(),
        }
    }

    /// The page behind this one, which has these records; none behind the last one.
    ///
    /// # Errors
    /// `http_repeated_page`, `http_too_many_pages`, `http_bad_page` (data).
    pub fn after(
        &mut self,
        place: &Place,
        answer: &Answer,
        document: &RawValue,
        records: &[&RawValue],
    ) -> Result<Option<Place>> {
        let count = records.len() as u64;
        let next = match &self.pages {
            Pages::One => None,
            Pages::Numbered {
                by_records, more, ..
            } => {
                let Place::Number(at) = place else {
                    return Err(Error::internal("a page without a number"));
                };
                let step = if *by_records { count } else { 1 };
                let next = at.checked_add(step).filter(|_| count > 0);
                match has_more(more.as_ref(), document)? {
                    Some(false) => None,
                    _ => next.map(Place::Number),
                }
            }
            Pages::Cursor { next, more, .. } => {
                let found = text_at(next, document)?.filter(|text| !text.is_empty());
                match has_more(more.as_ref(), document)? {
                    Some(false) => None,
                    _ => found.map(Place::Cursor),
                }
            }
            Pages::LinkHeader => {
                let link = answer.link.as_deref().and_then(next_link);
                link.map(|link| url(&answer.url, &link)).transpose()?
            }
            Pages::NextUrl(path) => {
                let found = text_at(path, document)?.filter(|text| !text.is_empty());
                found.map(|text| url(&answer.url, &text)).transpose()?
            }
        };
        self.check_new(next.as_ref(), records)?;
        Ok(next)
    }

    /// A page that was read already would be read for ever.
    fn check_new(&mut self, next: Option<&Place>, records: &[&RawValue]) -> Result<()> {
        let repeated = |what: &str| {
            let text = format!("the server gives {what} again: its pages would never end");
            Err(Error::data("http_repeated_page", text)
                .hint("check `pagination`: its type, and the names of its parameters"))
        };
        let is_new = match next {
            None => true,
            Some(Place::Cursor(text)) => self.seen.insert(hash(text.as_bytes())),
            Some(Place::Url(url)) => self.seen.insert(hash(url.to_string().as_bytes())),
            // Numbers are always new: a server that does not know the parameter gives one page.
            Some(Place::Number(at)) => {
                let here = (!records.is_empty()).then(|| hash_all(records));
                if here.is_some() && here == self.last {
                    return repeated("the same page");
                }
                self.last = here;
                self.seen.insert(*at)
            }
            Some(Place::First) => false,
        };
        if !is_new {
            return repeated("an earlier page");
        }
        if self.seen.len() > MAX_PAGES {
            let text = format!("the stream has more than {MAX_PAGES} pages");
            return Err(Error::data("http_too_many_pages", text).hint("ask for larger pages"));
        }
        Ok(())
    }
}

/// The records of an answer, as they are written.
///
/// # Errors
/// `http_not_json` (data), `http_no_records` (schema).
pub(crate) fn records<'a>(stream: &Settled, document: &'a RawValue) -> Result<Vec<&'a RawValue>> {
    let broken = |error: serde_json::Error| Error::data("http_not_json", error);
    let is = |value: &RawValue, byte| value.get().as_bytes().first() == Some(&byte);
    let Some(path) = &stream.records else {
        if is(document, b'[') {
            return items(document).map_err(broken);
        }
        let error = Error::schema("http_no_records", "the answer is not an array of records");
        if !is(document, b'{') {
            return Err(error);
        }
        let entries = entries(document).map_err(broken)?;
        let keys: Vec<&str> = entries
            .iter()
            .map(|(key, _)| &**key)
            .take(SHOWN_KEYS)
            .collect();
        return Err(error.hint(format!(
            "the answer is an object with the keys {}: set `records` to the key of the array",
            keys.join(", ")
        )));
    };
    match path.find(document).map_err(broken)? {
        Some(found) if is(found, b'[') => items(found).map_err(broken),
        Some(found) if is(found, b'{') => match wrapped(stream, path, found).map_err(broken)? {
            None => Ok(vec![found]),
            Some(arrays) => Err(is_wrapper(path, &arrays)),
        },
        Some(found) if is(found, b'n') => Ok(Vec::new()),
        found => {
            let what = match found {
                None => "nothing",
                Some(_) => "neither an array nor an object",
            };
            let text = format!("the answer has {what} at records: {path}");
            Err(Error::schema("http_no_records", text).hint("check the setting `records`"))
        }
    }
}

/// Paths to the arrays of objects that an object holds, if it is none of the stream's records: these
/// have a column that the configuration names. Between pages an array without items counts, too.
fn wrapped(
    stream: &Settled,
    path: &Path,
    object: &RawValue,
) -> serde_json::Result<Option<Vec<String>>> {
    let entries = entries(object)?;
    if entries.iter().any(|(key, _)| stream.names_column(key)) {
        return Ok(None);
    }
    let is_paged = !matches!(stream.pages, Pages::One);
    let mut arrays = Vec::new();
    for (key, value) in &entries {
        if value.get().starts_with('[') {
            let first = items(value)?
                .first()
                .map(|item| item.get().starts_with('{'));
            if first.unwrap_or(is_paged) {
                arrays.push(path.then(key));
            }
        }
    }
    arrays.truncate(SHOWN_KEYS);
    Ok((!arrays.is_empty()).then_some(arrays))
}

fn is_wrapper(path: &Path, arrays: &[String]) -> Error {
    let place = match path.to_string() {
        text if text.is_empty() => "the answer".to_owned(),
        text => format!("records: {text}"),
    };
    let text = format!("{place} is one object around arrays of objects");
    Error::schema("http_no_records", text).hint(format!(
        "if the arrays hold the records, write records: {}; if the object is one record, name \
             its columns under the stream's schema: or primary_key:",
        arrays.join(" or ")
    ))
}

/// The body as a JSON document.
pub(crate) fn document(body: &[u8]) -> Result<&RawValue> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Error::data("http_not_json", "the answer is not JSON: it is not UTF-8"))?;
    serde_json::from_str(text).map_err(|error| {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let mut shown: String = text.chars().take(SHOWN_CHARS).map(plain).collect();
        if text.chars().nth(SHOWN_CHARS).is_some() {
            shown.push('…');
        }
        let text = format!("the answer is not JSON: {error}; it begins with: {shown}");
        Error::data("http_not_json", text)
    })
}

fn has_more(path: Option<&Path>, document: &RawValue) -> Result<Option<bool>> {
    let Some(path) = path else { return Ok(None) };
    match text_at(path, document)?.as_deref() {
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        _ => Err(bad_page(format!(
            "the answer has neither true nor false at more: {path}"
        ))),
    }
}

fn text_at(path: &Path, document: &RawValue) -> Result<Option<String>> {
    let found = path
        .find(document)
        .map_err(|error| Error::data("http_not_json", error))?;
    match found.map(scalar).transpose() {
        Ok(text) => Ok(text.flatten()),
        Err(what) => Err(bad_page(format!("the answer has {what} at {path}"))),
    }
}

fn bad_page(text: String) -> Error {
    Error::data("http_bad_page", text).hint("check the setting `pagination`")
}

/// A URL of the same server: another one could be sent the credentials.
fn url(base: &Url, text: &str) -> Result<Place> {
    let next = base
        .join(text)
        .map_err(|error| bad_page(format!("the next page is not a URL: {}", error.message)))?;
    if !base.is_same_server(&next) {
        let (from, to) = (base.without_query(), next.without_query());
        return Err(
            bad_page(format!("{from} names a next page on another server: {to}"))
                .hint("if you trust that server, write its scheme, host and port in base_url"),
        );
    }
    Ok(Place::Url(next))
}

/// The target with `rel="next"` of a header `link` (RFC 8288).
fn next_link(header: &str) -> Option<String> {
    let mut rest = header;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>')?;
        let target = &rest[start + 1..end];
        let (params, more) = until_comma(&rest[end + 1..]);
        let is_next = params.split(';').any(|param| {
            let (name, value) = param.split_once('=').unwrap_or((param, ""));
            let value = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && value
                    .split_whitespace()
                    .any(|rel| rel.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Some(target.to_owned());
        }
        rest = more;
    }
    None
}

/// Splits at the first comma outside quotes.
fn until_comma(text: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

/// The first eight bytes of the SHA-256.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(bytes);
    digest
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

/// Of all records of a page.
fn hash_all(records: &[&RawValue]) -> u64 {
    records.iter().fold(0, |before, record| {
        let here = hash(record.get().as_bytes());
        hash(format!("{before:016x}{here:016x}").as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str, link: Option<&str>) -> Answer {
        Answer {
            body: body.into(),
            link: link.map(str::to_owned),
            url: Url::parse("https://a/v1/x?page=1").unwrap(),
            is_empty: false,
        }
    }

    /// The places that a pager goes to, given the bodies and links of their pages.
    fn walk(pages: &Pages, answers: &[(&str, Option<&str>, usize)]) -> Result<Vec<Place>> {
        let mut pager = Pager::new(pages);
        let mut place = pager.first();
        let mut places = vec![place.clone()];
        for (body, link, records) in answers {
            let answer = answer(body, *link);
            let document = document(&answer.body)?;
            let records = vec![document; *records];
            match pager.after(&place, &answer, document, &records)? {
                None => return Ok(places),
                Some(next) => place = next,
            }
            places.push(place.clone());
        }
        Ok(places)
    }

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    fn numbered(by_records: bool, more: Option<&str>) -> Pages {
        Pages::Numbered {
            param: "p".into(),
            start: 1,
            size: Some(("n".into(), 50)),
            by_records,
            more: more.map(path),
        }
    }

    #[test]
    fn page_numbers_rise_until_a_page_is_empty_or_the_server_ends_them() {
        let number = |n| Place::Number(n);
        let by_page = walk(
            &numbered(false, None),
            &[("[1]", None, 50), ("[2]", None, 3), ("[]", None, 0)],
        );
        assert_eq!(by_page.unwrap(), [number(1), number(2), number(3)]);
        // The number of records that came counts, not the wanted size.
        let by_records = walk(
            &numbered(true, None),
            &[("[1]", None, 20), ("[2]", None, 20)],
        );
        assert_eq!(by_records.unwrap(), [number(1), number(21), number(41)]);
        let told = numbered(false, Some("m"));
        let pages = [(r#"{"m":true}"#, None, 1), (r#"{"m":false}"#, None, 1)];
        assert_eq!(walk(&told, &pages).unwrap(), [number(1), number(2)]);
        assert_eq!(
            walk(&told, &[("{}", None, 1)]).unwrap_err().code,
            "http_bad_page"
        );
        let params = Pager::new(&told).params(&number(3));
        let params: Vec<(&str, &str)> = params
            .iter()
            .map(|p| (p.name.as_str(), p.text.as_str()))
            .collect();
        assert_eq!(params, [("p", "3"), ("n", "50")]);
    }

    #[test]
    fn pages_follow_the_server_until_it_names_no_next_page() {
        let cursor = Pages::Cursor {
            param: "c".into(),
            next: path("n"),
            more: None,
        };
        for last in [r#"{"n":null}"#, r#"{"n":""}"#, "{}"] {
            let places = walk(
                &cursor,
                &[
                    (r#"{"n":"a"}"#, None, 1),
                    (r#"{"n":7}"#, None, 0),
                    (last, None, 1),
                ],
            );
            let expected = [
                Place::First,
                Place::Cursor("a".into()),
                Place::Cursor("7".into()),
            ];
            assert_eq!(places.unwrap(), expected, "{last}");
        }
        let refused = walk(&cursor, &[(r#"{"n":{}}"#, None, 1)]).unwrap_err();
        assert_eq!(refused.code, "http_bad_page");
        let url = |text| Place::Url(Url::parse(text).unwrap());
        let next = Pages::NextUrl(path("n"));
        let places = walk(
            &next,
            &[(r#"{"n":"?page=2"}"#, None, 1), (r#"{"n":null}"#, None, 1)],
        );
        assert_eq!(
            places.unwrap(),
            [Place::First, url("https://a/v1/x?page=2")]
        );
        let link = r#"<https://a/1>; rel="prev", </b,c>; title="x, y"; rel="last NEXT""#;
        let places = walk(
            &Pages::LinkHeader,
            &[("[]", Some(link), 1), ("[]", Some("<x>; rel=prev"), 1)],
        );
        assert_eq!(places.unwrap(), [Place::First, url("https://a/b,c")]);
    }

    #[test]
    fn pages_that_would_never_end_are_refused() {
        let cursor = Pages::Cursor {
            param: "c".into(),
            next: path("n"),
            more: None,
        };
        let (a, b) = (r#"{"n":"a"}"#, r#"{"n":"b"}"#);
        for pages in [
            vec![(a, None, 1); 2],
            vec![(a, None, 1), (b, None, 1), (a, None, 1)],
        ] {
            assert_eq!(
                walk(&cursor, &pages).unwrap_err().code,
                "http_repeated_page"
            );
        }
        let same = vec![("[1]", None, 1); 2];
        let error = walk(&numbered(false, None), &same).unwrap_err();
        assert_eq!(error.code, "http_repeated_page");
    }

    #[test]
    fn a_next_page_elsewhere_is_refused() {
        for next in [
            "http://a/v1/x",
            "https://b/",
            "https://a:444/",
            "file:///etc/passwd",
        ] {
            let body = format!("{{\"n\":\"{next}\"}}");
            let error = walk(&Pages::NextUrl(path("n")), &[(&body, None, 1)]).unwrap_err();
            assert_eq!(error.code, "http_bad_page", "{next}");
        }
    }
}
