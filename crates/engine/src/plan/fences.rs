//! Whether `when_running: replace` would work, asked before anything is planned: for the hint of a run that is refused.

use arrow_schema::Schema;
use rapidbyte_runtime::{Clock, Destination, Target};
use rapidbyte_wire::ipc;

use super::modes::{rejects, schema_changes, write_mode};
use super::open::{load_destination, open_session, planning_sandbox};
use crate::document::{Document, Stream, SyncMode};
use crate::host::Host;

/// Whether the destination fences runs of the pipeline, as far as this can be told without asking a server: a run that
/// is refused says so at once. False if the destination cannot be opened.
pub(crate) fn fences_runs(document: &Document, host: &Host) -> bool {
    let clock = Clock::new();
    let Ok(stage) = load_destination(document, host, &clock) else {
        return false;
    };
    if !stage.spec.supports_checkpoints || stage.grants.has_network() {
        return stage.spec.supports_checkpoints;
    }
    let sandbox = planning_sandbox(document, host, &clock, &stage);
    let session = open_session(document, &stage, sandbox);
    session.is_ok_and(|mut session| fences_all(document, &mut session))
}

/// Whether an open destination fences runs of all streams of the pipeline. False if it does not say so.
pub(crate) fn fences_all(document: &Document, destination: &mut Destination) -> bool {
    let supports_checkpoints = destination
        .describe()
        .is_ok_and(|spec| spec.supports_checkpoints);
    let mut streams = document.source.streams.iter();
    supports_checkpoints
        && streams.all(|stream| {
            let target = target(document, stream);
            target.is_some_and(|target| {
                let standing = destination.standing(&target, &document.pipeline);
                standing.is_ok_and(|standing| standing.fences)
            })
        })
}

/// A stream as far as the pipeline file names it. The source alone knows the streams of a pattern, and one name stands
/// for all of them.
fn target(document: &Document, stream: &Stream) -> Option<Target> {
    let name = match stream.is_pattern() {
        true => "stream",
        false => stream.name.as_str(),
    };
    Some(Target {
        stream: name.to_owned(),
        name: stream
            .target
            .as_ref()
            .and_then(|target| target.name.clone()),
        namespace: stream
            .target
            .as_ref()
            .and_then(|target| target.schema.clone()),
        schema: ipc::encode_schema(&Schema::empty()).ok()?,
        write_mode: write_mode(document, stream),
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        is_incremental: stream.sync_mode == SyncMode::Incremental,
        schema_changes: schema_changes(document, stream),
        rejects: rejects(document),
        deletes: None,
        repairs: None,
        stages: false,
    })
}
