//! The calls: run, plan, check, discover, verify.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use rapidbyte::batches::{Batches, ConnectorError, Function, Input, Output, Taken};
use rapidbyte::verify::Repair;
use rapidbyte::{
    Cancel, Class, Engine, Failure, History, NativeConnector, Report, RunOptions, Share,
    VerifyOptions,
};
use serde_json::json;

use crate::arrow::Stream;
use crate::batch::Batch;
use crate::desk::{Answer, Calls, Desk, State};
use crate::ending::Inside;
use crate::engine::{Choice, Given, engine};
use crate::feed::{Feed, declared, is_function};
use crate::marked;
use crate::refusal::{Refusal, of_failure};
use crate::stored::converter;
use crate::value::Documents;

/// The name of the source and the destination of the program: `use: python`.
pub const NAME: &str = "python";

/// Ends calls from another thread.
#[pyclass(frozen, module = "rapidbyte", name = "Cancel")]
#[derive(Default)]
pub struct Canceller(pub Cancel);

#[pymethods]
impl Canceller {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Cancels the calls that got this object.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it is cancelled.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Rows of the caller as one stream.
#[derive(FromPyObject)]
pub struct Source {
    #[pyo3(item)]
    name: String,
    #[pyo3(item)]
    rows: Py<PyAny>,
    #[pyo3(item)]
    schema: Option<Py<PyAny>>,
    #[pyo3(item)]
    key: Vec<String>,
    /// Whether nested values are Extended JSON, for MongoDB.
    #[pyo3(item)]
    extended: bool,
    /// A column that is added, and says that all rows are deleted.
    #[pyo3(item)]
    mark: Option<String>,
}

/// The parts of a pipeline that the caller runs.
#[derive(FromPyObject, Default)]
pub struct Parts {
    #[pyo3(item)]
    inputs: Vec<Source>,
    #[pyo3(item)]
    output: Option<Py<PyAny>>,
    #[pyo3(item)]
    transforms: Vec<(String, Py<PyAny>)>,
}

/// How a call is watched and ended.
#[derive(FromPyObject)]
pub struct Watch {
    #[pyo3(item)]
    on_progress: Option<Py<PyAny>>,
    #[pyo3(item)]
    cancel: Option<Py<Canceller>>,
}

impl Watch {
    fn desk(self, py: Python<'_>) -> PyResult<Desk> {
        // A token of its own: Ctrl-C ends this call, and not all that got the same object.
        let cancel = match &self.cancel {
            Some(canceller) => canceller.get().0.child(),
            None => Cancel::new(),
        };
        Desk::new(py, cancel, self.on_progress)
    }
}

impl Parts {
    /// The connectors of these parts, whose work `calls` brings to the caller's thread.
    fn connectors(
        self,
        py: Python<'_>,
        calls: &Calls,
        state: &mut State,
    ) -> PyResult<Vec<NativeConnector>> {
        let mut connectors = Vec::new();
        let mut input = Input::new();
        let has_inputs = !self.inputs.is_empty();
        for source in self.inputs {
            input = source.add_to(py, input, calls, state)?;
        }
        if has_inputs {
            connectors.push(input.source(NAME));
        }
        if let Some(function) = self.output {
            connectors.push(output(function, calls.clone()).destination(NAME));
        }
        for (name, function) in self.transforms {
            connectors.push(transform(Arc::new(function), calls.clone()).transform(&name));
        }
        Ok(connectors)
    }
}

impl Source {
    fn add_to(
        self,
        py: Python<'_>,
        input: Input,
        calls: &Calls,
        state: &mut State,
    ) -> PyResult<Input> {
        let declared = match &self.schema {
            Some(schema) => Some(declared(schema.bind(py))?),
            None => None,
        };
        let key: Vec<&str> = self.key.iter().map(String::as_str).collect();
        let rows = self.rows.bind(py);
        let can_repeat = is_function(rows);
        let documents = Documents::of(self.extended);
        let mut feed = match can_repeat {
            true => Feed::open(&rows.call0()?, declared.clone(), documents)?,
            false => Feed::open(rows, declared.clone(), documents)?,
        }
        .until(&calls.cancel);
        let Some(schema) = feed.schema(py)? else {
            let text = format!("{:?} has no rows, so its columns are not known", self.name);
            return Err(Refusal::data("no_columns", text)
                .hint("declare the columns with schema=, or leave out what is empty")
                .into());
        };
        if let Some(missing) = key.iter().find(|name| schema.index_of(name).is_err()) {
            let columns = schema.fields().iter().map(|field| field.name().as_str());
            let text = format!(
                "the key {missing:?} is not among the columns {}",
                columns.collect::<Vec<_>>().join(", ")
            );
            return Err(Refusal::config("unknown_column", text)
                .in_column(missing)
                .hint("name columns that the rows have")
                .into());
        }
        let columns = Arc::clone(&schema);
        let schema = match &self.mark {
            Some(mark) => marked::columns(&schema, mark)?,
            None => schema,
        };
        let (is_marked, with_mark) = (self.mark.is_some(), Arc::clone(&schema));
        let marked = move |batches: Batches| match is_marked {
            true => marked::batches(batches, &with_mark),
            false => batches,
        };
        let number = state.feeds.len();
        if !can_repeat && let Some(batch) = feed.take_whole() {
            // The run does not have to ask the thread of the caller.
            state.feeds.push(None);
            let batch = match is_marked {
                true => marked::batch(&batch, &schema)
                    .map_err(|error| Refusal::data("internal", error))?,
                false => batch,
            };
            let input = input.whole(&self.name, &key, batch);
            return Ok(inferred(input, declared.as_ref()));
        }
        if !can_repeat && let Some(stream) = feed.take_stream() {
            state.feeds.push(None);
            let batches = marked(arrow_batches(stream));
            let input = input.once(&self.name, schema, &key, batches);
            return Ok(inferred(input, declared.as_ref()));
        }
        state.feeds.push(Some(feed));
        let calls = calls.clone();
        if !can_repeat {
            let batches = marked(Box::new(Pulled::new(calls, number)));
            let input = input.once(&self.name, schema, &key, batches);
            return Ok(inferred(input, declared.as_ref()));
        }
        let function = Arc::new(self.rows);
        // The first read takes the rows whose columns were looked at.
        let is_open = std::sync::atomic::AtomicBool::new(true);
        let input = input.again(&self.name, schema, &key, move || {
            if !is_open.swap(false, std::sync::atomic::Ordering::SeqCst) {
                let (function, columns) = (Arc::clone(&function), Arc::clone(&columns));
                let cancel = calls.cancel.clone();
                calls.ask(move |py, state| {
                    let rows = function.bind(py).call0()?;
                    let feed = Feed::open(&rows, Some(columns), documents)?.until(&cancel);
                    state.feeds[number] = Some(feed);
                    Ok(())
                })?;
            }
            Ok(marked(Box::new(Pulled::new(calls.clone(), number))))
        });
        Ok(inferred(input, declared.as_ref()))
    }
}

/// Lets the columns of an existing target decide, unless the caller has declared columns.
pub fn inferred(input: Input, declared: Option<&SchemaRef>) -> Input {
    match declared {
        Some(_) => input,
        None => input.inferred(converter()),
    }
}

/// Batches of another library, which need no interpreter.
fn arrow_batches(mut stream: Stream) -> Batches {
    Box::new(std::iter::from_fn(move || match stream.next() {
        Ok(batch) => batch.map(Ok),
        Err(refusal) => Some(Err(refusal.into_connector())),
    }))
}

/// Batches that the caller's thread makes, one ahead.
struct Pulled {
    calls: Calls,
    feed: usize,
    next: Option<Answer<Option<RecordBatch>>>,
    is_done: bool,
}

impl Pulled {
    fn new(calls: Calls, feed: usize) -> Self {
        Self {
            calls,
            feed,
            next: None,
            is_done: false,
        }
    }

