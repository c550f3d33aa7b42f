//! JSON text of the caller to batches. Text is read without the interpreter.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyMemoryView, PyString};
use rapidbyte::Cancel;
use rapidbyte_formats::{Decoder, Format, Limits};
use rapidbyte_wire::types::parse_field;

use crate::refusal::{Refusal, Result};
use crate::split::Splitter;

/// The bytes of a piece of text, and of one read from a file.
const PIECE_BYTES: usize = 1 << 20;
/// The most rows, and their bytes, from which columns are inferred.
const SAMPLE_ROWS: u64 = 10_000;
const SAMPLE_BYTES: usize = 4 << 20;

/// Rows of JSON text.
pub struct Json {
    text: Text,
    splitter: Splitter,
    /// Records that were not decoded yet, one a line.
    lines: Vec<u8>,
    decoder: Option<Decoder>,
    is_at_end: bool,
}

/// Where the text comes from.
pub enum Text {
    /// One string or bytes, and how many of its bytes were taken.
    Whole(Py<PyAny>, usize),
    /// A file: an object with `read`.
    File(Py<PyAny>),
    /// An iterator of strings or bytes, and its first item. Each item has whole documents.
    Items(Py<PyIterator>, Option<Py<PyAny>>),
}

/// The bytes of a string or of bytes. `None` for other objects.
pub fn bytes_of<'a>(value: &'a Bound<'_, PyAny>) -> Result<Option<&'a [u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes()));
    }
    match value.cast::<PyString>() {
        Ok(text) => match text.to_str() {
            Ok(text) => Ok(Some(text.as_bytes())),
            Err(_) => Err(Refusal::data("not_unicode", "a string that is not Unicode")),
        },
        Err(_) => Ok(None),
    }
}

/// Whether a value is text of JSON.
pub fn is_text(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>()
}

/// The text as a string or as bytes: the caller may change a buffer while it is read.
pub fn unchanging<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    match value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        true => Ok(value.clone()),
        false => Ok(value.py().get_type::<PyBytes>().call1((value,))?),
    }
}

impl Json {
    /// Rows of a text, in columns that are inferred or in these.
    pub fn new(text: Text, schema: Option<SchemaRef>) -> Result<Self> {
        let decoder = match schema {
            Some(schema) => Some(Format::Jsonl.decoder(schema, None, Limits::default())?),
            None => None,
        };
        Ok(Self {
            text,
            splitter: Splitter::default(),
            lines: Vec::new(),
            decoder: decoder.map(begun),
            is_at_end: false,
        })
    }

