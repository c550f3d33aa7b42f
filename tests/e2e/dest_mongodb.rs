//! From PostgreSQL and files to MongoDB: every row once, whatever breaks. The server is mongo-java-server, or FerretDB where
//! the test kit has it.

use rapidbyte_mongo_client::bson::{Builder, Document, Value as Bson};
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_testkit::mongodb::{self, MongoDatabase, MongoServer, MongoTls};
use rapidbyte_testkit::postgres::{self, Database};
use serde_json::{Value, json};

use crate::copied_documents::{self, Copies, Driver, Scenario};
use crate::kept_documents::{self, Documents, ran};
use crate::postgres::content;
use crate::support::Folder;
use crate::tls::authority;

/// A pipeline into a database of its own.
pub struct Copied {
    pub source: Database<'static>,
    pub target: MongoDatabase<'static>,
    pub folder: Folder,
}

const SEED: &str = "\
CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, gone boolean, v text);
INSERT INTO t SELECT i, timestamptz '2026-01-01' + (i / 7) * interval '1 second', false, 'v' || i
    FROM generate_series(1, 900) i;";

/// New rows, changed rows, deleted ones.
const CHANGE: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + (i % 1000 / 7) * interval '1 second', false, 'new' || i
    FROM generate_series(1000, 1700) i;
UPDATE t SET v = v || '+', gone = id % 20 = 0, at = timestamptz '2026-02-02' WHERE id % 10 = 0;";

const ADDED: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + (i % 1000 / 7) * interval '1 second', false, 'new' || i
    FROM generate_series(1000, 1700) i;";

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        stream: "{ name: public.t, sync_mode: incremental, cursor_field: [at, id] }",
        target: "",
        write: "write_mode: append",
        change: ADDED,
        expected: "SELECT id, v FROM t",
    },
    Scenario {
        stream: "{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute }",
        target: "",
        write: "write_mode: upsert\n  deleted_field: gone",
        change: CHANGE,
        expected: "SELECT id, v FROM t WHERE NOT gone",
    },
    Scenario {
        stream: "public.t",
        target: "",
        write: "write_mode: replace",
        change: CHANGE,
        expected: "SELECT id, v FROM t",
    },
    // The first run fails: nothing was there before.
    Scenario {
        stream: "public.t",
        target: "",
        write: "write_mode: append",
        change: "",
        expected: "SELECT id, v FROM t",
    },
];

impl Driver for Copied {
    const SCENARIOS: &'static [Scenario] = SCENARIOS;
    const KILLED: &'static [(&'static str, &'static [u32])] = &[
        ("dest-mongodb.asked", &[1]),
        ("dest-mongodb.fencing", &[1]),
        ("dest-mongodb.fenced", &[1]),
        ("dest-mongodb.cleaned", &[1]),
        ("dest-mongodb.staging_made", &[1]),
        ("dest-mongodb.writing", &[1, 4]),
        ("dest-mongodb.write_sent", &[1, 4]),
        ("dest-mongodb.flushed", &[1, 2]),
        ("dest-mongodb.committing", &[1, 2]),
        ("dest-mongodb.publishing", &[1]),
        ("dest-mongodb.published", &[1]),
        ("dest-mongodb.checkpointing", &[1, 2]),
        ("dest-mongodb.committed", &[1, 2]),
    ];
    const FENCED: &'static [(usize, &'static str)] = &[
        (0, "dest-mongodb.writing"),
        (0, "dest-mongodb.checkpointing"),
        (1, "dest-mongodb.checkpointing"),
        (2, "dest-mongodb.committing"),
        (2, "dest-mongodb.publishing"),
        (3, "dest-mongodb.publishing"),
    ];
    const COMMIT: &'static str = "complete_run";

    fn new(scenario: &Scenario) -> Option<Self> {
        let _ = scenario;
        let target = mongodb::shared()?.database();
        let source = postgres::shared().database();
        source.client().batch_execute(SEED).expect("a table");
        Some(Self {
            source,
            target,
            folder: Folder::new(),
        })
    }

    fn port(&self) -> u16 {
        mongodb::shared().expect("the server").port()
    }

    fn address(&self, port: Option<u16>) -> String {
        port.map_or_else(|| self.target.url(), |port| self.target.url_at(port))
    }

    fn pipeline_at(&self, scenario: &Scenario, address: &str, more: &str) -> String {
        format!(
            "version: 1\npipeline: p\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [{}]\n\
             destination:\n  use: dest-mongodb\n  config: {{ url: \"{address}\", bulk_rows: 70{more} }}\n  {}\n\
             resources: {{ batch_bytes: 4kb, memory: 64mb }}\ncheckpoint: {{ every_rows: 300 }}\n\
             retry: {{ max_attempts: 3, backoff_seconds: 1, max_backoff_seconds: 1 }}\n",
            self.source.url(),
            scenario.stream,
            scenario.write
        )
    }
}

