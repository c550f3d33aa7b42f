//! Objects with rows: lists, iterators, JSON text, files, and Arrow data.

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyString, PyTuple};
use rapidbyte::Cancel;
use rapidbyte_wire::types::parse_field;

use crate::arrow::{self, Stream};
use crate::json::{Json, Text, is_text, unchanging};
use crate::refusal::{Refusal, Result};
use crate::rows::Rows;
use crate::value::{Documents, Known, fields};

/// Rows, as batches.
pub struct Feed {
    form: Form,
    /// Read to know the columns.
    first: Option<RecordBatch>,
    /// Ends it early.
    cancel: Cancel,
}

enum Form {
    /// One row, or an iterator of rows and its first row. Neither: no more rows come.
    Rows(Box<Rows>, Option<Py<PyIterator>>, Option<Py<PyAny>>),
    Json(Box<Json>),
    Arrow(Stream),
    /// An iterator of Arrow data, the current one, and the columns of all.
    Arrows(Py<PyIterator>, Stream, SchemaRef),
    /// No rows.
    Nothing(Option<SchemaRef>),
}

impl Feed {
    /// Opens an object, for columns that are inferred or for these, with nested values in this form.
    pub fn open(
        value: &Bound<'_, PyAny>,
        schema: Option<SchemaRef>,
        documents: Documents,
    ) -> Result<Self> {
        Ok(Self {
            form: Form::of(value, schema, Known::with(value.py(), documents)?)?,
            first: None,
            cancel: Cancel::new(),
        })
    }

    /// The same, which ends with an error when the call is cancelled.
    #[must_use]
    pub fn until(self, cancel: &Cancel) -> Self {
        Self {
            cancel: cancel.clone(),
            ..self
        }
    }

    /// The columns. Reads the first rows if that is necessary. `None` if there are no rows, so that nothing is known.
    pub fn schema(&mut self, py: Python<'_>) -> Result<Option<SchemaRef>> {
        if self.form.schema().is_none() && self.first.is_none() {
            self.first = self.form.next(py, &self.cancel)?;
        }
        Ok(self.form.schema().cloned())
    }

    /// The batches of another library, if it has nothing else: they need no interpreter.
    pub fn take_stream(&mut self) -> Option<Stream> {
        match std::mem::replace(&mut self.form, Form::Nothing(None)) {
            Form::Arrow(stream) => Some(stream),
            other => {
                self.form = other;
                None
            }
        }
    }

    /// The rows that were read to know the columns, if they are all.
    pub fn take_whole(&mut self) -> Option<RecordBatch> {
        match &self.form {
            Form::Rows(_, None, None) => self.first.take(),
            _ => None,
        }
    }

    /// The next rows.
    pub fn next(&mut self, py: Python<'_>) -> Result<Option<RecordBatch>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.form.next(py, &self.cancel),
        }
    }
}

impl Form {
    fn of(
        value: &Bound<'_, PyAny>,
        schema: Option<SchemaRef>,
        known: &'static Known,
    ) -> Result<Self> {
        let py = value.py();
        if is_text(value) {
            let text = Text::Whole(unchanging(value)?.unbind(), 0);
            return Ok(Self::Json(Box::new(Json::new(text, schema)?)));
        }
        if let Some(stream) = Stream::of(value, schema.as_ref(), known.documents)? {
            return Ok(Self::Arrow(stream));
        }
        let is_row = !value.is_instance_of::<PyList>() && fields(value, known)?.is_some();
        if is_row {
            let rows = Rows::new(py, known, schema, false)?;
            return Ok(Self::Rows(
                Box::new(rows),
                None,
                Some(value.clone().unbind()),
            ));
        }
        if value.hasattr(intern!(py, "read"))? {
            let text = Text::File(value.clone().unbind());
            return Ok(Self::Json(Box::new(Json::new(text, schema)?)));
        }
        // A LazyFrame of polars counts as an iterator without this method, and gives no rows.
        if !value.hasattr(intern!(py, "__iter__"))? {
            return Err(not_rows(value));
        }
        let items = value.try_iter()?;
        let Some(first) = items.clone().next().transpose()? else {
            return Ok(Self::Nothing(schema));
        };
        let items = items.unbind();
        if is_text(&first) {
            let text = Text::Items(items, Some(first.unbind()));
            return Ok(Self::Json(Box::new(Json::new(text, schema)?)));
        }
        if let Some(stream) = Stream::of(&first, schema.as_ref(), known.documents)? {
            let columns = stream.schema().clone();
            return Ok(Self::Arrows(items, stream, columns));
        }
        let is_whole = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
        let rows = Rows::new(py, known, schema, !is_whole)?;
        Ok(Self::Rows(
            Box::new(rows),
            Some(items),
            Some(first.unbind()),
        ))
    }