    /// The columns, once there were rows.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.as_ref().map(Decoder::schema)
    }

    /// The next rows.
    pub fn next(&mut self, py: Python<'_>, cancel: &Cancel) -> Result<Option<RecordBatch>> {
        loop {
            let wanted = match &self.decoder {
                Some(_) => PIECE_BYTES,
                None => SAMPLE_BYTES,
            };
            while !self.is_at_end && self.lines.len() < wanted {
                // For each piece, because an iterator or a file may be slow.
                if cancel.is_cancelled() {
                    return Err(Refusal::cancelled());
                }
                self.read(py)?;
            }
            if let Some(batch) = py.detach(|| self.decode())? {
                return Ok(Some(batch));
            }
            if self.is_at_end {
                return Ok(None);
            }
        }
    }

    /// A batch of the lines, once it is full or there are no more.
    fn decode(&mut self) -> Result<Option<RecordBatch>> {
        if self.decoder.is_none() {
            if self.lines.is_empty() {
                return Ok(None);
            }
            let decoder = Format::Jsonl.decoder(infer(&self.lines)?, None, Limits::default())?;
            self.decoder = Some(begun(decoder.inferred()));
        }
        let Some(decoder) = &mut self.decoder else {
            return Ok(None);
        };
        let mut taken = 0;
        while taken < self.lines.len() && !decoder.is_full() {
            taken += decoder.push(&self.lines[taken..]).map_err(with_hint)?;
        }
        self.lines.drain(..taken);
        match decoder.is_full() || self.is_at_end {
            true => Ok(decoder.take_batch()?),
            false => Ok(None),
        }
    }

    /// Takes the next piece of the text.
    fn read(&mut self, py: Python<'_>) -> Result<()> {
        let (splitter, lines) = (&mut self.splitter, &mut self.lines);
        let mut split = |bytes: &[u8]| {
            py.detach(|| {
                splitter.push(bytes, |record| {
                    lines.extend_from_slice(record);
                    lines.push(b'\n');
                    Ok(())
                })?;
                splitter.ensure_small()
            })
        };
        match &mut self.text {
            Text::Whole(value, at) => {
                let value = value.bind(py);
                let bytes = bytes_of(value)?.unwrap_or_default();
                let end = bytes.len().min(*at + PIECE_BYTES);
                split(&bytes[*at..end])?;
                (*at, self.is_at_end) = (end, end == bytes.len());
            }
            Text::File(file) => {
                let piece = file
                    .bind(py)
                    .call_method1(intern!(py, "read"), (PIECE_BYTES,))?;
                let bytes = bytes_of(&piece)?.ok_or_else(|| {
                    PyTypeError::new_err("read() of the file gave neither str nor bytes")
                })?;
                split(bytes)?;
                self.is_at_end = bytes.is_empty();
            }
            Text::Items(items, first) => {
                let item = match first.take() {
                    Some(first) => Some(first.into_bound(py)),
                    None => items.bind(py).clone().next().transpose()?,
                };
                let Some(item) = item else {
                    self.is_at_end = true;
                    return Ok(());
                };
                if !is_text(&item) {
                    let name = item.get_type().name()?;
                    let text = format!("an iterator of JSON text gave a {name}, which is not text");
                    return Err(Refusal::data("mixed_rows", text)
                        .at_row(self.splitter.row())
                        .hint("give rows of one form: texts of JSON, or dicts"));
                }
                let item = unchanging(&item)?;
                split(bytes_of(&item)?.unwrap_or_default())?;
                self.splitter.end()?;
            }
        }
        if self.is_at_end {
            self.splitter.end()?;
        }
        Ok(())
    }
}

fn begun(mut decoder: Decoder) -> Decoder {
    decoder.begin_file();
    decoder
}

fn with_hint(error: rapidbyte_formats::FormatError) -> Refusal {
    // Its own hint names keys of a pipeline.
    let is_of_columns = matches!(error.code, "value_does_not_fit" | "jsonl_unknown_field");
    let has_hint = error.hint.is_some();
    let refusal = Refusal::from(error);
    match is_of_columns || !has_hint {
        true => refusal.hint("declare the columns with schema="),
        false => refusal,
    }
}

/// The columns of records, one a line.
fn infer(lines: &[u8]) -> Result<SchemaRef> {
    let mut sampler = Format::Jsonl.sampler(SAMPLE_ROWS, usize::MAX)?;
    sampler.begin_file();
    sampler.push(lines)?;
    if !sampler.is_done() {
        sampler.end_of_file()?;
    }
    let found = sampler.finish()?.schema;
    let fields = found.fields().iter().map(|field| match has_struct(field) {
        true => parse_field(field.name(), "json", true).map(Arc::new),
        false => Ok(Arc::clone(field)),
    });
    let fields = fields.collect::<Result<Vec<_>, _>>();
    let fields = fields.map_err(|error| Refusal::data("internal", error))?;
    Ok(Arc::new(Schema::new(fields)))
}

/// Objects are documents: their keys differ from row to row.
fn has_struct(field: &Field) -> bool {
    match field.data_type() {
        DataType::Struct(_) => true,
        DataType::List(item) => has_struct(item),
        _ => rapidbyte_wire::types::is_json(field),
    }
}
