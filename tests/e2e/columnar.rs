//! Parquet and Arrow files through the sandbox: values, types, limits.

use rapidbyte_testkit::postgres::{Database, shared};
use serde_json::Value;

use crate::support::{Folder, copy, testkit};
use crate::types::{PORTABLE, TEXT, fill_portable, hash, run_sql, to_files};

/// Columns of the generator that every format holds, as a declared schema too.
const SCHEMA: &str = "{ id: int64, ok: bool, name: string, amount: \"decimal(12, 2)\", day: date, \
    at: timestamp, seen: timestamptz, ratio: float64, raw: binary, key: uuid }";

fn generated(path: &str, rows: u32) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-generate, config: {{ rows: {rows}, columns: {SCHEMA} }}, streams: [rows] }}\n\
         destination: {{ use: dest-file, config: {{ path: {path} }}, write_mode: replace }}\n"
    )
}

/// From one file to another one; text gets its schema declared.
fn moved(from: &str, to: &str) -> String {
    let is_text = from.ends_with(".csv") || from.ends_with(".jsonl");
    let schema = match is_text {
        true => format!(", schema: {SCHEMA}"),
        false => String::new(),
    };
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-file, config: {{ path: {from}, stream: rows{schema} }}, streams: [rows] }}\n\
         destination: {{ use: dest-file, config: {{ path: {to} }}, write_mode: replace }}\n"
    )
}

#[test]
fn every_format_goes_into_every_other_one() {
    let folder = Folder::new();
    folder.report(&generated("all.csv", 3000));
    let expected = folder.read("all.csv");
    let formats = ["csv", "jsonl", "parquet", "arrow"];
    for from in formats {
        folder.report(&generated(&format!("from.{from}"), 3000));
        for to in formats {
            folder.report(&moved(&format!("from.{from}"), &format!("to-{from}.{to}")));
            let report = folder.report(&moved(&format!("to-{from}.{to}"), "back.csv"));
            assert_eq!(report["rows"], 3000, "{from} to {to}");
            assert_eq!(folder.read("back.csv"), expected, "{from} to {to}");
        }
    }
}

/// All tables of `PORTABLE` except tables of a refused type: as a list of streams, and their numbers.
fn streams(refused: &[&str]) -> (String, Vec<usize>) {
    let held = PORTABLE.iter().enumerate();
    let held: Vec<usize> = held
        .filter(|(_, (sql_type, ..))| !refused.contains(sql_type))
        .map(|(at, _)| at)
        .collect();
    let names: Vec<String> = held.iter().map(|at| format!("public.t{at}")).collect();
    (serde_json::json!(names).to_string(), held)
}

#[test]
fn tables_come_back_the_same_with_their_types() {
    let source = shared().database();
    let mut client = source.client();
    fill_portable(&mut client, 5000);
    run_sql(&mut client, "settings", TEXT);
    for (format, refused) in [("parquet", &["interval"][..]), ("arrow", &[])] {
        let folder = Folder::new();
        let (names, held) = streams(refused);
        let to =
            to_files(&source, &format!("{{stream}}.{format}")).replace("[\"public.*\"]", &names);
        folder.report(&to);
        let target = shared().database();
        folder.report(&to_tables(&target, &format!("{{stream}}.{format}"), &names));
        let mut there = target.client();
        run_sql(&mut there, "settings", TEXT);
        for at in held {
            let table = format!("public.t{at}");
            let (from, to) = (hash(&mut client, &table), hash(&mut there, &table));
            assert_eq!(from, to, "{format}: {}", PORTABLE[at].0);
        }
    }
}

fn to_tables(target: &Database<'_>, path: &str, names: &str) -> String {
    format!(
        "version: 1\npipeline: t\nsource: {{ use: source-file, config: {{ path: \"{path}\" }}, streams: {names} }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
        target.url()
    )
}

