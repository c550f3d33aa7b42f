//! Arrow data of other libraries, by the C data interface and its Python protocol.
//!
//! Sources: "The Arrow C data interface", "The Arrow C stream interface" and "The Arrow PyCapsule Interface" in the Arrow
//! documentation. All unsafe code of this crate is here. It relies on the promises of these documents.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader,
    StructArray, new_null_array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use rapidbyte_columnar::{portable, portable_batch};
use rapidbyte_wire::types::type_name;

use crate::documents;
use crate::refusal::{Refusal, Result};
use crate::value::Documents;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// A library may give a table as one batch. The conversion takes pieces of this many rows, so that it needs little memory.
const PIECE_ROWS: usize = 1 << 16;

/// Batches of another library.
pub struct Stream {
    reader: Box<dyn RecordBatchReader + Send>,
    schema: SchemaRef,
    /// The same with the Arrow types of columns that have others in rows of Python.
    between: SchemaRef,
    /// Where the columns of the schema are in the batches, if that is not their order.
    places: Option<Vec<Option<usize>>>,
    /// Rows of the last batch that were not given yet.
    rest: Option<RecordBatch>,
    /// The rows that were given.
    taken: u64,
}

impl Stream {
    /// Of an object with `__arrow_c_stream__` or `__arrow_c_array__`, in the types of rows of Python. `None` for other
    /// objects. With a schema, the columns of that schema by their names: it has all that the object has, and others are
    /// NULL.
    pub fn of(
        value: &Bound<'_, PyAny>,
        schema: Option<&SchemaRef>,
        documents: Documents,
    ) -> Result<Option<Self>> {
        let Some(reader) = opened(value)? else {
            return Ok(None);
        };
        let given = portable(&reader.schema())?;
        Ok(Some(match schema {
            None => Self::new(reader, &given, documents::of_rows(&given, documents)?, None),
            Some(schema) => {
                let places = places(&given, schema)?;
                Self::new(reader, &given, Arc::clone(schema), Some(places))
            }
        }))
    }

    /// Of such an object, which a transform gives in Arrow types. It has the types and the order of this schema, if it has
    /// just its columns.
    pub fn of_transform(
        value: &Bound<'_, PyAny>,
        schema: Option<&SchemaRef>,
    ) -> Result<Option<Self>> {
        let Some(reader) = opened(value)? else {
            return Ok(None);
        };
        let given = portable(&reader.schema())?;
        let has = |field: &Arc<Field>| given.index_of(field.name()).is_ok();
        let is_same = |schema: &&SchemaRef| {
            given.fields().len() == schema.fields().len() && schema.fields().iter().all(has)
        };
        Ok(Some(match schema.filter(is_same) {
            None => Self::new(reader, &given, Arc::clone(&given), None),
            Some(schema) => {
                let places = places(&given, schema)?;
                Self::new(reader, &given, Arc::clone(schema), Some(places))
            }
        }))
    }

    fn new(
        reader: Box<dyn RecordBatchReader + Send>,
        given: &SchemaRef,
        schema: SchemaRef,
        places: Option<Vec<Option<usize>>>,
    ) -> Self {
        let fields = schema.fields().iter().enumerate().map(|(at, to)| {
            let place = match &places {
                Some(places) => places[at],
                None => Some(at),
            };
            let from = place.map(|place| &given.fields()[place]);
            match from.filter(|from| documents::is_converted(from, to)) {
                Some(from) => Arc::clone(from),
                None => Arc::clone(to),
            }
        });
        let fields: Vec<Arc<Field>> = fields.collect();
        let between = Schema::new_with_metadata(fields, schema.metadata().clone());
        Self {
            reader,
            between: Arc::new(between),
            schema,
            places,
            rest: None,
            taken: 0,
        }
    }

    /// Its columns, in the types of pipelines.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows that were given so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Counts these rows before its own.
    #[must_use]
    pub fn after(self, rows: u64) -> Self {
        Self {
            taken: rows,
            ..self
        }
    }

