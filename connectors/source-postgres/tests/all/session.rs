//! The list of streams, the checks, and the one snapshot of a run.

use crate::common::*;
use rapidbyte_pg::ident::{nasty_names, quote_ident, quote_literal};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::source;
use rapidbyte_testkit::postgres::{Auth, Options, Server, shared};
use source_postgres::Postgres;

#[test]
fn all_relations_are_listed_with_what_is_known_of_them() {
    let database = shared().database();
    let sql = "
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (
            id bigint GENERATED ALWAYS AS IDENTITY, region text NOT NULL, total numeric(12,2),
            twice numeric GENERATED ALWAYS AS (total * 2) STORED, doc tsvector,
            PRIMARY KEY (region, id));
        COMMENT ON COLUMN shop.orders.total IS 'with tax';
        INSERT INTO shop.orders (region, total) SELECT 'eu', 1 FROM generate_series(1, 5000);
        CREATE TABLE shop.parted (id int) PARTITION BY RANGE (id);
        CREATE TABLE shop.part_1 PARTITION OF shop.parted FOR VALUES FROM (0) TO (1000);
        CREATE TABLE shop.part_2 PARTITION OF shop.parted FOR VALUES FROM (1000) TO (9000);
        INSERT INTO shop.parted SELECT generate_series(0, 2999);
        CREATE VIEW shop.seen AS SELECT id FROM shop.orders;
        CREATE MATERIALIZED VIEW shop.stale AS SELECT id FROM shop.orders WITH NO DATA;
        CREATE UNLOGGED TABLE shop.fast (id int);
        CREATE EXTENSION postgres_fdw;
        CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw;
        CREATE FOREIGN TABLE shop.far (id int) SERVER elsewhere;
        CREATE TEMP TABLE passing (id int);
        ANALYZE";
    let mut client = database.client();
    if client.batch_execute(sql).is_err() {
        // Server programs without the extension.
        let sql: String = sql
            .split_inclusive(';')
            .filter(|statement| {
                !["EXTENSION", "SERVER"]
                    .iter()
                    .any(|word| statement.contains(word))
            })
            .collect();
        client.batch_execute(&sql).unwrap();
    }
    let mut source = open(&database.url());
    let streams = source.discover(&[]).unwrap();
    let names: Vec<&str> = streams
        .iter()
        .map(|s| s.name.as_str())
        .filter(|n| *n != "shop.far")
        .collect();
    let expected = [
        "shop.fast",
        "shop.orders",
        "shop.parted",
        "shop.seen",
        "shop.stale",
    ];
    assert_eq!(names, expected);
    let orders = find(&streams, "shop.orders");
    assert_eq!(orders.primary_key, ["region", "id"]);
    assert_eq!(orders.estimated_rows, Some(5000));
    assert!(orders.estimated_bytes.unwrap() >= 5000 * 20);
    assert_eq!(
        orders.source_types,
        ["bigint", "text", "numeric(12,2)", "numeric", "tsvector"]
    );
    let fields = schema(orders);
    let metadata = |at: usize| fields.field(at).metadata()["rapidbyte.postgresql"].clone();
    assert!(metadata(0).contains("identity_always"));
    assert!(metadata(2).contains("with tax"));
    assert!(metadata(3).contains("stored"));
    assert!(!fields.field(0).is_nullable() && fields.field(2).is_nullable());
    assert!(
        orders
            .notes
            .iter()
            .any(|n| n == "doc (tsvector) is read as text")
    );
    assert_eq!(find(&streams, "shop.parted").estimated_rows, Some(3000));
    assert_eq!(find(&streams, "shop.fast").estimated_rows, None);
    for (name, note) in [
        ("shop.parted", "partitioned"),
        ("shop.fast", "unlogged"),
        ("shop.seen", "a view"),
        ("shop.stale", "no data yet"),
    ] {
        let notes = &find(&streams, name).notes;
        assert!(notes.iter().any(|n| n.contains(note)), "{name}: {notes:?}");
    }
    let error = refused(&mut source, &request("shop.stale"));
    assert_eq!(error.code, "not_populated", "{error:?}");
    assert!(
        error
            .hint
            .unwrap()
            .contains("REFRESH MATERIALIZED VIEW shop.stale")
    );
}