#[test]
fn types_that_parquet_cannot_hold_are_refused_before_the_first_row() {
    let source = shared().database();
    let sql = "CREATE TABLE t (id int, v interval); INSERT INTO t VALUES (1, '1 day')";
    run_sql(&mut source.client(), "table", sql);
    let folder = Folder::new();
    let (error, code) = folder.error(&to_files(&source, "out/{stream}.parquet"));
    assert_eq!(
        (error["column"].as_str(), code),
        (Some("v"), 4),
        "{error:#}"
    );
    assert_eq!(error["code"], "column_refused");
    assert!(folder.files("out").is_empty());
    for (value, sql_type) in [
        ("NaN", "numeric(12,2)"),
        ("infinity", "date"),
        ("24:00:00", "time"),
    ] {
        let sql = format!(
            "DROP TABLE t; CREATE TABLE t (v {sql_type}); INSERT INTO t VALUES ('{value}')"
        );
        run_sql(&mut source.client(), "table", &sql);
        for format in ["parquet", "arrow"] {
            let (error, code) =
                folder.error(&to_files(&source, &format!("out/{{stream}}.{format}")));
            assert_eq!(
                (error["column"].as_str(), code),
                (Some("v"), 4),
                "{value}: {error:#}"
            );
            assert!(folder.files("out").is_empty(), "{value} in {format}");
        }
    }
}

#[test]
fn the_footers_say_rows_and_types() {
    let folder = Folder::new();
    for (at, rows) in [(1, 700), (2, 500)] {
        folder.report(&generated(&format!("in-{at}.parquet"), rows));
    }
    folder.write("p.yaml", moved("in-*.parquet", "out.arrow"));
    let ended = folder.rapidbyte(&["discover", "p.yaml", "--output", "json"]);
    let found: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let text = found.to_string();
    for part in [
        "1200",
        "BYTE_ARRAY STRING",
        "INT64 DECIMAL(12, 2)",
        "FIXED_LEN_BYTE_ARRAY(16) UUID",
    ] {
        assert!(text.contains(part), "{part}: {found:#}");
    }
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
    let report = folder.report(&moved("in-*.parquet", "out.arrow"));
    assert_eq!(report["rows"], 1200);
}

#[test]
fn options_of_other_formats_are_refused() {
    let folder = Folder::new();
    folder.report(&generated("in.parquet", 1));
    for (key, value) in [
        ("delimiter", "\";\""),
        ("header", "true"),
        ("null_text", "x"),
        ("schema", "{ a: int64 }"),
        ("sample_rows", "5"),
        ("compression", "gzip"),
    ] {
        let pipeline = copy("parquet", "csv").replace(
            "path: in.parquet\n",
            &format!("path: in.parquet\n    {key}: {value}\n"),
        );
        folder.refuses(&pipeline, "unused_option", 2, &[key]);
    }
    for (line, format, code) in [
        ("quote: \"'\"", "parquet", "unused_option"),
        ("row_group_bytes: 4mb", "arrow", "unused_option"),
        ("row_group_bytes: 4mb", "csv", "unused_option"),
        ("row_group_bytes: 4kb", "parquet", "invalid_config"),
        ("compression: snappy", "csv", "invalid_config"),
        ("compression: brotli", "arrow", "invalid_config"),
    ] {
        let to = format!("path: out/{{stream}}.{format}\n");
        let pipeline = copy("parquet", format).replace(&to, &format!("{to}    {line}\n"));
        folder.refuses(
            &pipeline,
            code,
            2,
            &[line.split(':').next().expect("a key")],
        );
    }
    folder.refuses(
        &copy("parquet.gz", "csv"),
        "compressed_columns",
        2,
        &["in.parquet.gz"],
    );
}

#[test]
fn files_of_other_columns_are_refused_by_name() {
    let folder = Folder::new();
    folder.report(&generated("in-1.parquet", 10));
    let other = generated("in-2.parquet", 10).replace("ratio: float64", "ratio: string");
    folder.report(&other);
    let parts = ["ratio", "string", "in-1.parquet", "in-2.parquet"];
    folder.refuses(
        &moved("in-*.parquet", "out.csv"),
        "schema_differs",
        4,
        &parts,
    );
}

#[test]
fn damaged_files_are_refused_and_leave_nothing() {
    let folder = Folder::new();
    for format in ["parquet", "arrow"] {
        folder.report(&generated(&format!("whole.{format}"), 5000));
        let file = std::fs::read(folder.path().join(format!("whole.{format}"))).expect("a file");
        for (cut, name) in [
            (1, "tail"),
            (file.len() / 2, "half"),
            (file.len() - 3, "head"),
        ] {
            folder.write(&format!("in.{format}"), &file[..file.len() - cut]);
            let (error, code) = folder.error(&copy(format, "csv"));
            let expected = format!("{format}_malformed");
            assert_eq!(
                (error["code"].as_str(), code),
                (Some(expected.as_str()), 4),
                "{name}: {error:#}"
            );
            assert!(folder.files("out").is_empty());
        }
        folder.write(&format!("in.{format}"), "id,name\n1,x\n");
        let (error, _) = folder.error(&copy(format, "csv"));
        assert_eq!(error["code"], format!("{format}_malformed"));
    }
}

