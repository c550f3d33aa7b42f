//! Schemas and tables with dots in their names: a stream's name always means one pair.

use rapidbyte_testkit::postgres::{Client, shared};

use crate::support::Folder;

fn ids(client: &mut Client, table: &str) -> Vec<i32> {
    let rows = client.query(&format!("SELECT id FROM {table} ORDER BY id"), &[]);
    let rows = rows.unwrap_or_else(|error| panic!("{table}: {error:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn dots_in_names_keep_schemas_and_tables_apart() {
    let source = shared().database();
    let tables = [
        ("b.orders", 1),
        ("b.\"c.orders\"", 2),
        ("\"b.c\".orders", 3),
        ("\"b.c\".\"c.orders\"", 4),
    ];
    let mut client = source.client();
    client
        .batch_execute("CREATE SCHEMA b; CREATE SCHEMA \"b.c\"")
        .expect("schemas");
    for (table, id) in tables {
        let sql = format!("CREATE TABLE {table} AS SELECT {id} AS id");
        client.batch_execute(&sql).expect("a table");
    }
    let folder = Folder::new();
    let pipeline = |streams: &str, to: &str, more: &str| {
        format!(
            "version: 1\npipeline: dots\n\
             source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [{streams}] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{to}\"{more} }}, write_mode: replace }}\n",
            source.url()
        )
    };
    let all = "'b.orders', 'b.\"c.orders\"', '\"b.c\".orders', '\"b.c\".\"c.orders\"'";
    // By wildcards, by name, and in other spellings of the same names.
    for streams in [
        "\"*\"",
        "'b.*', '\"b.c\".*'",
        all,
        "'\"b\".\"orders\"', 'b.\"c.orders\"', '\"b.c\".\"orders\"', '\"b.c\".\"c.ord*\"'",
    ] {
        let target = shared().database();
        let report = folder.report(&pipeline(streams, &target.url(), ""));
        assert_eq!(report["rows"], 4, "{streams}");
        let mut client = target.client();
        for (table, id) in tables {
            assert_eq!(ids(&mut client, table), [id], "{streams}");
        }
    }
    // Into one schema under names of their own, and from one schema alone.
    let target = shared().database();
    let settings = ", schema: \"raw.in\", table: \"new.{stream}\"";
    folder.report(&pipeline("'\"b.c\".*'", &target.url(), settings));
    let mut client = target.client();
    assert_eq!(ids(&mut client, "\"raw.in\".\"new.orders\""), [3]);
    assert_eq!(ids(&mut client, "\"raw.in\".\"new.c.orders\""), [4]);
    // Two streams in one table, one stream twice, and a name without its quotes.
    let one = pipeline(all, &target.url(), ", schema: raw");
    folder.refuses(&one, "shared_target", 2, &["b.orders", "\"b.c\".orders"]);
    let twice = pipeline("b.orders, '\"b\".orders'", &target.url(), "");
    folder.refuses(&twice, "duplicate_stream", 2, &["line"]);
    let bare = pipeline("b.c.orders", &target.url(), "");
    folder.refuses(&bare, "unknown_stream", 2, &["did you mean", "orders"]);
}
