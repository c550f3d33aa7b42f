//! A run that takes rows as they come.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded, select_biased};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use rapidbyte::batches::{Batches, ConnectorError, ErrorKind, Input};
use rapidbyte::{Cancel, Control, Failure, History, Report, RunOptions};
use rapidbyte_wire::size::batch_bytes;

use crate::desk::{Running, SIGNAL_PAUSE, TAKEN_BACK_WITHIN, is_main_thread};
use crate::ending::{self, Inside, Run};
use crate::engine::{Given, engine};
use crate::feed::{Feed, declared};
use crate::marked;
use crate::refusal::{Refusal, of_failure};
use crate::run::{NAME, inferred, text_of};
use crate::value::Documents;

/// Rows wait until they are this many bytes or this many: a batch of its own for each small write would take more time than
/// its rows. Nothing of a sink is visible before its end, so nobody misses them.
const HELD_BYTES: usize = 256 << 10;
const HELD_ROWS: usize = 1 << 14;

/// Takes rows from one thread at a time and loads them. All become visible when it is closed.
#[pyclass(frozen, module = "rapidbyte", name = "Sink")]
pub struct Sink {
    documents: Documents,
    state: Mutex<State>,
}

enum State {
    /// No rows have come.
    New(Box<Plan>),
    Open(Box<Open>),
    /// A thread works on it.
    Busy,
    /// A write failed after a part of its rows was sent.
    Failed,
    Closed,
}

/// The run before its first row.
struct Plan {
    pipeline: Given,
    table: String,
    key: Vec<String>,
    schema: Option<SchemaRef>,
    /// A column that is added, and says that all rows are deleted.
    mark: Option<String>,
}

struct Open {
    schema: SchemaRef,
    rows: Sender<Result<RecordBatch, ConnectorError>>,
    running: Running<Report>,
    cancel: Cancel,
    /// Ends the rows with an error.
    stop: Sender<()>,
    count: u64,
    held: Held,
}

/// Batches that wait to be sent as one.
#[derive(Default)]
struct Held {
    batches: Vec<RecordBatch>,
    bytes: usize,
    rows: usize,
}

impl Plan {
    /// Starts the run, whose rows have these columns.
    fn start(self, py: Python<'_>, schema: SchemaRef) -> PyResult<Open> {
        let Self {
            pipeline,
            table,
            key,
            schema: declared,
            mark,
        } = self;
        // One batch waits while the engine works on the one before it.
        let (rows, taken) = bounded(1);
        let cancel = Cancel::new();
        let run = Run::new(py, &cancel);
        let control = Control::default().cancel(&cancel);
        let (stop, stopped) = bounded(1);
        let (of_cancel, told) = (stop.clone(), stopped);
        let woken = cancel.on_cancel(move || {
            // One message is enough.
            let _ = of_cancel.try_send(());
        });
        let columns = match &mark {
            Some(mark) => marked::columns(&schema, mark)?,
            None => schema.clone(),
        };
        let running = Running::start(move || {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            let (_woken, _run) = (woken, run);
            let batches = match mark {
                Some(_) => marked::batches(given(taken, told), &columns),
                None => given(taken, told),
            };
            let input = Input::new().once(&table, columns, &key, batches);
            let input = inferred(input, declared.as_ref());
            let engine = engine()?.with_connectors([input.source(NAME)]);
            let options = RunOptions {
                history: History::Off,
                reuse: pipeline.reuse(),
                ..RunOptions::default()
            };
            pipeline.with(|pipeline| engine.run(pipeline, &options, &control))
        })?;
        Ok(Open {
            schema,
            rows,
            running,
            cancel,
            stop,
            count: 0,
            held: Held::default(),
        })
    }
}

/// The batches that come, until their sender is gone or the sink is abandoned.
fn given(taken: Receiver<Result<RecordBatch, ConnectorError>>, stopped: Receiver<()>) -> Batches {
    Box::new(std::iter::from_fn(move || {
        select_biased! {
            recv(stopped) -> _ => {
                let text = "the sink was abandoned";
                Some(Err(ConnectorError::new(ErrorKind::Data, "caller_interrupted", text)))
            }
            recv(taken) -> batch => batch.ok(),
        }
    }))
}