#[test]
fn files_larger_than_the_memory_are_written_and_read() {
    let folder = Folder::new();
    let columns = "{ id: int64, text: { type: string, length: [200, 400] } }";
    let small = "resources: { memory: 48mb }\n";
    for format in ["parquet", "arrow"] {
        let mut pipeline = generated(&format!("in.{format}"), 200_000).replace(SCHEMA, columns);
        pipeline += small;
        if format == "parquet" {
            // Half of the share is for both connectors.
            pipeline = pipeline.replace(
                "path: in.parquet }",
                "path: in.parquet, row_group_bytes: 8mb }",
            );
        }
        folder.report(&pipeline);
        let report = folder.report(&format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-file, config: {{ path: in.{format} }}, streams: [in] }}\n\
             destination: {{ use: {}, write_mode: replace }}\n{small}",
            testkit("dest-null")
        ));
        assert_eq!(report["rows"], 200_000);
        assert!(report["bytes"].as_u64() > Some(54 << 20), "{report:#}");
    }
}

/// From one file to another one within this memory.
fn moved_within(memory: &str, from: &str, to: &str, schema: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-file, config: {{ path: {from}, stream: rows{schema} }}, streams: [rows] }}\n\
         destination: {{ use: dest-file, config: {{ path: {to} }}, write_mode: replace }}\n\
         resources: {{ memory: {memory} }}\n"
    )
}

#[test]
fn records_near_the_limit_pass_in_every_format_within_the_memory() {
    let folder = Folder::new();
    let mut lines = String::from("id,t\n");
    for (id, letter) in ["a", "b", "c"].iter().enumerate() {
        lines += &format!("{id},{}\n", letter.repeat(7 << 20));
    }
    folder.write("from.csv", lines);
    let declared = ", schema: { id: int64, t: string }";
    let formats = ["csv", "jsonl", "parquet", "arrow"];
    for from in formats {
        let schema = match from {
            "csv" | "jsonl" => declared,
            _ => "",
        };
        let read = format!("in.{from}");
        // An eighth of the memory is the largest record.
        folder.report(&moved_within("64mb", "from.csv", &read, declared));
        for to in formats {
            let report = folder.report(&moved_within("64mb", &read, &format!("out.{to}"), schema));
            assert_eq!(report["rows"], 3, "{from} to {to}");
        }
    }
    folder.report(&moved_within("64mb", "out.arrow", "back.csv", ""));
    assert!(folder.read("back.csv") == folder.read("from.csv"));
}

#[test]
fn files_of_many_columns_pass_within_the_memory() {
    let folder = Folder::new();
    let line = |value: &dyn Fn(u32) -> String| {
        let values: Vec<String> = (0..1600).map(value).collect();
        values.join(",") + "\n"
    };
    let mut lines = line(&|at| format!("c{at}"));
    for row in 0..500 {
        lines += &line(&|at| format!("v{row}x{at}"));
    }
    folder.write("in.csv", lines);
    for (from, to) in [
        ("in.csv", "a.arrow"),
        ("a.arrow", "b.parquet"),
        ("b.parquet", "c.parquet"),
        ("c.parquet", "d.arrow"),
        ("d.arrow", "back.csv"),
    ] {
        let report = folder.report(&moved_within("128mb", from, to, ""));
        assert_eq!(report["rows"], 500, "{from} to {to}");
    }
    assert!(folder.read("back.csv") == folder.read("in.csv"));
}

