//! `deletes`: what happens to rows of a target that the source has deleted.

use serde::{Serialize, Serializer};
use serde_json::json;

use super::declare::{Kind, keys, words};
use super::error::Result;
use super::kinds::{mapping, name, or_variable, word};
use super::read::Spot;

/// Parts of a whole share.
const WHOLE: u32 = 1_000_000;

keys! {
    /// `deletes`: what happens to rows of a target that the source has deleted.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Deletes {
        /// compare: at its end, each run reads the keys of all rows of the source and compares them with those
        /// of the target. none: deleted rows stay in the target.
        pub mode: DeletesMode = word().required("write mode: compare"),
        /// What happens to a row whose key the source does not have: delete it (delete, the default), or keep
        /// it and mark it in column (mark).
        pub action: DeletesAction = word().or(DeletesAction::Delete),
        /// With action: mark: the column of the target that says when a row was deleted, or, if it is boolean,
        /// that it was. Not a column of the stream; a new table gets it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub column: Option<String> = name().optional(),
        /// Refuse to delete or mark more rows of the target than this share, rounded up (0 to 1, default 0.1).
        pub max_share: Share = share().or(Share(WHOLE / 10)),
    }
}

words! {
    /// `deletes.mode`: how a run finds deleted rows.
    pub enum DeletesMode {
        /// It compares the keys of the source with those of the target.
        Compare = "compare",
        /// It does not look for them.
        #[default]
        None = "none",
    }
}

words! {
    /// `deletes.action`: what happens to a deleted row.
    pub enum DeletesAction {
        /// The destination deletes it.
        #[default]
        Delete = "delete",
        /// The destination marks it in `deletes.column`.
        Mark = "mark",
    }
}

/// A share of the rows of a target, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// The share in millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / f64::from(WHOLE))
    }
}

/// A number from 0 to 1 with at most six digits behind its point.
fn share() -> Kind<Share> {
    let schema = || {
        or_variable(vec![
            json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        ])
    };
    Kind::new(schema, |at| {
        let text = at.text()?;
        millionths(&text.text).map(Share).ok_or_else(|| {
            let message = format!("{at} cannot be {}", text.shown());
            at.bad_value(message).hint(
                "write a share from 0 to 1, with at most six digits behind the point, such as 0.1",
            )
        })
    })
}

fn millionths(text: &str) -> Option<u32> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let is_number =
        !whole.is_empty() && [whole, digits].concat().bytes().all(|b| b.is_ascii_digit());
    if !is_number || digits.len() > 6 {
        return None;
    }
    let parts = format!("{whole}{digits:0<6}").parse::<u32>().ok()?;
    (parts <= WHOLE).then_some(parts)
}

/// The mapping, whose keys go together.
pub(super) fn deletes() -> Kind<Deletes> {
    mapping().then(ensure_fits)
}

fn ensure_fits(at: &Spot<'_>, deletes: Deletes) -> Result<Deletes> {
    match (deletes.action, &deletes.column) {
        (DeletesAction::Mark, None) => Err(at.missing(
            "column",
            "name the column of the target that marks deleted rows: column: deleted_at",
        )),
        (DeletesAction::Delete, Some(_)) => {
            let message = "column has no effect with action: delete".to_owned();
            let hint = "set action: mark, or remove the key";
            Err(at.bad_key("column", message).hint(hint))
        }
        _ => Ok(deletes),
    }
}

#[cfg(test)]
mod tests {
    use super::millionths;

    #[test]
    fn a_share_is_read_exactly() {
        for (text, parts) in [
            ("0", Some(0)),
            ("0.1", Some(100_000)),
            ("0.000001", Some(1)),
            ("1", Some(1_000_000)),
            ("1.0", Some(1_000_000)),
            ("0.", Some(0)),
            ("1.000001", None),
            ("0.0000001", None),
            ("2", None),
            ("-0.1", None),
            ("1e-1", None),
            (".5", None),
            ("10%", None),
            ("", None),
        ] {
            assert_eq!(millionths(text), parts, "{text:?}");
        }
    }
}
