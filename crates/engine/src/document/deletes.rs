//! `deletes`: what happens to rows of a target that the source has deleted.

use serde::Serialize;

use super::declare::{Kind, keys, words};
use super::error::Result;
use super::kinds::{mapping, name, word};
use super::read::Spot;
use super::share::{Share, share};

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
        pub max_share: Share = share().or(Share::TENTH),
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
