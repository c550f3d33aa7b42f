//! The server: its settings, its begin and its end.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Ending, RecvTimeoutError, Sender as Ends, bounded};
use rapidbyte::{Control, Engine};
use serde_json::json;
use tokio::sync::{oneshot, watch};
use ureq::tls::RootCerts;

use crate::access::Access;
use crate::client::authorities;
use crate::connections::{Connections, Tls, TlsFiles};
use crate::ingest::{Catalogue, Shared};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::queue::{Reader, Segment};
use crate::receive::{BodyLimits, Receiver};
use crate::registry::{Inspect, Pipelines, Reach};
use crate::routes::routes;
use crate::runs::{PipelineSource, RunSettings, Runs, RunsError};
use crate::spool::{Spool, make_private};
use crate::store::{QueueLimits, Retention, Store, StoreError, Threads};
use crate::tokens::TokenFile;
use crate::work::{Parts, Work};

/// The time between two looks at the pipeline files, the tokens and the certificate.
const WATCH_EVERY: Duration = Duration::from_secs(2);
const DAY: Duration = Duration::from_secs(24 * 3600);
const STORE: &str = "jobs.db";
const SPOOL: &str = "spool";
/// The folder that connectors see, and no disk has.
const SEGMENTS: &str = "runs";

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address on which it listens. Port 0 is a free port.
    pub listen: SocketAddr,
    /// The folder of the store of jobs and of the spool, which belongs to one server.
    pub folder: PathBuf,
    /// The limits of the queue.
    pub queue: QueueLimits,
    /// The limits of bodies.
    pub bodies: BodyLimits,
    /// Bytes of the disk that stay free.
    pub keep_free: u64,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// The longest wait of a request with `wait=true`.
    pub wait: Duration,
    /// Streams of bodies whose jobs are moved at a time. Others wait. A stream keeps its run for some seconds after its last
    /// job, which takes about 3 MB and a connection to the destination.
    pub streams: usize,
    /// Runs of pipelines with other sources at a time. Others wait.
    pub runs: usize,
    /// Connections at a time. Further ones wait.
    pub connections: usize,
    /// The time that open requests and runs at work have after [`Server::stop`].
    pub drain: Duration,
    /// The certificate and its key. `None`: without TLS.
    pub tls: Option<TlsFiles>,
    /// A proxy in front of the server has TLS.
    pub is_behind_proxy: bool,
    /// A file (PEM) with the authorities that sign the certificates of the receivers of `notify`, in the place of the
    /// public ones.
    pub notify_ca: Option<PathBuf>,
}

impl Settings {
    /// The defaults for a folder: loopback, a free port, 10 GiB in the queue.
    pub fn new(folder: &Path) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            folder: folder.to_owned(),
            queue: QueueLimits {
                jobs: 1_000_000,
                bytes: 10 << 30,
            },
            bodies: BodyLimits {
                bytes: 10 << 30,
                inline: 64 << 10,
                memory: 32 << 20,
                idle: Duration::from_secs(30),
                grace: Duration::from_secs(60),
                slowest: 1 << 10,
            },
            keep_free: 1 << 30,
            retention: Retention {
                bodies: DAY,
                bytes: 1 << 30,
                jobs: DAY * 14,
                rows: 10_000_000,
            },
            wait: Duration::from_secs(60),
            streams: 16,
            runs: 4,
            connections: 10_000,
            drain: Duration::from_secs(30),
            tls: None,
            is_behind_proxy: false,
            notify_ca: None,
        }
    }
}

