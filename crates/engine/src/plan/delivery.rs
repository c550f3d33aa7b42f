//! How a stream goes on, and what tells its rows apart.

use arrow_schema::Schema;
use rapidbyte_runtime::{Increment, LateRows, Stream, Target, WriteMode};

use super::unknown_column;
use crate::document::{self, Document};
use crate::failure::{Class, Failure};
use crate::host::nearest;

/// How a stream is gone on with; none when it is read whole. `all` are its columns.
pub(super) fn increment(
    document: &Document,
    entry: usize,
    stream: &Stream,
    all: &Schema,
) -> Result<Option<Increment>, Failure> {
    let asked = &document.source.streams[entry];
    if asked.sync_mode != document::SyncMode::Incremental {
        return Ok(None);
    }
    for column in &asked.cursor_field {
        if all.index_of(column).is_err() {
            let mut failure = unknown_column(document, entry, stream, all, column);
            failure.locate(document, &format!("source.streams[{entry}].cursor_field"));
            return Err(failure);
        }
    }
    Ok(Some(Increment {
        cursor_fields: asked.cursor_field.clone(),
        initial: asked.cursor_initial.clone(),
        late_rows: match asked.late_rows {
            document::LateRows::Lag => LateRows::Lag(asked.lag.clone()),
            document::LateRows::Exact => LateRows::Exact,
        },
        may_repeat: document.destination.write_mode == document::WriteMode::Upsert,
    }))
}

/// With `upsert`: the columns that identify a row, and the one that says that it is deleted.
/// `target` comes with the source's own key.
pub(super) fn identify(
    document: &Document,
    entry: usize,
    schema: &Schema,
    target: &mut Target,
) -> Result<(), Failure> {
    if target.write_mode != WriteMode::Upsert {
        return Ok(());
    }
    let asked = &document.source.streams[entry];
    let destination = &document.destination;
    let of_stream = !asked.primary_key.is_empty();
    let key = match of_stream {
        true => &asked.primary_key,
        false => &destination.primary_key,
    };
    if !key.is_empty() {
        target.primary_key.clone_from(key);
    }
    let place = |name: &str, of_stream: bool| match of_stream {
        true => format!("source.streams[{entry}].{name}"),
        false => format!("destination.{name}"),
    };
    if target.primary_key.is_empty() {
        let text = "write_mode: upsert needs the columns that identify a row, and the source has no \
                    key that moves whole";
        let place = place("primary_key", false);
        return Err(Failure::at_key(document, &place, "no_primary_key", text)
            .in_stream(&target.stream)
            .hint("name them: primary_key: [id]"));
    }
    let named = [
        ("primary_key", of_stream, target.primary_key.as_slice()),
        (
            "deleted_field",
            asked.deleted_field.is_some(),
            asked
                .deleted_field
                .as_ref()
                .or(destination.deleted_field.as_ref())
                .map(std::slice::from_ref)
                .unwrap_or_default(),
        ),
    ];
    for (name, of_stream, columns) in named {
        let missing = columns
            .iter()
            .find(|column| schema.index_of(column).is_err());
        if let Some(column) = missing {
            let mut failure = Failure::new(
                Class::Config,
                "unknown_column",
                format!("no column {column:?} moves"),
            );
            failure.locate(document, &place(name, of_stream));
            let names = schema.fields().iter().map(|field| field.name().as_str());
            return Err(failure
                .in_stream(&target.stream)
                .hint(match nearest(column, names) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => "names are those in the destination, behind rename".into(),
                }));
        }
    }
    target.deleted_field = named[1].2.first().cloned();
    Ok(())
}
