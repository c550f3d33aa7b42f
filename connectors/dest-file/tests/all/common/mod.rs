//! Loads of one run.

use dest_file::Files;
use rapidbyte_sdk::destination::{Loading, Session};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;

/// A stream that is written whole.
pub fn target(stream: &str, schema: &Schema, write_mode: WriteMode) -> Target {
    Target {
        stream: stream.into(),
        schema: ipc::encode_schema(schema).unwrap(),
        write_mode,
        primary_key: Vec::new(),
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
    }
}

/// Lets a run in and begins to write.
pub fn begin(files: &mut Session<Files>, target: &Target) -> Result<Loading<Files>> {
    let mut load = files.begin(&[request(target)])?;
    load.open_writer(None)?;
    Ok(load)
}

/// The request of a load of one stream.
pub fn request(target: &Target) -> LoadRequest {
    LoadRequest {
        target: target.clone(),
        run: Run {
            pipeline: "p".into(),
            id: "r".into(),
        },
    }
}
