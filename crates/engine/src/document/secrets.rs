//! Values that must not be shown.
//!
//! A message may show a value in an escaped form: as JSON, in a URL, in HTML, between quotes. Instead of making every
//! form of a value, the message itself is unescaped, and the value is looked for in what comes out.
//! A message may also show only the beginning of a value, because it cuts a longer text: see [`cuts`].

mod cuts;
mod escapes;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem::Finder;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use cuts::Cuts;
use escapes::View;

/// Shorter values are too common to be taken out of every message.
const MIN_SECRET_BYTES: usize = 4;
/// PostgreSQL cuts longer names (`NAMEDATALEN`).
const MAX_NAME_BYTES: usize = 63;
/// A line of a value of several lines, such as a key, is a secret by itself from this length on.
const MIN_LINE_BYTES: usize = 16;
/// A value above this size is not a key: its lines are not secrets by themselves.
const MAX_BYTES_OF_LINES: usize = 64 << 10;
/// Objects that are nested deeper in a configuration are not checked.
const MAX_DEPTH: usize = 16;
/// Parts of a schema and a configuration that are checked for marks.
const MAX_PARTS: usize = 100_000;
/// A message may hold another kind of message, such as the JSON of a configuration within `{:?}`.
const MAX_ESCAPES: usize = 3;
/// A longer text is unescaped once: each time takes several times its memory.
const LONG: usize = 256 << 10;

/// Every secret of a pipeline, shared by the clones of its document.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    /// Values, and the long lines of those that have several.
    values: Vec<Finder<'static>>,
    /// Values of several lines without their white space: a message may have another between the lines, or none.
    squeezed: Vec<Finder<'static>>,
}

impl Secrets {
    /// Adds a value, unless it is too short to differ from a word.
    pub fn add(&self, value: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        add_to(&mut known.values, value);
        add_to(&mut known.values, value.trim());
        let value = value.trim();
        if !value.contains(['\n', '\r']) {
            for form in forms_as_name(value) {
                add_to(&mut known.values, &form);
            }
            return;
        }
        let squeezed: String = value.split_ascii_whitespace().collect();
        if squeezed.len() >= MIN_LINE_BYTES {
            add_to(&mut known.squeezed, &squeezed);
        }
        if value.len() <= MAX_BYTES_OF_LINES {
            let lines = value.split(['\n', '\r']).map(str::trim);
            // The first and last line of a key say that it is one.
            let is_mark = |line: &str| line.starts_with("-----") && line.ends_with("-----");
            lines
                .filter(|line| line.len() >= MIN_LINE_BYTES && !is_mark(line))
                .for_each(|line| add_to(&mut known.values, line));
        }
    }

    /// Adds what a connector's schema marks with `x-secret`: of a URL the password, of anything
    /// else the whole. It looks into objects and lists, and into each form that the schema gives a value.
    pub fn add_marked(&self, schema: &Value, config: &Map<String, Value>) {
        let properties = &schema["properties"];
        let mut parts = 0;
        for (key, value) in config {
            self.add_below(schema, &properties[key], value, (0, &mut parts));
        }
    }

