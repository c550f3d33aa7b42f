//! The records of the contract, from the SDK's types to the host's and back.
//!
//! Both are made of the same files (`wit/`), each by the generator of its side. Only native code sees both.

use rapidbyte_runtime as host;
use rapidbyte_sdk as sdk;

/// A function between two enums with the same names.
macro_rules! same {
    ($name:ident, $from:path => $to:path { $($case:ident),+ }) => {
        fn $name(value: $from) -> $to {
            use $from as From;
            use $to as To;
            match value { $(From::$case => To::$case),+ }
        }
    };
}

/// A record with some fields as they are, and others as an expression says.
macro_rules! record {
    ($from:ident => $side:ident::$to:ident { $($field:ident),* ; $($other:ident : $value:expr),* }) => {
        $side::$to { $($other: $value,)* $($field: $from.$field,)* }
    };
}

same!(sync_mode, sdk::SyncMode => host::SyncMode { FullRefresh, Incremental, Cdc });
same!(write_mode, sdk::WriteMode => host::WriteMode { Append, Replace, Upsert });
same!(write_mode_back, host::WriteMode => sdk::WriteMode { Append, Replace, Upsert });
same!(fit, sdk::Fit => host::Fit { Exact, Widened, Checked, Lossy, Refused, Ignored });
same!(new_column, host::NewColumn => sdk::NewColumn { Add, Ignore, Fail });
same!(dropped_column, host::DroppedColumn => sdk::DroppedColumn { Keep, Drop, Fail });
same!(type_change, host::TypeChange => sdk::TypeChange { Widen, Rewrite, Fail });
same!(renamed, host::RenamedColumn => sdk::RenamedColumn { Detect, Off });

fn error_kind(kind: sdk::ErrorKind) -> host::ErrorKind {
    match kind {
        sdk::ErrorKind::Config => host::ErrorKind::Config,
        sdk::ErrorKind::Auth => host::ErrorKind::Auth,
        sdk::ErrorKind::Connection => host::ErrorKind::Connection,
        sdk::ErrorKind::Transient => host::ErrorKind::Transient,
        sdk::ErrorKind::RateLimited(ms) => host::ErrorKind::RateLimited(ms),
        sdk::ErrorKind::Data => host::ErrorKind::Data,
        sdk::ErrorKind::Schema => host::ErrorKind::Schema,
        sdk::ErrorKind::Superseded => host::ErrorKind::Superseded,
        sdk::ErrorKind::Internal => host::ErrorKind::Internal,
    }
}

pub fn error(error: sdk::Error) -> host::ConnectorError {
    let kind = error_kind(error.kind);
    record!(error => host::ConnectorError {
        code, message, hint, stream, column, location; kind: kind
    })
}

pub fn spec(spec: sdk::Spec) -> host::Spec {
    let sync_modes = spec.sync_modes.into_iter().map(sync_mode).collect();
    let write_modes = spec.write_modes.into_iter().map(write_mode).collect();
    record!(spec => host::Spec {
        name, version, description, config_schema, native_forms, supports_filter, supports_queries,
        supports_checkpoints, deduplicates_appends, supports_rejects, reads_together, commits_together,
        repeatable_reads, compares_keys, names_targets, has_namespaces, digest_forms;
        sync_modes: sync_modes, write_modes: write_modes
    })
}

pub fn check_item(item: sdk::CheckItem) -> host::CheckItem {
    let problem = item.problem.map(error);
    record!(item => host::CheckItem { name, detail; problem: problem })
}

pub fn stream(stream: sdk::Stream) -> host::Stream {
    record!(stream => host::Stream {
        name, schema, source_types, primary_key, cursor_fields, estimated_rows, estimated_bytes, notes, inferred;
    })
}

pub fn reject(reject: sdk::Reject) -> host::Reject {
    record!(reject => host::Reject { data, is_cut, location, column, code, message, read_with; })
}

fn reject_back(reject: host::Reject) -> sdk::Reject {
    record!(reject => sdk::Reject { data, is_cut, location, column, code, message, read_with; })
}

