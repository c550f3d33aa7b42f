//! Seeds that are easier made than written: good input of every kind, from which libFuzzer makes bad.

use rapidbyte_columnar::{Compression, FileWriter, Kind, WriteOptions};
use rapidbyte_fuzz::copy::columns;
use rapidbyte_fuzz::ipc::{STREAMS, schema};
use rapidbyte_fuzz::mongo::seed;
use rapidbyte_pg::copy::{Decoder, Encoder as CopyEncoder};
use rapidbyte_wire::ipc::{Encoder, encode_schema};

#[path = "../../../crates/testkit/src/batches.rs"]
mod batches;
use batches::random;

type Seed = (&'static str, String, Vec<u8>);

/// Target, name and bytes of each.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    messages(&mut seeds);
    files(&mut seeds);
    streams(&mut seeds);
    servers(&mut seeds);
    texts(&mut seeds);
    documents(&mut seeds);
    mongo(&mut seeds);
    seeds
}

/// Documents with a value of each type of BSON, and the JSON that they are.
fn documents(seeds: &mut Vec<Seed>) {
    for (name, json) in [
        (
            "all",
            r#"{"a": 1, "b": {"$numberDecimal": "1.50"}, "c": [{"a": 1, "b": "x"}], "d": {"x": 1.5, "y": {"$numberDouble": "NaN"}},
                "e": {"$date": "2026-01-01T00:00:00.5Z"}, "f": {"$numberLong": "7"}, "h": {"$binary": {"base64": "AAE=", "subType": "00"}},
                "k": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}, "l": {"$oid": "0123456789abcdef01234567"},
                "o": {"$regularExpression": {"pattern": "a", "options": "i"}}, "p": {"$code": "f()", "$scope": {"x": 1}},
                "q": {"$timestamp": {"t": 1, "i": 2}}, "r": {"$dbPointer": {"$ref": "c", "$id": {"$oid": "0123456789abcdef01234567"}}},
                "s": {"$symbol": "s"}, "t": {"$code": "g"}, "u": {"$minKey": 1}, "v": {"$maxKey": 1}, "w": {"$undefined": true}, "x": null, "y": true}"#,
        ),
        (
            "old",
            r#"{"h": {"$binary": {"base64": "AAE=", "subType": "02"}}, "j": [[1, {"a": []}], []], "a": -0.0, "a": 2}"#,
        ),
    ] {
        let mut bytes = vec![0];
        rapidbyte_mongo::extjson::parse_document(json, &mut bytes).expect("a document");
        seeds.push(("bson", name.to_owned(), bytes));
        seeds.push((
            "bson",
            format!("{name}-json"),
            [b"\x01", json.as_bytes()].concat(),
        ));
    }
}