    /// Adds the values that a schema marks. `parts` counts the checked parts: a connector's schema may refer to itself.
    fn add_below(
        &self,
        root: &Value,
        property: &Value,
        value: &Value,
        (depth, parts): (usize, &mut usize),
    ) {
        *parts += 1;
        let reference = property["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
        let target = reference.and_then(|pointer| root.pointer(pointer));
        let schema = target.unwrap_or(property);
        let marks = |mark: &str| match &property[mark] {
            Value::Null => &schema[mark],
            own => own,
        };
        // The password of a URL is one, whether a connector says so or not.
        let (is_secret, is_url) = (marks("x-secret") == true, marks("x-grant") == "url");
        if is_secret || is_url {
            texts(value).for_each(|text| self.add_value(text, is_secret && !is_url));
        }
        // A password that was not put in quotes.
        if is_secret && value.is_number() {
            self.add(&value.to_string());
        }
        if depth == MAX_DEPTH || *parts > MAX_PARTS || property.is_null() {
            return;
        }
        let mut below = |property: &Value, value: &Value| {
            self.add_below(root, property, value, (depth + 1, parts));
        };
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    let known = &schema["properties"][key];
                    let property = match known {
                        Value::Null => &schema["additionalProperties"],
                        known => known,
                    };
                    below(property, value);
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| below(&schema["items"], item));
            }
            _ => {}
        }
        let forms = ["oneOf", "anyOf", "allOf"].map(|word| schema[word].as_array());
        for form in forms.into_iter().flatten().flatten() {
            below(form, value);
        }
    }

    /// Adds the user and the passwords of a URL: a token may stand in the place of the user.
    pub fn add_credentials(&self, url: &str) {
        self.add_value(url, false);
        for part in user_of(url).into_iter().chain(password_of(url)) {
            self.add(part);
            self.add(&percent_decode_str(part).decode_utf8_lossy());
        }
    }

    /// Of a URL the passwords; a text without one as a whole, if it `is_whole`.
    fn add_value(&self, text: &str, is_whole: bool) {
        let mut has_password = false;
        for password in password_of(text).into_iter().chain(parameters_of(text)) {
            has_password = true;
            self.add(password);
            self.add(&percent_decode_str(password).decode_utf8_lossy());
        }
        if is_whole && !has_password {
            self.add(text);
        }
    }

    /// `text` with every secret in it replaced by `***`.
    pub fn redact(&self, text: &str) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        if !known.values.is_empty() {
            let escapes = if text.len() > LONG { 1 } else { MAX_ESCAPES };
            let view = View::of(text);
            let cuts = Cuts::of(text);
            known.find(&view, &cuts, escapes, &mut found);
            // As in the header of HTTP Basic, which a server may send back.
            if text.len() <= LONG
                && let Some(decoded) = view.of_base64()
            {
                known.find(&decoded, &cuts, 0, &mut found);
            }
        }
        drop(known);
        covered(text, found)
    }
}

/// The forms in which PostgreSQL shows a value in the place of a name: without capitals, and cut. Host names
/// lose their capitals, too.
fn forms_as_name(value: &str) -> impl Iterator<Item = String> {
    let cut = value.floor_char_boundary(MAX_NAME_BYTES);
    let is_cut = cut < value.len();
    let lower = value.to_ascii_lowercase();
    let is_folded = lower != value;
    [
        is_cut.then(|| value[..cut].to_owned()),
        is_folded.then(|| lower[..cut].to_owned()),
        (is_folded && is_cut).then(|| lower.clone()),
    ]
    .into_iter()
    .flatten()
}

/// Settings as JSON, with `***` for what a connector's schema marks as secret. Other values of variables stay.
pub(crate) fn without_marked(schema: &Value, config: &Map<String, Value>) -> String {
    let secrets = Secrets::default();
    secrets.add_marked(schema, config);
    // Sorted: the order of the keys does not matter.
    let ordered: BTreeMap<&String, &Value> = config.iter().collect();
    secrets.redact(&json!(ordered).to_string())
}

impl Known {
    /// The parts of the text behind a view, from and to, that show a secret; it may be escaped so often.
    fn find(&self, view: &View, cuts: &Cuts, escapes: usize, found: &mut Vec<(usize, usize)>) {
        view.find(&self.values, found);
        cuts.find(view, &self.values, found);
        if !self.squeezed.is_empty() {
            let squeezed = view.squeezed();
            squeezed.find(&self.squeezed, found);
            cuts.find(&squeezed, &self.squeezed, found);
        }
        if escapes > 0 {
            for plainer in view.unescaped() {
                self.find(&plainer, cuts, escapes - 1, found);
            }
        }
    }
}

fn add_to(finders: &mut Vec<Finder<'static>>, value: &str) {
    let is_known = |known: &Finder<'_>| known.needle() == value.as_bytes();
    if value.len() >= MIN_SECRET_BYTES && !finders.iter().any(is_known) {
        finders.push(Finder::new(value).into_owned());
    }
}

/// The text with `***` for these parts of it; one for parts that overlap.
fn covered(text: &str, mut parts: Vec<(usize, usize)>) -> String {
    parts.sort_unstable();
    let mut covered = String::with_capacity(text.len());
    let mut shown = 0;
    for (from, to) in parts {
        let (from, to) = (text.floor_char_boundary(from), text.ceil_char_boundary(to));
        if from >= shown {
            covered.push_str(&text[shown..from]);
            covered.push_str("***");
        }
        shown = shown.max(to);
    }
    covered.push_str(&text[shown..]);
    covered
}

