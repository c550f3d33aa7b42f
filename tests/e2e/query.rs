//! Queries as streams, and targets that a stream names.

use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::Value;

use crate::support::{Folder, generate};

const SHOP: &str = "CREATE TABLE customers (id int PRIMARY KEY, name text, country char(2)); \
    CREATE TABLE orders (id int PRIMARY KEY, customer int, total numeric(10, 2)); \
    INSERT INTO customers VALUES (1, 'Ada', 'DE'), (2, 'Bob', 'FR'), (3, NULL, 'DE'); \
    INSERT INTO orders VALUES (10, 1, 5), (11, 1, 7.50), (12, 2, 900), (13, 3, 100), (14, NULL, 1)";

/// A pipeline whose streams are these lines of YAML, each below `streams:`.
fn pipeline(database: &Database<'_>, streams: &str, destination: &str) -> String {
    let url = database.url();
    format!(
        "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: \"{url}\" }}\n  streams:\n{streams}destination:\n  use: dest-postgres\n  \
         config: {{ url: \"{url}\", {destination} }}\n  write_mode: replace\n"
    )
}

fn made(sql: &str) -> (Database<'static>, Client) {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute(SHOP).expect("tables");
    client.batch_execute(sql).expect("more");
    (database, client)
}

fn text(client: &mut Client, sql: &str) -> String {
    let row = client.query_one(sql, &[]).expect(sql);
    row.get::<_, Option<String>>(0).unwrap_or_default()
}