#[test]
fn thousands_of_tables_are_listed() {
    let database = shared().database();
    let sql = "DO $$ BEGIN FOR i IN 1..1200 LOOP EXECUTE format('CREATE TABLE t%s (id int, a text, b numeric)', i); END LOOP; END $$;
        DO $$ BEGIN EXECUTE 'CREATE TABLE wide (' || (SELECT string_agg(format('c%s int', i), ',') FROM generate_series(1, 1600) i) || ')'; END $$";
    // One transaction for each loop holds more locks than the server has room for.
    let mut client = database.client();
    for statement in sql.split_inclusive("END $$;") {
        client.batch_execute(statement).unwrap();
    }
    let mut source = open(&database.url());
    let streams = source.discover(&[]).unwrap();
    assert_eq!(streams.len(), 1201);
    assert_eq!(schema(find(&streams, "public.wide")).fields().len(), 1600);
}

#[test]
fn all_reads_are_as_of_the_snapshot() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE a (id int); CREATE TABLE b (id int);
        INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)";
    client.batch_execute(sql).unwrap();
    let mut session = open(&database.url());
    let snapshot = session
        .snapshot(&[whole("public.a"), whole("public.b")])
        .unwrap();
    client
        .batch_execute("INSERT INTO a VALUES (2); DELETE FROM b; INSERT INTO b VALUES (3)")
        .unwrap();
    // As in a run: each reader is a component of its own.
    for stream in ["public.a", "public.b"] {
        let mut other = open(&database.url());
        let mut request = request(stream);
        request.snapshot.clone_from(&snapshot);
        assert_eq!(
            ints(&read(&mut other, &request).unwrap(), 0),
            [1],
            "{stream}"
        );
        request.snapshot.clear();
        assert_ne!(
            ints(&read(&mut other, &request).unwrap(), 0),
            [1],
            "{stream}"
        );
    }
    // A table that is rewritten would look empty.
    let alter = "SET lock_timeout = '50ms'; ALTER TABLE a ALTER id TYPE bigint";
    let error = client.batch_execute(alter).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55P03");
    drop(session);
    let mut other = open(&database.url());
    let mut gone = request("public.a");
    gone.snapshot = snapshot;
    // The server notices that the first connection is gone when it gets to it.
    let error = loop {
        match other.read(&gone) {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("snapshot_gone", "Connection")
    );
}