/// Answers of a server of MongoDB, which the client takes to their end.
fn mongo(seeds: &mut Vec<Seed>) {
    let document = |json: &str| {
        let mut bytes = Vec::new();
        rapidbyte_mongo::extjson::parse_document(json, &mut bytes).expect("a document");
        seed(0, &bytes)
    };
    let hello = document(
        r#"{"ok": 1, "ismaster": true, "maxWireVersion": 21, "maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000,
            "maxWriteBatchSize": 100000, "setName": "rs", "primary": "localhost:27017", "logicalSessionTimeoutMinutes": 30,
            "compression": ["zstd", "none"], "saslSupportedMechs": ["SCRAM-SHA-1"]}"#,
    );
    let ok = document(r#"{"ok": 1}"#);
    let batch = |id: u8, name: &str, documents: &str| {
        document(&format!(
            r#"{{"cursor": {{"id": {id}, "ns": "d.c", "{name}": [{documents}]}}, "ok": 1}}"#
        ))
    };
    let first = batch(
        7,
        "firstBatch",
        r#"{"_id": 1, "t": "x"}, {"_id": 2, "l": [1, {"a": null}]}"#,
    );
    let (next, last) = (
        batch(7, "nextBatch", ""),
        batch(0, "nextBatch", r#"{"_id": 3}"#),
    );
    let written = document(
        r#"{"n": 1, "nModified": 1, "upserted": [{"index": 0, "_id": 1}], "writeErrors": [{"index": 1, "code": 11000, "errmsg": "E"}],
            "writeConcernError": {"code": 64, "errmsg": "late"}, "ok": 1}"#,
    );
    let failed = document(
        r#"{"ok": 0, "code": 10107, "errmsg": "no", "errorLabels": ["RetryableWriteError"]}"#,
    );
    let step = document(
        r#"{"ok": 1, "conversationId": 1, "done": false, "payload": {"$binary": {"base64": "cj1h", "subType": "00"}}}"#,
    );
    // Flags with a checksum, a section of documents, the answer, and the checksum.
    let sections = seed(
        1,
        &[
            &[1, 0, 0, 0, 1, 6, 0, 0, 0, b'd', 0, 0][..],
            &ok[3..],
            &[1, 2, 3, 4],
        ]
        .concat(),
    );
    let body = [&[0; 5][..], &ok[3..]].concat();
    let length = i32::try_from(body.len()).expect("a short message");
    let head = |id: u8| [&2013_i32.to_le_bytes()[..], &length.to_le_bytes(), &[id]].concat();
    let snappy = [&[18, 0x44][..], &body].concat();
    assert_eq!(length, 18);
    let zlib = [0x78, 0x9c, 0x63, 0x60, 0, 2];
    let talks: Vec<(&str, u8, Vec<&[u8]>)> = vec![
        ("find", 0x80, vec![&hello, &first, &next, &last, &ok]),
        ("find-ahead", 0x81, vec![&hello, &first, &next, &last, &ok]),
        ("insert", 0x82, vec![&hello, &written, &ok]),
        ("update", 0x84, vec![&hello, &written, &ok]),
        ("failed", 0xc0, vec![&failed]),
        ("login", 0x83, vec![&hello, &step, &ok]),
        ("sections", 0xc5, vec![&sections]),
    ];
    for (name, choice, messages) in talks {
        let bytes = [&[choice, 0][..], &messages.concat()].concat();
        seeds.push(("mongo", name.to_owned(), bytes));
    }
    for (name, id, data) in [
        ("plain", 0, &body[..]),
        ("snappy", 1, &snappy),
        ("zlib", 2, &zlib),
    ] {
        let answer = seed(2, &[&head(id), data].concat());
        seeds.push((
            "mongo",
            format!("compressed-{name}"),
            [&[0xc5, 3][..], &answer].concat(),
        ));
    }
}

fn messages(seeds: &mut Vec<Seed>) {
    for stream in 0..STREAMS.len() {
        let schema = schema(stream);
        let batch = random(&schema, 5, &[7, stream as u64], true);
        let message = Encoder::new(&schema)
            .and_then(|mut encoder| encoder.encode(&batch))
            .expect("a batch");
        let with_head = [&[stream as u8, 5][..], &message].concat();
        seeds.push(("ipc", format!("batch-{stream}"), with_head));
        let message = encode_schema(&schema).expect("a schema");
        let with_head = [&[0x80, 0][..], &message].concat();
        seeds.push(("ipc", format!("schema-{stream}"), with_head));
    }
}

fn files(seeds: &mut Vec<Seed>) {
    for (stream, compression) in [
        (0, Compression::None),
        (1, Compression::None),
        (2, Compression::Zstd),
        (3, Compression::Lz4),
        (0, Compression::Snappy),
    ] {
        let batch = random(&schema(stream), 6, &[3, stream as u64], true);
        for (kind, target) in [(Kind::Parquet, "parquet"), (Kind::Arrow, "arrow")] {
            if !compression.fits(kind) {
                continue;
            }
            let options = WriteOptions {
                compression: Some(compression),
                ..WriteOptions::default()
            };
            let Ok(mut writer) = FileWriter::new(kind, batch.schema(), &options, Vec::new()) else {
                // Not every type is one of Parquet.
                continue;
            };
            writer.write(&batch).expect("a batch");
            let file = writer.finish().expect("an end");
            seeds.push((target, format!("{}-{stream}", compression.name()), file));
        }
    }
}

/// One stream of COPY for each set of columns, as the server would send it.
fn streams(seeds: &mut Vec<Seed>) {
    for choice in 0..7 {
        for native in [0, 0x80] {
            let columns = columns(choice);
            let schema = Decoder::new(&columns, native != 0, 1 << 16)
                .schema()
                .clone();
            let Ok(mut encoder) = CopyEncoder::new(&schema, &columns) else {
                continue;
            };
            let batch = random(&schema, 4, &[5, u64::from(choice)], true);
            let mut stream = Vec::new();
            encoder.header(&mut stream);
            if encoder.encode(&batch, &mut stream).is_err() {
                stream.truncate(19);
            }
            encoder.trailer(&mut stream);
            let seed = [&[choice | native, 7][..], &stream].concat();
            seeds.push(("copy", format!("stream-{choice}-{native}"), seed));
            let mut messages = vec![choice | native | 0x40, 7];
            for piece in stream.chunks(40) {
                messages.extend(message(b'd', piece));
            }
            seeds.push(("copy", format!("messages-{choice}-{native}"), messages));
        }
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[tag][..], &len, body].concat()
}

