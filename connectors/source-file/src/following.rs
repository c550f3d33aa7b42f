//! A read that ends at a record that its columns do not hold, so that the host can plan the stream with other columns.

use rapidbyte_formats::csv::Headers;
use rapidbyte_formats::jsonl::UnknownKeys;
use rapidbyte_formats::{Follows, Format, FormatError, Limits, Rejected};
use rapidbyte_sdk::prelude::*;

use crate::FOLDER_NAME;
use crate::files::FileStream;
use crate::known::Known;
use crate::sample::look_again;
use crate::settings::{FileFormat, Settings};

/// The changes that the host follows, and where to look for other columns.
pub(crate) struct Following {
    settings: Settings,
    stream: FileStream,
    /// The columns of the files.
    schema: SchemaRef,
    follows: Follows,
    limits: Limits,
}

impl Following {
    /// `None` if the columns are declared, or if the host follows no change.
    pub(crate) fn new(
        settings: &Settings,
        stream: &FileStream,
        known: &Known,
        request: &ReadRequest,
        limits: Limits,
    ) -> Option<Self> {
        let adds_columns = match &settings.format {
            FileFormat::Text(Format::Csv(dialect)) => dialect.headers == Headers::Union,
            FileFormat::Text(Format::Jsonl | Format::Json) => {
                settings.unknown_keys == UnknownKeys::Add
            }
            FileFormat::Columns(..) => false,
        };
        let follows = Follows {
            columns: request.follows_columns && adds_columns,
            types: request.follows_types.clone(),
        };
        let is_inferred = known.inferred && request.records.is_none();
        let follows_any = follows != Follows::default();
        (is_inferred && follows_any).then(|| Self {
            settings: settings.clone(),
            stream: stream.clone(),
            schema: known.schema.clone(),
            follows,
            limits,
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

    /// The columns of all records. `None` if they are the known ones.
    pub(crate) fn change(self, cause: Error) -> Result<Option<Change>> {
        let found = look_again(
            &self.settings,
            &self.stream,
            &self.schema,
            &self.follows,
            self.limits,
        )?;
        let Some(found) = found else {
            return Ok(None);
        };
        let (all, source_types) = match &self.settings.partitions {
            None => (found.clone(), Vec::new()),
            Some(partitions) => {
                let folders = partitions.add_to(&found)?;
                let added = folders.fields().len() - found.fields().len();
                (folders, vec![FOLDER_NAME.to_owned(); added])
            }
        };
        let mut described = Stream::new(&self.stream.name, &all)?;
        let of_files = self.settings.text_type().to_owned();
        described.source_types = vec![of_files; found.fields().len()];
        described.source_types.extend(source_types);
        described.estimated_bytes = Some(self.stream.bytes());
        let fields = found.fields().iter();
        described.inferred = fields.map(|field| field.name().clone()).collect();
        Ok(Some(Change { described, cause }))
    }
}