impl Copies for Copied {
    fn folder(&self) -> &Folder {
        &self.folder
    }

    fn source(&self) -> &Database<'static> {
        &self.source
    }

    fn rows(&self) -> Vec<(i64, String)> {
        pairs(&self.target, "t")
    }

    fn collections(&self) -> Vec<String> {
        collections(&self.target)
    }
}

pub fn client(target: &MongoDatabase<'_>) -> Client {
    let settings = Settings::from_url(&target.url()).expect("a URL");
    Client::connect(&settings).expect("a server")
}

/// Calls `take` with each document that a command finds.
pub fn each(target: &MongoDatabase<'_>, command: Builder, mut take: impl FnMut(Document<'_>)) {
    let mut client = client(target);
    let mut cursor = client.find(target.name(), command).expect("a cursor");
    while let Some(batch) = cursor.next(&mut client, 0).expect("a batch") {
        for document in batch.documents().expect("documents") {
            take(document.expect("a document"));
        }
    }
}

pub fn find(collection: &str) -> Builder {
    let mut command = Builder::new();
    command.string("find", collection);
    command
}

fn text(document: Document<'_>, name: &str) -> String {
    match document.get(name).expect("BSON") {
        Some(Bson::String(text)) => text.to_owned(),
        other => panic!("{name} is {other:?}"),
    }
}

/// The fields `id` and `v` of a collection.
fn pairs(target: &MongoDatabase<'_>, collection: &str) -> Vec<(i64, String)> {
    let mut pairs = Vec::new();
    each(target, find(collection), |document| {
        let id = document.get("id").expect("BSON").expect("an id");
        pairs.push((id.as_whole().expect("a number"), text(document, "v")));
    });
    pairs.sort();
    pairs
}

fn collections(target: &MongoDatabase<'_>) -> Vec<String> {
    let mut command = Builder::new();
    command.int32("listCollections", 1);
    let mut names = Vec::new();
    each(target, command, |document| {
        names.push(text(document, "name"))
    });
    names.sort();
    names
}

#[test]
fn each_mode_writes_every_row_once_and_continues() {
    copied_documents::each_mode_writes_every_row_once::<Copied>();
}

#[test]
fn a_run_that_is_killed_anywhere_is_made_good_by_the_next() {
    copied_documents::a_killed_run_is_made_good::<Copied>();
}

#[test]
fn of_two_runs_at_once_the_older_one_is_fenced_and_leaves_nothing() {
    copied_documents::the_older_run_is_fenced::<Copied>();
}

#[test]
fn a_commit_without_an_answer_counts_once() {
    copied_documents::a_commit_without_an_answer_counts_once::<Copied>();
}

/// A run of `t.csv` into a collection, as JSON.
fn load(folder: &Folder, target: &MongoDatabase<'_>, top: &str, write: &str) -> (Value, i32) {
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: p\n{top}source:\n  use: source-file\n  config: {{ path: t.csv, schema: {{ id: int64, v: string }} }}\n  \
             streams: [t]\ndestination:\n  use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  {write}\n",
            target.url()
        ),
    );
    ran(folder)
}

/// A collection that takes each value of `v` once.
fn make_unique(target: &MongoDatabase<'_>) {
    let mut command = Builder::new();
    command
        .string("createIndexes", "t")
        .open_array("indexes")
        .open_document("0")
        .open_document("key")
        .int32("v", 1)
        .close()
        .string("name", "v_1")
        .boolean("unique", true)
        .close()
        .close();
    let made = client(target).command(target.name(), command);
    made.expect("an index");
}