fn increment(increment: host::Increment) -> sdk::Increment {
    let late_rows = match increment.late_rows {
        host::LateRows::Lag(lag) => sdk::LateRows::Lag(lag),
        host::LateRows::Exact => sdk::LateRows::Exact,
    };
    record!(increment => sdk::Increment {
        cursor_fields, initial, allow_duplicates; late_rows: late_rows
    })
}

pub fn selection(selection: &host::Selection) -> sdk::Selection {
    let selection = selection.clone();
    let increment = selection.increment.map(increment);
    record!(selection => sdk::Selection {
        stream, columns, filter, query, cursor; increment: increment
    })
}

pub fn read_request(request: &host::ReadRequest) -> sdk::ReadRequest {
    let request = request.clone();
    let increment = request.increment.map(increment);
    let records = request.records;
    let records = records.map(|records| records.into_iter().map(reject_back).collect());
    let rows = request.rows;
    let rows = rows.map(|rows| record!(rows => sdk::KeyedRows { recipe, keys; }));
    record!(request => sdk::ReadRequest {
        stream, snapshot, cursor, columns, filter, query, forms, batch_bytes, max_record_bytes,
        keeps_rejects, schema, follows_columns, follows_types; increment: increment, records: records, rows: rows
    })
}

pub fn target(target: &host::Target) -> sdk::Target {
    let target = target.clone();
    let changes = target.schema_changes;
    let schema_changes = sdk::SchemaChanges {
        new_column: new_column(changes.new_column),
        dropped_column: dropped_column(changes.dropped_column),
        type_change: type_change(changes.type_change),
        renamed: renamed(changes.renamed),
    };
    let write_mode = write_mode_back(target.write_mode);
    let rejects = target
        .rejects
        .map(|rejects| record!(rejects => sdk::Rejects { to, max_rows, replayed; }));
    let deletes = target.deletes.map(|deletes| sdk::Deletes {
        action: match deletes.action {
            host::DeleteAction::Delete => sdk::DeleteAction::Delete,
            host::DeleteAction::Mark(column) => sdk::DeleteAction::Mark(column),
        },
        max_share: deletes.max_share,
    });
    let repairs = target
        .repairs
        .map(|repairs| record!(repairs => sdk::Repair { recipe, present, gone; }));
    record!(target => sdk::Target {
        stream, name, namespace, schema, primary_key, deleted_field, dedup_fields, is_incremental, stages;
        write_mode: write_mode, schema_changes: schema_changes, rejects: rejects, deletes: deletes,
        repairs: repairs
    })
}

pub fn plan(plan: sdk::Plan) -> host::Plan {
    let columns = plan.columns.into_iter().map(|column| {
        let fit = fit(column.fit);
        record!(column => host::ColumnPlan { column, target_type, note, stored_type; fit: fit })
    });
    let columns = columns.collect();
    record!(plan => host::Plan {
        location, statements, notes, is_new, new_columns; columns: columns
    })
}

pub fn progress(progress: sdk::Progress) -> host::Progress {
    record!(progress => host::Progress { epoch, seq, cursor, run_id, complete, lost_rows; })
}

pub fn worker(worker: sdk::Worker) -> host::Worker {
    record!(worker => host::Worker { run_id, place, seconds, process; })
}

fn run(run: host::Run) -> sdk::Run {
    record!(run => sdk::Run { pipeline, id; })
}

pub fn presence(presence: &host::Presence) -> sdk::Presence {
    let presence = presence.clone();
    let run = run(presence.run);
    record!(presence => sdk::Presence { place, process, is_over; run: run })
}

pub fn load_request(request: &host::LoadRequest) -> sdk::LoadRequest {
    sdk::LoadRequest {
        target: target(&request.target),
        run: run(request.run.clone()),
    }
}

pub fn part(part: sdk::Part) -> host::Part {
    record!(part => host::Part { data, rows, bytes; })
}

pub fn part_back(part: host::Part) -> sdk::Part {
    record!(part => sdk::Part { data, rows, bytes; })
}

pub fn receipt(receipt: sdk::Receipt) -> host::Receipt {
    record!(receipt => host::Receipt { rows, bytes, location, deleted; })
}