impl Held {
    fn push(&mut self, batch: RecordBatch) {
        self.bytes += batch_bytes(&batch);
        self.rows += batch.num_rows();
        self.batches.push(batch);
    }

    fn is_full(&self) -> bool {
        self.bytes >= HELD_BYTES || self.rows >= HELD_ROWS
    }

    /// All of them as one. `None` if there are none.
    fn take(&mut self) -> Result<Option<RecordBatch>, Refusal> {
        let batches = std::mem::take(self).batches;
        match batches.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            [first, ..] => concat_batches(&first.schema(), &batches)
                .map(Some)
                .map_err(|error| Refusal::data("internal", error)),
        }
    }
}

impl Open {
    /// Takes a batch for the run.
    fn take(&mut self, py: Python<'_>, batch: RecordBatch, takes_signals: bool) -> PyResult<()> {
        self.count += batch.num_rows() as u64;
        self.held.push(batch);
        if self.running.has_ended() {
            return Err(self.failed(py));
        }
        match self.held.is_full() {
            true => self.send(py, takes_signals),
            false => Ok(()),
        }
    }

    /// Hands what is held to the run.
    fn send(&mut self, py: Python<'_>, takes_signals: bool) -> PyResult<()> {
        let held = &mut self.held;
        let Some(batch) = py.detach(|| held.take())? else {
            return Ok(());
        };
        let mut batch = Ok(batch);
        loop {
            let rows = &self.rows;
            match py.detach(|| rows.send_timeout(batch, SIGNAL_PAUSE)) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(again)) => batch = again,
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.failed(py)),
            }
            if takes_signals {
                py.check_signals()?;
            }
        }
    }

    /// The error of the run, which has ended before its rows did.
    fn failed(&self, py: Python<'_>) -> PyErr {
        match py.detach(|| self.running.result()) {
            Err(failure) => of_failure(py, &failure),
            Ok(_) => {
                let text = "the run ended before its rows did";
                of_failure(py, &Failure::new(rapidbyte::Class::Run, "internal", text))
            }
        }
    }

    /// Discards the rows. `at_once`: the destination does not take back what it has.
    fn abandon(self, py: Python<'_>, at_once: bool) {
        let Self {
            rows,
            running,
            cancel,
            stop,
            ..
        } = self;
        py.detach(|| {
            if !at_once {
                let _ = stop.try_send(());
                // Disconnected at the end.
                let _ = running.ended.recv_timeout(TAKEN_BACK_WITHIN);
            }
            cancel.cancel();
            running.join();
            drop(rows);
        });
    }

    /// Waits for the commit. Ctrl-C until then abandons the rows.
    fn finish(mut self, py: Python<'_>) -> PyResult<String> {
        let takes_signals = is_main_thread(py)?;
        if let Err(raised) = self.send(py, takes_signals) {
            let is_interrupted = !raised.is_instance_of::<PyException>(py);
            self.abandon(py, is_interrupted);
            return Err(raised);
        }
        let Self {
            rows,
            running,
            cancel,
            ..
        } = self;
        drop(rows);
        loop {
            // The channel is disconnected at the end, and says nothing before.
            let waited = py.detach(|| running.ended.recv_timeout(SIGNAL_PAUSE));
            match waited {
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
                _ => break,
            }
            if takes_signals && let Err(raised) = py.check_signals() {
                cancel.cancel();
                // The commit may have come first.
                py.detach(|| running.join());
                return Err(raised);
            }
        }
        match py.detach(|| running.result()) {
            Ok(report) => text_of(&report).map_err(|failure| of_failure(py, &failure)),
            Err(failure) => Err(of_failure(py, &failure)),
        }
    }
}