impl Documents for MongoDatabase<'static> {
    const CONNECTOR: &'static str = "dest-mongodb";
    const KEY: &'static str = "id";
    const CODE: &'static str = "mongo_11000";

    fn load(&self, folder: &Folder, top: &str) -> (Value, i32) {
        load(folder, self, top, "write_mode: append")
    }

    fn rows(&self) -> Vec<(i64, String)> {
        pairs(self, "t")
    }

    fn delete_a(&self) {
        let mut command = Builder::new();
        command
            .string("delete", "t")
            .open_array("deletes")
            .open_document("0")
            .open_document("q")
            .string("v", "a")
            .close()
            .int32("limit", 1)
            .close()
            .close();
        client(self)
            .command(self.name(), command)
            .expect("a delete");
    }
}

/// A database for rejects.
fn unique(server: &'static MongoServer) -> MongoDatabase<'static> {
    let target = server.database();
    make_unique(&target);
    target
}

#[test]
fn rows_that_the_server_refuses_are_kept_and_replayed() {
    if let Some(server) = mongodb::shared() {
        kept_documents::are_kept_and_replayed(unique(server));
    }
}

#[test]
fn a_replay_that_is_killed_anywhere_is_made_good_by_the_next() {
    if let Some(server) = mongodb::shared() {
        kept_documents::survive_kills(|| unique(server));
    }
}

#[test]
fn rows_of_a_replay_that_died_are_deleted_also_when_the_next_one_dies_before_it_does_so() {
    if let Some(server) = mongodb::shared() {
        kept_documents::survive_kills_in_turn(unique(server));
    }
}

#[test]
fn a_key_becomes_the_id_and_rows_with_it_are_replaced() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let target = server.database();
    let folder = Folder::new();
    // The last row of a key counts, in whatever write it is.
    folder.write("t.csv", "id,v\n1,a\n2,b\n1,c\n1,d\n");
    let write = "write_mode: upsert\n  primary_key: [id]";
    let (document, code) = load(&folder, &target, "", write);
    assert_eq!(code, 0, "{document:#}");
    let mut ids = Vec::new();
    each(&target, find("t"), |document| {
        assert_eq!(
            document
                .elements()
                .next()
                .expect("a field")
                .expect("BSON")
                .0,
            "_id"
        );
        ids.push((
            document
                .get("_id")
                .expect("BSON")
                .and_then(|id| id.as_whole()),
            text(document, "v"),
        ));
    });
    ids.sort();
    assert_eq!(ids, [(Some(1), "d".to_owned()), (Some(2), "b".to_owned())]);
    folder.write("t.csv", "id,v\n2,x\n");
    let write = "write_mode: upsert\n  primary_key: [v, id]";
    let (document, code) = load(&folder, &target, "", write);
    assert_eq!(code, 0, "{document:#}");
    let mut keys = 0;
    each(&target, find("t"), |document| {
        if let Some(Bson::Document(key)) = document.get("_id").expect("BSON") {
            let names: Vec<&str> = key.elements().map(|field| field.expect("BSON").0).collect();
            assert_eq!(names, ["v", "id"]);
            keys += 1;
        }
    });
    assert_eq!(keys, 1);
}

#[test]
fn equal_keys_with_different_texts_are_one_document_or_refused() {
    let Some(copied) = Copied::new(&SCENARIOS[1]) else {
        return;
    };
    let sql = "CREATE DOMAIN amount AS numeric; \
               CREATE TABLE n (id amount PRIMARY KEY, at int8, v text); \
               INSERT INTO n VALUES (1.0, 1, 'a'), (200, 2, 'b'), (0.00, 3, 'c'), (0.50, 4, 'd'), ('NaN', 5, 'e'); \
               CREATE TABLE i (id interval PRIMARY KEY); INSERT INTO i VALUES ('1 day');\
               CREATE TABLE l (id int[] PRIMARY KEY); INSERT INTO l VALUES ('{1}')";
    copied.source.client().batch_execute(sql).expect("tables");
    let write = |stream: &'static str, mode: &'static str| {
        let scenario = Scenario {
            stream,
            target: "",
            write: mode,
            change: "",
            expected: "",
        };
        copied
            .folder
            .write("p.yaml", copied.pipeline(&scenario, None));
    };
    write(
        "{ name: public.n, sync_mode: incremental, cursor_field: at }",
        "write_mode: upsert",
    );
    copied.runs();
    let sql =
        "UPDATE n SET id = id::text::numeric(20, 5), at = at + 10, v = v || '2' WHERE id <> 'NaN'";
    copied.source.client().batch_execute(sql).expect("changed");
    crate::wired::wait_for_older(&mut copied.source.client());
    copied.runs();
    let mut found = Vec::new();
    each(&copied.target, find("n"), |document| {
        found.push(format!(
            "{} {} {}",
            text(document, "_id"),
            text(document, "id"),
            text(document, "v")
        ));
    });
    found.sort();
    let expected = [
        "0 0.00000 c2",
        "0.5 0.50000 d2",
        "1 1.00000 a2",
        "200 200.00000 b2",
        "NaN NaN e",
    ];
    assert_eq!(found, expected);
    write("public.i", "write_mode: upsert");
    let refused = copied.folder.rapidbyte(&["run", "p.yaml"]);
    assert!(
        refused.stderr.contains("error[key_refused]"),
        "{}",
        refused.stderr
    );
    // Rows that are appended have other ids.
    write("public.l", "write_mode: append");
    copied.runs();
}