    fn ask(&self) -> Answer<Option<RecordBatch>> {
        let feed = self.feed;
        self.calls
            .ahead(move |py, state| match &mut state.feeds[feed] {
                Some(feed) => feed.next(py),
                None => Ok(None),
            })
    }
}

impl Iterator for Pulled {
    type Item = Result<RecordBatch, ConnectorError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let answer = self.next.take().unwrap_or_else(|| self.ask());
        let batch = answer.wait().transpose();
        match &batch {
            Some(Ok(_)) => self.next = Some(self.ask()),
            _ => self.is_done = true,
        }
        batch
    }
}

/// Calls a function of the caller with each batch.
fn output(function: Py<PyAny>, calls: Calls) -> Output {
    let function = Arc::new(function);
    Output::to(move |stream, taken| {
        let Taken::Rows(batch) = taken else {
            return Ok(());
        };
        let (function, stream) = (Arc::clone(&function), stream.to_owned());
        calls.ask(move |py, _| {
            function.call1(py, (Batch::new(batch, Some(stream)),))?;
            Ok(())
        })
    })
}

/// Calls a function of the caller with each batch, and takes the Arrow data that it returns.
fn transform(function: Arc<Py<PyAny>>, calls: Calls) -> Function {
    let (of_columns, to_columns) = (Arc::clone(&function), calls.clone());
    let columns = move |stream: &str, before: &SchemaRef| {
        let (function, stream) = (Arc::clone(&of_columns), stream.to_owned());
        let empty = RecordBatch::new_empty(Arc::clone(before));
        to_columns.ask(move |py, _| {
            let made = function.call1(py, (Batch::new(empty, Some(stream)),))?;
            let made = made.bind(py);
            let stream = Stream::of_transform(made, None)?.ok_or_else(|| no_batch(made))?;
            Ok(Arc::clone(stream.schema()))
        })
    };
    let apply = move |stream: &str, batch: RecordBatch, planned: &SchemaRef| {
        let (function, stream) = (Arc::clone(&function), stream.to_owned());
        let planned = Arc::clone(planned);
        calls.ask(move |py, _| {
            let made = function.call1(py, (Batch::new(batch, Some(stream)),))?;
            let made = made.bind(py);
            let stream = Stream::of_transform(made, Some(&planned))?;
            let mut stream = stream.ok_or_else(|| no_batch(made))?;
            let mut batches = Vec::new();
            while let Some(batch) = py.detach(|| stream.next().map_err(of_transform))? {
                batches.push(batch);
            }
            Ok(batches)
        })
    };
    Function::new(columns, apply)
}

