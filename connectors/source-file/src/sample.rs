//! The columns of a stream: declared, or inferred from the beginning of its files.

use std::sync::Arc;

use rapidbyte_formats::jsonl::{REST, UnknownKeys};
use rapidbyte_formats::{Follows, Format, FormatError, Limits, Sampler};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{self, parse_field};

use crate::columns;
use crate::convert;
use crate::files::FileStream;
use crate::known::Known;
use crate::open::Text;
use crate::settings::{FileFormat, Settings};

/// A record of a sample may be as long as the sample or this: planning has half of a run's memory,
/// and looking at a record takes several times its size.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// The window that a sampled frame of zstd may have, for the same reason.
const MAX_WINDOW_BYTES: usize = 32 << 20;

/// The declared columns; without a declaration the inferred ones.
pub(crate) fn know(settings: &Settings, stream: &FileStream) -> Result<Known> {
    let format = match &settings.format {
        FileFormat::Text(format) => format,
        FileFormat::Columns(kind, headers) => {
            let form = columns::Form {
                kind: *kind,
                headers: stream.headers(*headers),
                trusts_metadata: settings.trusts_metadata,
            };
            return columns::know(form, stream);
        }
    };
    let known = know_text(settings, format, stream, settings.text_type())?;
    finished(settings, format, known)
}

/// The columns of the records as a read has them.
fn finished(settings: &Settings, format: &Format, known: Known) -> Result<Known> {
    let mut known = known;
    if settings.unknown_keys == UnknownKeys::Collect {
        known = with_rest(&known)?;
    }
    if let Format::Jsonl | Format::Json = format {
        known.schema = types::mark_json_strings(&known.schema).into();
    }
    Ok(known)
}

/// The columns, and the column of the other keys. A sampled key of its name is one of those.
fn with_rest(known: &Known) -> Result<Known> {
    let fields = known.schema.fields().iter();
    let fields = fields.filter(|field| field.name() != REST).cloned();
    let rest = Arc::new(parse_field(REST, "json", true).map_err(Error::internal)?);
    let fields: Vec<_> = fields.chain([rest]).collect();
    let is_of_column = |note: &&String| !note.starts_with(&format!("{REST}:"));
    let notes = known.notes.iter().filter(is_of_column).cloned();
    let notes = notes.chain([format!("{REST}: json (keys that are not columns)")]);
    let text = known.source_types.first().cloned().unwrap_or_default();
    let schema = Schema::new(fields).into();
    Ok(Known::new(schema, notes.collect(), known.inferred, &text))
}

fn know_text(
    settings: &Settings,
    format: &Format,
    stream: &FileStream,
    text: &str,
) -> Result<Known> {
    match declared(settings, stream) {
        Some(schema) => {
            let notes = settings.times.notes(schema);
            Ok(Known::new(schema.clone(), notes, false, text))
        }
        None => infer(settings, format, stream, text),
    }
}

pub(crate) fn declared<'a>(settings: &'a Settings, stream: &FileStream) -> Option<&'a SchemaRef> {
    let of_stream = settings.schemas.get(&stream.name);
    of_stream.or(settings.schema.as_ref())
}

/// Files whose header is compared with the declared columns before the first row. The read
/// compares the others.
const HEADER_FILES: usize = 100;

/// Refuses a CSV header that does not have the declared columns. The read reports other faults of a file, because it
/// has the limits of the run.
pub(crate) fn check_headers(settings: &Settings, stream: &FileStream) -> Result<()> {
    match compare_headers(settings, stream) {
        Err(error) if !HEADER_CODES.contains(&error.code.as_str()) => Ok(()),
        compared => compared,
    }
}

/// The errors of a header that lacks a declared column, or has another one.
const HEADER_CODES: [&str; 2] = ["csv_unknown_column", "csv_missing_column"];

fn compare_headers(settings: &Settings, stream: &FileStream) -> Result<()> {
    let (FileFormat::Text(format @ Format::Csv(_)), Some(schema)) =
        (&settings.format, declared(settings, stream))
    else {
        return Ok(());
    };
    let limits = Limits {
        max_record_bytes: usize::try_from(MAX_RECORD_BYTES).unwrap_or(usize::MAX),
        ..Limits::default()
    };
    let decoder = format.decoder(schema.clone(), None, limits);
    let decoder = decoder.map_err(|error| convert(error, &stream.name, None))?;
    let mut decoder = decoder.header_only();
    for (path, _) in stream.files.iter().take(HEADER_FILES) {
        decoder.begin_file();
        if !decoder.wants_header() {
            return Ok(());
        }
        let mut open = Text::open(path, &stream.name, settings.compression, MAX_WINDOW_BYTES)?;
        while decoder.wants_header() {
            let bytes = open.fill()?;
            let _phase = phase::enter(Kind::Decode);
            if bytes.is_empty() {
                decoder.end_of_file().map_err(|error| open.refuse(error))?;
                break;
            }
            let taken = decoder.push(bytes).map_err(|error| open.refuse(error))?;
            open.consume(taken);
        }
    }
    Ok(())
}