#[test]
fn a_numeric_without_precision_is_a_decimal_where_the_source_sets_its_digits() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE DOMAIN money_of AS numeric; CREATE DOMAIN price AS money_of; \
        CREATE TABLE t (id bigint PRIMARY KEY, n numeric, d money_of, a numeric[], p numeric(6,1), o price[]); \
        INSERT INTO t VALUES (1, 12345678901.2345, -0.5, '{1, NULL, 2.25}', 3.5, '{0.5, NULL}'), \
            (2, NULL, 7, NULL, NULL, NULL)";
    client.batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let pipeline = |numeric: &str, to: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\"{numeric} }}\n  streams: [public.t]\n\
             destination: {{ use: dest-file, config: {{ path: \"out/t.{to}\" }}, write_mode: replace }}\n",
            database.url()
        )
    };
    let planned = |numeric: &str, to: &str| {
        folder.write("p.yaml", pipeline(numeric, to));
        let ended = folder.rapidbyte(&["plan", "p.yaml"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    let shown = planned("", "parquet");
    assert!(
        shown.contains("n (numeric) is read as text; `numeric:"),
        "{shown}"
    );
    let digits = ", numeric: { precision: 20, scale: 4 }";
    let shown = planned(digits, "parquet");
    let line = |column: &str| {
        let mut lines = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = lines.find(|line| line.first() == Some(&column));
        found
            .unwrap_or_else(|| panic!("no {column}: {shown}"))
            .join(" ")
    };
    let expected = "n numeric FIXED_LEN_BYTE_ARRAY(9) DECIMAL(20, 4) exact";
    assert_eq!(line("n"), expected);
    assert!(line("d").contains("DECIMAL(20, 4)"), "{}", line("d"));
    assert_eq!(line("a"), "a numeric[] LIST exact");
    assert_eq!(line("o"), "o public.price[] LIST exact");
    assert!(line("p").contains("DECIMAL(6, 1)"), "{}", line("p"));
    assert!(!shown.contains("is read as text"), "{shown}");
    folder.report(&pipeline(digits, "parquet"));
    folder.report(&pipeline(digits, "jsonl"));
    assert_eq!(
        folder.read("out/t.jsonl").lines().next(),
        Some(
            r#"{"id":1,"n":12345678901.2345,"d":-0.5000,"a":[1.0000,null,2.2500],"p":3.5,"o":[0.5000,null]}"#
        )
    );
    // The error for a value that does not fit names the column and the value.
    for (value, told) in [
        ("-0.00001", "holds: -0.00001"),
        ("12345678901234567.1", "holds: 12345678901234567.1"),
        ("'NaN'", "NaN"),
    ] {
        let sql = format!("UPDATE t SET n = {value} WHERE id = 2");
        client.batch_execute(&sql).expect("a row");
        folder.refuses(
            &pipeline(digits, "parquet"),
            "value_does_not_fit",
            4,
            &["public.t", "column \"n\", row 2: ", told],
        );
    }
    for (numeric, told) in [
        (
            ", numeric: { precision: 77, scale: 0 }",
            "config.numeric.precision",
        ),
        (
            ", numeric: { precision: 5, scale: 6 }",
            "config.numeric.scale",
        ),
        (
            ", numeric: text",
            "expected the digits, such as { precision: 38, scale: 9 } (text if the key is left out), not the string",
        ),
    ] {
        folder.refuses(
            &pipeline(numeric, "parquet"),
            "invalid_config",
            2,
            &[told, "{ precision: 38, scale: 9 }"],
        );
    }
}

#[test]
fn infinite_dates_and_times_are_refused_at_their_row_in_every_format() {
    let database = shared().database();
    let sql = "CREATE TABLE t (id int, d date, t timestamp, z timestamptz, a date[]); \
        INSERT INTO t VALUES (1, '2026-01-01', '2026-01-01', '2026-01-01Z', '{2026-01-01}'), \
            (2, 'infinity', '-infinity', 'infinity', '{-infinity}')";
    database.client().batch_execute(sql).expect("a table");
    let folder = Folder::new();
    for column in ["d", "t", "z", "a"] {
        for format in ["csv", "jsonl", "parquet", "arrow"] {
            let pipeline = |more: &str| {
                format!(
                    "version: 1\npipeline: t\n\
                     source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n\
                     \x20 streams: [{{ name: public.t, columns: [id, {column}]{more} }}]\n\
                     destination: {{ use: dest-file, config: {{ path: \"out/t.{format}\" }}, write_mode: replace }}\n",
                    database.url()
                )
            };
            let place = format!("column \"{column}\", row 2: an infinite value");
            let told = ["public.t", &place, "leave such rows out by `where:`"];
            folder.refuses(&pipeline(""), "value_does_not_fit", 4, &told);
            let report = folder.report(&pipeline(", where: \"id = 1\""));
            assert_eq!(report["rows"], 1, "{report:#}");
        }
    }
}

#[test]
fn lists_of_lists_come_back_from_postgres_as_they_were() {
    let database = shared().database();
    let folder = Folder::new();
    let lines = "{\"id\":1,\"l\":[[\"a\",\"b\"],[null,\"d\"]]}\n{\"id\":2,\"l\":[]}\n{\"id\":3,\"l\":null}\n";
    folder.write("in.jsonl", lines);
    let url = database.url();
    let into = format!(
        "destination: {{ use: dest-postgres, config: {{ url: \"{url}\", table: TABLE }}, write_mode: replace }}\n"
    );
    let from_file = |file: &str, table: &str| {
        format!(
            "version: 1\npipeline: t\nsource: {{ use: source-file, config: {{ path: {file}, stream: s }}, streams: [s] }}\n{}",
            into.replace("TABLE", table)
        )
    };
    let from_table = format!(
        "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{url}\" }}, streams: [public.one] }}\n"
    );
    let to = |file: &str| {
        format!(
            "destination: {{ use: dest-file, config: {{ path: {file} }}, write_mode: replace }}\n"
        )
    };
    folder.report(&from_file("in.jsonl", "one"));
    // A file has the server's text of it, and `plan` says so.
    folder.write("p.yaml", format!("{from_table}{}", to("out.jsonl")));
    let planned = folder.rapidbyte(&["plan", "p.yaml"]);
    let note = "l (text[]) is read as text: it is declared with more than one dimension";
    let shown = planned
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(shown.contains(note), "{}", planned.stdout);
    for format in ["jsonl", "parquet", "arrow"] {
        let file = format!("out.{format}");
        folder.report(&format!("{from_table}{}", to(&file)));
        // The server reads the text into such a table.
        database
            .client()
            .batch_execute("CREATE TABLE two (LIKE one)")
            .expect("a table");
        folder.report(&from_file(&file, "two"));
        let same = "SELECT count(*) FROM one JOIN two USING (id) \
            WHERE one.l IS NOT DISTINCT FROM two.l";
        let count: i64 = database
            .client()
            .query_one(same, &[])
            .expect("a count")
            .get(0);
        assert_eq!(count, 3, "{format}");
        database
            .client()
            .batch_execute("DROP TABLE two")
            .expect("no table");
    }
    let expected = "{\"id\":1,\"l\":\"{{a,b},{NULL,d}}\"}";
    assert_eq!(folder.read("out.jsonl").lines().next(), Some(expected));
}

#[test]
fn a_parquet_file_of_many_columns_is_refused_with_the_memory_that_it_takes() {
    const COLUMNS: usize = 1600;
    let folder = Folder::new();
    let mut file = (0..COLUMNS)
        .map(|n| format!("c{n}"))
        .collect::<Vec<_>>()
        .join(",")
        + "\n";
    for row in 0..2000_usize {
        // Texts that repeat neither in a column nor in a row.
        let field = |n: usize| format!("t{}", (row * 7919 + n * 104_729) % 99_991);
        file += &((0..COLUMNS).map(field).collect::<Vec<_>>().join(",") + "\n");
    }
    folder.write("wide.csv", &file);
    let pipeline = |from: &str, to: &str, memory: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-file, config: {{ path: {from}, stream: wide }}, streams: [wide] }}\n\
             destination: {{ use: dest-file, config: {{ path: {to} }}, write_mode: replace }}\n\
             resources: {{ memory: {memory} }}\n"
        )
    };
    folder.report(&pipeline("wide.csv", "wide.parquet", "256mb"));
    let back = |memory: &str| pipeline("wide.parquet", "back.csv", memory);
    let (error, code) = folder.error(&back("64mb"));
    assert_eq!(
        (&error["code"], code),
        (&"file_needs_memory".into(), 2),
        "{error:#}"
    );
    assert_eq!(error["stream"], "wide", "{error:#}");
    let said = error["message"].as_str().unwrap_or_default();
    assert!(
        said.starts_with("1600 columns of this file take "),
        "{said}"
    );
    assert!(!folder.path().join("back.csv").exists());
    // The memory that the hint says is enough.
    let hint = error["hint"].as_str().unwrap_or_default();
    let memory = hint
        .split_once("resources.memory: ")
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .unwrap_or_else(|| panic!("no number: {hint}"));
    let report = folder.report(&back(memory));
    assert_eq!(report["rows"], 2000, "{memory}: {report:#}");
    assert!(folder.read("back.csv") == file, "the rows differ");
    // A destination that has a page of each column, too.
    let again = pipeline("wide.parquet", "again.parquet", memory);
    let report = folder.report(&again);
    assert_eq!(report["rows"], 2000, "{memory}: {report:#}");
}

