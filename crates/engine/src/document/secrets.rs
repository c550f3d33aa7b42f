//! Values that must not be shown.

use std::sync::{Arc, PoisonError, RwLock};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Shorter values are too common to be taken out of every message.
const MIN_SECRET_BYTES: usize = 4;
/// Objects that are nested deeper in a configuration are not looked at.
const MAX_DEPTH: usize = 16;

/// Every secret of a pipeline, shared by the clones of its document. The longest comes first, so
/// that none is left over in part.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<RwLock<Vec<String>>>);

impl Secrets {
    /// Adds a value in every form that a message may show it in, unless it is too short to be told
    /// apart from a word.
    pub fn add(&self, value: &str) {
        if value.len() < MIN_SECRET_BYTES {
            return;
        }
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for form in forms(value) {
            if !secrets.contains(&form) {
                secrets.push(form);
            }
        }
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    }

    /// Adds what a connector's schema marks with `x-secret`: of a URL the password, of anything
    /// else the whole. Objects within objects are looked at too.
    pub fn add_marked(&self, schema: &Value, config: &Map<String, Value>) {
        self.add_below(schema, schema, config, 0);
    }

    fn add_below(&self, root: &Value, schema: &Value, config: &Map<String, Value>, depth: usize) {
        for (key, value) in config {
            let property = &schema["properties"][key];
            let reference = property["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
            let target = reference.and_then(|pointer| root.pointer(pointer));
            let marks = |mark: &str| match &property[mark] {
                Value::Null => &target.unwrap_or(property)[mark],
                own => own,
            };
            if let Value::Object(inner) = value
                && depth < MAX_DEPTH
            {
                self.add_below(root, target.unwrap_or(property), inner, depth + 1);
            }
            // The password of a URL is one, whether a connector says so or not.
            let (is_secret, is_url) = (marks("x-secret") == true, marks("x-grant") == "url");
            if is_secret || is_url {
                texts(value).for_each(|text| self.add_value(text, is_secret && !is_url));
            }
        }
    }

    /// Of a URL the password; a text without one as a whole, if it `is_whole`.
    fn add_value(&self, text: &str, is_whole: bool) {
        match password_of(text) {
            Some(password) => {
                self.add(password);
                self.add(&percent_decode_str(password).decode_utf8_lossy());
            }
            None if is_whole => self.add(text),
            None => {}
        }
    }

    /// `text` with every secret in it replaced by `***`.
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "***");
            }
        }
        text
    }
}

/// A value as it is, and as messages show values: `{:?}`, JSON, a URL. A message of one kind may
/// stand in another, as the JSON of a configuration within `{:?}`.
fn forms(value: &str) -> Vec<String> {
    // Nothing escapes letters and digits. A secret may be a whole file.
    if value.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return vec![value.to_owned()];
    }
    let once = escaped(value);
    let twice = once.iter().flat_map(|form| escaped(form));
    let more = percent_encoded(value).into_iter().chain(quoted(value));
    let mut forms: Vec<String> = twice.chain(more).collect();
    forms.extend(once);
    forms.push(value.to_owned());
    forms.sort();
    forms.dedup();
    forms
}

