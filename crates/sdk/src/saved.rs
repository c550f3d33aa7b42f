//! Cursors as a destination keeps them for a source: JSON with a version, the field that orders the read, and what else
//! the source needs to resume.
//!
//! ```json
//! {"version":1,"field":"updated_at","from":"2026-01-01T00:00:00Z"}
//! ```

use std::fmt::Display;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// How a source writes its cursors.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The name of the source, for messages.
    pub source: &'static str,
    /// The value of `version`.
    pub version: u32,
}

/// What every cursor has.
#[derive(Deserialize)]
struct Head {
    version: u32,
    field: String,
}

impl Form {
    /// Reads a cursor of a stream that is read by `field`. `T` has `version` and `field`, too.
    ///
    /// # Errors
    /// `cursor_unreadable` if it has another form or version, `cursor_changed` if it was written with another field.
    pub fn parse<T: DeserializeOwned>(&self, json: &str, field: &str) -> Result<T> {
        let Self { source, version } = self;
        let other = |_| unreadable(format!("the stored cursor is not one of {source}"));
        let head: Head = serde_json::from_str(json).map_err(other)?;
        if head.version != *version {
            let text = format!(
                "the stored cursor has version {}, and this source reads version {version}",
                head.version
            );
            return Err(unreadable(text));
        }
        if head.field != field {
            let was = &head.field;
            let text =
                format!("the cursor was written with {was}, but the stream is read by {field}");
            return Err(Error::config("cursor_changed", text).hint(
                "set cursor_field back, or start over with `rapidbyte run PIPELINE --full-refresh --select STREAM`",
            ));
        }
        serde_json::from_str(json).map_err(other)
    }
}

/// The error for a cursor that no run of this version wrote: `cursor_unreadable`.
pub fn unreadable(text: impl Display) -> Error {
    Error::config("cursor_unreadable", text).hint(
        "somebody edited it, or another version wrote it: print it with `rapidbyte state get PIPELINE STREAM`, and \
         set a correct one with `rapidbyte state set PIPELINE STREAM CURSOR`; or read the stream from its first row: `rapidbyte run PIPELINE --full-refresh \
         --select STREAM` replaces the rows of the target, `rapidbyte state clear PIPELINE STREAM` keeps them",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "every key of the cursor is declared")]
    struct Saved {
        version: u32,
        field: String,
        at: u32,
    }

    const FORM: Form = Form {
        source: "source-x",
        version: 2,
    };

    #[test]
    fn a_cursor_of_another_form_version_or_field_is_refused() {
        let read: Saved = FORM
            .parse(r#"{"version":2,"field":"f","at":7}"#, "f")
            .unwrap();
        assert_eq!(read.at, 7);
        for (json, code, message) in [
            ("{", "cursor_unreadable", "not one of source-x"),
            ("7", "cursor_unreadable", "not one of source-x"),
            (
                r#"{"version":2,"field":"f"}"#,
                "cursor_unreadable",
                "not one of source-x",
            ),
            (
                r#"{"version":2,"field":"f","at":7,"x":1}"#,
                "cursor_unreadable",
                "not one",
            ),
            // Another version has other keys.
            (
                r#"{"version":3,"field":"f","x":1}"#,
                "cursor_unreadable",
                "version 3",
            ),
            (
                r#"{"version":2,"field":"g","at":7}"#,
                "cursor_changed",
                "written with g",
            ),
        ] {
            let error = FORM.parse::<Saved>(json, "f").unwrap_err();
            assert_eq!(error.code, code, "{json}");
            assert!(error.message.contains(message), "{}", error.message);
            assert!(error.hint.is_some());
        }
    }
}