#[test]
fn the_memory_that_an_error_names_is_enough() {
    const COLUMNS: usize = 400;
    let folder = Folder::new();
    let names: Vec<String> = (0..COLUMNS).map(|n| format!("c{n}")).collect();
    let mut file = names.join(",") + "\n";
    for row in 0..2000_usize {
        let field = |n: usize| format!("t{}abcdefghijklmnop", (row * 7919 + n * 104_729) % 99_991);
        file += &((0..COLUMNS).map(field).collect::<Vec<_>>().join(",") + "\n");
    }
    folder.write("wide.csv", &file);
    let pipeline = |from: &str, to: &str, memory: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-file, config: {{ path: {from}, stream: wide }}, streams: [wide] }}\n\
             destination: {{ use: dest-file, config: {{ path: {to} }}, write_mode: replace }}\n\
             resources: {{ memory: {memory} }}\n"
        )
    };
    folder.report(&pipeline("wide.csv", "wide.parquet", "256mb"));
    let (error, code) = folder.error(&pipeline("wide.parquet", "again.parquet", "64mb"));
    assert_eq!(
        (&error["code"], code),
        (&"memory_limit".into(), 1),
        "{error:#}"
    );
    let hint = error["hint"].as_str().unwrap_or_default();
    let memory = hint
        .split_once("resources.memory: ")
        .and_then(|(_, rest)| rest.split([',', ' ']).next())
        .unwrap_or_else(|| panic!("no number: {hint}"));
    let report = folder.report(&pipeline("wide.parquet", "again.parquet", memory));
    assert_eq!(report["rows"], 2000, "{memory}: {report:#}");
    folder.report(&pipeline("again.parquet", "back.csv", memory));
    assert!(folder.read("back.csv") == file, "the rows differ");
}