/// The reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// On another address than loopback each request needs a token.
    #[error("{0} is not a loopback address, and the server has no token")]
    NoToken(SocketAddr),
    /// Tokens would go over the network as plain text.
    #[error("{0} is not a loopback address, and the server has no certificate")]
    NoTls(SocketAddr),
    /// The connector that reads bodies cannot be loaded.
    #[error(transparent)]
    Reader(#[from] Box<rapidbyte::Failure>),
    /// Another server has the folder.
    #[error("another server uses the folder {0}")]
    FolderInUse(PathBuf),
    /// The file with the authorities of receivers cannot be used.
    #[error("the certificates of receivers: {0}")]
    Receivers(String),
    /// The system refused something.
    #[error("{0}: {1}")]
    System(String, io::Error),
    /// A file of the folder cannot be used.
    #[error("{0}: {1}")]
    File(PathBuf, StoreError),
    /// A run reads some jobs, and would delete the rows of all others.
    #[error(
        "the pipeline {0} deletes rows that a run does not read: set write_mode: append or upsert, and remove deletes"
    )]
    DeletesRows(String),
    /// The jobs of the queue begin its runs.
    #[error(
        "the pipeline {0} runs when it has jobs, and its schedule would never begin a run: remove schedule"
    )]
    ScheduleOfQueue(String),
    /// The path of a request names the pipeline.
    #[error("two pipelines have the name {0}: rename one of them")]
    DuplicatePipeline(String),
    /// The store of jobs cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store of runs cannot be opened.
    #[error(transparent)]
    Runs(#[from] RunsError),
}

