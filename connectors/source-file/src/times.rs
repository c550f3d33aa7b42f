//! The forms in which files write dates and timestamps of declared columns.

use std::collections::BTreeMap;

use rapidbyte_formats::text::pattern::TimePattern;
use rapidbyte_formats::{Decoder, FormatError};
use rapidbyte_sdk::prelude::*;

use crate::config::Config;
use crate::partition::Partitions;

/// The declared forms.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeForms {
    timestamp: Option<TimePattern>,
    date: Option<TimePattern>,
    columns: BTreeMap<String, TimePattern>,
}

impl TimeForms {
    /// `declared` are all schemas of the configuration: a form that none of their columns has is
    /// a mistake, also where a column of `partitions` would have it.
    pub(crate) fn settle<'a>(
        config: &Config,
        declared: impl Iterator<Item = &'a SchemaRef>,
        partitions: Option<&Partitions>,
    ) -> Result<Self> {
        let declared: Vec<_> = declared.collect();
        let any = |wanted: &dyn Fn(&Field) -> bool| {
            let mut fields = declared.iter().flat_map(|schema| schema.fields());
            fields.any(|field| wanted(field))
        };
        let parse = |key: &str, text: &str, wanted: &dyn Fn(&Field) -> bool| {
            let at = format!("config.{key}");
            if !any(wanted) {
                let folder = partitions.and_then(|folders| folders.find(wanted));
                let error = match folder {
                    Some(name) => {
                        let text = format!(
                            "column {name:?} comes from the names of directories, which have one \
                                 form: 2026-11-21 or 2026-11-21T10:11:12"
                        );
                        Error::config("unused_option", text).hint(
                            "remove the pattern; for another form of directory names, declare \
                                 the column as string under partitions:",
                        )
                    }
                    None => Error::config(
                        "unused_option",
                        "no declared column is a date or \
                         timestamp",
                    )
                    .hint("declare such columns under schema: as date, timestamp or timestamptz"),
                };
                return Err(error.at(at));
            }
            TimePattern::parse(text).map_err(|why| {
                Error::config("invalid_time_pattern", format!("{text:?}: {why}"))
                    .hint(
                        "write a pattern such as \"%d.%m.%Y %H:%M:%S\"; the directives are %Y %m \
                             %b %d %H %I %p %M %S %f %z",
                    )
                    .at(at)
            })
        };
        let every = |key: &str, text: &Option<String>, wanted: fn(&DataType) -> bool| {
            let text = text.as_deref();
            let wanted = |field: &Field| wanted(field.data_type());
            text.map(|text| parse(key, text, &wanted)).transpose()
        };
        let columns = config.column_formats.iter().map(|(name, text)| {
            let wanted = |field: &Field| field.name() == name && is_time(field.data_type());
            let key = format!("column_formats.{name}");
            Ok((name.clone(), parse(&key, text, &wanted)?))
        });
        Ok(Self {
            timestamp: every("timestamp_format", &config.timestamp_format, is_timestamp)?,
            date: every("date_format", &config.date_format, is_date)?,
            columns: columns.collect::<Result<_>>()?,
        })
    }

    /// The form of a declared column.
    fn of(&self, field: &Field) -> Option<&TimePattern> {
        let every = match field.data_type() {
            DataType::Timestamp(..) => self.timestamp.as_ref(),
            DataType::Date32 => self.date.as_ref(),
            _ => return None,
        };
        self.columns.get(field.name()).or(every)
    }

    /// A decoder of files of a declared schema that reads its columns so.
    pub(crate) fn apply(
        &self,
        mut decoder: Decoder,
        schema: &Schema,
    ) -> Result<Decoder, FormatError> {
        for field in schema.fields() {
            if let Some(pattern) = self.of(field) {
                decoder = decoder.read_as(field.name(), pattern.clone())?;
            }
        }
        Ok(decoder)
    }

    /// The notes of a plan on a declared schema.
    pub(crate) fn notes(&self, schema: &Schema) -> Vec<String> {
        let note = |field: &std::sync::Arc<Field>| {
            let pattern = self.of(field)?;
            Some(format!("{}: read as {}", field.name(), pattern.as_str()))
        };
        schema.fields().iter().filter_map(note).collect()
    }
}

fn is_timestamp(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..))
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32)
}

fn is_time(data_type: &DataType) -> bool {
    is_timestamp(data_type) || is_date(data_type)
}