/// Tomorrow the stream has a column more, one less, and wider types.
#[test]
fn a_directory_that_grows_is_read_with_the_columns_of_all_its_files() {
    for format in ["parquet", "arrow"] {
        let folder = Folder::new();
        let day = |name: &str, schema: &str, csv: &str| {
            folder.write(&format!("in/{name}.csv"), csv);
            folder.report(&format!(
                "version: 1\npipeline: grows\nsource:\n  use: source-file\n  config: {{ path: in/{name}.csv, stream: t, \
                 schema: {schema} }}\n  streams: [t]\ndestination:\n  use: dest-file\n  \
                 config: {{ path: \"out/p-{{part}}.{format}\" }}\n  write_mode: append\n"
            ))
        };
        day(
            "1",
            "{ id: int32, price: \"decimal(5, 2)\", at: timestamp(s), old: string, f: float32 }",
            "id,price,at,old,f\n1,-123.45,2026-01-02T03:04:05,gone,0.5\n",
        );
        day(
            "2",
            "{ id: int64, price: \"decimal(6, 4)\", at: timestamp(us), f: int16, new: bool }",
            "id,price,at,f,new\n5000000000,12.3456,2026-01-02T03:04:05.000006,-7,true\n",
        );
        let read = format!(
            "version: 1\npipeline: read\nsource:\n  use: source-file\n  config: {{ path: \"out/*.{format}\", stream: t }}\n  \
             streams: [t]\ndestination: {{ use: dest-file, config: {{ path: all.csv }}, write_mode: replace }}\n"
        );
        folder.report(&read);
        assert_eq!(
            folder.read("all.csv"),
            "id,price,at,old,f,new\n1,-123.4500,2026-01-02T03:04:05,gone,0.5,\n\
             5000000000,12.3456,2026-01-02T03:04:05.000006,,-7.0,true\n",
            "{format}"
        );
    }
}