/// A server at work. If it is dropped, it ends in the background, as after [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    runs: Option<Arc<Runs>>,
    is_ready: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to take requests.
    ///
    /// # Errors
    /// An address, a folder or a store that cannot be used.
    pub fn start(settings: Settings, catalogue: Arc<dyn Catalogue>) -> Result<Self, ServeError> {
        Self::start_with(settings, catalogue, None, Log::default())
    }

    /// Takes requests for the streams of pipelines whose source is `ingest`, and runs all pipelines: these when they have
    /// jobs, others by their schedules and when a client asks.
    ///
    /// # Errors
    /// As of [`Server::start`].
    pub fn run(
        settings: Settings,
        engine: Engine,
        pipelines: Pipelines,
        log: Log,
    ) -> Result<Self, ServeError> {
        let pipelines = Arc::new(pipelines);
        let catalogue = Arc::clone(&pipelines) as Arc<dyn Catalogue>;
        Self::start_with(settings, catalogue, Some((engine, pipelines)), log)
    }

    fn start_with(
        settings: Settings,
        catalogue: Arc<dyn Catalogue>,
        runs: Option<(Engine, Arc<Pipelines>)>,
        log: Log,
    ) -> Result<Self, ServeError> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |error| ServeError::System(what, error)
        };
        let folder =
            std::path::absolute(&settings.folder).map_err(system("cannot find the folder"))?;
        let settings = Settings { folder, ..settings };
        let in_folder = format!("cannot use the folder {}", settings.folder.display());
        make_private(&settings.folder).map_err(system(&in_folder))?;
        let held = hold(&settings.folder)?;
        let access = access(&settings)?;
        let tls = settings.tls.clone().map(Tls::open).transpose();
        let tls = tls.map_err(system("cannot use the certificate"))?;
        let spool = Spool::open(&settings.folder.join(SPOOL), settings.keep_free);
        let spool = spool.map_err(system(&in_folder))?;
        let file = settings.folder.join(STORE);
        let (store, threads) =
            Store::open(&file, settings.queue).map_err(|error| ServeError::File(file, error))?;
        let listens = format!("cannot listen on {}", settings.listen);
        let listener = TcpListener::bind(settings.listen).map_err(system(&listens))?;
        listener.set_nonblocking(true).map_err(system(&listens))?;
        let address = listener.local_addr().map_err(system(&listens))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("cannot start"))?;
        let known: HashSet<String> = runtime.block_on(store.spooled())?.into_iter().collect();
        spool
            .clean(&known)
            .map_err(system("cannot read the spool"))?;
        let pipelines = runs.as_ref().map(|(_, pipelines)| Arc::clone(pipelines));
        let connectors = runs.as_ref().map(|(engine, _)| engine.connectors());
        let metrics = Metrics::new();
        let (work, runs, watched) = match runs {
            None => (None, None, None),
            Some((engine, pipelines)) => {
                let reader = Arc::new(Reader::load(&engine).map_err(Box::new)?);
                let inspect = inspect(engine.clone(), Arc::clone(&reader), &settings.folder);
                pipelines
                    .scan(&*inspect, &log)
                    .map_err(system("cannot read the folder of pipelines"))?;
                let source = Arc::clone(&pipelines) as Arc<dyn PipelineSource>;
                let runs = Runs::start(run_settings(&settings, &log)?, engine.clone(), source)?;
                let parts = Parts {
                    engine,
                    reader,
                    pipelines: Arc::clone(&pipelines),
                    store: store.clone(),
                    spool: spool.clone(),
                    log: log.clone(),
                    folder: settings.folder.join(SEGMENTS),
                    retention: settings.retention,
                    runs: settings.streams,
                    metrics: metrics.clone(),
                    messages: Arc::clone(&runs),
                };
                let work = Work::start(parts).map_err(system("cannot begin to run pipelines"))?;
                (Some(work), Some(runs), Some((pipelines, inspect)))
            }
        };
        let is_ready = Arc::new(AtomicBool::new(true));
        let (finished, is_finished) = watch::channel(false);
        let shared = Shared {
            catalogue,
            pipelines,
            runs: runs.clone(),
            receiver: Receiver::new(settings.bodies, spool, store.clone()),
            store,
            notice: work.as_ref().map(Work::notice),
            wait: settings.wait,
            is_ready: Arc::clone(&is_ready),
            is_finished,
            metrics: metrics.clone(),
            settings: Arc::new(settings.clone()),
            connectors: connectors.unwrap_or_default().into(),
        };
        let (ends, ending) = bounded(0);
        let watch = Watch {
            access: access.clone(),
            tls: tls.clone(),
            watched,
            notice: shared.notice.clone(),
            runs: runs.clone(),
            log,
            spool: shared.receiver.spool().clone(),
            told: HashMap::new(),
        };
        let watch = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || watch.watch(&ending))
            .map_err(system("cannot start"))?;
        let (stop, stopped) = oneshot::channel();
        let drain = settings.drain;
        let connections = Connections {
            limit: settings.connections,
            drain,
            tls,
            metrics,
        };
        let ends_runs = (runs.clone(), shared.notice.clone());
        let finish = move || {
            let until = Instant::now() + drain;
            let left = || until.saturating_duration_since(Instant::now());
            if let (Some(runs), Some(work)) = &ends_runs {
                runs.drain(left());
                work.drain(left());
                // Requests that follow a run are answered.
                runs.end();
            }
            // Nobody listens if no request waits.
            let _ = finished.send(true);
        };
        let routes = routes(shared, access);
        let known_runs = runs.clone();
        let serving = move || {
            runtime.block_on(connections.serve(listener, routes, stopped, finish));
            // Requests that the drain cut off end here, and with them the last store.
            drop(runtime);
            end_watch(ends, watch);
            if let Some(work) = work {
                work.stop();
            }
            if let Some(runs) = runs {
                runs.stop();
            }
            Threads::join(threads);
            drop(held);
        };
        let thread = std::thread::Builder::new()
            .name("serve".into())
            .spawn(serving);
        Ok(Self {
            address,
            runs: known_runs,
            is_ready,
            stop: Some(stop),
            thread: Some(thread.map_err(system("cannot start"))?),
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The runs of pipelines whose source is not `ingest`. `None` for a server that runs no pipelines.
    pub fn runs(&self) -> Option<Arc<Runs>> {
        self.runs.clone()
    }

    /// `/readyz` says no from now on, so that a load balancer sends no more requests.
    pub fn unready(&self) {
        self.is_ready.store(false, Ordering::Relaxed);
    }

    /// Takes no more connections, and waits until the open requests are answered and the runs at work have ended, at most
    /// [`Settings::drain`]. Jobs of runs that were cut off stay pending; other runs resume at the next start.
    pub fn stop(mut self) {
        self.unready();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told where it happened.
            let _ = thread.join();
        }
    }
}

fn run_settings(settings: &Settings, log: &Log) -> Result<RunSettings, ServeError> {
    let named = settings.notify_ca.as_deref();
    let authorities = named.map_or(Ok(RootCerts::WebPki), |file| {
        authorities(file).map_err(|why| ServeError::Receivers(format!("{}: {why}", file.display())))
    })?;
    Ok(RunSettings {
        authorities,
        threads: settings.runs,
        wait: settings.wait,
        log: log.clone(),
        ..RunSettings::new(&settings.folder)
    })
}

