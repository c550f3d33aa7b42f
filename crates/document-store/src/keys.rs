//! Where the id of a document comes from: a column of the stream, its key, or the connector.

use rapidbyte_formats::KeyTexts;
use rapidbyte_sdk::prelude::*;

/// Where the id of a document comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdOf {
    /// The column of the stream with the name of the id.
    Column(usize),
    /// The key columns, at least one.
    Keys(Vec<usize>),
    /// The connector makes it.
    Made,
}

impl IdOf {
    /// `id`: the name of the id in a document. `ensure_key`: refuses a column that cannot be an id. Errors: `key_differs`,
    /// `key_missing`; of `ensure_key`.
    pub fn of(
        target: &Target,
        schema: &Schema,
        id: &str,
        ensure_key: impl Fn(&Field) -> Result<()>,
    ) -> Result<Self> {
        let is_upsert = target.write_mode == WriteMode::Upsert;
        if let Ok(column) = schema.index_of(id) {
            let is_key = target.primary_key.is_empty() || target.primary_key == [id];
            if is_upsert && !is_key {
                let text = format!(
                    "the stream has a column {id}, and the key is {}",
                    target.primary_key.join(", ")
                );
                return Err(Error::schema("key_differs", text).hint(format!(
                    "set primary_key: [{id}], or leave the column out with `columns:`"
                )));
            }
            ensure_key(schema.field(column))?;
            return Ok(Self::Column(column));
        }
        // Rows of an attempt that failed can be told apart only by an id that says whose they are.
        if target.write_mode == WriteMode::Append {
            return Ok(Self::Made);
        }
        let places = target.primary_key.iter().map(|name| {
            let place = schema.index_of(name)?;
            ensure_key(schema.field(place))?;
            Ok(place)
        });
        let places = places.collect::<Result<Vec<usize>>>()?;
        match places.is_empty() {
            false => Ok(Self::Keys(places)),
            true if is_upsert => Err(Error::schema("key_missing", "upsert needs a key")
                .hint("set primary_key of the stream")),
            true => Ok(Self::Made),
        }
    }

    /// The columns of the id. Empty if the connector makes it.
    pub fn columns(&self) -> &[usize] {
        match self {
            Self::Column(column) => std::slice::from_ref(column),
            Self::Keys(columns) => columns,
            Self::Made => &[],
        }
    }
}

/// Refuses a column whose equal values may have different texts: they would become two documents. Errors: `key_refused`.
pub fn ensure_one_text(field: &Field) -> Result<()> {
    let KeyTexts::Several(name) = KeyTexts::of(field) else {
        return Ok(());
    };
    let text = format!(
        "the column {:?} is {name} in the source, whose equal values may have different texts",
        field.name()
    );
    Err(Error::schema("key_refused", text)
        .hint("choose another key, or cast the column in a `query`")
        .in_column(field.name()))
}

/// The error for a row without a value in this column of its key.
pub fn null_key(column: &str) -> Error {
    Error::data("null_key", format!("the key column {column:?} is NULL"))
        .hint("leave such rows out, or choose another key")
        .in_column(column)
}

/// Whether the column that says that a row is deleted says so.
pub fn is_deleted(column: Option<&ArrayRef>, row: usize) -> bool {
    column.is_some_and(|column| {
        let flags = column.as_any().downcast_ref::<BooleanArray>();
        column.is_valid(row) && flags.is_none_or(|flags| flags.value(row))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use rapidbyte_sdk::{SchemaChanges, ipc};

    use super::*;

    fn id_of(mode: WriteMode, key: &[&str], columns: &[&str]) -> Result<IdOf> {
        let fields = columns
            .iter()
            .map(|name| Field::new(*name, DataType::Int64, true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let target = Target {
            stream: "t".into(),
            schema: ipc::encode_schema(&schema).unwrap(),
            write_mode: mode,
            primary_key: key.iter().map(|name| (*name).to_owned()).collect(),
            deleted_field: None,
            dedup_fields: Vec::new(),
            name: None,
            namespace: None,
            is_incremental: false,
            schema_changes: SchemaChanges::default(),
            rejects: None,
            deletes: None,
            repairs: None,
            stages: false,
        };
        IdOf::of(&target, &schema, "_id", |field| {
            match field.name().as_str() {
                "refused" => Err(Error::schema("key_refused", "refused")),
                _ => Ok(()),
            }
        })
    }

    #[test]
    fn an_id_is_a_column_the_key_or_made() {
        use WriteMode::{Append, Replace, Upsert};
        let all = ["a", "b", "_id", "refused"];
        for mode in [Append, Replace, Upsert] {
            assert_eq!(id_of(mode, &[], &all).unwrap(), IdOf::Column(2));
            assert_eq!(id_of(mode, &["_id"], &all).unwrap(), IdOf::Column(2));
        }
        let differs = id_of(Upsert, &["a"], &all).unwrap_err();
        assert_eq!(differs.code, "key_differs");
        assert_eq!(id_of(Append, &["a"], &all).unwrap(), IdOf::Column(2));
        let plain = ["a", "b", "refused"];
        for mode in [Replace, Upsert] {
            let key = id_of(mode, &["b", "a"], &plain).unwrap();
            assert_eq!(key.columns(), [1, 0]);
            let refused = id_of(mode, &["refused"], &plain).unwrap_err();
            assert_eq!(refused.code, "key_refused");
        }
        // Rows are only added: their key is of no use.
        assert_eq!(id_of(Append, &["refused"], &plain).unwrap(), IdOf::Made);
        assert_eq!(id_of(Replace, &[], &plain).unwrap(), IdOf::Made);
        assert_eq!(id_of(Upsert, &[], &plain).unwrap_err().code, "key_missing");
    }

    #[test]
    fn a_flag_that_is_null_deletes_nothing() {
        let flags = BooleanArray::from(vec![Some(true), Some(false), None]);
        let column: ArrayRef = Arc::new(flags);
        let deleted = [0, 1, 2].map(|row| is_deleted(Some(&column), row));
        assert_eq!(deleted, [true, false, false]);
        assert!(!is_deleted(None, 0));
    }
}
