//! The modes and policies that a pipeline asks of a destination.

use rapidbyte_runtime::{
    DroppedColumn, NewColumn, Rejects, RenamedColumn, SchemaChanges, SyncMode, TypeChange,
    WriteMode,
};

use crate::document::{self, Document};

/// The write mode that the pipeline asks for.
pub(crate) fn write_mode(document: &Document, stream: &document::Stream) -> WriteMode {
    match document.write_mode_of(stream) {
        document::WriteMode::Append => WriteMode::Append,
        document::WriteMode::Replace => WriteMode::Replace,
        document::WriteMode::Upsert => WriteMode::Upsert,
    }
}

/// The key that decides on the write mode of a stream.
pub(crate) fn write_mode_key(document: &Document, entry: usize) -> String {
    match document.source.streams[entry].write_mode {
        Some(_) => format!("source.streams[{entry}].write_mode"),
        None => "destination.write_mode".to_owned(),
    }
}

/// The policy for differences between the columns of a stream and the columns of its target.
pub(crate) fn schema_changes(document: &Document, stream: &document::Stream) -> SchemaChanges {
    let asked = stream.schema_changes.unwrap_or_default();
    let asked = asked.or(document.schema_changes);
    SchemaChanges {
        new_column: match asked.new_column.unwrap_or_default() {
            document::NewColumn::Add => NewColumn::Add,
            document::NewColumn::Ignore => NewColumn::Ignore,
            document::NewColumn::Fail => NewColumn::Fail,
        },
        dropped_column: match asked.dropped_column.unwrap_or_default() {
            document::DroppedColumn::Keep => DroppedColumn::Keep,
            document::DroppedColumn::Drop => DroppedColumn::Drop,
            document::DroppedColumn::Fail => DroppedColumn::Fail,
        },
        type_change: match asked.type_change.unwrap_or_default() {
            document::TypeChange::Widen => TypeChange::Widen,
            document::TypeChange::Rewrite => TypeChange::Rewrite,
            document::TypeChange::Fail => TypeChange::Fail,
        },
        renamed: match asked.renamed.unwrap_or_default() {
            document::Renamed::Detect => RenamedColumn::Detect,
            document::Renamed::Off => RenamedColumn::Off,
        },
    }
}

/// Whether the pipeline says what happens to types.
pub(super) fn says_types(document: &Document, stream: &document::Stream) -> bool {
    let asked = stream.schema_changes.unwrap_or_default();
    asked.or(document.schema_changes).type_change.is_some()
}

/// The same for a run whose arguments leave columns out: their columns in the target stay as they are.
pub(super) fn for_one_run(policy: SchemaChanges) -> SchemaChanges {
    SchemaChanges {
        dropped_column: DroppedColumn::Keep,
        type_change: TypeChange::Fail,
        ..policy
    }
}

pub(super) fn sync_mode(mode: document::SyncMode) -> SyncMode {
    match mode {
        document::SyncMode::FullRefresh => SyncMode::FullRefresh,
        document::SyncMode::Incremental => SyncMode::Incremental,
        document::SyncMode::Cdc => SyncMode::Cdc,
    }
}

/// A mode's name in the pipeline file.
pub fn sync_mode_name(mode: SyncMode) -> &'static str {
    match mode {
        SyncMode::FullRefresh => "full_refresh",
        SyncMode::Incremental => "incremental",
        SyncMode::Cdc => "cdc",
    }
}

/// A mode's name in the pipeline file.
pub fn write_mode_name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Append => "append",
        WriteMode::Replace => "replace",
        WriteMode::Upsert => "upsert",
    }
}

/// How the rejects of a stream are kept. `None`: the first reject fails the stream.
pub(crate) fn rejects(document: &Document) -> Option<Rejects> {
    let rejects = &document.rejects;
    let to = rejects.to.clone().filter(|_| rejects.are_allowed())?;
    let max_rows = rejects.max_rows;
    Some(Rejects {
        to,
        max_rows,
        replayed: Vec::new(),
    })
}
