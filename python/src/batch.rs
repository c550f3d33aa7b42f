//! Batches that Python gets.

use arrow_array::{RecordBatch, RecordBatchIterator};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use rapidbyte_wire::types::type_name;

use crate::arrow;
use crate::ending::Inside;
use crate::objects;

/// Rows as columns. Arrow libraries take it without a copy.
#[pyclass(frozen, module = "rapidbyte", name = "Batch")]
pub struct Batch {
    rows: RecordBatch,
    stream: Option<String>,
}

impl Batch {
    /// Of a stream, if its name is known.
    pub fn new(rows: RecordBatch, stream: Option<String>) -> Self {
        Self { rows, stream }
    }
}

#[pymethods]
impl Batch {
    /// The stream that the rows are of.
    #[getter]
    fn stream(&self) -> Option<&str> {
        self.stream.as_deref()
    }

    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// The names of the columns and their types, as a pipeline writes them.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let schema = self.rows.schema();
        let fields = schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), type_name(field)))
            .collect()
    }

    fn __len__(&self) -> usize {
        self.rows.num_rows()
    }

    fn __repr__(&self) -> String {
        let columns = self.columns().into_iter();
        let columns: Vec<String> = columns
            .map(|(name, kind)| format!("{name}: {kind}"))
            .collect();
        format!(
            "<rapidbyte.Batch of {} rows: {}>",
            self.rows.num_rows(),
            columns.join(", ")
        )
    }

    /// The rows as dicts.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = Inside::of_call(py)?;
        objects::rows(py, &self.rows)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, &self.rows.schema())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The protocol lets producers give what they have.
        let _ = requested_schema;
        arrow::batch_capsules(py, &self.rows)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let schema = self.rows.schema();
        let batches = RecordBatchIterator::new([Ok(self.rows.clone())], schema);
        arrow::stream_capsule(py, Box::new(batches))
    }
}
