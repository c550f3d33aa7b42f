//! Deletes without change capture: a run reads the keys of all rows of a stream, and the destination deletes or marks
//! the rows whose keys did not come. This file decides which streams do so, and what prevents it.

use arrow_schema::Schema;
use rapidbyte_runtime::{DeleteAction, Deletes, Spec, Target, WriteMode};
use rapidbyte_wire::ipc;

use super::modes::write_mode;
use crate::document::{self, DeletesAction, Document};
use crate::failure::{Class, Failure};

const NEED_UPSERT: &str = "deletes_need_upsert";
const NEED_ALL_ROWS: &str = "deletes_need_all_rows";
const UNSUPPORTED: &str = "deletes_unsupported";

/// The second read of a stream.
#[derive(Clone)]
pub(crate) struct KeyRead {
    /// The columns of the key, under the source's names.
    pub(crate) columns: Vec<String>,
    /// The `Schema` message that the reader must give.
    pub(crate) schema: Vec<u8>,
}

/// How the destination is asked to treat the rows that the source has deleted.
pub(super) fn asked(document: &Document, stream: &document::Stream) -> Option<Deletes> {
    if write_mode(document, stream) != WriteMode::Upsert {
        return None;
    }
    let asked = document.deletes_of(stream)?;
    Some(Deletes {
        action: match (asked.action, &asked.column) {
            (DeletesAction::Mark, Some(column)) => DeleteAction::Mark(column.clone()),
            _ => DeleteAction::Delete,
        },
        max_share: asked.max_share.millionths(),
    })
}

/// Refuses pipelines whose keys do not go together with `deletes`, and connectors that cannot compare keys. `limit` is
/// the argument of the run.
pub(super) fn refuse(
    document: &Document,
    (source, source_name): (&Spec, &str),
    (destination, destination_name): (&Spec, &str),
    limit: Option<u64>,
) -> Result<(), Failure> {
    for (index, stream) in document.source.streams.iter().enumerate() {
        if document.deletes_of(stream).is_none() {
            continue;
        }
        let entry = format!("source.streams[{index}]");
        let key = match stream.deletes {
            Some(_) => format!("{entry}.deletes"),
            None => "deletes".to_owned(),
        };
        let refused = |code, text: &str| Err(Failure::at_key(document, &key, code, text));
        if asked(document, stream).is_none() {
            let is_shared = stream.deletes.is_none();
            if is_shared && has_upsert(document) {
                continue;
            }
            let text = "only an upsert keeps the rows of earlier runs that deletes compares";
            return refused(NEED_UPSERT, text)
                .map_err(|failure| failure.hint("set write_mode: upsert, or remove deletes"));
        }
        let partly = match stream {
            _ if stream.filter.is_some() => Some(("where", "where")),
            _ if !stream.transforms.is_empty() => Some(("transforms", "transforms")),
            _ => None,
        };
        if let Some((key, name)) = partly {
            let key = format!("{entry}.{key}");
            let text = format!(
                "deletes compares the keys of all rows as the source has them, and {name} changes which rows and keys \
                 the target has"
            );
            return Err(
                Failure::at_key(document, &key, NEED_ALL_ROWS, text).hint(format!(
                    "remove {name}, or set deletes: {{ mode: none }} for this stream"
                )),
            );
        }
        if limit.is_some() {
            let text =
                "with --limit the run moves only some rows, and deletes compares all of them";
            return refused(NEED_ALL_ROWS, text).map_err(|failure| {
                failure.hint("run without --limit, or remove deletes for this run")
            });
        }
        if !source.repeatable_reads {
            let text = format!(
                "{source_name} cannot read the keys of a stream a second time in the snapshot of its rows"
            );
            return refused(UNSUPPORTED, &text)
                .map_err(|failure| failure.hint("remove deletes, or read from another source"));
        }
        if !destination.compares_keys {
            let text = format!("{destination_name} cannot compare keys with those of its target");
            return refused(UNSUPPORTED, &text).map_err(|failure| {
                failure.hint("remove deletes, or write to another destination")
            });
        }
    }
    Ok(())
}

fn has_upsert(document: &Document) -> bool {
    let mut streams = document.source.streams.iter();
    streams.any(|stream| write_mode(document, stream) == WriteMode::Upsert)
}

/// The second read of a stream whose keys are compared. `read` and `renamed` are the columns that move, under their
/// names in the source and in the destination.
pub(super) fn key_read(
    document: &Document,
    entry: usize,
    (read, renamed): (&Schema, &Schema),
    target: &Target,
) -> Result<Option<KeyRead>, Failure> {
    let Some(deletes) = &target.deletes else {
        return Ok(None);
    };
    if let DeleteAction::Mark(column) = &deletes.action
        && renamed.index_of(column).is_ok()
    {
        let key = match document.source.streams[entry].deletes {
            Some(_) => format!("source.streams[{entry}].deletes.column"),
            None => "deletes.column".to_owned(),
        };
        let text = format!(
            "{column:?} is a column of the stream, and each upsert of a row would overwrite its mark"
        );
        return Err(Failure::at_key(document, &key, "mark_column_moved", text)
            .in_stream(&target.stream)
            .hint("name a column that the stream does not have, or rename the stream's column with rename"));
    }
    let broken =
        |text: String| Failure::new(Class::Run, "contract_broken", text).in_stream(&target.stream);
    let places = target.primary_key.iter().map(|name| renamed.index_of(name));
    let places = places.collect::<Result<Vec<_>, _>>();
    let places = places.map_err(|e| broken(e.to_string()))?;
    let schema = read.project(&places).map_err(|e| broken(e.to_string()))?;
    Ok(Some(KeyRead {
        columns: schema.fields().iter().map(|f| f.name().clone()).collect(),
        schema: ipc::encode_schema(&schema).map_err(|e| broken(e.to_string()))?,
    }))
}
