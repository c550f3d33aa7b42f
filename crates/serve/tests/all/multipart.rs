//! Requests with several files.

use std::sync::Arc;

use crate::support::{Answer, Client, FORM, form, request};
use rapidbyte_serve::{Catalogue, Ingest, QueueLimits, Server, Settings};

const ROWS: &str = "/v1/ingest/p/s";

/// The pipeline `p` takes rows for the stream `s`, each content once.
struct Contents;

impl Catalogue for Contents {
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest> {
        let is_known = pipeline == "p" && stream == "s";
        is_known.then_some(Ingest {
            is_known_by_content: true,
            ..Ingest::default()
        })
    }

    fn has(&self, pipeline: &str) -> bool {
        pipeline == "p"
    }
}

fn start(settings: Settings) -> Server {
    Server::start(settings, Arc::new(Contents)).expect("a server")
}

fn code(answer: &Answer) -> (u16, &str) {
    let code = answer.body["error"]["code"].as_str();
    (answer.status, code.unwrap_or("no code"))
}

fn files(folder: &std::path::Path) -> usize {
    let spool = std::fs::read_dir(folder.join("spool"));
    spool.expect("a folder").count()
}

#[test]
fn each_part_is_a_job_with_its_own_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let mut client = Client::new(server.address());
    // The boundary begins within the data, and the last file goes to the spool.
    let data = b"{\"a\":\"\r\n--b \"}\r\n".repeat(10_000);
    let body = form(&[
        ("name=f; filename=\"a.JSONL\"", b"{}"),
        (
            "name=f; filename=b.csv.gz\r\nContent-Type: application/octet-stream",
            b"?",
        ),
        (
            "name=f; filename=b.txt\r\nContent-Type: application/json; charset=utf-8",
            b"[]",
        ),
        (
            "name=g\r\nContent-Type: text/csv\r\nContent-Encoding: zstd",
            b"",
        ),
        ("name=f; filename=a.parquet", b"PAR1"),
        ("name=f; filename=x.ndjson", &data),
    ]);
    let keyed = format!("{FORM}Idempotency-Key: k\r\n");
    let answer = client.post(ROWS, &keyed, &body);
    assert_eq!(answer.status, 202, "{}", answer.body);
    let jobs = answer.body["jobs"].as_array().expect("jobs");
    let shown: Vec<_> = jobs
        .iter()
        .map(|job| {
            let of = |key: &str| job[key].as_str().unwrap_or("none").to_owned();
            (
                job["id"].as_i64(),
                of("format"),
                of("encoding"),
                of("idempotency_key"),
            )
        })
        .collect();
    let expected = [
        ("jsonl", "none"),
        ("csv", "gzip"),
        ("json", "none"),
        ("csv", "zstd"),
        ("parquet", "none"),
        ("jsonl", "none"),
    ];
    let expected = expected.iter().zip(1..).map(|((format, encoding), id)| {
        (
            Some(id),
            (*format).to_owned(),
            (*encoding).to_owned(),
            format!("k/{id}"),
        )
    });
    assert_eq!(shown, expected.collect::<Vec<_>>());
    assert_eq!(jobs[5]["bytes"], data.len());
    assert_eq!(files(folder.path()), 1);
    let get = b"GET /v1/jobs/6/body HTTP/1.0\r\nHost: localhost\r\n\r\n";
    let stored = Client::new(server.address()).rest(get);
    assert!(stored.as_bytes() == data, "the data of the part");
    // The same request is the same jobs, and leaves no second file.
    let again = client.post(ROWS, &keyed, &body);
    assert_eq!(
        (again.status, &again.body["jobs"]),
        (200, &answer.body["jobs"])
    );
    assert_eq!(files(folder.path()), 1);
    // A new part beside a known one.
    let more = client.post(
        ROWS,
        FORM,
        &form(&[
            ("name=f; filename=a.jsonl", b"{}"),
            ("filename=b.json", b"{}"),
        ]),
    );
    assert_eq!(more.status, 202, "{}", more.body);
    assert_eq!(
        (&more.body["jobs"][0]["id"], &more.body["jobs"][1]["id"]),
        (&1.into(), &7.into())
    );
    server.stop();
}