/// Looks at the files in order until there are enough rows or bytes, and one whole row at least.
fn infer(settings: &Settings, format: &Format, stream: &FileStream, text: &str) -> Result<Known> {
    let declare = "declare the columns under schema:";
    let failed = |error: FormatError, path: Option<&str>| {
        let too_large = error.code == "record_too_large";
        let mut error = convert(error, &stream.name, path);
        if too_large {
            error.hint = Some(format!("{declare}; a longer record cannot be sampled"));
        }
        error
    };
    let max_record_bytes = settings.sample_bytes.max(MAX_RECORD_BYTES);
    let mut sampler = format
        .sampler(
            settings.sample_rows,
            usize::try_from(max_record_bytes).unwrap_or(usize::MAX),
        )
        .map_err(|error| failed(error, None))?;
    let mut left = settings.sample_bytes;
    for (path, _) in &stream.files {
        sampler.begin_file();
        if is_enough(&sampler, left) {
            break;
        }
        let mut open = Text::open(path, &stream.name, settings.compression, MAX_WINDOW_BYTES)?;
        sample_file(&mut sampler, &mut left, &mut open, |error| {
            failed(error, Some(path))
        })?;
    }
    let only = match stream.files.as_slice() {
        [(path, _)] => Some(path.as_str()),
        _ => None,
    };
    let inferred = sampler.finish().map_err(|error| failed(error, only))?;
    if inferred.schema.fields().is_empty() {
        let text = "no sampled row has a column";
        return Err(Error::schema("no_columns", text)
            .hint(declare)
            .in_stream(&stream.name));
    }
    Ok(Known::new(inferred.schema, inferred.notes, true, text))
}

/// Columns that a second look may find in addition to the known ones.
const MAX_NEW_COLUMNS: usize = 2000;

/// Infers the columns of a stream from all of its records, because the known ones do not hold one of them. Passes over
/// records that a read refuses whatever its columns are, and ends at a place where no record begins any more. `None` if
/// that changes nothing that may change.
pub(crate) fn look_again(
    settings: &Settings,
    stream: &FileStream,
    known: &Schema,
    follows: &Follows,
    limits: Limits,
) -> Result<Option<SchemaRef>> {
    let FileFormat::Text(format) = &settings.format else {
        return Ok(None);
    };
    let failed = |error| convert(error, &stream.name, None);
    let sampler = format.sampler(u64::MAX, limits.max_record_bytes);
    let mut sampler = sampler.map_err(failed)?.lenient();
    let most = known.fields().len() + MAX_NEW_COLUMNS;
    for (path, _) in &stream.files {
        sampler.begin_file();
        let compression = settings.compression;
        let text = Text::open(path, &stream.name, compression, limits.max_record_bytes);
        if text
            .and_then(|mut text| look_at(&mut sampler, &mut text, most))
            .is_err()
        {
            break;
        }
    }
    if sampler.columns() > most {
        return Ok(None);
    }
    let inferred = sampler.finish().map_err(failed)?;
    let found = Known::new(inferred.schema, inferred.notes, true, "");
    let found = finished(settings, format, found)?;
    Ok(follows.merge(known, &found.schema))
}

/// Looks at a whole file. An error ends the look: the read finds it, too, and reports it.
fn look_at(sampler: &mut Sampler, text: &mut Text, most: usize) -> Result<()> {
    let ends = |_| Error::internal("the look ends here");
    loop {
        let bytes = text.fill()?;
        let _phase = phase::enter(Kind::Decode);
        if bytes.is_empty() {
            return sampler.end_of_file().map_err(ends);
        }
        sampler.push(bytes).map_err(ends)?;
        let len = bytes.len();
        text.consume(len);
        if sampler.columns() > most {
            return Err(Error::internal("more columns than a stream may get"));
        }
    }
}

fn is_enough(sampler: &Sampler, left: u64) -> bool {
    let enough = sampler.is_done() || (left == 0 && sampler.rows() > 0);
    enough && !sampler.wants_header()
}

/// Looks at one file, from its beginning on; `left` bytes of text belong to the sample.
fn sample_file(
    sampler: &mut Sampler,
    left: &mut u64,
    text: &mut Text,
    failed: impl Fn(FormatError) -> Error,
) -> Result<()> {
    while !is_enough(sampler, *left) {
        let bytes = text.fill()?;
        let _phase = phase::enter(Kind::Decode);
        if bytes.is_empty() {
            return sampler.end_of_file().map_err(failed);
        }
        // The sample's rest; with none left, on to the end of the first row.
        let len = match *left {
            0 => bytes.len(),
            left => bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)),
        };
        sampler.push(&bytes[..len]).map_err(&failed)?;
        *left = left.saturating_sub(len as u64);
        text.consume(len);
    }
    sampler.end_of_sample();
    Ok(())
}
