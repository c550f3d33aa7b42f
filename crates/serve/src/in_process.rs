//! A server whose requests come by function call: it has no connections, and nobody runs the jobs of its queue. Other
//! pipelines run. For fuzzing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::{BodyExt, Limited};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use rapidbyte::Engine;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::Access;
use crate::ingest::{Catalogue, Shared};
use crate::metrics::Metrics;
use crate::receive::Receiver;
use crate::registry::Pipelines;
use crate::routes::routes;
use crate::runs::{PipelineSource, RunSettings, Runs};
use crate::server::{ServeError, Settings};
use crate::spool::{Spool, make_private};
use crate::store::{Store, Threads};
use crate::tokens::TokenFile;

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 32 << 20;
/// The longest time for which an answer is read. Events of a run that waits come for ever.
const ANSWER: Duration = Duration::from_secs(5);

/// The server. It ends when it is dropped.
pub struct InProcess {
    runtime: Option<Runtime>,
    routes: Option<TowerToHyperService<axum::Router>>,
    runs: Arc<Runs>,
    threads: Option<Threads>,
    _finished: watch::Sender<bool>,
}

/// An answer.
#[derive(Debug)]
pub struct InProcessAnswer {
    /// Its status.
    pub status: u16,
    /// Its `Content-Type`.
    pub content_type: String,
    /// Its body, as far as it came in time.
    pub body: Vec<u8>,
}

impl InProcess {
    /// Opens the stores of the folder in the settings.
    ///
    /// # Errors
    /// As of [`crate::Server::start`].
    pub fn start(
        settings: Settings,
        engine: Engine,
        pipelines: Pipelines,
    ) -> Result<Self, ServeError> {
        let system = |error: io::Error| ServeError::System("cannot start".into(), error);
        make_private(&settings.folder).map_err(system)?;
        let access = Access::open(TokenFile::of(&settings.folder), settings.listen.ip());
        let access = access.map_err(system)?;
        let spool = Spool::open(&settings.folder.join("spool"), settings.keep_free);
        let spool = spool.map_err(system)?;
        let (store, threads) = Store::open(&settings.folder.join("jobs.db"), settings.queue)?;
        let pipelines = Arc::new(pipelines);
        let run_settings = RunSettings {
            threads: settings.runs,
            wait: settings.wait,
            ..RunSettings::new(&settings.folder)
        };
        let source = Arc::clone(&pipelines) as Arc<dyn PipelineSource>;
        let runs = Runs::start(run_settings, engine.clone(), source)?;
        let (finished, is_finished) = watch::channel(false);
        let shared = Shared {
            catalogue: Arc::clone(&pipelines) as Arc<dyn Catalogue>,
            pipelines: Some(pipelines),
            runs: Some(Arc::clone(&runs)),
            receiver: Receiver::new(settings.bodies, spool, store.clone()),
            store,
            notice: None,
            wait: settings.wait,
            is_ready: Arc::new(AtomicBool::new(true)),
            is_finished,
            metrics: Metrics::new(),
            settings: Arc::new(settings),
            connectors: engine.connectors().into(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system)?;
        Ok(Self {
            runtime: Some(runtime),
            routes: Some(TowerToHyperService::new(routes(shared, access))),
            runs,
            threads: Some(threads),
            _finished: finished,
        })
    }

    /// The answer to a request.
    pub fn answer(&self, request: Request<Vec<u8>>) -> InProcessAnswer {
        let (Some(runtime), Some(routes)) = (&self.runtime, &self.routes) else {
            unreachable!("they are there until the server is dropped");
        };
        runtime.block_on(async {
            let Ok(answer) = routes.call(request.map(Body::from)).await;
            let status = answer.status().as_u16();
            let content_type = answer.headers().get("content-type");
            let content_type = content_type.and_then(|value| value.to_str().ok());
            let content_type = content_type.unwrap_or_default().to_owned();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect();
            let body = timeout(ANSWER, body).await;
            let body = body
                .ok()
                .and_then(|body| Some(body.ok()?.to_bytes().to_vec()));
            InProcessAnswer {
                status,
                content_type,
                body: body.unwrap_or_default(),
            }
        })
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.runs.end();
        // The clones of the store end with the routes, and with the tasks of the runtime.
        drop(self.routes.take());
        drop(self.runtime.take());
        self.runs.stop();
        if let Some(threads) = self.threads.take() {
            threads.join();
        }
    }
}
