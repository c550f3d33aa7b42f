//! What a stream's columns are: declared, or guessed from the beginning of its files.

use rapidbyte_sdk::files;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::convert;
use crate::files::FileStream;
use crate::read::CHUNK_BYTES;

/// A stream's columns and how they became known.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub schema: SchemaRef,
    pub notes: Vec<String>,
}

/// The declared columns; without a declaration the guessed ones.
pub(crate) fn know(settings: &Settings, stream: &FileStream) -> Result<Known> {
    let declared = settings
        .schemas
        .get(&stream.name)
        .or(settings.schema.as_ref());
    match declared {
        Some(schema) => Ok(Known {
            schema: schema.clone(),
            notes: Vec::new(),
        }),
        None => guess(settings, stream),
    }
}

/// Looks at the files in order until there are enough rows or bytes.
fn guess(settings: &Settings, stream: &FileStream) -> Result<Known> {
    let mut left = settings.sample_bytes;
    // A record within the sample is no larger than the sample.
    let max_record_bytes = usize::try_from(left)
        .unwrap_or(usize::MAX)
        .saturating_add(1);
    let failed = |error, path: &str| convert(error, &stream.name, Some(path));
    let mut sampler = settings
        .format
        .sampler(settings.sample_rows, max_record_bytes)
        .map_err(|error| convert(error, &stream.name, None))?;
    for (path, _) in &stream.files {
        if left == 0 || sampler.is_done() {
            break;
        }
        let input = files::open(path)?;
        let mut offset = 0;
        sampler.begin_file();
        loop {
            let len = left.min(CHUNK_BYTES.into());
            if len == 0 || sampler.is_done() {
                sampler.end_of_sample();
                break;
            }
            // At most `CHUNK_BYTES`.
            let bytes = input.read(offset, len as u32)?;
            let _phase = phase::enter(Kind::Decode);
            if bytes.is_empty() {
                sampler.end_of_file().map_err(|error| failed(error, path))?;
                break;
            }
            offset += bytes.len() as u64;
            left = left.saturating_sub(bytes.len() as u64);
            sampler.push(&bytes).map_err(|error| failed(error, path))?;
        }
    }
    let guessed = sampler
        .finish()
        .map_err(|error| convert(error, &stream.name, None))?;
    if guessed.schema.fields().is_empty() {
        let text = "no sampled row names a column";
        return Err(Error::schema("no_columns", text)
            .hint("declare the columns under schema:")
            .in_stream(&stream.name));
    }
    Ok(Known {
        schema: guessed.schema,
        notes: guessed.notes,
    })
}