#[test]
fn replace_keeps_the_indexes_of_the_collection() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let target = server.database();
    make_unique(&target);
    let folder = Folder::new();
    folder.write("t.csv", "id,v\n1,a\n2,b\n");
    for _ in 0..2 {
        let (document, code) = load(&folder, &target, "", "write_mode: replace");
        assert_eq!(code, 0, "{document:#}");
    }
    let mut command = Builder::new();
    command.string("listIndexes", "t");
    let mut names = Vec::new();
    each(&target, command, |index| names.push(text(index, "name")));
    names.sort();
    assert_eq!(names, ["_id_", "v_1"]);
    assert_eq!(pairs(&target, "t").len(), 2);
}

/// Types that MongoDB has, with NULLs and extremes.
const TYPES: &str = "\
CREATE TABLE t (id bigint PRIMARY KEY, i int, d double precision, b boolean, v text, at timestamptz, u uuid, x bytea);
INSERT INTO t SELECT i, i - 500, i / 7.0, i % 3 = 0, repeat('ü', i % 50) || i,
    timestamptz '1950-01-01' + i * interval '37 days 11 milliseconds', md5(i::text)::uuid, decode(md5(i::text), 'hex')
    FROM generate_series(1, 1000) i;
INSERT INTO t VALUES (9223372036854775807, 2147483647, 'Infinity', true, '', '2262-01-01', gen_random_uuid(), ''),
    (-9223372036854775808, -2147483648, '-0', false, E'a\\nb', '1700-01-01', gen_random_uuid(), '\\x00'),
    (0, NULL, NULL, NULL, NULL, NULL, NULL, NULL);";