impl Sink {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> PyResult<State> {
        // The lock ends with this line.
        let state = std::mem::replace(&mut *self.state(), State::Busy);
        match state {
            State::Busy => Err(Refusal::config(
                "sink_busy",
                "the sink is at work, for another thread or for the rows that it takes",
            )
            .hint("give each thread a sink of its own, or take turns by a lock")
            .into()),
            State::Failed => {
                *self.state() = State::Failed;
                let text = "an earlier write failed after a part of its rows was sent, so all rows of the sink are discarded";
                Err(Refusal::data("sink_failed", text)
                    .hint("open another sink, and write all rows again")
                    .into())
            }
            State::Closed => {
                *self.state() = State::Closed;
                Err(Refusal::config("sink_closed", "the sink is closed")
                    .hint("open another one")
                    .into())
            }
            state => Ok(state),
        }
    }
}

#[pymethods]
impl Sink {
    #[new]
    fn new(
        py: Python<'_>,
        pipeline: Given,
        table: String,
        key: Vec<String>,
        schema: Option<&Bound<'_, PyAny>>,
        extended: bool,
        mark: Option<String>,
    ) -> PyResult<Self> {
        let _inside = Inside::of_call(py)?;
        let plan = Plan {
            pipeline,
            table,
            key,
            schema: schema.map(declared).transpose()?,
            mark,
        };
        Ok(Self {
            documents: Documents::of(extended),
            state: Mutex::new(State::New(Box::new(plan))),
        })
    }

    /// Takes rows. Returns how many.
    fn write(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<u64> {
        let _inside = Inside::of_call(py)?;
        let state = self.take()?;
        let schema = match &state {
            State::New(plan) => plan.schema.clone(),
            State::Open(open) => Some(open.schema.clone()),
            State::Busy | State::Failed | State::Closed => None,
        };
        // Until the first batch is sent, an error leaves the sink as it was.
        let opened = Feed::open(rows, schema, self.documents).and_then(|feed| {
            let mut feed = feed.until(&ending::cancel(py));
            let schema = feed.schema(py)?;
            let first = feed.next(py)?;
            Ok((feed, schema, first))
        });
        let (mut feed, schema, first) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                *self.state() = state;
                return Err(refusal.into());
            }
        };
        let (Some(schema), Some(first)) = (schema, first) else {
            *self.state() = state;
            return Ok(0);
        };
        let mut open = match state {
            State::New(plan) => Box::new(plan.start(py, schema)?),
            State::Open(open) => open,
            State::Busy | State::Failed | State::Closed => return Ok(0),
        };
        let before = open.count;
        let takes_signals = is_main_thread(py)?;
        let mut next = Some(first);
        let mut sent = Ok(());
        while let (Some(batch), true) = (next.take(), sent.is_ok()) {
            sent = open.take(py, batch, takes_signals).and_then(|()| {
                next = feed.next(py)?;
                Ok(())
            });
        }
        match sent {
            Ok(()) => {
                let count = open.count - before;
                *self.state() = State::Open(open);
                Ok(count)
            }
            Err(raised) => {
                // Some rows of this call may have gone: nothing of the sink becomes visible.
                open.abandon(py, !raised.is_instance_of::<PyException>(py));
                *self.state() = State::Failed;
                Err(raised)
            }
        }
    }

    /// Commits the rows. Returns the report as JSON, or nothing if no rows came.
    fn close(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let _inside = Inside::of_call(py)?;
        match self.take()? {
            State::Open(open) => {
                *self.state() = State::Closed;
                open.finish(py).map(Some)
            }
            State::New(plan) => {
                *self.state() = State::Closed;
                match plan.schema.clone() {
                    // The table is made, and with `replace` it is empty.
                    Some(schema) => plan.start(py, schema)?.finish(py).map(Some),
                    None => Ok(None),
                }
            }
            State::Busy | State::Failed | State::Closed => Ok(None),
        }
    }

    /// Discards the rows. `at_once`: the destination does not take back what it has.
    fn abandon(&self, py: Python<'_>, at_once: bool) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        if let State::Open(open) = state {
            match Inside::try_new() {
                Some(_inside) => open.abandon(py, at_once),
                // Its run is cancelled, and may be stopped where it is.
                None => std::mem::forget(open),
            }
        }
    }

    /// Whether it takes no more rows.
    #[getter]
    fn is_closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        Python::attach(|py| self.abandon(py, true));
    }
}
