//! Loads of one run.

use dest_file::Files;
use rapidbyte_sdk::destination::{Loading, Session};
use rapidbyte_sdk::prelude::*;

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