#[test]
fn a_missing_privilege_says_what_to_grant() {
    let server = Server::start(&Options {
        auth: Auth::Trust,
        ..Options::default()
    })
    .unwrap();
    let sql =
        "CREATE ROLE \"Reader\" LOGIN; CREATE SCHEMA s; GRANT USAGE ON SCHEMA s TO \"Reader\";
        CREATE SCHEMA hidden; CREATE TABLE hidden.t (id int);
        CREATE TABLE s.secret (id int); CREATE TABLE s.part (id int, x int);
        GRANT SELECT (id) ON s.part TO \"Reader\";
        CREATE TABLE s.ruled (id int); ALTER TABLE s.ruled ENABLE ROW LEVEL SECURITY;
        GRANT SELECT ON s.ruled TO \"Reader\"";
    server.client("postgres").batch_execute(sql).unwrap();
    let mut source = open(&as_role(&server.url("postgres"), "Reader"));
    let part = Selection {
        columns: Some(vec!["id".into()]),
        ..whole("s.part")
    };
    for (stream, code) in [("s.secret", "no_privilege"), ("hidden.t", "no_privilege")] {
        // Before the first row of any stream.
        let all = [part.clone(), whole(stream)];
        for error in [
            source.snapshot(&all).unwrap_err(),
            refused(&mut source, &request(stream)),
        ] {
            assert_eq!((error.code.as_str(), kind(&error).as_str()), (code, "Auth"));
            assert_eq!(error.stream.as_deref(), Some(stream));
            let hint = error.hint.unwrap();
            let grant = format!("GRANT SELECT ON {stream} TO \"Reader\"");
            assert!(hint.contains(&grant), "{hint}");
        }
    }
    source.snapshot(std::slice::from_ref(&part)).unwrap();
    let error = source.snapshot(&[whole("s.part")]).unwrap_err();
    assert_eq!(kind(&error), "Auth", "{error:?}");
    let error = refused(&mut source, &request("s.part"));
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("no_privilege", "Auth")
    );
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("GRANT SELECT (x) ON s.part TO \"Reader\";"),
        "{hint}"
    );
    // All streams in one error, with one script.
    let all = [whole("s.secret"), whole("s.part"), whole("hidden.t")];
    let hint = source.snapshot(&all).unwrap_err().hint.unwrap();
    let script = "GRANT SELECT ON s.secret TO \"Reader\";\nGRANT SELECT (x) ON s.part TO \"Reader\";\n\
                  GRANT USAGE ON SCHEMA hidden TO \"Reader\";\nGRANT SELECT ON hidden.t TO \"Reader\";";
    assert!(hint.ends_with(script), "{hint}");
    let batches = read(&mut source, &columns("s.part", &["id"])).unwrap();
    assert_eq!(rows(&batches), 0);
    let streams = source.discover(&[]).unwrap();
    let has = |name: &str, note: &str| find(&streams, name).notes.iter().any(|n| n.contains(note));
    assert!(has("s.ruled", "row-level security"));
    assert!(has("s.secret", "cannot read"));
    assert!(has("s.part", "some of its columns"));

    let items = source.check().unwrap();
    let read = items.iter().find(|item| item.name == "read").unwrap();
    assert!(read.problem.is_none());
    assert_eq!(
        read.detail,
        "2 of 4 tables and views are readable; not readable: hidden.t, s.secret"
    );
    server
        .client("postgres")
        .batch_execute("REVOKE USAGE ON SCHEMA s FROM \"Reader\"")
        .unwrap();
    let items = source.check().unwrap();
    let read = items.iter().find(|item| item.name == "read").unwrap();
    let problem = read.problem.as_ref().unwrap();
    assert_eq!(
        (problem.code.as_str(), kind(problem).as_str()),
        ("nothing_readable", "Auth")
    );
    assert!(problem.hint.as_ref().unwrap().contains("GRANT SELECT"));
}

#[test]
fn rows_that_policies_hide_are_never_left_out_silently() {
    let server = Server::start(&Options {
        auth: Auth::Trust,
        ..Options::default()
    })
    .unwrap();
    let sql = "CREATE ROLE reader LOGIN; CREATE TABLE ruled (id int);
        INSERT INTO ruled VALUES (1), (2); GRANT SELECT ON ruled TO reader;
        ALTER TABLE ruled ENABLE ROW LEVEL SECURITY;
        CREATE POLICY p ON ruled TO reader USING (id = 2);
        CREATE ROLE middle; GRANT SELECT ON ruled TO middle;
        CREATE VIEW seen AS SELECT id FROM ruled; ALTER VIEW seen OWNER TO middle;
        GRANT SELECT ON seen TO reader;
        CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent);
        INSERT INTO child VALUES (5); GRANT SELECT ON parent, child TO reader;
        ALTER TABLE child ENABLE ROW LEVEL SECURITY;
        CREATE FUNCTION public.f() RETURNS SETOF int LANGUAGE plpgsql STABLE AS
            'BEGIN RETURN QUERY SELECT id FROM public.ruled; END';
        CREATE VIEW called AS SELECT f AS id FROM f(); GRANT SELECT ON called TO reader";
    server.client("postgres").batch_execute(sql).unwrap();
    let url = as_role(&server.url("postgres"), "reader");
    let mut source = open(&url);
    for error in [
        source
            .snapshot(&[whole("public.parent"), whole("public.ruled")])
            .unwrap_err(),
        refused(&mut source, &request("public.ruled")),
        refused(&mut source, &filtered("public.ruled", "id = 2")),
    ] {
        assert_eq!(
            (error.code.as_str(), kind(&error).as_str()),
            ("row_level_security", "Auth")
        );
        assert_eq!(error.stream.as_deref(), Some("public.ruled"));
        assert!(error.hint.unwrap().contains("BYPASSRLS"));
    }
    // Only the server knows the relations below a view.
    for stream in ["public.seen", "public.called"] {
        let selections = [whole(stream)];
        let error = match source.snapshot(&selections) {
            // The tables that a function reads are known when it is called.
            Ok(snapshot) => read(
                &mut source,
                &ReadRequest {
                    snapshot,
                    ..request(stream)
                },
            )
            .unwrap_err(),
            Err(error) => error,
        };
        let alone = read(&mut source, &request(stream)).unwrap_err();
        for error in [error, alone] {
            assert_eq!(
                (
                    error.code.as_str(),
                    kind(&error).as_str(),
                    error.stream.as_deref()
                ),
                ("row_level_security", "Auth", Some(stream)),
                "{error:?}"
            );
            assert!(error.message.contains("\"ruled\""), "{error:?}");
            let hint = error.hint.unwrap();
            assert!(
                hint.contains("BYPASSRLS") && !hint.contains("GRANT"),
                "{hint}"
            );
        }
    }
    // The policies of the table that is named count, as in SELECT.
    let batches = read(&mut source, &request("public.parent")).unwrap();
    assert_eq!(ints(&batches, 0), [5]);

    let config = format!(r#"{{"url": "{url}", "options": "-c row_security=on"}}"#);
    let mut visible = source::open::<Postgres>(&config).unwrap();
    let batches = read(&mut visible, &request("public.ruled")).unwrap();
    assert_eq!(ints(&batches, 0), [2]);
    let mut all = open(&server.url("postgres"));
    let batches = read(&mut all, &request("public.ruled")).unwrap();
    assert_eq!(ints(&batches, 0), [1, 2]);
}