#[test]
fn a_query_is_planned_and_moved_like_a_table() {
    let (database, mut client) = made("CREATE SCHEMA raw");
    let folder = Folder::new();
    let streams = "    - name: big_orders
      query: |
        WITH totals AS (SELECT customer, sum(total) AS total, count(*) AS n FROM public.orders GROUP BY 1)
        SELECT c.id, c.name, c.country, t.total, t.n -- of each customer
        FROM public.customers c LEFT JOIN totals t ON t.customer = c.id
        -- an end without a line break: \"(\" and ';'
      where: \"country = 'DE'\"
      columns: [total, id, name]
      rename: { total: spent }
      transforms:
        - set: { twice: \"id * 2\" }
    - public.orders
";
    folder.write("p.yaml", pipeline(&database, streams, "schema: raw"));
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let plan: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let stream = &plan["streams"][0];
    assert_eq!(stream["name"], "big_orders", "{plan:#}");
    let query = stream["query"].as_str().expect("a query");
    assert!(query.starts_with("WITH totals AS"), "{query}");
    assert_eq!(plan["streams"][1]["query"], Value::Null);
    let columns = stream["columns"].as_array().expect("columns").iter();
    let columns: Vec<String> = columns
        .map(|c| format!("{} {}", c["name"], c["target_type"]).replace('"', ""))
        .collect();
    let expected = ["spent numeric", "id integer", "name text", "twice integer"];
    assert_eq!(columns, expected, "{plan:#}");
    let report = folder.report(&pipeline(&database, streams, "schema: raw"));
    assert_eq!(report["rows"], 2 + 5, "{report:#}");
    let sql = "SELECT string_agg(concat_ws(' ', spent, id, name, twice), ';' ORDER BY id) FROM raw.big_orders";
    assert_eq!(text(&mut client, sql), "12.50 1 Ada 2;100.00 3 6");
    // A query without rows makes its table, too.
    let empty = "    - { name: none, query: \"SELECT id FROM public.orders WHERE id < 0\" }\n";
    let report = folder.report(&pipeline(&database, empty, "schema: raw"));
    assert_eq!(report["rows"], 0, "{report:#}");
    assert_eq!(
        text(&mut client, "SELECT count(*)::text FROM raw.none"),
        "0"
    );
}

#[test]
fn rows_of_a_query_update_those_of_the_key_that_the_stream_names() {
    let (database, mut client) = made("CREATE SCHEMA raw");
    let folder = Folder::new();
    let query = "query: \"SELECT customer AS id, sum(total) AS total FROM public.orders \
                 WHERE customer IS NOT NULL GROUP BY 1\"";
    let upsert = |more: &str| {
        let streams = format!("    - {{ name: sums, write_mode: upsert, {query}{more} }}\n");
        pipeline(&database, &streams, "schema: raw")
    };
    folder.refuses(&upsert(""), "no_primary_key", 2, &["sums"]);
    folder.report(&upsert(", primary_key: [id]"));
    client
        .batch_execute("INSERT INTO orders VALUES (15, 2, 100)")
        .expect("a row");
    folder.report(&upsert(", primary_key: [id]"));
    let sql = "SELECT string_agg(id || '=' || total, ' ' ORDER BY id) FROM raw.sums";
    assert_eq!(text(&mut client, sql), "1=12.50 2=1000.00 3=100.00");
}

#[test]
fn a_query_takes_the_place_of_a_table_and_is_nobodys_pattern() {
    let (database, mut client) = made("CREATE SCHEMA raw");
    let folder = Folder::new();
    let streams = "    - \"public.*\"
    - { name: public.orders, query: \"SELECT id FROM public.orders WHERE id > 12\" }
    - { name: public.extra, query: \"SELECT 1 AS one\" }
  exclude: [\"public.extr*\", \"*.orders\"]
";
    let report = folder.report(&pipeline(&database, streams, "schema: raw"));
    let streams = report["streams"].as_array().expect("streams").iter();
    let names: Vec<&str> = streams
        .filter_map(|stream| stream["name"].as_str())
        .collect();
    assert_eq!(names, ["public.customers", "public.orders", "public.extra"]);
    let sql = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM raw.orders";
    assert_eq!(text(&mut client, sql), "13 14");
    // A name that a flag selects.
    let ended = folder.rapidbyte(&["run", "p.yaml", "--select", "public.extra"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_text_that_is_not_one_reading_query_is_refused_with_its_line() {
    let (database, mut client) = made(
        "CREATE SCHEMA raw; CREATE FUNCTION adds() RETURNS int LANGUAGE sql VOLATILE \
         AS 'INSERT INTO public.orders VALUES (99) RETURNING 1'; CREATE SEQUENCE counter",
    );
    let folder = Folder::new();
    let refuses = |query: &str, code: &str, exit: i32, parts: &[&str]| {
        let indented = query.replace('\n', "\n        ");
        let streams = format!("    - name: q\n      query: |\n        {indented}\n");
        let text = pipeline(&database, &streams, "schema: raw");
        folder.refuses(&text, code, exit, parts);
    };
    // The first line of the text.
    let at = "p.yaml:10:9";
    let refused = |query: &str, parts: &[&str]| {
        refuses(
            query,
            "invalid_query",
            2,
            &[&[at, "source.streams[0].query"], parts].concat(),
        );
    };
    refused(
        "SELECT 1 AS a,\nFROM public.orders",
        &["line 2, column 1 of the query: ", "FROM"],
    );
    refused(
        "SELECT id FROM orders",
        &["line 1, column 16", "orders", "such as public.orders"],
    );
    refused("SELECT nosuch FROM public.orders", &["nosuch", "column 8"]);
    refused("SELECT 1 AS a; SELECT 2 AS b", &["without a semicolon"]);
    refused("SELECT 1 AS a;", &[";", "without a semicolon"]);
    refused(
        "SELECT 1 AS a; DROP TABLE public.orders",
        &["without a semicolon"],
    );
    refused(
        "SELECT 1 AS a) AS x, (SELECT 2 AS b",
        &["line 1, column 14"],
    );
    refused("DELETE FROM public.orders RETURNING id", &["SELECT"]);
    refused(
        "WITH gone AS (DELETE FROM public.orders RETURNING id) SELECT id FROM gone",
        &["WITH"],
    );
    refused("SELECT id INTO public.copy FROM public.orders", &["SELECT"]);
    refused("SELECT id FROM public.orders FOR UPDATE", &["FOR UPDATE"]);
    refused("SHOW all", &["all"]);
    refused("TRUNCATE public.orders", &["syntax error"]);
    refused("-- nothing", &["without a semicolon"]);
    refused(
        "SELECT id FROM public.orders WHERE id = $1",
        &["parameters"],
    );
    refused("SELECT 1/0 AS a", &["division by zero"]);
    let columns = |query: &str, parts: &[&str]| {
        refuses(query, "query_columns", 2, &[&[at], parts].concat());
    };
    columns(
        "SELECT id, name, id FROM public.customers",
        &["\"id\"", "AS name"],
    );
    columns(
        "SELECT id, 1 + 1 FROM public.orders",
        &["column 2 of the query", "AS name"],
    );
    columns("SELECT FROM public.orders", &["no columns"]);
    columns(
        "SELECT c AS whole, ROW(1, 2) AS r FROM public.customers c",
        &["\"r\"", "record"],
    );
    // Functions cannot write, and the failure comes before any row of the target is gone.
    client
        .batch_execute("CREATE TABLE raw.q AS SELECT 7 AS a")
        .expect("a table");
    for call in ["public.adds()", "nextval('public.counter')::int"] {
        let query = format!("SELECT {call} AS a");
        refuses(&query, "invalid_query", 2, &[at, "read-only transaction"]);
    }
    let sql = "SELECT concat_ws(' ', (SELECT count(*) FROM orders), (SELECT count(*) FROM raw.q), \
               (SELECT is_called FROM counter))";
    assert_eq!(text(&mut client, sql), "5 1 f");
}

#[test]
fn a_key_that_a_query_has_no_use_for_is_refused() {
    let folder = Folder::new();
    let (database, _) = made("");
    let refuses = |stream: &str, parts: &[&str]| {
        let streams = format!("    - {{ query: \"SELECT 1 AS a\", {stream} }}\n");
        let text = pipeline(&database, &streams, "schema: raw");
        folder.refuses(&text, "invalid_value", 2, &[&["p.yaml:8:"], parts].concat());
    };
    refuses("name: \"q*\"", &["wildcards"]);
    let incremental = "name: q, sync_mode: incremental, cursor_field: a, write_mode: append";
    refuses(incremental, &["incremental", "create a view"]);
    let text = pipeline(&database, "    - { name: q, query: \"\" }\n", "schema: raw");
    folder.refuses(&text, "invalid_value", 2, &["is empty"]);
    // Other sources have no queries.
    folder.write("in.csv", "id\n1\n");
    let files = "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: { path: in.csv }\n  streams:\n    \
                 - name: in\n      query: SELECT 1\ndestination: { use: dest-file, config: { path: out.csv } }\n";
    let parts = ["p.yaml:8:14", "source-file cannot read queries"];
    folder.refuses(files, "unsupported_query", 2, &parts);
}

#[test]
fn a_missing_privilege_of_a_query_comes_with_its_grant() {
    let (database, mut client) = made(
        "CREATE SCHEMA raw; CREATE SCHEMA hidden; CREATE TABLE hidden.t (id int); \
         DROP ROLE IF EXISTS query_reader; CREATE ROLE query_reader LOGIN PASSWORD 'secret'; \
         GRANT SELECT ON public.orders TO query_reader",
    );
    let folder = Folder::new();
    let (_, host) = database
        .url()
        .split_once('@')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a host");
    let reader = format!("postgres://query_reader:secret@{host}");
    let query = "SELECT o.id FROM public.orders o JOIN public.customers c ON c.id = o.customer";
    let streams = format!("    - {{ name: q, query: \"{query}\" }}\n");
    let text = pipeline(&database, &streams, "schema: raw");
    let source = format!("config: {{ url: \"{}\" }}", database.url());
    let text = text.replacen(&source, &format!("config: {{ url: \"{reader}\" }}"), 1);
    let grant = "GRANT SELECT ON public.customers TO query_reader;";
    folder.refuses(
        &text,
        "no_privilege",
        3,
        &["which query: names", grant, "q"],
    );
    client.batch_execute(grant).expect("granted");
    assert_eq!(folder.report(&text)["rows"], 4);
    client
        .batch_execute("DROP OWNED BY query_reader; DROP ROLE query_reader")
        .expect("dropped");
}

/// Only the same rows are there already.
#[test]
fn a_changed_query_is_read_again_by_the_run_that_resumes() {
    for (write_mode, second, rows) in [
        ("append", "SELECT id FROM public.orders", "5"),
        ("append", "SELECT id FROM public.orders WHERE id > 12", "7"),
        ("replace", "SELECT id FROM public.orders WHERE id > 12", "2"),
    ] {
        let (database, mut client) = made("CREATE SCHEMA raw");
        let folder = Folder::new();
        let run = |query: &str, faults: &str| {
            let streams = format!("    - {{ name: q, query: \"{query}\" }}\n");
            let text = pipeline(&database, &streams, "schema: raw");
            let mode = format!("write_mode: {write_mode}");
            folder.write("p.yaml", text.replace("write_mode: replace", &mode));
            let mut command = folder.command(&["run", "p.yaml"]);
            let ended = command.env("RAPIDBYTE_FAULTS", faults).output();
            ended.expect("it starts").status.code()
        };
        assert_eq!(
            run("SELECT id FROM public.orders", "engine.told=kill"),
            None
        );
        assert_eq!(run(second, ""), Some(0), "{write_mode} {second}");
        let found = text(&mut client, "SELECT count(*)::text FROM raw.q");
        assert_eq!(found, rows, "{write_mode} {second}");
    }
}

#[test]
fn a_stream_names_its_table_and_its_schema() {
    let (database, mut client) = made("CREATE SCHEMA raw; CREATE SCHEMA sales");
    let folder = Folder::new();
    // Placeholders in the schema of all streams, and in the target of one.
    let streams = "    - { name: public.customers }
    - { name: public.orders, target: { name: \"{stream}_{schema}\", schema: \"x {schema}\" } }
";
    let report = folder.report(&pipeline(&database, streams, "schema: \"{schema}_raw\""));
    let locations = report["streams"].as_array().expect("streams").iter();
    let locations: Vec<&str> = locations.filter_map(|s| s["location"].as_str()).collect();
    let expected = ["public_raw.customers", "\"x public\".orders_public"];
    assert_eq!(locations, expected, "{report:#}");
    let streams = "    - { name: public.orders, target: { name: bought, schema: sales } }
    - { name: public.customers, target: { name: \"a.b c\" } }
    - { name: q, query: \"SELECT 1 AS one\", target: { schema: sales } }
";
    let destination = "schema: raw, table: \"{schema}__{stream}\"";
    let report = folder.report(&pipeline(&database, streams, destination));
    let locations = report["streams"].as_array().expect("streams").iter();
    let locations: Vec<&str> = locations.filter_map(|s| s["location"].as_str()).collect();
    let expected = ["sales.bought", "raw.\"a.b c\"", "sales.public__q"];
    assert_eq!(locations, expected, "{report:#}");
    let sql = "SELECT concat_ws(' ', (SELECT count(*) FROM sales.bought), \
               (SELECT count(*) FROM raw.\"a.b c\"), (SELECT count(*) FROM sales.public__q))";
    assert_eq!(text(&mut client, sql), "5 3 1");
    // Two streams in one table.
    let streams = "    - { name: public.orders, target: { name: t } }\n    \
                   - { name: public.customers, target: { name: t } }\n";
    let text = pipeline(&database, streams, "schema: raw");
    folder.refuses(&text, "shared_target", 2, &["raw.t", "`target:`"]);
    let streams = "    - { name: public.orders, target: { } }\n";
    let text = pipeline(&database, streams, "schema: raw");
    folder.refuses(
        &text,
        "invalid_value",
        2,
        &["p.yaml:8:", "neither a name nor a schema"],
    );
}

/// `state` finds the cursor of a stream where the stream writes it.
#[test]
fn an_incremental_stream_resumes_in_the_table_that_it_names() {
    let (database, mut client) = made("CREATE SCHEMA raw");
    let folder = Folder::new();
    let pipeline = |target: &str| {
        let streams = format!(
            "    - {{ name: public.orders, sync_mode: incremental, cursor_field: id, write_mode: append{target} }}\n"
        );
        pipeline(&database, &streams, "schema: raw")
    };
    let named = pipeline(", target: { name: bought }");
    assert_eq!(folder.report(&named)["rows"], 5);
    client
        .batch_execute("INSERT INTO orders VALUES (20, 1, 1)")
        .expect("a row");
    assert_eq!(folder.report(&named)["rows"], 1);
    let ended = folder.rapidbyte(&["state", "list", "p.yaml"]);
    assert!(ended.stdout.contains("id = 20"), "{}", ended.stdout);
    let ended = folder.rapidbyte(&["state", "clear", "p.yaml", "public.orders"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(folder.report(&named)["rows"], 6);
    // Another table has a cursor of its own.
    assert_eq!(folder.report(&pipeline(""))["rows"], 6);
    assert_eq!(folder.report(&named)["rows"], 0);
}

/// An interrupted run has appended rows to one table; another table has none of them.
#[test]
fn another_target_of_an_interrupted_stream_gets_its_rows() {
    let (database, mut client) = made("CREATE SCHEMA raw");
    let folder = Folder::new();
    let run = |target: &str, faults: &str| {
        let streams = format!("    - {{ name: public.orders, target: {{ name: {target} }} }}\n");
        let text = pipeline(&database, &streams, "schema: raw");
        folder.write(
            "p.yaml",
            text.replace("write_mode: replace", "write_mode: append"),
        );
        let mut command = folder.command(&["run", "p.yaml"]);
        let ended = command.env("RAPIDBYTE_FAULTS", faults).output();
        let ended = ended.expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said.contains("had appended"))
    };
    assert_eq!(run("a", "engine.told=kill"), (None, false));
    assert_eq!(run("b", "engine.told=kill"), (None, false));
    // The rows of this table are there, and the run says so.
    assert_eq!(run("a", ""), (Some(0), true));
    let sql = "SELECT concat_ws(' ', (SELECT count(*) FROM raw.a), (SELECT count(*) FROM raw.b))";
    assert_eq!(text(&mut client, sql), "5 5");
}

#[test]
fn a_stream_names_its_file() {
    let folder = Folder::new();
    folder
        .write("in/a.csv", "n,d\n1,x\n")
        .write("in/b.csv", "n,d\n2,y\n");
    let pipeline = |target: &str, config: &str| {
        format!(
            "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: {{ path: \"in/{{stream}}.csv\" }}\n  \
             streams:\n    - {{ name: a, target: {{ {target} }} }}\n    - b\ndestination:\n  use: dest-file\n  \
             config: {{ {config} }}\n  write_mode: replace\n"
        )
    };
    let path = "path: \"out/{stream}.jsonl\"";
    folder.report(&pipeline("name: first", path));
    assert_eq!(folder.files("out"), ["b.jsonl", "first.jsonl"]);
    folder.report(&pipeline(
        "name: first",
        "path: \"set/{stream}/p-{part}.jsonl\", partition_by: [d]",
    ));
    assert_eq!(folder.files("set/first"), ["d=x"]);
    let refuses = |target: &str, config: &str, code: &str, parts: &[&str]| {
        folder.refuses(&pipeline(target, config), code, 2, parts);
    };
    refuses("name: b", path, "shared_target", &["a and b", "`target:`"]);
    refuses(
        "schema: s",
        path,
        "unsupported_target",
        &["p.yaml:7:", "target.schema", "dest-file"],
    );
    refuses(
        "name: \"../x\"",
        path,
        "invalid_file_name",
        &["cannot be part of a file name"],
    );
    refuses(
        "name: c",
        "path: out.jsonl",
        "unused_option",
        &["has no effect"],
    );
    let own = "path: \"own/{stream}/p-{part}.jsonl\", partition_by_stream: { a: [d] }";
    refuses("name: c", own, "invalid_config", &["partitions of its own"]);
    // A destination that knows no names of targets.
    let nowhere = generate(1, "").replace(
        "streams: [rows]",
        "streams: [{ name: rows, target: { name: x } }]",
    );
    folder.refuses(
        &nowhere,
        "unsupported_target",
        2,
        &["does not have names of targets"],
    );
}
