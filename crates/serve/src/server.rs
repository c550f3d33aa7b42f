//! The server: connections, routes, its begin and its end.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rapidbyte::Engine;
use tokio::sync::{Semaphore, oneshot};

use crate::answer::Refusal;
use crate::ingest::{self, Catalogue, Shared};
use crate::jobs;
use crate::receive::{BodyLimits, Receiver};
use crate::spool::Spool;
use crate::store::{QueueLimits, Store, StoreError, Threads};
use crate::work::{Pipelines, Work};

/// The longest wait for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// A pause after a connection could not be accepted, for example for want of handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const STORE: &str = "jobs.db";
const SPOOL: &str = "spool";
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
    /// The time for which the server keeps a body after its rows are committed.
    pub retain: Duration,
    /// The longest wait of a request with `wait=true`.
    pub wait: Duration,
    /// Runs at a time. Streams beyond wait.
    pub runs: usize,
    /// Connections at a time. Further ones wait.
    pub connections: usize,
    /// The time that open requests have after [`Server::stop`].
    pub drain: Duration,
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
            },
            keep_free: 1 << 30,
            retain: Duration::from_secs(24 * 3600),
            wait: Duration::from_secs(60),
            runs: 4,
            connections: 10_000,
            drain: Duration::from_secs(30),
        }
    }
}

/// The reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another address than loopback needs tokens and TLS, which are not there yet.
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// Another server has the folder.
    #[error("another server uses the folder {0}")]
    FolderInUse(PathBuf),
    /// The system refused something.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// A run reads some jobs, and would delete the rows of all others.
    #[error(
        "the pipeline {0} deletes rows that a run does not read: set write_mode: append or upsert, and remove deletes"
    )]
    DeletesRows(String),
    /// The path of a request names the pipeline.
    #[error("two pipelines have the name {0}: rename one of them")]
    DuplicatePipeline(String),
    /// The store of jobs cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A server at work. If it is dropped, it ends in the background, as after [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to take requests.
    ///
    /// # Errors
    /// An address, a folder or a store that cannot be used.
    pub fn start(settings: Settings, catalogue: Arc<dyn Catalogue>) -> Result<Self, ServeError> {
        Self::start_with(settings, catalogue, None)
    }

    /// Takes requests for the streams of pipelines whose source is `ingest`, and runs these pipelines.
    ///
    /// # Errors
    /// As of [`Server::start`].
    pub fn run(
        settings: Settings,
        engine: Engine,
        pipelines: Pipelines,
    ) -> Result<Self, ServeError> {
        let pipelines = Arc::new(pipelines);
        let catalogue = Arc::clone(&pipelines) as Arc<dyn Catalogue>;
        Self::start_with(settings, catalogue, Some((engine, pipelines)))
    }

    fn start_with(
        settings: Settings,
        catalogue: Arc<dyn Catalogue>,
        runs: Option<(Engine, Arc<Pipelines>)>,
    ) -> Result<Self, ServeError> {
        let listen = settings.listen;
        if !listen.ip().is_loopback() {
            return Err(ServeError::NotLoopback(listen));
        }
        let system = |what: &'static str| move |error| ServeError::System(what, error);
        let folder =
            std::path::absolute(&settings.folder).map_err(system("cannot find the folder"))?;
        let settings = Settings { folder, ..settings };
        let spool = Spool::open(&settings.folder.join(SPOOL), settings.keep_free);
        let spool = spool.map_err(system("cannot make the folder"))?;
        let held = hold(&settings.folder)?;
        let (store, threads) = Store::open(&settings.folder.join(STORE), settings.queue)?;
        let listener = TcpListener::bind(listen).map_err(system("cannot listen"))?;
        listener
            .set_nonblocking(true)
            .map_err(system("cannot listen"))?;
        let address = listener.local_addr().map_err(system("cannot listen"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("cannot start"))?;
        let known: HashSet<String> = runtime.block_on(store.spooled())?.into_iter().collect();
        spool
            .clean(&known)
            .map_err(system("cannot read the spool"))?;
        let work = runs.map(|(engine, pipelines)| {
            let (store, spool) = (store.clone(), spool.clone());
            let folder = settings.folder.join(SEGMENTS);
            let settings = (folder, settings.retain, settings.runs);
            Work::start(engine, pipelines, store, spool, settings)
        });
        let work = work
            .transpose()
            .map_err(system("cannot begin to run pipelines"))?;
        let shared = Shared {
            catalogue,
            store,
            receiver: Receiver::new(settings.bodies, spool),
            notice: work.as_ref().map(Work::notice),
            wait: settings.wait,
        };
        let (stop, stopped) = oneshot::channel();
        let serving = move || {
            runtime.block_on(serve(listener, routes(shared), &settings, stopped));
            // Requests that the drain cut off end here, and with them the last store.
            drop(runtime);
            if let Some(work) = work {
                work.stop();
            }
            Threads::join(threads);
            drop(held);
        };
        let thread = std::thread::Builder::new()
            .name("serve".into())
            .spawn(serving);
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread.map_err(system("cannot start"))?),
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, and waits until the open requests are answered, at most [`Settings::drain`].
    pub fn stop(mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told where it happened.
            let _ = thread.join();
        }
    }
}

/// Holds the folder until the file is dropped.
fn hold(folder: &Path) -> Result<std::fs::File, ServeError> {
    let system = |error| ServeError::System("cannot lock the folder", error);
    let file = std::fs::File::create(folder.join("server.lock")).map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(ServeError::FolderInUse(folder.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(system(error)),
    }
}

fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/v1/ingest/{pipeline}/{stream}", post(ingest::ingest))
        .route("/v1/jobs", get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::get))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(shared)
}

async fn no_route(uri: Uri) -> Refusal {
    let text = format!("nothing is at {}", uri.path());
    let hint = "POST /v1/ingest/PIPELINE/STREAM takes rows, GET /v1/jobs lists jobs";
    Refusal::new(StatusCode::NOT_FOUND, "unknown_path", text, hint)
}

async fn no_method(uri: Uri) -> Refusal {
    let text = format!("{} does not have this method", uri.path());
    let hint = "POST takes rows, GET shows jobs";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "unknown_method", text, hint)
}

async fn serve(
    listener: TcpListener,
    routes: Router,
    settings: &Settings,
    mut stopped: oneshot::Receiver<()>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD);
    let connections = Arc::new(Semaphore::new(settings.connections));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            _ = &mut stopped => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Answers are small: none waits for more of it.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // What goes wrong with a connection is the client's to know.
            let _ = connection.await;
            drop(permit);
        });
    }
    let _ = tokio::time::timeout(settings.drain, graceful.shutdown()).await;
}
