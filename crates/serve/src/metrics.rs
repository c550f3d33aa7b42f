//! `GET /metrics`: what the server counts since its start, and the state of its queue at the moment of the request.
//!
//! Labels are bounded: routes are those of the server, codes are those of `docs/errors.md`, and pipelines and streams are
//! those of the pipeline files, up to [`MAX_STREAMS`].

mod runs;
mod scrape;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;

use crate::agenda::Key;
use crate::answer::Refusal;
use crate::store::Admitted;
use text::Histogram;

pub(crate) use scrape::metrics;

/// The route that takes bodies.
pub const INGEST: &str = "/v1/ingest/{pipeline}/{stream}";
/// The label of requests that have no route.
const NO_ROUTE: &str = "none";
/// Streams that have samples of their own. Runs of further ones are counted together, with empty labels.
const MAX_STREAMS: usize = 10_000;
/// Upper bounds in seconds.
const REQUEST_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
];
const RUN_SECONDS: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0,
];

/// The counters of a server. Clones are the same counters.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    started: SystemTime,
    requests: Mutex<HashMap<String, Requests>>,
    /// Bodies that were refused, by code.
    refused: Mutex<BTreeMap<&'static str, u64>>,
    admitted: AtomicU64,
    known: AtomicU64,
    received_bytes: AtomicU64,
    connections: AtomicU64,
    runs: Mutex<Runs>,
}

/// The requests of one route.
struct Requests {
    /// By the first digit of the status; 0 is a request that ended without an answer.
    by_class: [u64; 6],
    seconds: Histogram,
}

struct Runs {
    by_stream: BTreeMap<Key, OfStream>,
    seconds: Histogram,
}

/// The runs of one stream.
#[derive(Debug, Default, Clone, Copy)]
struct OfStream {
    by_result: [u64; 3],
    rows: u64,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It committed these rows.
    Committed(u64),
    /// It failed.
    Failed,
    /// The server ended, or somebody cancelled it.
    Cancelled,
}

/// An open connection. It is counted until this is dropped.
pub struct Connected(Metrics);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Nothing is counted yet.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            started: SystemTime::now(),
            requests: Mutex::default(),
            refused: Mutex::default(),
            admitted: AtomicU64::new(0),
            known: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            runs: Mutex::new(Runs {
                by_stream: BTreeMap::new(),
                seconds: Histogram::new(RUN_SECONDS),
            }),
        }))
    }

    /// A connection is open.
    pub fn connected(&self) -> Connected {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        Connected(self.clone())
    }

    /// A whole body was received.
    pub fn received(&self, bytes: u64) {
        self.0.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A body is a job. One that is not is a [`Refusal`], which is counted with its request.
    pub fn admitted(&self, admitted: &Admitted) {
        let count = match admitted {
            Admitted::New(_) => &self.0.admitted,
            Admitted::Known(_) => &self.0.known,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A run of a stream has ended after this time.
    pub fn ran(&self, (pipeline, stream): (&str, &str), ended: Ended, took: Duration) {
        let mut runs = locked(&self.0.runs);
        runs.seconds.add(took.as_secs_f64());
        let key = (pipeline.to_owned(), stream.to_owned());
        let has_room = runs.by_stream.len() < MAX_STREAMS || runs.by_stream.contains_key(&key);
        let key = if has_room { key } else { Key::default() };
        let of_stream = runs.by_stream.entry(key).or_default();
        let result = match ended {
            Ended::Committed(rows) => {
                of_stream.rows += rows;
                0
            }
            Ended::Failed => 1,
            Ended::Cancelled => 2,
        };
        of_stream.by_result[result] += 1;
    }

    /// `status` is missing for a request that ended without an answer.
    fn requested(&self, route: &str, status: Option<StatusCode>, took: Duration) {
        let mut requests = locked(&self.0.requests);
        if !requests.contains_key(route) {
            let new = Requests {
                by_class: [0; 6],
                seconds: Histogram::new(REQUEST_SECONDS),
            };
            requests.insert(route.to_owned(), new);
        }
        if let Some(of_route) = requests.get_mut(route) {
            let class = status.map_or(0, |status| usize::from(status.as_u16() / 100));
            of_route.by_class[class.min(5)] += 1;
            of_route.seconds.add(took.as_secs_f64());
        }
    }

    fn refused(&self, code: &'static str) {
        *locked(&self.0.refused).entry(code).or_default() += 1;
    }
}

fn locked<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that is counted when this is dropped, which is also how one ends whose client has gone.
struct Measured {
    metrics: Metrics,
    route: Option<MatchedPath>,
    begun: Instant,
    status: Option<StatusCode>,
}

impl Measured {
    fn route(&self) -> &str {
        self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        self.metrics.requested(self.route(), self.status, took);
    }
}

/// Counts a request.
pub async fn measure(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let mut measured = Measured {
        metrics,
        route: request.extensions().get().cloned(),
        begun: Instant::now(),
        status: None,
    };
    let response = next.run(request).await;
    measured.status = Some(response.status());
    if measured.route() == INGEST
        && let Some(refusal) = response.extensions().get::<Refusal>()
    {
        measured.metrics.refused(refusal.code());
    }
    response
}