#[test]
fn rows_come_back_from_mongodb_as_they_went() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (from, back, target) = (
        postgres::shared().database(),
        postgres::shared().database(),
        server.database(),
    );
    from.client().batch_execute(TYPES).expect("a table");
    let folder = Folder::new();
    for (mode, key) in [
        ("append", ""),
        ("upsert", "\n  primary_key: [id]"),
        ("replace", ""),
    ] {
        let pipeline = |name: &str, source: &str, destination: &str| {
            let text = format!(
                "version: 1\npipeline: {name}_{mode}\nsource:\n  {source}\ndestination:\n  {destination}\n"
            );
            folder.report(&text);
        };
        let source = format!(
            "use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [public.t]",
            from.url()
        );
        let destination = format!(
            "use: dest-mongodb\n  config: {{ url: \"{}\", collection: {mode} }}\n  write_mode: {mode}{key}",
            target.url()
        );
        pipeline("there", &source, &destination);
        let source = format!(
            "use: source-mongodb\n  config: {{ url: \"{}\", sample_documents: 2000 }}\n  \
             streams: [{{ name: {mode}, columns: [id, i, d, b, v, at, u, x] }}]",
            target.url()
        );
        let destination = format!(
            "use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: replace",
            back.url()
        );
        pipeline("back", &source, &destination);
        let expected = content(&mut from.client(), "t");
        assert_eq!(expected.0, 1003);
        let found = content(&mut back.client(), &format!("raw.{mode}"));
        assert_eq!(found, expected, "{mode}");
    }
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_by_name() {
    let pipeline = |config: &str| {
        format!(
            "version: 1\npipeline: p\nsource:\n  use: source-generate\n  config: {{ rows: 1, preset: narrow }}\n  \
             streams: [rows]\ndestination:\n  use: dest-mongodb\n  config: {{ {config} }}\n  write_mode: append\n"
        )
    };
    let cases = [
        (
            "url: \"mongodb+srv://c.example.com/d\"",
            "invalid_url",
            "mongodb+srv",
        ),
        (
            "url: \"mongodb://h/d?tlsCaFiles=x\"",
            "invalid_url",
            "tlsCaFiles",
        ),
        (
            "url: \"mongodb://h\"",
            "invalid_setting",
            "the database is missing",
        ),
        (
            "url: \"mongodb://h/d?readPreference=secondaryPreferred\"",
            "invalid_setting",
            "readPreference",
        ),
        (
            "url: \"mongodb://h/d\", bulk_rows: 25001",
            "invalid_setting",
            "25001",
        ),
        (
            "url: \"mongodb://h/d\", collection: \"a$b\"",
            "invalid_name",
            "a$b",
        ),
        (
            "url: \"mongodb://h/d\", collection: \"system.{stream}\"",
            "invalid_name",
            "system.",
        ),
        (
            "url: \"mongodb://h/d\", database: \"../d\"",
            "invalid_name",
            "../d",
        ),
        (
            "url: \"mongodb://h/d\", collection: _rapidbyte_checkpoint",
            "invalid_name",
            "Rapidbyte",
        ),
        (
            "url: \"mongodb://h/d\", collection: \"x_{strem}\"",
            "unknown_placeholder",
            "{strem} is not",
        ),
    ];
    copied_documents::settings_are_refused(pipeline, &cases);
}

#[test]
fn the_host_does_tls_as_the_options_of_the_url_say() {
    let folder = Folder::new();
    let (certificate, key) = authority().issue("localhost", |_| {});
    folder.write("server.pem", certificate);
    folder.write("server.key", key);
    folder.write("ca.pem", authority().pem());
    let tls = MongoTls {
        certificate: folder.path().join("server.pem"),
        key: folder.path().join("server.key"),
        client_authority: None,
    };
    let Some(server) = MongoServer::start(Some(&tls)) else {
        println!("SKIPPED: no mongo-java-server");
        return;
    };
    let login = server.login();
    folder.write("t.csv", "id,v\n1,a\n");
    let checked = |options: &str, host: &str| {
        let port = server.port();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: p\nsource:\n  use: source-file\n  config: {{ path: t.csv }}\n  streams: [t]\n\
                 destination:\n  use: dest-mongodb\n  config: {{ url: \"mongodb://{login}{host}:{port}/d?connectTimeoutMS=5000{options}\" }}\n  \
                 write_mode: replace\n"
            ),
        );
        let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
        let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        match ended.code {
            Some(0) => "ok".to_owned(),
            _ => document["error"]["code"]
                .as_str()
                .expect("a code")
                .to_owned(),
        }
    };
    assert_eq!(checked("&tls=true&tlsCAFile=ca.pem", "localhost"), "ok");
    assert_eq!(checked("&tls=true", "localhost"), "tls_unknown_ca");
    assert_eq!(
        checked("&tls=true&tlsCAFile=ca.pem", "127.0.0.1"),
        "tls_wrong_name"
    );
    let named = "&tls=true&tlsCAFile=ca.pem&tlsAllowInvalidHostnames=true";
    assert_eq!(checked(named, "127.0.0.1"), "ok");
    assert_eq!(checked("&tls=true&tlsInsecure=true", "127.0.0.1"), "ok");
    // The server takes a message without TLS for a broken greeting, and ends the connection.
    assert_eq!(checked("", "localhost"), "connection_lost");
    let ended = folder.rapidbyte(&["check", "p.yaml"]);
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(told.contains("set tls=true"), "{told}");
}

#[test]
fn the_destination_keeps_the_contract() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (folder, target) = (Folder::new(), server.database());
    let config = json!({ "url": target.url() }).to_string();
    let arguments = ["connector", "test", "dest-mongodb", "--config", &config];
    let peer = ["--peer", "source-mongodb", "--peer-config", &config];
    let ended = folder.rapidbyte(&[&arguments[..], &peer].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("33 passed, 0 failed, 0 skipped"),
        "{}",
        ended.stdout
    );
}