fn no_batch(made: &Bound<'_, PyAny>) -> Refusal {
    let name = made.get_type().name().map(|name| name.to_string());
    let name = name.unwrap_or_default();
    let text = format!("a transform returned a value of the type {name}, which is not Arrow data");
    Refusal::data("no_batch", text).hint(
        "return a record batch, a table or a DataFrame, also for a batch without rows; for rows as dicts, \
         polars.DataFrame(rows, schema=...) or pyarrow.Table.from_pylist(rows, schema=...)",
    )
}

/// The error of a transform. It does not name a row of the caller, because the rows of a transform are its own.
fn of_transform(refusal: Refusal) -> Refusal {
    refusal
        .in_words(|row| format!("row {row} of a batch that the transform returned"))
        .hint("give all batches the types that the transform gives a batch without rows: cast its columns")
}

/// Runs a pipeline. Returns the report as JSON.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    pipeline: Given,
    parts: Parts,
    choice: Choice,
    keeps_history: bool,
    watch: Watch,
) -> PyResult<String> {
    call(py, parts, watch, move |engine, control| {
        let options = RunOptions {
            narrowing: choice.narrowing(),
            history: match keeps_history {
                true => History::Beside,
                false => History::Off,
            },
            reuse: pipeline.reuse(),
            ..RunOptions::default()
        };
        let report = pipeline.with(|pipeline| engine.run(pipeline, &options, control))?;
        text_of(&report)
    })
}

/// Plans a run. Returns the plan as JSON.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    pipeline: Given,
    parts: Parts,
    choice: Choice,
    watch: Watch,
) -> PyResult<String> {
    call(py, parts, watch, move |engine, control| {
        pipeline.with(|pipeline| {
            let mut preview = engine.preview(pipeline, &choice.narrowing(), control)?;
            let refusals = preview.refusals()?;
            match refusals.failure {
                Some(failure) => Err(failure),
                None => Ok(rapidbyte_cli::documents::plan(preview.plan()).to_string()),
            }
        })
    })
}

