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
    /// Adds a value, unless it is too short to be told apart from a word.
    pub fn add(&self, value: &str) {
        if value.len() < MIN_SECRET_BYTES {
            return;
        }
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !secrets.iter().any(|secret| secret == value) {
            secrets.push(value.into());
            secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        }
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