    /// The next rows. Checks them, because they come from code that this crate does not know. Needs
    /// the interpreter for documents alone.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => {
                let Some(batch) = self.reader.next().transpose().map_err(foreign)? else {
                    return Ok(None);
                };
                for column in batch.columns() {
                    column.to_data().validate_full().map_err(foreign)?;
                }
                batch
            }
        };
        let rows = batch.num_rows().min(PIECE_ROWS);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let piece = batch.slice(0, rows);
        let piece = match &self.places {
            None => piece,
            Some(places) => placed(&piece, places, &self.between)?,
        };
        let before = self.taken;
        self.taken += rows as u64;
        let made = portable_batch(&piece, &self.between).map_err(Refusal::from);
        let made = made.and_then(|made| documents::converted(made, &self.schema));
        Ok(Some(made.map_err(|error| error.after(before))?))
    }
}

/// The batches of an object with `__arrow_c_stream__` or `__arrow_c_array__`. `None` for other objects.
fn opened(value: &Bound<'_, PyAny>) -> Result<Option<Box<dyn RecordBatchReader + Send>>> {
    let py = value.py();
    let plain = match is_frame(value)? {
        true => py
            .import("rapidbyte._frames")?
            .call_method1("plain", (value,))?,
        false => value.clone(),
    };
    if plain.hasattr(intern!(py, "__arrow_c_stream__"))? {
        return Ok(Some(Box::new(stream(&plain)?)));
    }
    if plain.hasattr(intern!(py, "__arrow_c_array__"))? {
        let batch = array(&plain)?;
        let schema = batch.schema();
        return Ok(Some(Box::new(RecordBatchIterator::new(
            [Ok(batch)],
            schema,
        ))));
    }
    Ok(None)
}

/// Whether `rapidbyte._frames` has to look at a value: it may be a DataFrame of polars or pandas.
fn is_frame(value: &Bound<'_, PyAny>) -> Result<bool> {
    let module = value.get_type().module()?;
    let package = module.to_str()?.split('.').next();
    Ok(matches!(package, Some("polars" | "pandas")))
}

fn places(given: &Schema, schema: &Schema) -> Result<Vec<Option<usize>>> {
    if let Some(field) = given
        .fields()
        .iter()
        .find(|field| schema.index_of(field.name()).is_err())
    {
        let text = format!(
            "a column {:?}, which the schema does not have",
            field.name()
        );
        return Err(Refusal::data("unknown_column", text)
            .in_column(field.name())
            .hint("leave it out, or declare all columns with schema="));
    }
    let place = |field: &Arc<Field>| {
        let place = given.index_of(field.name()).ok();
        if let Some(at) = place {
            refuse_other_values(given.field(at), field)?;
        }
        match place.is_some() || field.is_nullable() {
            true => Ok(place),
            false => Err(Refusal::data(
                "null_in_required_column",
                "the rows lack a column that is declared as not null",
            )
            .in_column(field.name())),
        }
    };
    schema.fields().iter().map(place).collect()
}

/// Bytes are not text, whatever they hold, and text is not bytes.
fn refuse_other_values(given: &Field, to: &Field) -> Result<()> {
    use DataType::{Binary, LargeBinary, LargeUtf8, Utf8};
    let (is_bytes, is_text) = (
        |kind: &DataType| matches!(kind, Binary | LargeBinary),
        |kind: &DataType| matches!(kind, Utf8 | LargeUtf8),
    );
    let (from, into) = (given.data_type(), to.data_type());
    let hint = match (
        is_bytes(from) && is_text(into),
        is_text(from) && is_bytes(into),
    ) {
        (true, _) => "decode the bytes first",
        (_, true) => "encode the text first",
        _ => return Ok(()),
    };
    let text = format!(
        "a column of {} for a column of {}",
        type_name(given),
        type_name(to)
    );
    Err(Refusal::data("value_does_not_fit", text)
        .in_column(to.name())
        .hint(hint))
}