/// A string, or the strings of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    std::iter::once(value)
        .chain(items)
        .filter_map(Value::as_str)
}

/// The part `user:password` of `scheme://user:password@…`, as it is written there.
fn credentials_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may hold what should have been encoded: everything up to the last @ is it.
    let end = rest[..end].rfind('@').or_else(|| rest.rfind('@'))?;
    Some(&rest[..end])
}

fn password_of(url: &str) -> Option<&str> {
    let (_, password) = credentials_of(url)?.split_once(':')?;
    Some(password)
}

fn user_of(url: &str) -> Option<&str> {
    let credentials = credentials_of(url)?;
    Some(
        credentials
            .split_once(':')
            .map_or(credentials, |(user, _)| user),
    )
}

/// The passwords in the parameters of a URL, by the names that libpq gives them.
fn parameters_of(url: &str) -> impl Iterator<Item = &str> {
    let query = url.split_once("://").and_then(|(_, rest)| {
        let (_, query) = rest.split_once('?')?;
        Some(query.split('#').next().unwrap_or(query))
    });
    let pairs = query.unwrap_or_default().split('&');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, _)| matches!(*name, "password" | "sslpassword"))
        .map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_in_lists_and_in_forms_of_a_value_count_too() {
        let schema = json!({ "properties": { "steps": { "type": "array", "items": { "$ref": "#/$defs/Step" } } },
            "$defs": {
                "Step": { "oneOf": [
                    { "properties": { "drop": {} } },
                    { "properties": { "hash": { "anyOf": [{ "$ref": "#/$defs/Hash" }, { "type": "null" }] } } },
                    { "properties": { "more": { "items": { "$ref": "#/$defs/Step" } } } },
                ] },
                "Hash": { "properties": { "salt": { "x-secret": true } },
                    "additionalProperties": { "x-secret": true } },
            }
        });
        let config = json!({ "steps": [
            { "drop": "plain-one" }, { "hash": { "salt": "salty-one", "NAME": "named-one" } },
            { "more": [{ "more": [{ "hash": { "salt": "inner-one" } }] }] },
        ] });
        let secrets = Secrets::default();
        secrets.add_marked(&schema, config.as_object().expect("an object"));
        assert_eq!(
            secrets.redact("plain-one salty-one named-one inner-one"),
            "plain-one *** *** ***"
        );
        // A schema that holds itself ends.
        let endless = json!({ "$defs": { "A": { "oneOf": vec![json!({ "$ref": "#/$defs/A" }); 20] } },
            "properties": { "a": { "$ref": "#/$defs/A" } } });
        secrets.add_marked(&endless, json!({ "a": 1 }).as_object().expect("an object"));
    }

    #[test]
    fn marked_values_are_taken_out_and_a_url_keeps_its_rest() {
        let schema = json!({ "properties": {
            "url": { "x-grant": "url", "x-secret": true }, "password": { "x-secret": true }, "host": {},
            "auth": { "$ref": "#/$defs/Auth" }, "unmarked": { "x-grant": "url" }, "query": { "x-grant": "url", "x-secret": true },
            "all": { "$ref": "#/$defs/Text" },
        }, "$defs": {
            "Auth": { "properties": { "token": { "x-secret": true } } },
            "Text": { "x-secret": true },
        } });
        let config = json!({
            "url": "postgres://me:p%40ss-word@db.example:5432/shop", "password": "hunter22", "host": "db.example",
            "auth": { "token": "inner-token" }, "unmarked": "https://me:other-word@api.example",
            "query": "postgres://me@db.example/shop?sslmode=disable&password=p%26q-word&x=1",
            "all": ["first-one", "second-one"],
        });
        let secrets = Secrets::default();
        secrets.add_marked(&schema, config.as_object().expect("an object"));
        assert_eq!(
            secrets.redact(
                "postgres://me:p%40ss-word@db.example p@ss-word hunter22 hunter2 inner-token"
            ),
            "postgres://me:***@db.example *** *** hunter2 ***"
        );
        assert_eq!(
            secrets.redact("other-word https://api.example first-one second-one"),
            "*** https://api.example *** ***"
        );
        assert_eq!(
            secrets.redact("p%26q-word, p&q-word: sslmode=disable&x=1"),
            "***, ***: sslmode=disable&x=1"
        );
    }

    const PATH_ESCAPES: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'/').remove(b'-');

    #[test]
    fn no_escape_shows_a_secret() {
        for secret in [
            "a\"b\\c\nd",
            "pä/ss'w\u{1b}ö",
            "p@ss word+&=1",
            "tab\there\u{2028}",
            "😀-key\"",
            "S3cr3t\"\\pä/ss<w>&'x$word %41\tend",
        ] {
            let secrets = Secrets::default();
            secrets.add(secret);
            let json = Value::from(secret).to_string();
            let config = json!({ "password": secret }).to_string();
            let encode = |set| percent_encoding::utf8_percent_encode(secret, set).to_string();
            for said in [
                secret.to_owned(),
                format!("{secret:?}"),
                json.clone(),
                // A connector that shows its configuration, or an error that has one in it.
                config.clone(),
                format!("{config:?}"),
                format!("{:?}", format!("{secret:?}")),
                Value::from(config.clone()).to_string(),
                format!("\"{}\"", secret.escape_default()),
                encode(percent_encoding::NON_ALPHANUMERIC),
                encode(percent_encoding::NON_ALPHANUMERIC).replace("%C3%A4", "%c3%a4"),
                // Python's `quote` keeps `/`.
                encode(PATH_ESCAPES),
                encode(percent_encoding::NON_ALPHANUMERIC).replace("%20", "+"),
                secret.replace('"', "\"\""),
                secret.replace('\'', "''"),
                secret.replace('&', "&amp;").replace('"', "&quot;"),
                // HTML outside of attributes keeps quotes.
                secret.replace('&', "&amp;").replace('<', "&lt;"),
                // Rust and JavaScript between single quotes.
                format!("{secret:?}").replace('\'', "\\'"),
                config.replace('\'', "\\'"),
                format!("{:?}", encode(percent_encoding::NON_ALPHANUMERIC)),
            ] {
                // Only the text around the secret is left, and no letter of the secret.
                let redacted = secrets.redact(&said);
                let rest = redacted.replace("***", "").replace("password", "");
                assert!(redacted.contains("***"), "{secret:?}: {said}");
                let rest = rest.replace(['"', '\\', '{', '}', ':'], "");
                assert_eq!(rest, "", "{secret:?}: {said}");
            }
        }
    }

    /// As a server sends back the header that it was sent.
    #[test]
    fn base64_shows_no_secret() {
        let secrets = Secrets::default();
        secrets.add("Tok-S3cret/9?");
        for (said, shown) in [
            ("Basic Ym9iOlRvay1TM2NyZXQvOT8=, ok", "Basic Ym9i***=, ok"),
            ("\"YTpUb2stUzNjcmV0Lzk_\"", "\"***\""),
            ("VG9rLVMzY3JldC85P3h4eA== x", "***eA== x"),
        ] {
            assert_eq!(secrets.redact(said), shown);
        }
    }

    #[test]
    fn a_key_of_several_lines_is_shown_neither_in_lines_nor_joined() {
        let key =
            "-----BEGIN KEY-----\nMIIlineoneAAAA+/\nMIIlinetwoBBBBCC\nend=\n-----END KEY-----\n";
        let secrets = Secrets::default();
        secrets.add(key);
        for said in [
            key.to_owned(),
            key.trim().replace('\n', " "),
            key.replace('\n', ""),
            key.replace('\n', "\r\n  "),
            format!("{key:?}"),
            "MIIlineoneAAAA+/".to_owned(),
            "MIIlinetwoBBBBCC\nof".to_owned(),
            "MIIlineoneAAAA%2b%2f".to_owned(),
        ] {
            let redacted = secrets.redact(&said);
            assert!(redacted.contains("***"), "{said}: {redacted}");
            assert!(
                !redacted.contains("line") && !redacted.contains("end="),
                "{redacted}"
            );
        }
        assert_eq!(
            secrets.redact("no -----BEGIN KEY----- found"),
            "no -----BEGIN KEY----- found"
        );
    }

    #[test]
    fn secrets_that_overlap_leave_no_part_of_either() {
        let secrets = Secrets::default();
        secrets.add("abcdWXYZ");
        secrets.add("WXYZlonger");
        secrets.add("WXYZ");
        assert_eq!(secrets.redact("-abcdWXYZlonger-WXYZWXYZ-"), "-***-******-");
    }

    /// A connector cuts the answer of a server before the host sees it.
    #[test]
    fn a_text_that_was_cut_within_a_secret_does_not_show_the_rest() {
        let secrets = Secrets::default();
        for secret in ["Tok-S3cret/9?", "pä\"ss'wörd"] {
            secrets.add(secret);
        }
        let long = "the server says in words that take more than sixty characters, all in all";
        for (said, shown) in [
            (format!("{long} Tok-S3cret/9"), format!("{long} ***")),
            (format!("{long} Tok-S3c"), format!("{long} ***")),
            // Less than half of it.
            (format!("{long} Tok-S3"), format!("{long} Tok-S3")),
            (
                format!("{long} Tok-S3cret, he"),
                format!("{long} Tok-S3cret, he"),
            ),
            // A short text was not cut, unless it says so.
            ("is Tok-S3cret".to_owned(), "is Tok-S3cret".to_owned()),
            ("is Tok-S3cret…".to_owned(), "is ***…".to_owned()),
            (
                "Tok-S3cret... (99 bytes)".to_owned(),
                "***... (99 bytes)".to_owned(),
            ),
            (
                "\"Tok-S3cret\"… is no number".to_owned(),
                "\"***\"… is no number".to_owned(),
            ),
            ("… S3cret/9? is".to_owned(), "… *** is".to_owned()),
            ("...S3cret/9? is".to_owned(), "...*** is".to_owned()),
            // In an escape, and within one.
            ("pä\\\"ss'w…".to_owned(), "***…".to_owned()),
            ("pä\\\"ss'w\\u00f…".to_owned(), "***\\u00f…".to_owned()),
            ("?p=p%C3%A4%22ss%27w%C3…".to_owned(), "?p=***…".to_owned()),
            ("?p=p%C3%A4%22ss%27w%C…".to_owned(), "?p=***%C…".to_owned()),
            ("pä\"ss'w\u{fffd}…".to_owned(), "***\u{fffd}…".to_owned()),
            // `a:Tok-S3cret/9?` in base64, which was cut behind a letter of `/`.
            (
                "Basic YTpUb2stUzNjcmV0L…".to_owned(),
                "Basic ***L…".to_owned(),
            ),
            (
                "a… and b... and c".to_owned(),
                "a… and b... and c".to_owned(),
            ),
        ] {
            assert_eq!(secrets.redact(&said), shown, "{said}");
        }
        secrets.add("-----BEGIN KEY-----\nMIIlineoneAAAA+/\nMIIlinetwoBBBBCC\n-----END KEY-----\n");
        let redacted = secrets.redact("key: -----BEGIN KEY----- MIIlineoneAAAA+/ MIIlinetw…");
        assert!(!redacted.contains("line"), "{redacted}");
    }

    #[test]
    fn passwords_are_found_in_urls() {
        for (url, password) in [
            ("postgres://u:secret@h/d", Some("secret")),
            ("postgres://u:se/cr@et@h/d", Some("se/cr@et")),
            ("postgres://u@h:5432/d", None),
            ("postgres://h:5432/d", None),
            ("plain", None),
        ] {
            assert_eq!(password_of(url), password, "{url}");
        }
    }

    #[test]
    fn a_value_is_found_as_postgresql_writes_it_as_a_name() {
        let secrets = Secrets::default();
        let long = "Q".repeat(70) + "end";
        for value in ["Zx9SecretValue77", "Orders", &long] {
            secrets.add(value);
        }
        for (text, shown) in [
            (
                "column \"zx9secretvalue77\" does not exist",
                "column \"***\" does not exist",
            ),
            ("the table orders", "the table ***"),
            (
                &format!("type \"{}\" is gone", "q".repeat(63)),
                "type \"***\" is gone",
            ),
            (
                &format!("type \"{}\" is gone", "Q".repeat(63)),
                "type \"***\" is gone",
            ),
            (
                &format!("host {} is gone", long.to_lowercase()),
                "host *** is gone",
            ),
        ] {
            assert_eq!(secrets.redact(text), shown);
        }
    }
}
