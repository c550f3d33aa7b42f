//! The thread of the caller while a run works on threads of its own.
//!
//! Rows, transforms and other functions of the caller run on the thread that called, one at a time: where its `finally`
//! and `with` blocks are, its connections belong to it, and Ctrl-C reaches it. The run asks for them by calls, and waits.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, bounded, select};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use rapidbyte::batches::{ConnectorError, ErrorKind};
use rapidbyte::{Cancel, Control, Event, Failure, Level, Progress};

use crate::ending::Run;
use crate::engine::compiles;
use crate::refusal::{Refusal, of_failure};
use crate::threads;

/// How long a signal waits at most before Python handles it.
pub const SIGNAL_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two calls of `on_progress`.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for a destination to take back what it has, after an exception of the caller's code. Then the run is
/// cancelled, and the next one takes it back.
pub const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(10);
/// Calls that wait. Each waiting thread has one, so more come only from log lines.
const WAITING: usize = 64;

/// Work for the thread of the caller. It says whether the caller's code went on.
type Work = Box<dyn FnOnce(Python<'_>, &mut State) -> Result<(), Refusal> + Send>;

/// The way of a run's threads to the caller's code.
#[derive(Clone)]
pub struct Calls {
    to: Sender<Work>,
    /// Of the run.
    pub cancel: Cancel,
}

/// The caller's rows. Only the caller's thread touches them.
#[derive(Default)]
pub struct State {
    /// Open rows, by the number of their stream.
    pub feeds: Vec<Option<crate::feed::Feed>>,
}

/// The thread of the caller.
pub struct Desk {
    calls: Calls,
    waiting: Receiver<Work>,
    cancel: Cancel,
    run: Run,
    on_progress: Option<Py<PyAny>>,
    /// Whether Python handles signals on this thread.
    takes_signals: bool,
    progress: Arc<Known>,
}

impl Desk {
    /// Of the thread that calls this. The run ends with `cancel`.
    pub fn new(py: Python<'_>, cancel: Cancel, on_progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let (to, waiting) = bounded(WAITING);
        Ok(Self {
            calls: Calls {
                to,
                cancel: cancel.clone(),
            },
            waiting,
            run: Run::new(py, &cancel),
            cancel,
            on_progress,
            takes_signals: is_main_thread(py)?,
            progress: Arc::default(),
        })
    }

    /// The way to this desk.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// Sends the lines of the log of a call to Python's logging, and remembers its progress.
    pub fn control(&self, py: Python<'_>) -> PyResult<Control> {
        let logger = py.import("rapidbyte._log")?;
        let lowest: u8 = logger.getattr("lowest")?.call0()?.extract()?;
        let (calls, progress) = (self.calls(), Arc::clone(&self.progress));
        Ok(Control::default()
            .cancel(&self.cancel)
            .on_event(move |event| {
                if let Event::Started {
                    run_id,
                    progress: known,
                    ..
                } = event
                {
                    // A run that is retried has one progress.
                    let _ = progress.set((Arc::clone(known), (*run_id).to_owned()));
                }
                let Some(line) = event.line() else { return };
                let level = match line.level {
                    Level::Debug => 10,
                    Level::Info => 20,
                    Level::Warn => 30,
                    Level::Error => 40,
                };
                if level >= lowest {
                    let work: Work = Box::new(move |py, _| {
                        let log = py.import("rapidbyte._log")?.getattr("log")?;
                        log.call1((level, line.from, line.stream, line.message))?;
                        Ok(())
                    });
                    // Nobody listens any more where the caller was interrupted.
                    let _ = calls.to.send(work);
                }
            }))
    }

    /// Serves the calls of `work`, which runs on a thread of its own, until it ends.
    ///
    /// If the caller's code raises an exception, or Ctrl-C comes, the work is cancelled, and the exception comes after its
    /// end.
    pub fn serve<T: Send + 'static>(
        self,
        py: Python<'_>,
        state: &mut State,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        // Only the end of the work wakes this thread: while the desk can call itself, the calls do not end before.
        let Self {
            calls: _calls,
            waiting,
            cancel,
            on_progress,
            takes_signals,
            progress,
            run,
        } = self;
        let running = Running::start(move || {
            let _run = run;
            work()
        })?;
        let mut told = Instant::now();
        let pause = match (takes_signals, &on_progress) {
            (true, _) => SIGNAL_PAUSE,
            (false, Some(_)) => PROGRESS_PAUSE,
            (false, None) => Duration::from_secs(3600),
        };
        let ended = loop {
            enum Woken<T> {
                Call(Work),
                End(Box<Result<T, Failure>>),
                Nothing,
            }
            let woken = py.detach(|| {
                select! {
                    recv(waiting) -> call => match call {
                        Ok(call) => Woken::Call(call),
                        Err(_) => Woken::End(Box::new(running.result())),
                    },
                    recv(running.ended) -> _ => Woken::End(Box::new(running.result())),
                    default(pause) => Woken::Nothing,
                }
            });
            tell_compiles(py)?;
            let is_of_rows = matches!(woken, Woken::Call(_));
            let mut served = match woken {
                Woken::Call(call) => call(py, state).map_err(PyErr::from),
                Woken::End(ended) => break *ended,
                Woken::Nothing => Ok(()),
            };
            served = served.and_then(|()| py.check_signals());
            if let Some(function) = on_progress
                .as_ref()
                .filter(|_| served.is_ok() && told.elapsed() >= PROGRESS_PAUSE)
            {
                told = Instant::now();
                match all_are_done(&progress) {
                    true => tell_of_end(py, function, &progress),
                    false => served = tell(py, function, &progress),
                }
            }
            if let Err(raised) = served {
                // The thread that asked gets no answer, so the run fails, and the destination takes back what it has. A run
                // that did not ask would go on, and Ctrl-C does not wait.
                let takes_back = is_of_rows && raised.is_instance_of::<PyException>(py);
                if !takes_back {
                    cancel.cancel();
                }
                let overdue = after(TAKEN_BACK_WITHIN);
                state.feeds.clear();
                // Threads of the run may ask until it ends. A call that is dropped gives them no answer, and they end, too.
                py.detach(|| {
                    loop {
                        select! {
                            recv(waiting) -> call => match call {
                                Ok(call) => drop(call),
                                Err(_) => break,
                            },
                            recv(running.ended) -> _ => break,
                            recv(overdue) -> _ => cancel.cancel(),
                        }
                    }
                    running.join();
                });
                return Err(raised);
            }
        };
        // Lines that came with the end.
        for call in waiting.try_iter() {
            call(py, state)?;
        }
        if let Some(function) = &on_progress {
            tell_of_end(py, function, &progress);
        }
        py.detach(|| running.join());
        ended.map_err(|failure| of_failure(py, &failure))
    }
}

