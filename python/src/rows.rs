//! Rows of Python values to batches.
//!
//! A column takes the type of its first value. While the first batch fills, a value of another type makes all its columns
//! be inferred anew from the rows so far; from the second batch on, the columns stay as they are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rapidbyte_wire::types::type_name;

use crate::column::{Values, ensure_filled};
use crate::refusal::{Refusal, Result};
use crate::shape::Shape;
use crate::value::{Known, changed, key_text, members};

/// The bytes and the rows at which a batch is full.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 1 << 16;
/// More columns are refused, as PostgreSQL and most tools refuse them.
const MAX_COLUMNS: usize = 10_000;

const DECLARE: &str =
    "declare the columns with schema=, for example schema={\"total\": \"decimal(18, 2)\"}";

/// Rows under construction.
pub struct Rows {
    columns: Vec<Column>,
    places: HashMap<String, usize>,
    known: &'static Known,
    /// Of the columns, once they are fixed.
    schema: Option<SchemaRef>,
    /// The rows of the batch.
    len: usize,
    /// The rows of the batches before.
    before: u64,
    bytes: usize,
    /// The rows of the first batch, while its columns may still change. Empty if they are declared.
    sample: Vec<Py<PyDict>>,
    /// Whether the caller may change a row after it was taken.
    copies: bool,
}

struct Column {
    /// The object that the last row had as its key: the next one most likely has it, too.
    key: Py<PyString>,
    name: String,
    shape: Shape,
    /// The name of its type, if it is declared.
    kind: Option<String>,
    values: Values,
    /// The rows that have a value, counted from the first row of the batch.
    filled: usize,
}

impl Rows {
    /// Rows of columns that are inferred, or of these. `copies` if the rows come one by one: their maker may use one
    /// object for all.
    pub fn new(
        py: Python<'_>,
        known: &'static Known,
        schema: Option<SchemaRef>,
        copies: bool,
    ) -> Result<Self> {
        let mut rows = Self {
            columns: Vec::new(),
            places: HashMap::new(),
            known,
            schema: None,
            len: 0,
            before: 0,
            bytes: 0,
            sample: Vec::new(),
            copies,
        };
        for field in schema.iter().flat_map(|schema| schema.fields()) {
            let shape = Shape::of_field(field).ok_or_else(|| {
                let kind = type_name(field);
                let text = format!("rows of Python do not fill columns of the type {kind}");
                Refusal::config("unsupported_type", text)
                    .in_column(field.name())
                    .hint("declare another type, or give the rows as Arrow data")
            })?;
            let at = rows.add(PyString::new(py, field.name()), field.name(), shape)?;
            rows.columns[at].kind = Some(type_name(field));
        }
        rows.schema = schema;
        Ok(rows)
    }

    fn add(&mut self, key: Bound<'_, PyString>, name: &str, shape: Shape) -> Result<usize> {
        let at = self.columns.len();
        if at == MAX_COLUMNS {
            let text = format!("more than {MAX_COLUMNS} columns");
            return Err(Refusal::data("too_many_keys", text)
                .hint("put what varies into one nested value, which becomes a document"));
        }
        let mut values = Values::of(&shape);
        (0..self.len).for_each(|_| values.push_null());
        self.columns.push(Column {
            key: key.unbind(),
            name: name.to_owned(),
            shape,
            kind: None,
            values,
            filled: self.len,
        });
        self.places.insert(name.to_owned(), at);
        Ok(at)
    }

    /// Adds a row. An error names the row and the column.
    pub fn push(&mut self, row: &Bound<'_, PyDict>) -> Result<()> {
        let number = self.before + self.len as u64;
        if self.schema.is_none() {
            let kept = match self.copies {
                true => row.copy()?,
                false => row.clone(),
            };
            self.sample.push(kept.unbind());
        }
        let pushed = match self.fill(row) {
            Ok(true) => Ok(()),
            Ok(false) => self.infer(row.py()),
            Err(error) => Err(error),
        };
        pushed.map_err(|error| error.at_row(number))
    }

    /// False if a value has another type than its column, which may change yet.
    fn fill(&mut self, row: &Bound<'_, PyDict>) -> Result<bool> {
        let mut next = 0;
        let mut filled = 0;
        for member in members(row) {
            let (key, value) = member?;
            let at = match self.columns.get(next) {
                Some(column) if column.key.is(&key) => next,
                _ => match self.place(&key, &value)? {
                    Some(at) => at,
                    None => continue,
                },
            };
            next = at + 1;
            let column = &mut self.columns[at];
            let pushed = column.values.push(&value, self.known);
            match pushed.map_err(|error| error.in_column(&column.name))? {
                Some(bytes) => self.bytes += bytes,
                None if self.schema.is_none() => return Ok(false),
                None => return Err(misfit(column, &value)),
            }
            column.filled += 1;
            filled += 1;
        }
        self.len += 1;
        if filled < self.columns.len() {
            for column in &mut self.columns {
                if column.filled < self.len {
                    column.values.push_null();
                    column.filled += 1;
                }
            }
        }
        Ok(true)
    }

