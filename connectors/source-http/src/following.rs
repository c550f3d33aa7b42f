//! A read that ends at a record that its columns do not hold, so that the host can plan the stream with other columns.

use rapidbyte_formats::jsonl::{Sampler, UnknownKeys};
use rapidbyte_formats::{Follows, FormatError, Rejected};
use rapidbyte_json_columns::Known;
use rapidbyte_sdk::prelude::*;

use crate::JSON_VALUE;
use crate::known::columns;
use crate::settings::Settled;

/// Columns that the records of a page may add to the known ones.
const MAX_NEW_COLUMNS: usize = 2000;

/// The changes that the host follows.
pub(crate) struct Following {
    stream: Settled,
    schema: SchemaRef,
    follows: Follows,
}

impl Following {
    /// `None` if the columns are declared, or if the host follows no change.
    pub(crate) fn new(stream: &Settled, known: &Known, request: &ReadRequest) -> Option<Self> {
        let follows = Follows {
            columns: request.follows_columns && stream.unknown_keys == UnknownKeys::Add,
            types: request.follows_types.clone(),
        };
        let is_inferred = known.inferred && request.records.is_none();
        (is_inferred && follows != Follows::default()).then(|| Self {
            stream: stream.clone(),
            schema: known.schema.clone(),
            follows,
        })
    }

    /// Whether other columns may hold a refused record.
    pub(crate) fn may_cure(&self, error: &FormatError) -> bool {
        self.follows.may_cure(error, &self.schema)
    }

    /// The first record that is kept as a reject, and that other columns may hold.
    pub(crate) fn first_curable<'a>(&self, rejects: &'a [Rejected]) -> Option<&'a Rejected> {
        self.follows.first_curable(rejects, &self.schema)
    }

    /// The columns of the records before, and of the page with these lines. `None` if they are the known ones.
    pub(crate) fn change(self, lines: &[u8], cause: Error) -> Result<Option<Change>> {
        let sampler = Sampler::new(u64::MAX, usize::MAX).with_times().lenient();
        let mut sampler = sampler.after(&self.schema);
        let looked = sampler.push(lines).and_then(|()| sampler.end_of_file());
        if looked.is_err() || sampler.columns() > self.schema.fields().len() + MAX_NEW_COLUMNS {
            // The decoder finds the same error.
            return Ok(None);
        }
        let inferred = sampler.finish().map_err(Error::internal)?;
        let found = columns(&self.stream).seen(&inferred)?;
        let Some(found) = self.follows.merge(&self.schema, &found) else {
            return Ok(None);
        };
        let mut described = Stream::new(&self.stream.name, &found)?;
        described.source_types = vec![JSON_VALUE.into(); found.fields().len()];
        described.inferred = columns(&self.stream).inferred_names(&found);
        described.primary_key = self.stream.primary_key;
        let cursor = self.stream.incremental.map(|cursor| cursor.field);
        described.cursor_fields = cursor.into_iter().collect();
        Ok(Some(Change { described, cause }))
    }
}
