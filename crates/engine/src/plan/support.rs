//! Whether a destination supports what a pipeline asks of it.

use rapidbyte_runtime::{Spec, WriteMode};

use super::delivery::refuse_repeats;
use super::modes::{rejects, write_mode, write_mode_key, write_mode_name};
use super::open::Stage;
use super::refused::CANNOT_REPLACE_RUN;
use crate::document::{self, Document, StreamTarget, WhenRunning};
use crate::failure::Failure;

/// Refuses modes that the destination does not know, and settings that it cannot follow.
pub(super) fn check_modes(
    document: &Document,
    destination: &Stage,
    full_refresh: bool,
) -> Result<(), Failure> {
    let known = &destination.spec.write_modes;
    let name = destination.connector.name();
    if document.when_running == WhenRunning::Replace && !destination.spec.supports_checkpoints {
        let text =
            format!("{name} does not fence older runs: one of them could commit after this run");
        return Err(cannot_replace_run(document, text));
    }
    refuse_backfill(document)?;
    refuse_targets(document, destination)?;
    for (index, stream) in document.source.streams.iter().enumerate() {
        let mode = write_mode(document, stream);
        let grows = stream.sync_mode == document::SyncMode::Incremental;
        let key = format!("source.streams[{index}]");
        if !known.contains(&mode) {
            let known: Vec<_> = known.iter().map(|mode| write_mode_name(*mode)).collect();
            let text = format!(
                "{name} does not support write_mode {}",
                write_mode_name(mode)
            );
            let key = write_mode_key(document, index);
            return Err(
                Failure::at_key(document, &key, "unsupported_write_mode", text)
                    .hint(format!("it knows {}", known.join(", "))),
            );
        }
        if grows && !destination.spec.supports_checkpoints {
            let text = format!("{name} cannot store a cursor");
            return Err(
                Failure::at_key(document, &key, "unsupported_sync_mode", text)
                    .hint("set sync_mode: full_refresh, or write to another destination"),
            );
        }
        let replaces = grows && full_refresh && mode == WriteMode::Append;
        if replaces && !known.contains(&WriteMode::Replace) {
            let text = format!("{name} cannot replace rows, which --full-refresh needs");
            return Err(
                Failure::at_key(document, &key, "unsupported_write_mode", text)
                    .hint("empty the target yourself, then `rapidbyte state clear PIPELINE --all`"),
            );
        }
    }
    refuse_rejects(document, destination)?;
    refuse_repeats(document, destination)
}

/// A destination that does not know these keys would write to another target.
fn refuse_targets(document: &Document, destination: &Stage) -> Result<(), Failure> {
    let Spec {
        names_targets,
        has_namespaces,
        ..
    } = destination.spec;
    for (index, stream) in document.source.streams.iter().enumerate() {
        let Some(StreamTarget { name, schema }) = &stream.target else {
            continue;
        };
        let refused = [
            ("name", name.is_some() && !names_targets, "names of targets"),
            ("schema", schema.is_some() && !has_namespaces, "schemas"),
        ];
        if let Some((key, _, what)) = refused.iter().find(|(_, is_refused, _)| *is_refused) {
            let text = format!("{} does not have {what}", destination.connector.name());
            let key = format!("source.streams[{index}].target.{key}");
            return Err(Failure::at_key(document, &key, "unsupported_target", text)
                .hint("remove the key: the configuration of the destination says where rows go"));
        }
    }
    Ok(())
}

/// Without a key, rows that come again would be new rows.
fn refuse_backfill(document: &Document) -> Result<(), Failure> {
    let streams = document.source.streams.iter().enumerate();
    let mut appended =
        streams.filter(|(_, stream)| document.write_mode_of(stream) != document::WriteMode::Upsert);
    let fills = |policy: Option<document::SchemaChanges>| {
        policy.is_some_and(|policy| policy.backfill == Some(true))
    };
    let has_upsert = appended.clone().count() < document.source.streams.len();
    let key = match appended.find(|(_, stream)| fills(stream.schema_changes)) {
        Some((index, _)) => format!("source.streams[{index}].schema_changes.backfill"),
        None if fills(Some(document.schema_changes)) && !has_upsert => {
            "schema_changes.backfill".to_owned()
        }
        None => return Ok(()),
    };
    let text = "backfill updates rows that are there, which needs write_mode: upsert";
    Err(
        Failure::at_key(document, &key, "backfill_needs_upsert", text).hint(
            "set write_mode: upsert, or remove backfill: old rows then have NULL in new columns",
        ),
    )
}

/// Refuses rejects where the destination does not keep them.
pub(crate) fn refuse_rejects(document: &Document, destination: &Stage) -> Result<(), Failure> {
    if destination.spec.supports_rejects || rejects(document).is_none() {
        return Ok(());
    }
    let name = destination.connector.name();
    let text = format!("{name} has no place for rejects");
    let key = "rejects";
    Err(Failure::at_key(document, key, "unsupported_rejects", text)
        .hint("remove rejects: then the first record that fails stops its stream"))
}

/// The older run continues, and nothing would stop its last commit.
pub(super) fn cannot_replace_run(document: &Document, text: String) -> Failure {
    let key = "when_running";
    Failure::at_key(document, key, CANNOT_REPLACE_RUN, text)
        .hint("set when_running: wait or when_running: refuse")
}