/// Checks both sides of a pipeline. Returns the checks as JSON.
#[pyfunction]
pub fn check(py: Python<'_>, pipeline: Given, parts: Parts, watch: Watch) -> PyResult<String> {
    call(py, parts, watch, move |engine, control| {
        let found = pipeline.with(|pipeline| engine.check(pipeline, control))?;
        Ok(json!(rapidbyte_cli::documents::checks(found).0).to_string())
    })
}

/// Lists the streams of a source. Returns them as JSON.
#[pyfunction]
pub fn discover(py: Python<'_>, pipeline: Given, parts: Parts, watch: Watch) -> PyResult<String> {
    call(py, parts, watch, move |engine, control| {
        let found = pipeline.with(|pipeline| engine.discover(pipeline, control))?;
        let shown = rapidbyte_cli::documents::discovered(&found)?;
        match found.unreadable {
            Some(failure) => Err(failure),
            None => Ok(shown.to_string()),
        }
    })
}

/// Compares targets with their sources. Returns the receipt as JSON.
#[pyfunction]
pub fn verify(
    py: Python<'_>,
    pipeline: Given,
    choice: Choice,
    sample: f64,
    repairs: bool,
    watch: Watch,
) -> PyResult<String> {
    let _inside = Inside::of_call(py)?;
    let sample = Share::of_percent(&sample.to_string()).ok_or_else(|| {
        let text = format!("sample: {sample} is not a percentage above 0 and at most 100");
        PyErr::from(Refusal::config("invalid_argument", text).hint("give percent, such as 0.5"))
    })?;
    call(py, Parts::default(), watch, move |engine, control| {
        let options = VerifyOptions {
            narrowing: choice.narrowing(),
            sample,
            repair: match repairs {
                true => Repair::Rows,
                false => Repair::Nothing,
            },
        };
        let verified =
            pipeline.with(|pipeline| engine.verify(pipeline, &options, control, |_| ()))?;
        Ok(rapidbyte_cli::documents::verified(&verified, sample).to_string())
    })
}

/// A report as JSON.
pub fn text_of(report: &Report) -> Result<String, Failure> {
    serde_json::to_string(report).map_err(|error| Failure::new(Class::Run, "internal", error))
}

/// The arguments that a call lacks.
struct Missing {
    inputs: bool,
    output: bool,
}

impl Missing {
    /// A failure that comes from a missing argument, with the argument.
    fn named(&self, failure: Failure) -> Failure {
        let is_of_connector = matches!(&*failure.code, "invalid_world" | "unknown_connector");
        let key = failure.key.as_deref().filter(|_| is_of_connector);
        let is_python = failure.message.contains(NAME);
        let (message, hint) = match key {
            Some("source.use") if self.inputs && is_python => (
                "the source is python, and the call has no rows for it",
                "give inputs={\"STREAM\": rows}",
            ),
            Some("destination.use") if self.output && is_python => (
                "the destination is python, and the call has no function for it",
                "give output=function, which is called with each batch",
            ),
            Some(key) if key.contains("transforms") => {
                let hint = failure.hint.as_deref().unwrap_or_default();
                let hint = format!("give transforms={{\"NAME\": function}}, or {hint}");
                return failure.hint(hint);
            }
            _ => return failure,
        };
        Failure {
            message: message.to_owned(),
            ..failure
        }
        .hint(hint)
    }
}

/// Lets the engine work on a thread of its own, and serves it on this one.
fn call(
    py: Python<'_>,
    parts: Parts,
    watch: Watch,
    work: impl FnOnce(&Engine, &rapidbyte::Control) -> Result<String, Failure> + Send + 'static,
) -> PyResult<String> {
    let _inside = Inside::of_call(py)?;
    let desk = watch.desk(py)?;
    let mut state = State::default();
    let missing = Missing {
        inputs: parts.inputs.is_empty(),
        output: parts.output.is_none(),
    };
    let connectors = parts.connectors(py, &desk.calls(), &mut state)?;
    let control = desk.control(py)?;
    let engine = py
        .detach(engine)
        .map_err(|failure| of_failure(py, &failure))?;
    let engine = engine.with_connectors(connectors);
    desk.serve(py, &mut state, move || {
        work(&engine, &control).map_err(|failure| missing.named(failure))
    })
}