/// Conversations, one for each thing that the client does.
fn servers(seeds: &mut Vec<Seed>) {
    let row = |name: &str| {
        let field = [
            name.as_bytes(),
            b"\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
        ]
        .concat();
        message(b'T', &[b"\0\x01", &field[..]].concat())
    };
    let value = || message(b'D', b"\0\x01\0\0\0\x03abc");
    let done = |tag: &str| message(b'C', format!("{tag}\0").as_bytes());
    let ready = || message(b'Z', b"I");
    let error = || message(b'E', b"SERROR\0C23505\0Mtwice\0\0");
    let notice = || message(b'N', b"SNOTICE\0C00000\0Mlook\0\0");
    let copied = |direction| message(direction, b"\x01\0\x02\0\x01\0\x01");
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let two = b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x";
    let copy = || {
        let pieces = [header.as_slice(), two, two, b"\xff\xff"];
        let data = pieces.map(|piece| message(b'd', piece)).concat();
        [
            copied(b'H'),
            data,
            message(b'c', b""),
            done("COPY 2"),
            ready(),
        ]
        .concat()
    };
    let rows = [row("a"), value(), value(), done("SELECT 2"), ready()].concat();
    let committed = [notice(), done("COMMIT"), ready()].concat();
    let parsed = [
        message(b'1', b""),
        message(b't', b"\0\x01\0\0\0\x19"),
        message(b'n', b""),
        ready(),
    ]
    .concat();
    let bound = [message(b'2', b""), done("INSERT 0 1")].concat();
    let ran = [bound.clone(), ready()].concat();
    let piped = [
        bound.repeat(100),
        ready(),
        message(b'3', b""),
        ready(),
        rows.clone(),
    ]
    .concat();
    let talks: [(u8, &str, Vec<u8>); 8] = [
        (
            0,
            "simple",
            [rows.clone(), committed, rows.clone()].concat(),
        ),
        (
            1,
            "query",
            [
                message(b'1', b""),
                message(b'2', b""),
                rows.clone(),
                rows.clone(),
            ]
            .concat(),
        ),
        (2, "prepared", [parsed, ran, piped].concat()),
        (3, "copy-out", [copy(), rows.clone()].concat()),
        (
            6,
            "copy-in",
            [copied(b'G'), done("COPY 100"), ready(), rows.clone()].concat(),
        ),
        (
            7,
            "copy-in-failed",
            [copied(b'G'), error(), ready(), rows].concat(),
        ),
        (
            6,
            "copy-in-refused",
            [copied(b'G'), notice(), error(), ready()].concat(),
        ),
        (0, "refused", [row("a"), error(), ready()].concat()),
    ];
    for (choice, name, talk) in talks {
        seeds.push((
            "server",
            name.to_owned(),
            [&[choice | 0x80, 0][..], &talk].concat(),
        ));
    }
    let scram = b"\0\0\0\x0aSCRAM-SHA-256\0\0";
    let first = b"\0\0\0\x0br=abc,s=QSXCR+Q6sek8bf92,i=4096";
    let asks = [message(b'R', scram), message(b'R', first), error()].concat();
    seeds.push(("server", "scram".to_owned(), [&[0, 0][..], &asks].concat()));
    let greeted = [&[0, 3][..], rapidbyte_fuzz::server::GREETING].concat();
    seeds.push(("server", "greeting".to_owned(), greeted));
}

