//! `schema_changes`: what happens where the columns of a stream and of its target differ.

use serde::Serialize;
use serde_json::json;

use super::declare::{Keys, Kind, keys, words};
use super::error::Result;
use super::kinds::{flag, word};
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
        #[serde(skip_serializing_if = "Option::is_none")]
        pub new_column: Option<NewColumn> = word().optional(),
        /// A column that the stream does not have: keep it, without a value in new rows (keep, the
        /// default), drop it if the source proves that it dropped it (drop), or refuse the stream (fail).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub dropped_column: Option<DroppedColumn> = word().optional(),
        /// A type that does not hold all values of the stream: widen it if no stored row changes
        /// (widen, the default), also if all of them must be rewritten (rewrite), or never (fail).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub type_change: Option<TypeChange> = word().optional(),
        /// A column with a new name: rename it if the source proves that it is the same (detect, the
        /// default), or take it for a dropped and a new one (off).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub renamed: Option<Renamed> = word().optional(),
        /// Where a run adds columns to the target of an incremental stream, read the stream from its first row, so
        /// that old rows get their values, too. Needs write_mode: upsert. Without it (false, the default), old
        /// rows have NULL in new columns.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub backfill: Option<bool> = flag().optional(),
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
        /// The destination drops it, if the source proves that it dropped it.
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

words! {
    /// `renamed`: a column that has another name at the source than before.
    pub enum Renamed {
        /// The destination renames it, if the source proves that it is the same column.
        #[default]
        Detect = "detect",
        /// It is taken for a dropped and a new column.
        Off = "off",
    }
}

impl SchemaChanges {
    /// Nothing changes.
    const FROZEN: Self = Self {
        new_column: Some(NewColumn::Fail),
        dropped_column: Some(DroppedColumn::Fail),
        type_change: Some(TypeChange::Fail),
        renamed: Some(Renamed::Off),
        backfill: Some(false),
    };

    /// The values of a stream; `pipeline` gives the values that the stream does not set.
    pub fn or(self, pipeline: Self) -> Self {
        Self {
            new_column: self.new_column.or(pipeline.new_column),
            dropped_column: self.dropped_column.or(pipeline.dropped_column),
            type_change: self.type_change.or(pipeline.type_change),
            renamed: self.renamed.or(pipeline.renamed),
            backfill: self.backfill.or(pipeline.backfill),
        }
    }
}

/// A mapping, or the word `frozen`.
pub(super) fn schema_changes() -> Kind<SchemaChanges> {
    let schema = || {
        let frozen = json!({ "const": FROZEN, "description": "Nothing changes: each key is fail, and renamed is off." });
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
            "{} is neither {FROZEN:?} nor a mapping of policies",
            text.shown()
        ));
        Err(error.hint(format!("write {EXAMPLE}")))
    };
    Kind::new(schema, read).expecting("a mapping or a word", EXAMPLE)
}