fn access(settings: &Settings) -> Result<Access, ServeError> {
    let file = TokenFile::of(&settings.folder);
    let access = Access::open(file, settings.listen.ip());
    let tokens = format!("cannot read the tokens in {}", settings.folder.display());
    let access = access.map_err(|error| ServeError::System(tokens, error))?;
    if settings.listen.ip().is_loopback() {
        return Ok(access);
    }
    if !access.has_token() {
        return Err(ServeError::NoToken(settings.listen));
    }
    match settings.tls.is_some() || settings.is_behind_proxy {
        true => Ok(access),
        false => Err(ServeError::NoTls(settings.listen)),
    }
}

/// Lets the connectors of a pipeline describe themselves: this finds settings that they do not take.
fn inspect(engine: Engine, reader: Arc<Reader>, folder: &Path) -> Box<Inspect> {
    let segment = Segment::empty(folder);
    let engine = engine.with_connectors([segment.source(&reader)]);
    Box::new(move |pipeline| {
        let stages = engine.grants(pipeline, &Control::default())?;
        let reach = stages.into_iter().map(|stage| Reach {
            key: stage.key,
            connector: stage.connector.name().to_owned(),
            version: stage.spec.version,
            may: stage.may,
        });
        Ok(reach.collect())
    })
}

/// What is looked at from time to time.
struct Watch {
    access: Access,
    tls: Option<Tls>,
    watched: Option<(Arc<Pipelines>, Box<Inspect>)>,
    notice: Option<crate::work::Notice>,
    runs: Option<Arc<Runs>>,
    log: Log,
    spool: Spool,
    /// Problems that were told, by their codes.
    told: HashMap<&'static str, String>,
}

impl Watch {
    fn watch(mut self, ending: &Ending<()>) {
        while ending.recv_timeout(WATCH_EVERY) == Err(RecvTimeoutError::Timeout) {
            self.look();
        }
    }

    /// Tells a problem of this kind once, until another one comes, or it is gone.
    fn tell_once(&mut self, code: &'static str, problem: Option<String>) {
        let told = self.told.get(code);
        match problem {
            None => {
                self.told.remove(code);
            }
            Some(text) if told != Some(&text) => {
                self.log.warn(text.clone(), json!({ "code": code }));
                self.told.insert(code, text);
            }
            Some(_) => {}
        }
    }

    fn look(&mut self) {
        let problem = self.access.reload().err();
        let problem = problem.map(|error| format!("the tokens stay as they were: {error}"));
        self.tell_once("tokens_unreadable", problem);
        let problem = self.tls.as_ref().and_then(|tls| tls.reload().err());
        let problem = problem.map(|error| format!("the certificate stays as it was: {error}"));
        self.tell_once("certificate_unreadable", problem);
        let problem = self.spool.ensure_usable().err().map(|error| {
            format!(
                "bodies above 64 KiB are refused, and jobs with large bodies wait: {}: {error}; bring the folder back, or \
                 make it writable",
                self.spool.folder().display()
            )
        });
        self.tell_once("spool_unusable", problem);
        let Some((pipelines, inspect)) = &self.watched else {
            return;
        };
        let scanned = pipelines.scan(&**inspect, &self.log);
        let mut problem = None;
        match scanned {
            Ok(changed) => {
                if let Some(runs) = self.runs.as_ref().filter(|_| !changed.is_empty()) {
                    runs.pipelines_changed();
                }
                for name in changed {
                    if let Some(notice) = &self.notice {
                        notice.retry(&name, None);
                    }
                }
            }
            Err(error) => problem = Some(format!("the pipelines stay as they were: {error}")),
        }
        self.tell_once("folder_unreadable", problem);
    }
}

fn end_watch(ends: Ends<()>, watch: JoinHandle<()>) {
    drop(ends);
    // A panic of the thread was told where it happened.
    let _ = watch.join();
}

/// Holds the folder until the file is dropped.
fn hold(folder: &Path) -> Result<std::fs::File, ServeError> {
    let system = |error| ServeError::System("cannot lock the folder".into(), error);
    let file = std::fs::File::create(folder.join("server.lock")).map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(ServeError::FolderInUse(folder.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(system(error)),
    }
}
