//! `schema_changes`: what happens where the columns of a stream and of its target differ.

use serde::Serialize;
use serde_json::json;

use super::declare::{Keys, Kind, keys, words};
use super::error::Result;
use super::kinds::word;
use super::node::NodeValue;
use super::read::Spot;

/// The word for the policy that changes nothing.
const FROZEN: &str = "frozen";
const EXAMPLE: &str = "schema_changes: { new_column: fail }, or schema_changes: frozen";

keys! {
    /// `schema_changes`: what happens where the columns of a stream and of its target differ.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub struct SchemaChanges: Default {
        /// A column that the target does not have: add it (add, the default), leave its values out
        /// (ignore), or refuse the stream (fail).
        pub new_column: NewColumn = word().or(NewColumn::Add),
        /// A column that the stream does not have: keep it, without a value in new rows (keep, the
        /// default), drop it (drop), or refuse the stream (fail).
        pub dropped_column: DroppedColumn = word().or(DroppedColumn::Keep),
        /// A type that does not hold all values of the stream: widen it if no stored row changes
        /// (widen, the default), also if all of them must be rewritten (rewrite), or never (fail).
        pub type_change: TypeChange = word().or(TypeChange::Widen),
    }
}

words! {
    /// `new_column`: a column of the stream that the target does not have.
    pub enum NewColumn {
        /// The destination adds it; rows that are there have NULL in it.
        #[default]
        Add = "add",
        /// Its values are left out.
        Ignore = "ignore",
        /// The stream is refused.
        Fail = "fail",
    }
}

words! {
    /// `dropped_column`: a column of the target that the stream does not have.
    pub enum DroppedColumn {
        /// It stays; new rows have NULL in it, and updated rows keep their value.
        #[default]
        Keep = "keep",
        /// The destination drops it.
        Drop = "drop",
        /// The stream is refused.
        Fail = "fail",
    }
}

words! {
    /// `type_change`: a column whose type in the target does not hold all values of the stream's.
    pub enum TypeChange {
        /// It gets the wider type if that changes no stored row.
        #[default]
        Widen = "widen",
        /// It gets the wider type, also if all stored rows must be written anew.
        Rewrite = "rewrite",
        /// It stays.
        Fail = "fail",
    }
}

impl SchemaChanges {
    /// Nothing changes.
    const FROZEN: Self = Self {
        new_column: NewColumn::Fail,
        dropped_column: DroppedColumn::Fail,
        type_change: TypeChange::Fail,
    };
}

/// A mapping, or the word `frozen`.
pub(super) fn schema_changes() -> Kind<SchemaChanges> {
    let schema = || {
        let frozen =
            json!({ "const": FROZEN, "description": "Nothing changes: each key is fail." });
        json!({ "anyOf": [frozen, SchemaChanges::schema()] })
    };
    let read = |at: &Spot<'_>| -> Result<SchemaChanges> {
        if matches!(at.node.value, NodeValue::Mapping(_)) {
            return SchemaChanges::read(at);
        }
        let text = at.text()?;
        if text.text == FROZEN {
            return Ok(SchemaChanges::FROZEN);
        }
        let error = at.bad_value(format!(
            "{} is not {FROZEN:?}, the only word here",
            text.shown()
        ));
        Err(error.hint(format!("write {EXAMPLE}")))
    };
    Kind::new(schema, read).expecting("a mapping or a word", EXAMPLE)
}
