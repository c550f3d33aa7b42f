//! Rejects as documents, in a collection of their own. Their `_id` is like the one of a row. `first` and `_id` are their
//! place in the order.

use rapidbyte_bson::{Builder, Value};
use rapidbyte_document_store::{Naming as _, Record};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::bulk::rows_missing;
use crate::config::Settings;
use crate::ledger;

/// The document of a reject.
pub(crate) fn encode(record: &Record<'_>) -> Result<Vec<u8>> {
    let reject = record.reject;
    let mut document = Builder::new();
    document
        .binary("_id", &record.id.bytes())
        .binary("first", record.first)
        .value("rejected_at", &Value::DateTime(record.rejected_at_ms))
        .string("pipeline", &record.run.pipeline)
        .string("run_id", &record.run.id)
        .string("stream", record.stream)
        .string("target", record.target)
        .string("origin", record.origin.name())
        .string("code", &reject.code)
        .string("message", &reject.message);
    for (name, text) in [
        ("location", &reject.location),
        ("column", &reject.column),
        ("read_with", &reject.read_with),
    ] {
        if let Some(text) = text {
            document.string(name, text);
        }
    }
    match std::str::from_utf8(&reject.data) {
        Ok(record) => document.string("record", record),
        Err(_) => document.binary("record", &reject.data),
    };
    document.boolean("record_is_cut", reject.is_cut);
    document.finish().map_err(Error::internal)
}

/// Adds documents of rejects. The server may not owe an answer.
pub(crate) fn add(
    client: &mut Client,
    settings: &Settings,
    to: &str,
    documents: &[Vec<u8>],
) -> Result<()> {
    let rows = documents.len() as u64;
    let mut command = Builder::new();
    command.string("insert", to).boolean("ordered", false);
    settings.add_write_concern(&mut command);
    let written = client.write(
        &settings.database,
        command,
        "documents",
        &documents.concat(),
    )?;
    if let Some(concern) = written.concern {
        return Err(ledger::unconcerned(&concern.message));
    }
    if let Some(failed) = written.errors.into_iter().next() {
        let to = settings.namespace(to);
        let text = format!("{to} does not take rejects: {}", failed.error.message);
        return Err(Error::new(failed.error.kind, &failed.error.code, text).at("rejects.to"));
    }
    match written.count == rows {
        true => Ok(()),
        false => {
            let count = written.count;
            let text = format!(
                "the server says that it wrote {count} of {rows} rejects, and names no error"
            );
            Err(rows_missing(text))
        }
    }
}

/// Makes the index by which rejects are read in their order.
pub(crate) fn make(client: &mut Client, settings: &Settings, to: &str) -> Result<()> {
    let mut command = Builder::new();
    command
        .string("createIndexes", to)
        .open_array("indexes")
        .open_document("0")
        .open_document("key")
        .int32("pipeline", 1)
        .int32("first", 1)
        .int32("_id", 1)
        .close()
        .string("name", "pipeline_1_first_1__id_1")
        .close()
        .close();
    settings.add_write_concern(&mut command);
    client.command(&settings.database, command).map(|_| ())
}
