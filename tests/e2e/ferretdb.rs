//! What FerretDB has and mongo-java-server does not: every type of BSON, Decimal128, users and certificates of clients.
//! Skipped where the test kit has another server; `mongodb.rs` and `dest_mongodb.rs` run against either.

use rapidbyte_mongo_client::bson::{Builder, Document};
use rapidbyte_testkit::mongodb::{self, MongoDatabase, MongoServer, MongoTls, USER};
use rapidbyte_testkit::postgres::{self, PASSWORD};

use crate::mongodb::{client, pipeline, stored};
use crate::postgres::content;
use crate::support::Folder;
use crate::tls::authority;

/// A document of elements: the type's byte, the name, the bytes of the value (bsonspec.org).
fn document(elements: &[(u8, &str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for (kind, name, value) in elements {
        bytes.push(*kind);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value);
    }
    bytes.push(0);
    let length = u32::try_from(bytes.len()).expect("a small document");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn string(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len() + 1).expect("a short text");
    [&length.to_le_bytes(), text, b"\0"].concat()
}

fn binary(subtype: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a few bytes");
    [&length.to_le_bytes()[..], &[subtype], bytes].concat()
}

const ONE: [u8; 4] = 1_i32.to_le_bytes();

/// Values of every type, also of those that MongoDB keeps only for old documents, with extremes and odd spellings.
fn values() -> Vec<(u8, Vec<u8>)> {
    let mut values = Vec::new();
    for bits in [
        1.5_f64.to_bits(),
        (-0.0_f64).to_bits(),
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        f64::MAX.to_bits(),
        5e-324_f64.to_bits(),
        f64::NAN.to_bits(),
        // A NaN with a payload, and one that signals.
        0x7ff8_0000_0000_0001,
        0xfff0_0000_0000_0001,
    ] {
        values.push((1, bits.to_le_bytes().to_vec()));
    }
    for text in ["", "Grüße \u{1} 🦀", "a\0b"] {
        values.push((2, string(text.as_bytes())));
    }
    values.extend([
        (3, document(&[])),
        (3, document(&[(16, "b", &ONE), (16, "a", &ONE)])),
        (3, document(&[(16, "a", &ONE), (10, "a", &[])])),
        (3, document(&[(16, "", &ONE)])),
        (3, document(&[(16, "a.b", &ONE), (16, "$x", &ONE)])),
        (
            3,
            document(&[(2, "$ref", &string(b"c")), (16, "$id", &ONE)]),
        ),
        (4, document(&[])),
        (4, document(&[(16, "0", &ONE), (8, "1", &[0])])),
        // Nobody reads the names inside an array.
        (4, document(&[(16, "5", &ONE), (16, "x", &ONE)])),
    ]);
    for subtype in [0, 1, 3, 4, 5, 6, 7, 8, 9, 0x80, 0xff] {
        values.push((5, binary(subtype, &[subtype; 16])));
    }
    // The old binary has its length twice.
    values.push((
        5,
        binary(2, &[&16_u32.to_le_bytes()[..], &[7; 16]].concat()),
    ));
    let scope = document(&[(16, "a", &ONE)]);
    let code = string(b"f");
    let length = u32::try_from(4 + code.len() + scope.len()).expect("a few bytes");
    values.extend([
        (5, binary(0, &[])),
        (6, vec![]),
        (7, (0..12).collect()),
        (8, vec![0]),
        (8, vec![1]),
        (10, vec![]),
        (11, b"^a\0im\0".to_vec()),
        // The options are in the order of the alphabet: an update of FerretDB sorts them.
        (11, b"a/b\0isx\0".to_vec()),
        (12, [string(b"c.d"), vec![9; 12]].concat()),
        (13, string(b"x = 1")),
        (14, string(b"symbol")),
        (
            15,
            [length.to_le_bytes().to_vec(), code, scope.clone()].concat(),
        ),
        (255, vec![]),
        (127, vec![]),
    ]);
    for number in [0, i64::MIN, i64::MAX, -1, 1_767_225_600_123] {
        values.push((9, number.to_le_bytes().to_vec()));
        values.push((17, number.to_le_bytes().to_vec()));
        values.push((18, number.to_le_bytes().to_vec()));
    }
    for number in [i32::MIN, 0, i32::MAX] {
        values.push((16, number.to_le_bytes().to_vec()));
    }
    for last in [[0, 0], [0x40, 0x30], [0xff, 0xff], [0, 0x7c], [0, 0x7e]] {
        for first in [0, 1, 0xff] {
            values.push((19, [&[first; 14][..], &last].concat()));
        }
    }
    values.push((19, [&[0; 14][..], &[0, 0xf8]].concat()));
    values
}

/// Types that are not an `_id` here: FerretDB takes no arrays and no regular expressions, and finds no document by undefined;
/// source-mongodb refuses null.
const NO_ID: [u8; 4] = [4, 6, 10, 11];

fn insert(database: &MongoDatabase<'_>, collection: &str, documents: &[Vec<u8>]) -> usize {
    let mut command = Builder::new();
    command
        .string("insert", collection)
        .boolean("ordered", false);
    let mut client = client(database);
    let written = client.write(database.name(), command, "documents", &documents.concat());
    written.expect("an answer").errors.len()
}

/// Shows only the documents that differ.
#[track_caller]
fn are_same(found: &[Vec<u8>], expected: &[Vec<u8>], about: &str) {
    assert_eq!(found.len(), expected.len(), "{about}");
    let differ: Vec<_> = { found.iter().zip(expected) }
        .filter(|(found, expected)| found != expected)
        .collect();
    assert!(differ.is_empty(), "{about}: {differ:02x?}");
}

#[test]
fn every_type_of_bson_is_copied_with_the_same_bytes() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let values = values();
    let kinds: std::collections::BTreeSet<u8> = values.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), 21, "{kinds:?}");
    let documents: Vec<Vec<u8>> = { values.iter().enumerate() }
        .map(|(at, (kind, value))| {
            let id = i32::try_from(at).expect("few values").to_le_bytes();
            document(&[(16, "_id", &id), (*kind, "v", value), (16, "v", &ONE)])
        })
        .collect();
    assert_eq!(insert(&database, "values", &documents), 0);
    let ids: Vec<Vec<u8>> = { values.iter() }
        .filter(|(kind, _)| !NO_ID.contains(kind))
        .map(|(kind, value)| document(&[(*kind, "_id", value), (16, "v", &ONE)]))
        .collect();
    // Some are equal to the server, such as the two zeros, and names that begin with a dollar are refused.
    let refused = insert(&database, "ids", &ids);
    let taken = stored(&database, "ids");
    assert_eq!(taken.len() + refused, ids.len());
    assert!(taken.len() > 50 && taken.iter().all(|one| ids.contains(one)));
    let ids = taken;
    assert_eq!(stored(&database, "values"), documents);
    for mode in ["append", "upsert", "replace"] {
        let target = server.database();
        let source = format!("url: \"{}\"", database.url());
        let into = format!(
            "use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: {mode}",
            target.url()
        );
        // The second run finds every document in its place.
        for _ in 0..2 {
            folder.report(&pipeline(&source, "[values, ids]", &into));
            are_same(&stored(&target, "values"), &documents, mode);
            are_same(&stored(&target, "ids"), &ids, mode);
        }
    }
}