#[test]
fn it_does_not_matter_where_the_pieces_of_a_request_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let body = form(&[
        ("filename=a.jsonl", b"{\"id\":1}\r\n--b"),
        ("filename=a.json", b"[]"),
    ]);
    for cut in (0..body.len()).step_by(7) {
        let mut client = Client::new(server.address());
        let request = request(ROWS, FORM, &body);
        let (first, second) = request.split_at(request.len() - body.len() + cut);
        std::io::Write::write_all(client.0.get_mut(), first).expect("sent");
        let answer = client.send(second);
        assert!(matches!(answer.status, 200 | 202), "{cut}: {}", answer.body);
        assert_eq!(answer.body["jobs"][0]["bytes"], 13, "{cut}");
    }
    server.stop();
}

#[test]
fn a_request_with_a_part_that_is_refused_leaves_no_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.bodies.bytes = 200_000;
    settings.queue = QueueLimits {
        jobs: 101,
        bytes: 1_000_000,
    };
    let server = start(settings);
    let send = |headers: &str, body: &[u8]| Client::new(server.address()).post(ROWS, headers, body);
    let good: (&str, &[u8]) = ("filename=a.jsonl", b"{}");
    // It goes to the spool.
    let large = vec![b' '; 100_000];
    let spooled = ("filename=b.jsonl", &large[..]);
    let too_large = vec![b' '; 200_001];
    let head = format!("filename=a.jsonl\r\nX: {}", "x".repeat(300_000));
    let cut = |body: Vec<u8>, bytes: usize| body[..body.len() - bytes].to_vec();
    for (headers, body, status, code_of) in [
        (FORM, form(&[]), 400, "invalid_multipart"),
        (FORM, b"no boundary".to_vec(), 400, "invalid_multipart"),
        (
            FORM,
            form(&[spooled, ("name=text", b"x")]),
            415,
            "unknown_format",
        ),
        (
            FORM,
            form(&[spooled, ("filename=a.exe", b"x")]),
            415,
            "unknown_format",
        ),
        (
            FORM,
            form(&[spooled, ("filename=a.parquet.gz", b"x")]),
            415,
            "unknown_encoding",
        ),
        (
            FORM,
            form(&[spooled, ("filename=a.json", &too_large)]),
            413,
            "body_too_large",
        ),
        (FORM, form(&[good, (&head, b"x")]), 400, "invalid_multipart"),
        (FORM, form(&[good; 101]), 400, "invalid_multipart"),
        (FORM, cut(form(&[spooled, good]), 12), 400, "body_broken"),
        (
            FORM,
            cut(form(&[spooled, good]), 4),
            400,
            "invalid_multipart",
        ),
        (
            "Content-Type: multipart/form-data\r\n",
            form(&[good]),
            400,
            "invalid_multipart",
        ),
        (
            "Content-Type: multipart/mixed; boundary=b\r\n",
            form(&[good]),
            415,
            "unknown_format",
        ),
    ] {
        let answer = send(headers, &body);
        assert_eq!(code(&answer), (status, code_of), "{}", answer.body);
    }
    let zipped = format!("{FORM}Content-Encoding: gzip\r\n");
    assert_eq!(
        code(&send(&zipped, &form(&[good]))),
        (415, "unknown_encoding")
    );
    // The second part has the key of another body.
    let keyed = format!("{FORM}Idempotency-Key: k\r\n");
    let jsonl = "Content-Type: application/jsonl\r\nIdempotency-Key: k/2\r\n";
    assert_eq!(send(jsonl, b"{ }").status, 202);
    let reused = send(&keyed, &form(&[spooled, good]));
    assert_eq!(code(&reused), (422, "idempotency_key_reused"));
    let text = reused.body["error"]["message"].as_str().expect("a message");
    assert!(
        text.starts_with("part 2: ") && text.ends_with("no part is stored"),
        "{text}"
    );
    // 100 parts are a job each, and then the queue has no room for two.
    let many: Vec<_> = (0..99).map(|id| format!("{{\"id\":{id}}}")).collect();
    let many: Vec<_> = many
        .iter()
        .map(|data| ("filename=a.jsonl", data.as_bytes()))
        .collect();
    let all = send(
        FORM,
        &form(&[&many[..], &[("filename=a.json", b"[]")]].concat()),
    );
    assert_eq!(all.status, 202, "{}", all.body);
    assert_eq!(
        code(&send(FORM, &form(&[good, spooled]))),
        (429, "queue_full")
    );
    let page = Client::new(server.address()).get("/v1/jobs?limit=1000");
    assert_eq!(page.body["jobs"].as_array().map(Vec::len), Some(101));
    server.stop();
    let server = start(Settings::new(folder.path()));
    assert_eq!(files(folder.path()), 0);
    server.stop();
}