#[test]
fn check_says_where_we_are() {
    let database = shared().database();
    let mut source = open(&database.url());
    let items = source.check().unwrap();
    let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["connect", "version", "snapshot", "read"]);
    assert!(items.iter().all(|item| item.problem.is_none()), "{items:?}");
    let connect = &items[0].detail;
    for part in [
        "PostgreSQL 1",
        "as postgres",
        database.name(),
        "without TLS",
    ] {
        assert!(connect.contains(part), "{connect}");
    }
    let mut wrong = open(&database.url().replace(database.name(), "no_such"));
    let items = wrong.check().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].problem.as_ref().unwrap().code, "pg_3D000");
}

#[test]
fn ten_thousand_names_are_quoted_like_the_server_does() {
    let database = shared().database();
    let names = nasty_names(10_000);
    let sql = "SELECT quote_ident(name), quote_literal(name), name IN (
            SELECT word FROM pg_get_keywords() WHERE catcode <> 'U')
        FROM unnest($1::text[]) WITH ORDINALITY AS n(name, at) ORDER BY at";
    let rows = database.client().query(sql, &[&names]).unwrap();
    assert_eq!(rows.len(), names.len());
    let (mut bare, mut newer) = (0, 0);
    for (name, row) in names.iter().zip(&rows) {
        let (ident, text, is_keyword): (String, String, bool) =
            (row.get(0), row.get(1), row.get(2));
        // The blank that the server puts before an `E'…'` does not matter.
        assert_eq!(quote_literal(name).trim_start(), text.trim_start());
        bare += usize::from(ident == *name);
        if quote_ident(name) != ident {
            // A keyword of newer servers, which this one does not know.
            assert!(!is_keyword && ident == *name, "{name}: {ident}");
            assert_eq!(quote_ident(name), format!("\"{name}\""));
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            newer += 1;
        }
    }
    assert!((1000..9000).contains(&bare), "{bare} bare names");
    assert!(newer < 20, "{newer}");
}