#[test]
fn a_document_without_a_value_in_its_id_is_refused_by_name() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let documents = [document(&[(10, "_id", &[]), (16, "v", &ONE)])];
    assert_eq!(insert(&database, "c", &documents), 0);
    let text = between(&database.url(), &server.database().url());
    folder.refuses(&text, "null_in_required_column", 4, &["_id null"]);
}

#[test]
fn a_collection_whose_name_has_a_dot_is_refused_by_name() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let (database, target, folder) = (server.database(), server.database(), Folder::new());
    let of_id = |id: i32| document(&[(16, "_id", &id.to_le_bytes())]);
    assert_eq!(insert(&database, "c", &[of_id(1)]), 0);
    let source = format!("url: \"{}\"", database.url());
    let into = format!(
        "use: dest-mongodb\n  config: {{ url: \"{}\", collection: \"a.b\" }}\n  write_mode: append",
        target.url()
    );
    let text = pipeline(&source, "[c]", &into);
    folder.refuses(&text, "mongo_73", 2, &["a.b", "another name"]);
    // Nothing is renamed where the collection exists.
    assert_eq!(insert(&target, "a.b", &[of_id(2)]), 0);
    folder.report(&text);
    assert_eq!(stored(&target, "a.b"), [of_id(1), of_id(2)]);
}