/// As Rust, JSON, JavaScript and Python write a text between quotes.
fn escaped(value: &str) -> Vec<String> {
    let json = Value::from(value).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let mut ascii = String::new();
    for c in json.chars() {
        match c.is_ascii() {
            true => ascii.push(c),
            false => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    ascii += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    let debug = format!("{value:?}");
    let debug = debug[1..debug.len() - 1].to_owned();
    vec![
        json.replace('/', "\\/"),
        ascii,
        debug.replace("\\\"", "\"").replace('\'', "\\'"),
        debug,
        value.escape_default().to_string(),
        // Python's, of control characters.
        json.replace("\\u00", "\\x"),
        json,
    ]
}

/// Between quotes in SQL and CSV, and in HTML.
fn quoted(value: &str) -> Vec<String> {
    let doubled = [value.replace('"', "\"\""), value.replace('\'', "''")];
    let html = ["&#39;", "&#x27;", "'"].map(|apostrophe| in_html(value, apostrophe));
    doubled.into_iter().chain(html).collect()
}

fn in_html(value: &str, apostrophe: &str) -> String {
    let escaped = value.replace('&', "&amp;").replace('<', "&lt;");
    let escaped = escaped.replace('>', "&gt;").replace('"', "&quot;");
    escaped.replace('\'', apostrophe)
}

/// As a URL has it: all but letters and digits, or all but what needs no escape there either.
fn percent_encoded(value: &str) -> Vec<String> {
    let keeping = |kept: &[u8], lower: bool| -> String {
        let mut encoded = String::with_capacity(value.len());
        for byte in value.bytes() {
            match byte.is_ascii_alphanumeric() || kept.contains(&byte) {
                true => encoded.push(char::from(byte)),
                false if lower => encoded += &format!("%{byte:02x}"),
                false => encoded += &format!("%{byte:02X}"),
            }
        }
        encoded
    };
    let kept: [&[u8]; 5] = [
        b"",
        b"-._~",
        // `encodeURIComponent`, and what may stand in a password of a URL (RFC 3986, 3.2.1).
        b"-._~!*'()",
        b"-._~!$&'()*+,;=",
        b"-._~!$&'()*+,;=:@/?",
    ];
    let mut forms: Vec<String> = kept
        .iter()
        .flat_map(|kept| [keeping(kept, false), keeping(kept, true)])
        .collect();
    // A form's body has `+` for a blank.
    forms.extend([keeping(b"-._*", false), keeping(b"-._*", true)].map(|f| f.replace("%20", "+")));
    forms
}

/// A text, or those of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    std::iter::once(value)
        .chain(items)
        .filter_map(Value::as_str)
}

/// The password in `scheme://user:password@…`, as it is written there.
fn password_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may hold what should have been encoded: everything up to the last @ is it.
    let end = rest[..end].rfind('@').or_else(|| rest.rfind('@'))?;
    rest[..end].split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marked_values_are_taken_out_and_a_url_keeps_its_rest() {
        let schema = json!({ "properties": {
            "url": { "x-grant": "url", "x-secret": true }, "password": { "x-secret": true }, "host": {},
            "auth": { "$ref": "#/$defs/Auth" }, "unmarked": { "x-grant": "url" },
            "all": { "$ref": "#/$defs/Text" },
        }, "$defs": {
            "Auth": { "properties": { "token": { "x-secret": true } } },
            "Text": { "x-secret": true },
        } });
        let config = json!({
            "url": "postgres://me:p%40ss-word@db.example:5432/shop", "password": "hunter22", "host": "db.example",
            "auth": { "token": "inner-token" }, "unmarked": "https://me:other-word@api.example",
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
    }

    #[test]
    fn no_escape_shows_a_secret() {
        for secret in [
            "a\"b\\c\nd",
            "pä/ss'w\u{1b}ö",
            "p@ss word+&=1",
            "tab\there\u{2028}",
            "😀-key\"",
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
                Value::from(config).to_string(),
                format!("\"{}\"", secret.escape_default()),
                encode(percent_encoding::NON_ALPHANUMERIC),
                encode(percent_encoding::NON_ALPHANUMERIC).to_lowercase(),
                encode(percent_encoding::NON_ALPHANUMERIC).replace("%20", "+"),
                secret.replace('"', "\"\""),
                secret.replace('\'', "''"),
                secret.replace('&', "&amp;").replace('"', "&quot;"),
            ] {
                // What is left of it: the text around it, and no letter of the secret.
                let redacted = secrets.redact(&said);
                let rest = redacted.replace("***", "").replace("password", "");
                assert!(redacted.contains("***"), "{secret:?}: {said}");
                let rest = rest.replace(['"', '\\', '{', '}', ':'], "");
                assert_eq!(rest, "", "{secret:?}: {said}");
            }
        }
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
}