#[test]
fn limits_of_the_server_do_not_end_a_read() {
    let database = shared().database();
    let mut client = database.client();
    let sql = format!(
        "CREATE VIEW t AS SELECT 1 AS id, pg_catalog.pg_sleep(0.7)::text AS s;
         ALTER DATABASE {} SET statement_timeout = '500ms';
         ALTER DATABASE {0} SET idle_in_transaction_session_timeout = '500ms'",
        database.name()
    );
    client.batch_execute(&sql).unwrap();
    let mut source = open(&database.url());
    let snapshot = source.snapshot(&[whole("public.t")]).unwrap();
    // The transaction of the snapshot is idle for longer than the server allows.
    let mut request = request("public.t");
    request.snapshot = snapshot;
    for _ in 0..2 {
        let mut reader = open(&database.url());
        assert_eq!(rows(&read(&mut reader, &request).unwrap()), 1);
    }
    // The session itself reads under it, too; nobody joins it after that.
    assert_eq!(rows(&read(&mut source, &request).unwrap()), 1);
    let mut late = open(&database.url());
    let error = read(&mut late, &request).unwrap_err();
    assert_eq!(error.code, "snapshot_gone");
    let config = format!(
        r#"{{"url": "{}", "options": "-c statement_timeout=300ms"}}"#,
        database.url()
    );
    let mut limited = source::open::<Postgres>(&config).unwrap();
    request.snapshot.clear();
    let error = read(&mut limited, &request).unwrap_err();
    assert_eq!(
        error.code, "pg_57014",
        "what the operator wrote stays: {error:?}"
    );
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    for (config, code, at) in [
        (
            r#"{"host": "a", "user": "u", "hsot": "b"}"#,
            "invalid_config",
            "config.hsot",
        ),
        (
            r#"{"url": "postgres://u@a/", "fetch_bytes": 100}"#,
            "invalid_config",
            "config.fetch_bytes",
        ),
        (r#"{"url": "mysql://u@a/"}"#, "invalid_url", "config.url"),
        (
            r#"{"host": "a", "user": "u", "port": 70000}"#,
            "invalid_config",
            "config.port",
        ),
        (
            r#"{"host": "a", "user": "u", "sslmode": "on"}"#,
            "invalid_setting",
            "config.sslmode",
        ),
    ] {
        let Err(error) = source::open::<Postgres>(config) else {
            panic!("{config}");
        };
        assert_eq!(
            (error.code.as_str(), kind(&error).as_str()),
            (code, "Config")
        );
        assert_eq!(error.location.as_deref(), Some(at), "{error:?}");
    }
}

#[test]
fn the_schema_carries_the_marks_of_the_grants() {
    let spec = source::spec::<Postgres>();
    let schema: serde_json::Value = serde_json::from_str(&spec.config_schema).unwrap();
    for (key, mark) in [
        ("url", "url"),
        ("host", "host"),
        ("port", "port"),
        ("sslmode", "tls-mode"),
        ("sslrootcert", "tls-root-cert"),
        ("sslcert", "tls-cert"),
        ("sslkey", "tls-key"),
    ] {
        assert_eq!(schema["properties"][key]["x-grant"], mark, "{key}");
    }
    for key in ["url", "password"] {
        assert_eq!(schema["properties"][key]["x-secret"], true, "{key}");
    }
    assert_eq!(schema["properties"]["port"]["default"], 5432);
    assert_eq!(spec.native_forms, ["postgresql"]);
}

#[test]
fn a_wrong_condition_is_reported_before_the_first_row_of_any_stream() {
    let database = shared().database();
    let sql = "CREATE TABLE a (id int, t text); CREATE TABLE b (id int)";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let mut of_a = |filter: &str| {
        let selection = Selection {
            filter: Some(filter.into()),
            ..whole("public.a")
        };
        source.snapshot(&[whole("public.b"), selection])
    };
    for right in [
        "id < 10",
        "id < 10 AND t LIKE 'v%' -- small",
        "t IS NULL OR true",
    ] {
        of_a(right).unwrap();
    }
    for wrong in [
        "id",
        "nope > 1",
        "id < 10) OR (true",
        "id < 10; DROP TABLE b",
        "id < 10 /*",
        "id = $1",
        "id < 1 / 0",
        "",
    ] {
        let error = of_a(wrong).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.stream.as_deref()),
            ("invalid_where", Some("public.a")),
            "{wrong}: {error:?}"
        );
        assert!(
            error.hint.is_some() && !error.message.contains("COPY"),
            "{error:?}"
        );
    }
    let gone = Selection {
        columns: Some(vec!["gone".into()]),
        ..whole("public.a")
    };
    assert!(source.snapshot(&[gone]).is_err());
}