/// Numbers of every scale that fits 34 digits, with NULL.
const DECIMALS: &str = "\
CREATE TABLE t (id bigint PRIMARY KEY, n numeric(34, 10), w numeric(34, 0), s numeric(20, 20));
INSERT INTO t SELECT i, (i - 500) * 1234567.8901234567, (i - 500)::numeric ^ 11, i / 7919.0 FROM generate_series(1, 1000) i;
INSERT INTO t VALUES (-1, 999999999999999999999999.9999999999, 9999999999999999999999999999999999, 0.99999999999999999999),
    (-2, -999999999999999999999999.9999999999, -9999999999999999999999999999999999, -0.00000000000000000001),
    (-3, 0, 0, 0), (-4, NULL, NULL, NULL);";

#[test]
fn decimals_come_back_from_decimal128_as_they_went() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let (from, back, target) = (
        postgres::shared().database(),
        postgres::shared().database(),
        server.database(),
    );
    from.client().batch_execute(DECIMALS).expect("a table");
    let folder = Folder::new();
    folder.report(&format!(
        "version: 1\npipeline: there\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
         streams: [public.t]\ndestination:\n  use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: replace\n",
        from.url(),
        target.url()
    ));
    for document in stored(&target, "t") {
        let document = Document::parse(&document).expect("BSON");
        for field in ["n", "w", "s"] {
            let value = document.get(field).expect("BSON").expect("a value");
            assert!(
                ["decimal", "null"].contains(&value.kind().name()),
                "{value:?}"
            );
        }
    }
    let source = format!(
        "url: \"{}\", streams: {{ t: {{ unknown_keys: ignore, schema: {{ id: int64, n: \"decimal(34, 10)\", \
         w: \"decimal(34, 0)\", s: \"decimal(20, 20)\" }} }} }}",
        target.url()
    );
    let table = format!(
        "use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: replace",
        back.url()
    );
    folder.report(&pipeline(&source, "[t]", &table));
    let expected = content(&mut from.client(), "t");
    assert_eq!(expected.0, 1004);
    assert_eq!(content(&mut back.client(), "raw.t"), expected);
}

#[test]
fn documents_that_follow_are_copied_once_by_runs_that_are_killed() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let added = |range: std::ops::Range<i32>| -> Vec<Vec<u8>> {
        let text = string(&[b'x'; 100]);
        let document = |id: i32| {
            let (id, n) = (id.to_le_bytes(), i64::from(id / 7).to_le_bytes());
            document(&[(16, "_id", &id), (18, "n", &n), (2, "t", &text)])
        };
        range.map(document).collect()
    };
    for (mode, fault) in [
        ("append", "source-mongodb.checkpoint=kill@2"),
        ("append", "dest-mongodb.write_sent=kill@2"),
        ("append", "dest-mongodb.checkpointing=kill@1"),
        ("append", "dest-mongodb.committed=kill@1"),
        ("upsert", "dest-mongodb.write_sent=kill@2"),
        ("upsert", "dest-mongodb.committed=kill@1"),
    ] {
        let (database, target, folder) = (server.database(), server.database(), Folder::new());
        assert_eq!(insert(&database, "c", &added(0..500)), 0);
        let source = format!(
            "url: \"{}\", streams: {{ c: {{ documents: bson, schema: {{ n: int64 }} }} }}",
            database.url()
        );
        let into = format!(
            "use: dest-mongodb\n  config: {{ url: \"{}\", bulk_rows: 70 }}\n  write_mode: {mode}\n\
             resources: {{ batch_bytes: 4kb }}\ncheckpoint: {{ every_rows: 100 }}",
            target.url()
        );
        let streams = "[{ name: c, sync_mode: incremental, cursor_field: n }]";
        let text = pipeline(&source, streams, &into);
        folder.report(&text);
        assert_eq!(insert(&database, "c", &added(500..1000)), 0);
        let mut command = folder.command(&["run", "p.yaml", "--quiet"]);
        let killed = command.env("RAPIDBYTE_FAULTS", fault).output();
        let killed = killed.expect("the program starts");
        assert_eq!(killed.status.code(), None, "{fault}: it was not killed");
        let report = folder.report(&text);
        // Only what came after the last commit is read again.
        let rows = report["streams"][0]["rows"].as_u64().expect("a number");
        assert!(rows <= 500, "{fault}: {report:#}");
        assert_eq!(stored(&target, "c"), stored(&database, "c"), "{fault}");
        assert_eq!(stored(&target, "c").len(), 1000);
    }
}

