//! Names of collections: where a stream goes, and where its rejects go.

use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::name;
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::Key;

/// Stands for the stream's name without its schema.
const STREAM: &str = "{stream}";
/// Stands for the stream's schema.
const SCHEMA: &str = "{schema}";

/// A name of collections with placeholders: `{stream}` for the stream's name without its schema, `{schema}` for its
/// schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Default for Pattern {
    fn default() -> Self {
        Self(STREAM.to_owned())
    }
}

impl Pattern {
    /// Errors: `unknown_placeholder` for another word in braces.
    pub fn parse(text: &str) -> Result<Self> {
        match unknown_placeholder(text) {
            Some(other) => {
                let text = format!("{other} is not a known placeholder");
                Err(Error::config("unknown_placeholder", text)
                    .hint("write {stream} for the stream's name, {schema} for its schema"))
            }
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The name for a stream such as `public.orders`.
    pub fn of(&self, stream: &str) -> String {
        let (schema, stream) = schema_and_name(stream);
        // Each placeholder once, so that a name may contain one.
        let parts = self.0.split(STREAM);
        let parts: Vec<String> = parts.map(|part| part.replace(SCHEMA, &schema)).collect();
        parts.join(&stream)
    }
}

/// A word in braces that stands for nothing.
fn unknown_placeholder(text: &str) -> Option<&str> {
    let begins = text.match_indices('{').map(|(at, _)| &text[at..]);
    let mut words = begins.filter_map(|rest| Some(&rest[..=rest.find('}')?]));
    words.find(|word| {
        let name = &word[1..word.len() - 1];
        let is_word = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_word && !matches!(*word, STREAM | SCHEMA)
    })
}

/// Schema and name of a stream. Of a name with more than two parts, all behind the first part is the name.
fn schema_and_name(stream: &str) -> (String, String) {
    if let Some(mut parts) = name::parts(stream)
        && parts.iter().all(|part| !part.is_empty())
    {
        match parts.len() {
            1 => return (String::new(), parts.concat()),
            2 => {
                let name = parts.pop().unwrap_or_default();
                return (parts.concat(), name);
            }
            _ => {}
        }
    }
    match stream.split_once('.') {
        Some((schema, name)) if !schema.is_empty() && !name.is_empty() => {
            (schema.to_owned(), name.to_owned())
        }
        _ => (String::new(), stream.to_owned()),
    }
}

/// The rules of a database for the names of its collections.
pub trait Naming {
    /// Such as `collection`: what messages call one, and the key of the configuration that names it.
    const KIND: &'static str;

    /// The names of the streams' collections.
    fn pattern(&self) -> &Pattern;

    /// Errors: `invalid_name`.
    fn check(&self, name: &str) -> Result<()>;

    /// Whether the connector keeps data of its own in this collection.
    fn is_own(&self, name: &str) -> bool;

    /// The name with its database, for people and for the key of a checkpoint.
    fn namespace(&self, name: &str) -> String;

    /// The collection of a stream. The operator's choice for the stream comes first. Errors: `invalid_name`,
    /// `unknown_placeholder`.
    fn name_of(&self, target: &Target) -> Result<String> {
        let kind = Self::KIND;
        let chosen = target.name.as_deref().map(Pattern::parse).transpose();
        let chosen = chosen.map_err(|error| error.in_stream(&target.stream))?;
        let name = chosen.as_ref().unwrap_or(self.pattern()).of(&target.stream);
        self.ensure_allowed(&name).map_err(|error| {
            error
                .hint(format!(
                    "name another with `{kind}:`, or with `target:` of the stream"
                ))
                .in_stream(&target.stream)
                .at(format!("config.{kind}"))
        })?;
        Ok(name)
    }

    /// The same, which no other stream may have. Errors: of [`Naming::name_of`]; `shared_target`.
    fn own_name_of(&self, target: &Target, owners: &Owners) -> Result<String> {
        let kind = Self::KIND;
        let name = self.name_of(target)?;
        let taken = owners.take(name.clone(), &target.stream, self.namespace(&name));
        taken.map_err(|error| {
            error
                .hint(format!(
                    "put {{stream}} into `{kind}:`, or give one of them another name with `target:`"
                ))
                .at(format!("config.{kind}"))
        })?;
        Ok(name)
    }

    /// The checkpoint of a stream. Errors: of [`Naming::name_of`].
    fn key_of(&self, target: &Target, pipeline: &str) -> Result<Key> {
        Ok(Key {
            pipeline: pipeline.to_owned(),
            stream: target.stream.clone(),
            target: self.namespace(&self.name_of(target)?),
        })
    }

    /// The collection for the rejects of a stream that is written to `filled`. `None` if it keeps none. Errors:
    /// `invalid_name`, `shared_target`.
    fn rejects_of(&self, target: &Target, filled: &str) -> Result<Option<String>> {
        let Some(rejects) = &target.rejects else {
            return Ok(None);
        };
        self.check_rejects(&rejects.to)?;
        match rejects.to == filled {
            true => {
                let text = format!("{filled} cannot keep rejects: a stream is written to it");
                Err(Error::config("shared_target", text)
                    .hint(format!("name another {}, such as rejects", Self::KIND))
                    .at("rejects.to"))
            }
            false => Ok(Some(rejects.to.clone())),
        }
    }

    /// Whether rejects may be kept in this collection. Errors: `invalid_name`.
    fn check_rejects(&self, to: &str) -> Result<()> {
        self.ensure_allowed(to).map_err(|error| {
            error
                .hint(format!("name another {}, such as rejects", Self::KIND))
                .at("rejects.to")
        })
    }

    /// Refuses a pattern that makes no allowed name, whatever the stream. Errors: `invalid_name`.
    fn check_pattern(&self) -> Result<()> {
        let pattern = self.pattern();
        let name = pattern.of("s.s");
        self.ensure_allowed(&name).map_err(|mut error| {
            if name != pattern.0 {
                error.message = format!("{} ({:?} of a stream s)", error.message, pattern.0);
            }
            error.at(format!("config.{}", Self::KIND))
        })
    }

    /// Errors: `invalid_name`.
    fn ensure_allowed(&self, name: &str) -> Result<()> {
        self.check(name)?;
        match self.is_own(name) {
            false => Ok(()),
            true => {
                let text = format!("{name:?} is a {} of Rapidbyte itself", Self::KIND);
                Err(Error::config("invalid_name", text))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_its_schema_names_its_collection() {
        let of = |pattern: &str, stream: &str| Pattern::parse(pattern).unwrap().of(stream);
        assert_eq!(Pattern::default().of("public.orders"), "orders");
        assert_eq!(of("{schema}_{stream}", "public.orders"), "public_orders");
        assert_eq!(of("{schema}_{stream}", "orders"), "_orders");
        assert_eq!(of("all", "public.orders"), "all");
        assert_eq!(of("{stream}", "a.b.c"), "b.c");
        assert_eq!(of("{stream}", ".orders"), ".orders");
        // A name with a placeholder in it is not replaced again.
        assert_eq!(of("x_{stream}", "{schema}.{stream}"), "x_{stream}");
    }

    #[test]
    fn a_word_in_braces_that_stands_for_nothing_is_refused_by_name() {
        for (text, word) in [
            ("{strem}", "{strem}"),
            ("{{name}", "{name}"),
            ("{stream}_{Stream}", "{Stream}"),
            ("{schema1}", "{schema1}"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert_eq!(error.code, "unknown_placeholder", "{text}");
            assert!(error.message.starts_with(word), "{}", error.message);
        }
        for text in ["", "{", "{}", "}{", "{a-b}", "{stream", "{{stream}}"] {
            assert!(Pattern::parse(text).is_ok(), "{text}");
        }
    }
}
