//! Through a real PgBouncer.

use rapidbyte_testkit::postgres::{Database, PGBOUNCER, PgBouncer, PoolMode, shared};

use crate::support::Folder;

/// A PgBouncer in front of the shared server, or the reason why there is none.
fn pooler(mode: PoolMode) -> Option<PgBouncer> {
    let pooler = PgBouncer::start(shared(), mode).unwrap_or_else(|failure| panic!("{failure}"));
    if pooler.is_none() {
        eprintln!("SKIPPED: {PGBOUNCER} names no program");
    }
    pooler
}

fn seeded() -> Database<'static> {
    let database = shared().database();
    database
        .client()
        .batch_execute(
            "CREATE SCHEMA app;
             CREATE TABLE app.t AS SELECT i AS id, 'row ' || i AS s, i / 7.0 AS n,
                 now() + i * interval '1 s' AS at FROM generate_series(1, 3000) i;
             CREATE TABLE app.u AS SELECT i AS id FROM generate_series(1, 10) i",
        )
        .expect("tables");
    database
}

/// Copies both tables through the pooler on both sides.
fn pipeline(pooler: &PgBouncer, from: &Database<'_>, to: &Database<'_>, method: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [\"app.*\"] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw, load_method: {method} }}, \
         write_mode: replace }}\nresources: {{ parallelism: 2, memory: 512mb }}\n",
        pooler.url(from.name()),
        pooler.url(to.name())
    )
}

fn same(from: &Database<'_>, to: &Database<'_>) {
    let hash = |database: &Database<'_>, table: &str| -> (i64, String) {
        let sql =
            format!("SELECT count(*), md5(string_agg(x::text, ',' ORDER BY id)) FROM {table} x");
        let row = database.client().query_one(&sql, &[]).expect("a hash");
        (row.get(0), row.get(1))
    };
    for table in ["t", "u"] {
        let (source, target) = (format!("app.{table}"), format!("raw.{table}"));
        assert_eq!(hash(from, &source), hash(to, &target), "{table}");
    }
}

#[test]
fn a_pooler_of_sessions_changes_nothing() {
    let Some(pooler) = pooler(PoolMode::Session) else {
        return;
    };
    let (from, to) = (seeded(), shared().database());
    for method in ["copy", "insert", "copy"] {
        Folder::new().report(&pipeline(&pooler, &from, &to, method));
        same(&from, &to);
    }
}

#[test]
fn a_pooler_of_transactions_works_and_its_sessions_stay_as_they_were() {
    let Some(pooler) = pooler(PoolMode::Transaction) else {
        return;
    };
    let (from, to) = (seeded(), shared().database());
    for method in ["copy", "insert", "insert"] {
        let folder = Folder::new();
        folder.report(&pipeline(&pooler, &from, &to, method));
        same(&from, &to);
        let check = folder.rapidbyte(&["check", "p.yaml"]);
        assert!(check.stdout.contains("pooler"), "{}", check.stdout);
    }
    // What others meet in the sessions that we used.
    for database in [&from, &to] {
        let mut client = rapidbyte_testkit::postgres::Client::connect(
            &pooler.url(database.name()),
            rapidbyte_testkit::postgres::NoTls,
        )
        .expect("a connection");
        for (name, usual) in [
            ("search_path", "\"$user\", public"),
            ("statement_timeout", "0"),
            ("bytea_output", "hex"),
            ("jit", "on"),
            ("row_security", "on"),
            ("extra_float_digits", "1"),
        ] {
            let row = client
                .simple_query(&format!("SHOW {name}"))
                .expect("a setting");
            let value = row.iter().find_map(|message| match message {
                rapidbyte_testkit::postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            assert_eq!(value, Some(usual), "{name}");
        }
    }
}