/// The columns at their places.
fn placed(batch: &RecordBatch, places: &[Option<usize>], schema: &Schema) -> Result<RecordBatch> {
    let columns = places.iter().zip(schema.fields());
    let columns = columns.map(|(place, field)| match place {
        Some(at) => (
            batch.schema().field(*at).clone(),
            Arc::clone(batch.column(*at)),
        ),
        None => (
            field.as_ref().clone(),
            new_null_array(field.data_type(), batch.num_rows()),
        ),
    });
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns.unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(foreign)
}

fn foreign(error: ArrowError) -> Refusal {
    Refusal::data("arrow_malformed", error).hint(
        "give a table or a DataFrame; cast columns of types that other libraries do not have, such as Int128 of polars",
    )
}

/// The schema of an object with `__arrow_c_schema__`. `None` for other objects.
pub fn schema(value: &Bound<'_, PyAny>) -> Result<Option<SchemaRef>> {
    let method = intern!(value.py(), "__arrow_c_schema__");
    if !value.hasattr(method)? {
        return Ok(None);
    }
    let capsule = value.call_method0(method)?;
    let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    let schema = capsule
        .pointer_checked(Some(SCHEMA))?
        .cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name points to a valid ArrowSchema as long as it lives, and only this thread has it.
    let schema = unsafe { schema.as_ref() };
    let schema = Schema::try_from(schema).map_err(foreign)?;
    Ok(Some(portable(&schema)?))
}

fn stream(value: &Bound<'_, PyAny>) -> Result<RecordBatchStreamReader> {
    let capsule = value.call_method0(intern!(value.py(), "__arrow_c_stream__"))?;
    let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    let stream = capsule
        .pointer_checked(Some(STREAM))?
        .cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name points to a valid ArrowArrayStream. This moves it out and leaves a released one, as
    // the protocol asks of consumers.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    RecordBatchStreamReader::try_new(stream).map_err(foreign)
}

fn array(value: &Bound<'_, PyAny>) -> Result<RecordBatch> {
    let pair = value.call_method0(intern!(value.py(), "__arrow_c_array__"))?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema
        .pointer_checked(Some(SCHEMA))?
        .cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names point to a valid ArrowSchema and an ArrowArray of it. The array is moved out and a
    // released one is left, as the protocol asks of consumers.
    let (data, schema) = unsafe {
        let array = FFI_ArrowArray::from_raw(array.as_ptr());
        (
            from_ffi(array, schema.as_ref()),
            Schema::try_from(schema.as_ref()),
        )
    };
    let schema = schema.map_err(foreign)?;
    let data = data.map_err(foreign)?;
    data.validate_full().map_err(foreign)?;
    if !matches!(data.data_type(), DataType::Struct(_)) {
        let text = format!(
            "an Arrow array of {}, and rows are a struct array",
            data.data_type()
        );
        return Err(Refusal::data("no_columns", text).hint("give a record batch or a table"));
    }
    let (_, columns, nulls) = StructArray::from(data).into_parts();
    if nulls.is_some_and(|nulls| nulls.null_count() > 0) {
        return Err(Refusal::data(
            "null_row",
            "an Arrow struct array with a row that is NULL",
        ));
    }
    // With the metadata of the columns, which the array does not have.
    RecordBatch::try_new(Arc::new(schema), columns).map_err(foreign)
}

/// A capsule of a stream of batches.
pub fn stream_capsule<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A capsule of a schema.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| PyErr::from(foreign(error)))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The capsules of a batch: its schema, and its rows as a struct array.
pub fn batch_capsules<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyTuple>> {
    let schema = schema_capsule(py, &batch.schema())?;
    let rows = StructArray::from(batch.clone());
    let array = FFI_ArrowArray::new(&rows.to_data());
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}
