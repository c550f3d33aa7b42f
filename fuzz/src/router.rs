//! The routes of the server, with real stores in a temporary folder and with tables in memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use http::Request;
use rapidbyte::memory::Tables;
use rapidbyte::{Engine, Environment, Pipeline};
use rapidbyte_serve::{InProcess, InProcessAnswer, Pipelines, Settings};
use serde_json::Value;
use tempfile::TempDir;

/// Requests of one server. The next one has empty stores, so that full ones do not refuse everything.
const MAX_REQUESTS: u32 = 5000;

const PIPELINES: [&str; 3] = [
    "version: 1\npipeline: orders\nsource: { use: ingest, config: {}, streams: [orders, \"a/b\"] }\n\
     destination: { use: tables, write_mode: append }\n",
    "version: 1\npipeline: copy\nsource: { use: tables, streams: [t] }\n\
     destination: { use: tables, write_mode: append }\nrejects: { max_rows: 1, to: bad }\n",
    "version: 1\npipeline: more\n\
     source: { use: tables, streams: [{ name: t, sync_mode: incremental, cursor_field: id }] }\n\
     destination: { use: tables, write_mode: upsert, primary_key: [id] }\n",
];

/// A server with what it needs.
struct Served {
    server: InProcess,
    requests: u32,
    /// Removed after the server.
    _folder: TempDir,
}

static SERVED: Mutex<Option<Served>> = Mutex::new(None);

/// The input: `METHOD path`, lines of headers, an empty line, and the body. A request that a client cannot write is left
/// out. No answer is an error of the server, except that it has no room; JSON is JSON.
pub fn run(data: &[u8]) {
    let Some(request) = request(data) else { return };
    let shown = format!("{} {}", request.method(), request.uri());
    // The body of a job is what a client has sent.
    let is_own = !request.uri().path().ends_with("/body");
    let answer = answer(request);
    let InProcessAnswer {
        status,
        content_type,
        body,
    } = &answer;
    assert!(
        *status < 500 || *status == 503,
        "{shown}: {status} {}",
        String::from_utf8_lossy(body)
    );
    if is_own && content_type == "application/json" && !body.is_empty() {
        let value: Value = serde_json::from_slice(body).expect("JSON");
        let is_error = value["status"] == "error";
        // 422 also tells of a job or a run that did not succeed.
        let is_told = *status < 400 || *status == 422 || is_error;
        assert!(is_told, "{shown}: {status} {value}");
    }
}

/// The answer to a request.
pub fn answer(request: Request<Vec<u8>>) -> InProcessAnswer {
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if served
        .as_ref()
        .is_none_or(|served| served.requests >= MAX_REQUESTS)
    {
        // The folder of the old one is removed after it.
        *served = None;
        *served = Some(start());
    }
    let served = served.as_mut().expect("it was started");
    served.requests += 1;
    served.server.answer(request)
}

/// The request of an input.
pub fn request(data: &[u8]) -> Option<Request<Vec<u8>>> {
    let split = data.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = match split {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
    let mut request = Request::builder()
        .method(first.next()?)
        .uri(first.next()?)
        .header("host", "localhost");
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    request.body(body.to_vec()).ok()
}

fn start() -> Served {
    let folder = tempfile::tempdir().expect("a folder");
    let tables = Tables::new();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter([("id", ids)]).expect("rows");
    tables.set("t", rows.schema(), &["id"], vec![rows]);
    let engine = Engine::builder()
        .connector(tables.source("tables"))
        .connector(Tables::new().destination("tables"))
        .build()
        .expect("an engine");
    let environment = Environment::from_fn(|_| None).without_env_file();
    let pipelines = PIPELINES
        .map(|text| Pipeline::from_str(text, folder.path(), &environment).expect("a pipeline"));
    let mut settings = Settings::new(&folder.path().join("server"));
    settings.wait = Duration::from_millis(1);
    settings.runs = 1;
    settings.queue.jobs = 1000;
    settings.queue.bytes = 16 << 20;
    settings.bodies.inline = 64;
    settings.keep_free = 0;
    let pipelines = Pipelines::new(pipelines).expect("pipelines");
    Served {
        server: InProcess::start(settings, engine, pipelines).expect("a server"),
        requests: 0,
        _folder: folder,
    }
}
