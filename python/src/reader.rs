//! Rows that Python reads while a run brings them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use crossbeam_channel::RecvTimeoutError;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rapidbyte::batches::{Output, Received};
use rapidbyte::{Cancel, Control, Failure, History, Report, RunOptions};

use crate::arrow;
use crate::batch::Batch;
use crate::desk::{SIGNAL_PAUSE, is_main_thread, panicked};
use crate::ending::{Inside, Run};
use crate::engine::{Choice, Given, engine};
use crate::refusal::of_failure;

/// The name of the destination that gives the rows.
const NAME: &str = "python";

/// The batches of one stream, in order.
#[pyclass(frozen, module = "rapidbyte", name = "Reader")]
pub struct Reader {
    rows: Mutex<Option<Rows>>,
    cancel: Cancel,
    schema: SchemaRef,
}

/// The rows, and the run that brings them.
struct Rows {
    received: Received,
    schema: SchemaRef,
    cancel: Cancel,
    run: Option<JoinHandle<Result<Report, Failure>>>,
}

impl Rows {
    /// How the run ended.
    fn end(&mut self) -> Option<Failure> {
        match self.run.take()?.join() {
            Ok(Ok(_)) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(panicked()),
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.cancel.cancel();
        // The run waits for room, or has ended.
        self.received.close();
        self.end();
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.received.next() {
            Some(batch) => Some(Ok(batch)),
            None => {
                let failure = self.end()?;
                Some(Err(ArrowError::ExternalError(failure.to_string().into())))
            }
        }
    }
}

impl RecordBatchReader for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Begins to read a stream, and returns once its columns are known.
#[pyfunction]
pub fn read(py: Python<'_>, pipeline: Given, choice: Choice) -> PyResult<Reader> {
    let _inside = Inside::of_call(py)?;
    let cancel = Cancel::new();
    let of_run = Run::new(py, &cancel);
    let (output, mut received) = Output::channel();
    let control = Control::default().cancel(&cancel);
    let run = std::thread::Builder::new()
        .name("rapidbyte".into())
        .spawn(move || {
            let _run = of_run;
            let engine = engine()?.with_connectors([output.destination(NAME)]);
            let options = RunOptions {
                narrowing: choice.narrowing(),
                history: History::Off,
                reuse: pipeline.reuse(),
                ..RunOptions::default()
            };
            pipeline.with(|pipeline| engine.run(pipeline, &options, &control))
        })?;
    let mut run = Some(run);
    let schema = wait(py, &cancel, || {
        received.schema_within(SIGNAL_PAUSE).map(Some)
    });
    let begun = match schema {
        Ok(Some(schema)) => Ok(schema),
        Ok(None) => Err(None),
        Err(raised) => Err(Some(raised)),
    };
    match begun {
        Ok(schema) => Ok(Reader {
            cancel: cancel.clone(),
            schema: Arc::clone(&schema),
            rows: Mutex::new(Some(Rows {
                received,
                schema,
                cancel,
                run,
            })),
        }),
        Err(raised) => {
            drop(received);
            let ended = py.detach(|| run.take().map(JoinHandle::join));
            Err(raised.unwrap_or_else(|| match ended {
                Some(Ok(Err(failure))) => of_failure(py, &failure),
                Some(Ok(Ok(_))) | None => {
                    let text = "the run ended without a stream";
                    of_failure(py, &Failure::new(rapidbyte::Class::Run, "internal", text))
                }
                Some(Err(_)) => of_failure(py, &panicked()),
            }))
        }
    }
}

/// Waits without the interpreter, and looks for signals in between. If there is one, the run is cancelled.
fn wait<T: Send>(
    py: Python<'_>,
    cancel: &Cancel,
    mut next: impl FnMut() -> Result<Option<T>, RecvTimeoutError> + Send,
) -> PyResult<Option<T>> {
    let takes_signals = is_main_thread(py)?;
    loop {
        match py.detach(&mut next) {
            Ok(one) => return Ok(one),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if takes_signals => {
                py.check_signals().inspect_err(|_| cancel.cancel())?;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Reader {
    fn rows(&self) -> MutexGuard<'_, Option<Rows>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run, which takes a moment.
    fn drop_rows(&self, py: Python<'_>) {
        let Some(rows) = self.rows().take() else {
            return;
        };
        match Inside::try_new() {
            Some(_inside) => py.detach(|| drop(rows)),
            // Its run is cancelled, and may be stopped where it is.
            None => std::mem::forget(rows),
        }
    }
}

#[pymethods]
impl Reader {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Batch> {
        let _inside = Inside::of_call(py)?;
        // Taken out, so that no thread waits for the lock while it has the interpreter.
        let taken = self.rows().take();
        let Some(mut rows) = taken else {
            return Err(PyStopIteration::new_err(()));
        };
        let next = wait(py, &self.cancel, || rows.received.next_within(SIGNAL_PAUSE));
        match next {
            Ok(Some(batch)) => {
                *self.rows() = Some(rows);
                Ok(Batch::new(batch, None))
            }
            Ok(None) => match py.detach(|| rows.end()) {
                Some(failure) => Err(of_failure(py, &failure)),
                None => Err(PyStopIteration::new_err(())),
            },
            Err(raised) => {
                py.detach(|| drop(rows));
                Err(raised)
            }
        }
    }

    /// The names of the columns and their types, as a pipeline writes them.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields
            .map(|field| {
                (
                    field.name().clone(),
                    rapidbyte_wire::types::type_name(field),
                )
            })
            .collect()
    }

    /// Ends the read. Rows that were not read are not read any more. A thread that waits for rows gets `Cancelled`.
    fn close(&self, py: Python<'_>) {
        self.cancel.cancel();
        self.drop_rows(py);
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let rows = self.rows().take();
        match rows {
            Some(rows) => arrow::stream_capsule(py, Box::new(rows)),
            None => Err(PyRuntimeError::new_err(
                "the rows were read before, or the reader is closed",
            )),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        Python::attach(|py| self.drop_rows(py));
    }
}