/// Work on a thread of its own.
pub struct Running<T> {
    /// Disconnected when the work has ended.
    pub ended: Receiver<()>,
    results: Receiver<Result<T, Failure>>,
}

impl<T: Send + 'static> Running<T> {
    /// Starts it.
    pub fn start(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> PyResult<Self> {
        let (end, ended) = bounded(0);
        let (result, results) = bounded(1);
        threads::run(
            move || {
                // There is room for it.
                let _ = result.send(work());
            },
            end,
        )?;
        Ok(Self { ended, results })
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        // The channel is disconnected at the end, and says nothing before.
        self.ended.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected)
    }

    /// Waits for its end.
    pub fn result(&self) -> Result<T, Failure> {
        self.results.recv().unwrap_or_else(|_| Err(panicked()))
    }

    /// Waits for its end, whatever it is.
    pub fn join(self) {
        // A panic leaves no result, and the error says so. Nothing is sent before the end.
        let _ = self.ended.recv();
    }
}

/// The failure of a thread that panicked.
pub fn panicked() -> Failure {
    let text = "the run's thread panicked: the engine has a bug";
    Failure::new(rapidbyte::Class::Run, "internal", text)
}

/// Whether Python handles signals on this thread.
pub fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    Ok(current.is(&threading.call_method0("main_thread")?))
}

/// Logs which connectors are compiled, which makes the first call slow.
fn tell_compiles(py: Python<'_>) -> PyResult<()> {
    for name in compiles() {
        let log = py.import("rapidbyte._log")?.getattr("log")?;
        log.call1((
            20,
            "rapidbyte",
            py.None(),
            format!("compiling {name} for this machine, once"),
        ))?;
    }
    Ok(())
}

/// Where `on_progress` finds how far a run is, once it has begun.
type Known = OnceLock<(Arc<Progress>, String)>;

/// Calls `on_progress`.
fn tell(py: Python<'_>, function: &Py<PyAny>, progress: &Known) -> PyResult<()> {
    let Some((progress, run_id)) = progress.get() else {
        return Ok(());
    };
    let streams = progress.streams.iter().map(|stream| {
        let state = match stream.state() {
            rapidbyte::StreamState::Waiting => "waiting",
            rapidbyte::StreamState::Running => "running",
            rapidbyte::StreamState::Done => "done",
            rapidbyte::StreamState::Failed => "failed",
        };
        let estimated = stream.estimated_rows;
        (
            stream.name.clone(),
            stream.rows(),
            stream.bytes(),
            estimated,
            state,
        )
    });
    let streams: Vec<_> = streams.collect();
    let make = py.import("rapidbyte._results")?;
    let progress = make.call_method1(intern!(py, "progress"), (run_id, streams))?;
    function.call1(py, (progress,))?;
    Ok(())
}

/// Whether all rows are committed.
fn all_are_done(progress: &Known) -> bool {
    progress.get().is_some_and(|(progress, _)| {
        let mut streams = progress.streams.iter();
        streams.all(|stream| stream.state() == rapidbyte::StreamState::Done)
    })
}

/// Calls it when nothing can be stopped any more: an exception would hide what became of the run.
fn tell_of_end(py: Python<'_>, function: &Py<PyAny>, progress: &Known) {
    if let Err(raised) = tell(py, function, progress) {
        raised.write_unraisable(py, Some(function.bind(py)));
    }
}

impl Calls {
    /// Lets the thread of the caller do something, and waits for the answer.
    ///
    /// # Errors
    /// An error of the caller's rows. If the caller's code raised an exception, or was interrupted, the run is cancelled
    /// already, and nobody sees this error.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(Python<'_>, &mut State) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, ConnectorError> {
        self.ahead(work).wait()
    }

    /// The same without waiting.
    pub fn ahead<T: Send + 'static>(
        &self,
        work: impl FnOnce(Python<'_>, &mut State) -> Result<T, Refusal> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = bounded(1);
        let work: Work = Box::new(move |py, state| {
            let done = work(py, state)?;
            // The thread that asked may have been cancelled.
            let _ = reply.send(done);
            Ok(())
        });
        // Without a desk the answer never comes, and the wait for it ends at once.
        let _ = self.to.send(work);
        Answer(answer)
    }
}

/// The answer to a call.
pub struct Answer<T>(Receiver<T>);

impl<T> Answer<T> {
    /// Waits for it.
    pub fn wait(self) -> Result<T, ConnectorError> {
        self.0.recv().map_err(|_| {
            let text = "the program that gives the rows was interrupted";
            ConnectorError::new(ErrorKind::Data, "caller_interrupted", text)
        })
    }
}