#[test]
fn a_write_has_as_many_documents_as_the_server_takes() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    // The server says 100,000 and refuses more than 25,000.
    let (target, folder) = (server.database(), Folder::new());
    for mode in ["append", "replace", "upsert\n  primary_key: [id]"] {
        folder.report(&format!(
            "version: 1\npipeline: p\nsource:\n  use: source-generate\n  config: {{ rows: 60000, preset: narrow }}\n  \
             streams: [rows]\ndestination:\n  use: dest-mongodb\n  \
             config: {{ url: \"{}\", bulk_rows: 25000, sub_millisecond: cut, collection: \"rows_{}\" }}\n  write_mode: {mode}\n",
            target.url(),
            &mode[..6]
        ));
        let found = stored(&target, &format!("rows_{}", &mode[..6]));
        assert_eq!(found.len(), 60_000, "{mode}");
    }
}

/// A pipeline from one URL to another, both of MongoDB.
fn between(from: &str, to: &str) -> String {
    let into = format!("use: dest-mongodb\n  config: {{ url: \"{to}\" }}\n  write_mode: replace");
    pipeline(&format!("url: \"{from}\""), "[c]", &into)
}

#[test]
fn a_user_that_proves_nothing_ends_the_run_by_name() {
    let Some(server) = mongodb::ferretdb() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    assert_eq!(insert(&database, "c", &[document(&[(16, "_id", &ONE)])]), 0);
    let good = database.url();
    for (user, password) in [(USER, "wrong"), ("nobody", PASSWORD)] {
        let bad = database.url_of(user, password);
        let source = between(&bad, &good);
        folder.refuses(&source, "mongo_18", 3, &["source.config.url", "authSource"]);
        let destination = between(&good, &bad);
        folder.refuses(&destination, "mongo_18", 3, &["destination.config.url"]);
    }
    let old = format!("{good}?authMechanism=SCRAM-SHA-1");
    folder.refuses(&between(&old, &good), "mongo_334", 3, &["SCRAM-SHA-1"]);
    let bare = format!("mongodb://127.0.0.1:{}/{}", server.port(), database.name());
    folder.refuses(&between(&bare, &good), "mongo_13", 3, &["authentication"]);
    folder.refuses(&between(&good, &bare), "mongo_13", 3, &["authentication"]);
}

#[test]
fn both_connectors_show_the_certificate_that_the_server_asks_for() {
    if mongodb::ferretdb().is_none() {
        return;
    }
    let folder = Folder::new();
    let (certificate, key) = authority().issue("localhost", |_| {});
    folder.write("server.pem", certificate);
    folder.write("server.key", key);
    folder.write("ca.pem", authority().pem());
    let (certificate, key) = authority().issue("a client", |_| {});
    folder.write("client.pem", format!("{certificate}{key}"));
    folder.set_mode("client.pem", 0o600);
    let server = MongoServer::start(Some(&MongoTls {
        certificate: folder.path().join("server.pem"),
        key: folder.path().join("server.key"),
        client_authority: Some(folder.path().join("ca.pem")),
    }));
    let server = server.expect("the shared one started too");
    let url = |database: &str, options: &str| {
        let (login, port) = (server.login(), server.port());
        let tls = "tls=true&tlsCAFile=ca.pem";
        format!("mongodb://{login}localhost:{port}/{database}?{tls}{options}")
    };
    let shown = "&tlsCertificateKeyFile=client.pem";
    folder.write("c.csv", "id,v\n1,a\n2,b\n");
    folder.report(&format!(
        "version: 1\npipeline: p\nsource:\n  use: source-file\n  config: {{ path: c.csv }}\n  streams: [c]\n\
         destination:\n  use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: replace\n",
        url("one", shown)
    ));
    let report = folder.report(&between(&url("one", shown), &url("two", shown)));
    assert_eq!(report["streams"][0]["rows"], 2, "{report:#}");
    for (from, to) in [("", shown), (shown, "")] {
        let (error, _) = folder.error(&between(&url("one", from), &url("three", to)));
        assert_eq!(error["code"], "tls_handshake", "{error:#}");
    }
}