    fn schema(&self) -> Option<&SchemaRef> {
        match self {
            Self::Rows(rows, ..) => rows.schema(),
            Self::Json(json) => json.schema(),
            Self::Arrow(stream) => Some(stream.schema()),
            Self::Arrows(_, _, schema) => Some(schema),
            Self::Nothing(schema) => schema.as_ref(),
        }
    }

    fn next(&mut self, py: Python<'_>, cancel: &Cancel) -> Result<Option<RecordBatch>> {
        match self {
            Self::Nothing(_) => Ok(None),
            Self::Json(json) => json.next(py, cancel),
            Self::Arrow(stream) => py.detach(|| stream.next()),
            Self::Arrows(items, stream, schema) => loop {
                if let Some(batch) = py.detach(|| stream.next())? {
                    return Ok(Some(batch));
                }
                let Some(item) = items.bind(py).clone().next().transpose()? else {
                    return Ok(None);
                };
                let taken = stream.taken();
                // With a schema, that decides about structs.
                *stream = Stream::of(&item, Some(schema), Documents::Json)?
                    .ok_or_else(mixed)?
                    .after(taken);
            },
            Self::Rows(rows, rest, first) => {
                let known = Known::get(py)?;
                let mut items = rest.as_ref().map(|items| items.bind(py).clone());
                while !rows.is_full() {
                    // For each row, because an iterator may be slow.
                    if cancel.is_cancelled() {
                        return Err(Refusal::cancelled());
                    }
                    let row = match first.take() {
                        Some(first) => first.into_bound(py),
                        None => match items.as_mut().and_then(Iterator::next).transpose()? {
                            Some(row) => row,
                            None => {
                                *rest = None;
                                break;
                            }
                        },
                    };
                    match row.cast_exact::<PyDict>() {
                        Ok(row) => rows.push(row)?,
                        Err(_) => match fields(&row, known)? {
                            Some(row) => rows.push(&row)?,
                            None => return Err(rows.not_a_row(&row)),
                        },
                    }
                }
                match rows.is_empty() {
                    true => Ok(None),
                    false => rows.take().map(Some),
                }
            }
        }
    }
}

fn mixed() -> Refusal {
    let text = "an iterator of Arrow data gave a value that is not Arrow data";
    Refusal::data("mixed_rows", text).hint("give rows of one form")
}

fn not_rows(value: &Bound<'_, PyAny>) -> Refusal {
    let name = value.get_type().name().map(|name| name.to_string());
    let is_async = value.hasattr("__aiter__").unwrap_or(false);
    let text = format!("{} has no rows", name.unwrap_or_default());
    let is_lazy = value.hasattr("collect").unwrap_or(false);
    let hint = match is_async {
        false if is_lazy => "call collect() first",
        true => {
            "collect the rows of an asynchronous iterator into a list, or write each piece to a rapidbyte.sink"
        }
        false => "give a list or an iterator of rows, JSON text, a file, or Arrow data",
    };
    Refusal::config("no_rows", text).hint(hint)
}

/// Columns as the caller declares them: names and types, or an object with an Arrow schema.
pub fn declared(value: &Bound<'_, PyAny>) -> Result<SchemaRef> {
    if let Some(schema) = arrow::schema(value)? {
        return Ok(schema);
    }
    let Ok(columns) = value.cast::<PyDict>() else {
        return Err(PyTypeError::new_err(
            "schema= takes a dict of columns and types, a dataclass, a Pydantic model, or an Arrow schema",
        )
        .into());
    };
    let mut fields: Vec<Field> = Vec::with_capacity(columns.len());
    for (name, kind) in columns.iter() {
        let (name, kind) = (name.extract::<String>()?, kind.extract::<String>()?);
        let (kind, nullable) = match kind.trim().strip_suffix("not null") {
            Some(kind) => (kind.trim().to_owned(), false),
            None => (kind, true),
        };
        let field = parse_field(&name, &kind, nullable).map_err(|error| {
            Refusal::config("invalid_schema", error)
                .in_column(&name)
                .hint("write a type such as int64, string or \"decimal(18, 2)\": docs/connectors/types.md has all of them")
        })?;
        fields.push(field);
    }
    if fields.is_empty() {
        return Err(Refusal::config(
            "invalid_schema",
            "a schema without columns",
        ));
    }
    Ok(std::sync::Arc::new(Schema::new(fields)))
}

/// Whether a value is a function that makes rows.
pub fn is_function(value: &Bound<'_, PyAny>) -> bool {
    let is_rows = [
        "__iter__",
        "__arrow_c_stream__",
        "__arrow_c_array__",
        "read",
    ];
    value.is_callable()
        && !value.is_instance_of::<PyString>()
        && !is_rows
            .iter()
            .any(|name| value.hasattr(*name).unwrap_or(false))
}