    /// The place of the column of this key. `None` for a new column without a value.
    fn place(&mut self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<Option<usize>> {
        let name = key_text(key)?;
        if let Some(at) = self.places.get(name) {
            if let Ok(key) = key.cast_exact::<PyString>() {
                self.columns[*at].key = key.clone().unbind();
            }
            return Ok(Some(*at));
        }
        if self.schema.is_some() {
            let text =
                format!("a new column {name:?}, which neither the rows before nor the schema have");
            return Err(Refusal::data("unknown_column", text)
                .in_column(name)
                .hint(DECLARE));
        }
        let shape = Shape::of(value, self.known).map_err(|error| error.in_column(name))?;
        let key = PyString::new(key.py(), name);
        self.add(key, name, shape).map(Some)
    }

    /// Infers the columns from the rows of the batch so far, and builds it anew.
    fn infer(&mut self, py: Python<'_>) -> Result<()> {
        let sample = std::mem::take(&mut self.sample);
        let mut names: Vec<(String, Shape)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (number, row) in sample.iter().enumerate() {
            for member in members(row.bind(py)) {
                let (key, value) = member?;
                let name = key_text(&key)?;
                let at = *places.entry(name.to_owned()).or_insert(names.len());
                if at == names.len() {
                    names.push((name.to_owned(), Shape::Unknown));
                }
                let found = Shape::of(&value, self.known);
                let before = std::mem::replace(&mut names[at].1, Shape::Unknown);
                let joined = found.and_then(|found| before.join(found));
                names[at].1 =
                    joined.map_err(|error| error.in_column(name).at_row(number as u64))?;
            }
        }
        self.columns.clear();
        self.places.clear();
        (self.len, self.bytes) = (0, 0);
        for (name, shape) in names {
            self.add(PyString::new(py, &name), &name, shape)?;
        }
        for (number, row) in sample.iter().enumerate() {
            let filled = self.fill(row.bind(py));
            if !filled.map_err(|error| error.at_row(number as u64))? {
                return Err(changed().at_row(number as u64));
            }
        }
        self.sample = sample;
        Ok(())
    }

    /// The error for a value that is not a row.
    pub fn not_a_row(&self, value: &Bound<'_, PyAny>) -> Refusal {
        let name = value.get_type().name().map(|name| name.to_string());
        let text = format!(
            "a row is a {}, which has no columns",
            name.unwrap_or_default()
        );
        Refusal::data("not_a_row", text)
            .at_row(self.before + self.len as u64)
            .hint("give dicts, dataclasses, Pydantic models, named tuples or mappings")
    }

    /// Whether the batch has its bytes or its rows.
    pub fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.len >= BATCH_ROWS
    }

    /// Whether the batch is empty so far.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The columns, once there was a batch.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// The rows so far as a batch. From now on the columns stay as they are.
    pub fn take(&mut self) -> Result<RecordBatch> {
        self.sample = Vec::new();
        if self.columns.is_empty() {
            return Err(Refusal::data("no_columns", "the rows have no columns").at_row(self.before));
        }
        let schema = match &self.schema {
            Some(schema) => Arc::clone(schema),
            None => {
                let fields = self.columns.iter_mut().map(|column| {
                    column.shape = column.values.refine(&column.shape)?;
                    let field = column.shape.field(&column.name);
                    field.map_err(|error| error.in_column(&column.name))
                });
                let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<Field>>>()?));
                Arc::clone(self.schema.insert(schema))
            }
        };
        let (len, before) = (self.len, self.before);
        (self.len, self.bytes) = (0, 0);
        self.before += len as u64;
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.iter_mut().zip(schema.fields()) {
            column.filled = 0;
            let array = column
                .values
                .finish(field)
                .map_err(|error| error.in_column(&column.name).after(before))?;
            ensure_filled(&array, field).map_err(|error| error.after(before))?;
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| Refusal::data("internal", error))
    }
}

fn misfit(column: &Column, value: &Bound<'_, PyAny>) -> Refusal {
    let (kind, hint) = match &column.kind {
        Some(kind) => (
            kind.clone(),
            "give a value of this type, or declare another one",
        ),
        None => (column.shape.name(), DECLARE),
    };
    let shown = value
        .repr()
        .map(|text| text.to_string())
        .unwrap_or_default();
    let shown: String = match shown.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    };
    let text = format!("{shown} does not fit into a column of {kind}");
    Refusal::data("value_does_not_fit", text)
        .in_column(&column.name)
        .hint(hint)
}