/// Text of every other kind, which a person can read.
fn texts(seeds: &mut Vec<Seed>) {
    let mut text = |target, name: &str, head: &[u8], text: &str| {
        let bytes = [head, text.as_bytes()].concat();
        seeds.push((target, name.to_owned(), bytes));
    };
    text(
        "csv",
        "plain",
        &[0, 3],
        "a,b,c\n1,\"x, \"\"y\"\"\",true\n,,\n2,,false\n",
    );
    text(
        "csv",
        "types",
        &[1, 0],
        "f,e,d,c,b,a\n6ec7e35d-9d2e-4d3f-8f3c-0a4a2c9b8d11,1.5e3,10:11:12.5,2026-11-21T10:00:00Z,2026-11-21,1.25\n",
    );
    text(
        "csv",
        "nested",
        &[0x22, 0],
        "a;b;c;d\r\n[1,null];{\"a\":\"x\",\"b\":1};{\"k\":[1]};\\x00ff\r\n",
    );
    text("csv", "one-column", &[0x93, 1], "\n\\N\nx\n\"\"\n");
    text(
        "json",
        "array",
        &[0, 3],
        "[{\"a\":1,\"b\":\"x\\u00e9]\",\"c\":true},\n{},\n {\"c\":null}]\n",
    );
    text(
        "json",
        "object",
        &[1, 0],
        "{\"a\":1.25,\n\"b\":\"2026-11-21\",\"e\":-0.0}",
    );
    text(
        "json",
        "nested",
        &[2, 9],
        "[{\"a\":[1,null],\"b\":{\"a\":\"x\",\"b\":1},\"c\":{\"k\":{\"x\":[\n[]]}}}]",
    );
    text(
        "jsonl",
        "plain",
        &[0, 3],
        "{\"a\":1,\"b\":\"x\\u00e9\",\"c\":true}\n{}\n{\"c\":null}\n",
    );
    text(
        "jsonl",
        "types",
        &[1, 0],
        "{\"a\":1.25,\"b\":\"2026-11-21\",\"c\":\"2026-11-21T10:00:00Z\",\"d\":\"10:11:12\",\"e\":-0.0}\n",
    );
    text(
        "jsonl",
        "nested",
        &[2, 9],
        "{\"a\":[1,null],\"b\":{\"a\":\"x\",\"b\":1},\"c\":{\"k\":{\"x\":[]}},\"d\":\"AAEC\"}\n",
    );
    let ordered = r#"{"mode":"ordered","version":1,"fields":[{"name":"a","type":"int4","collation":"C"}],"values":["7"]}"#;
    let exact = r#"{"mode":"exact","version":1,"system":"7","timeline":"00000001","database":5,"first":"740","next":"18446744073709551615","tables":{"16390":[16391,"ab"]},"gone":[1]}"#;
    text("cursor", "ordered", b"", ordered);
    text("cursor", "exact", b"", exact);
    let hash = "0f".repeat(32);
    let file = format!(
        r#"{{"path":"day=1/part-0001-00000002-00000.csv","size":9,"sha256":"{hash}","rows":3}}"#
    );
    let manifest = format!(
        r#"{{"version":1,"number":2,"previous":"{hash}","pipeline":"p","stream":"s","run_id":"r","epoch":1,"seq":1,"cursor":null,"complete":true,"begins":1,"rows":3,"files":[{file}]}}"#
    );
    text("manifest", "second", &[2], &manifest);
    text("manifest", "name", &[2], "00000002.json");
    text("manifest", "part", &[2], "0002-00000007-00000");
    let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1];
    let asks = "db.internal:5432\n*.example.com:5432\n10.0.0.0/8:5432\n[fd00::1]:5432\nlocalhost:5432\n\ndb.internal\nin/a.csv\npostgres://u:p@db:5432/d?sslmode=require\n";
    text("grants", "names", &[&[0][..], &address].concat(), asks);
    text(
        "grants",
        "mapped",
        &[&[2][..], &address].concat(),
        "127.0.0.0/8:5432\n\n127.0.0.1\nout/../in/x.csv\nhttps://h\n",
    );
    for (name, yaml) in PIPELINES {
        text("document", name, b"", yaml);
    }
}

/// Pipelines that are read, by their names.
pub const PIPELINES: [(&str, &str); 3] = [
    (
        "least",
        "version: 1\npipeline: orders\nsource:\n  use: source-file\n  streams: [orders]\ndestination:\n  use: dest-file\n",
    ),
    ("full", include_str!("full.yaml")),
    (
        "anchors",
        "version: 1\npipeline: p\nsource: &s\n  use: 'source-file'\n  config: &c\n    a: \"${PORT}\"\n    b: ${PORT:-1}\n    c: $$x\n    d: ${EMPTY:-e}\n  streams:\n    - &t {name: \"a\\tb\", columns: [a, b]}\n    - {<<: *t, name: 'public.*'}\ndestination:\n  use: dest-file\n  config:\n    <<: *c\n    p: ${SECRET}\n    t: |\n      lines\n",
    ),
];
