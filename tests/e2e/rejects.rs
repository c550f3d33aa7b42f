//! Records that cannot be read and rows that the target does not take: a few of them are kept in a table of their own,
//! and the others move.

use rapidbyte_testkit::numbers::Numbers;
use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::{Value, json};

use crate::support::{Ended, Folder, testkit};

pub(crate) const SCHEMA: &str = "schema: { id: int64, name: string, total: float64 }";
pub(crate) const ALLOWED: &str = "rejects: { max_rows: 10, to: raw.bad }\n";

pub(crate) struct Loaded {
    pub(crate) folder: Folder,
    target: Database<'static>,
}

impl Loaded {
    pub(crate) fn new(table: &str) -> Self {
        let target = shared().database();
        let sql = format!("CREATE SCHEMA raw; {table}");
        target.client().batch_execute(&sql).expect("a table");
        Self {
            folder: Folder::new(),
            target,
        }
    }

    /// A run of `t.csv` with these lines at the top and these keys of the destination.
    pub(crate) fn run(&self, top: &str, destination: &str) -> Ended {
        self.with("run", top, SCHEMA, destination, None)
    }

    pub(crate) fn with(
        &self,
        verb: &str,
        top: &str,
        source: &str,
        destination: &str,
        fault: Option<&str>,
    ) -> Ended {
        let file = match self.folder.files(".").contains(&"t.jsonl".to_owned()) {
            true => "t.jsonl",
            false => "t.csv",
        };
        let text = format!(
            "version: 1\npipeline: p\n{top}source:\n  use: source-file\n  config: {{ path: {file}, {source} }}\n  \
             streams: [t]\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{}\", schema: raw{destination}\n",
            self.target.url()
        );
        self.folder.write("p.yaml", &text);
        let mut command = self.folder.command(&[verb, "p.yaml", "--output", "json"]);
        if let Some(fault) = fault {
            command.env("RAPIDBYTE_FAULTS", fault);
        }
        command.output().expect("the program starts").into()
    }

    pub(crate) fn client(&self) -> Client {
        self.target.client()
    }

    pub(crate) fn text(&self, sql: &str) -> String {
        let sql = format!("SELECT COALESCE(({sql})::text, 'none')");
        self.client().query_one(&sql, &[]).expect("a row").get(0)
    }

    pub(crate) fn ids(&self) -> String {
        self.text("SELECT string_agg(id::text, ' ' ORDER BY id) FROM raw.t")
    }

    pub(crate) fn bad(&self) -> String {
        self.text(
            "SELECT string_agg(concat_ws('|', location, column_name, code, record), ' ' ORDER BY location) FROM raw.bad",
        )
    }
}

#[track_caller]
pub(crate) fn document(ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

const TABLE: &str =
    "CREATE TABLE raw.t (id bigint PRIMARY KEY, name text, total float8 CHECK (total < 100))";
pub(crate) const APPEND: &str = " }\n  write_mode: append";

#[test]
fn a_few_bad_records_are_kept_and_the_others_move() {
    let loaded = Loaded::new(TABLE);
    loaded.folder.write(
        "t.csv",
        "id,name,total\n1,a,1.5\nx,b,2\n3,c\n4,d,4\n5,e,500\n6,f,6\n4,again,7\n,h,8\n",
    );
    let failed = document(&loaded.run("", APPEND), 4);
    assert_eq!(failed["error"]["code"], "value_does_not_fit", "{failed:#}");
    let report = document(&loaded.run(ALLOWED, APPEND), 0);
    let stream = &report["streams"][0];
    assert_eq!(
        (&stream["rows"], &stream["rejected"]),
        (&json!(3), &json!(5))
    );
    assert_eq!(loaded.ids(), "1 4 6");
    let bad = loaded.bad();
    let expected = [
        "row 3|pg_23514|{\"id\":5,\"name\":\"e\",\"total\":500.0}",
        "row 5|pg_23505|{\"id\":4,\"name\":\"again\",\"total\":7.0}",
        "row 6|id|pg_23502|{\"id\":null,\"name\":\"h\",\"total\":8.0}",
        "t.csv:3|id|value_does_not_fit|x,b,2",
        "t.csv:4|csv_ragged_row|3,c",
    ];
    assert_eq!(bad, expected.join(" "), "{bad}");
    let first = &stream["rejects"][0];
    assert_eq!(first["location"], "t.csv:3", "{stream:#}");
    let warning = report["warnings"][0]["message"]
        .as_str()
        .expect("a warning");
    assert!(
        warning.starts_with("5 rejects in raw.bad; the first: t.csv:3: "),
        "{warning}"
    );
    let of_run =
        loaded.text("SELECT count(*) || min(run_id) || min(stream) || min(target) FROM raw.bad");
    let run = report["run_id"].as_str().expect("an id");
    assert!(of_run.starts_with(&format!("5{run}")), "{of_run}");
    assert!(of_run.ends_with("traw.t"), "{of_run}");
}

#[test]
fn a_stream_with_too_many_rejects_fails_and_leaves_nothing() {
    let loaded = Loaded::new(TABLE);
    let rows = (1..=100).map(|id| format!("{id},a,{}\n", if id % 10 == 0 { 100 } else { 1 }));
    let text = format!("id,name,total\nx,b,2\n{}", rows.collect::<String>());
    loaded.folder.write("t.csv", &text);
    for (rejects, says) in [
        ("max_rows: 5", "more than max_rows: 5"),
        (
            "max_share: 0.1",
            "11 rejects in 101 records so far, more than max_share: 0.1",
        ),
        ("max_rows: 100, max_share: 0.1", "more than max_share: 0.1"),
    ] {
        let top = format!("rejects: {{ {rejects}, to: raw.bad }}\n");
        let failed = document(&loaded.run(&top, APPEND), 4);
        assert_eq!(failed["error"]["code"], "too_many_rejects", "{failed:#}");
        let message = failed["error"]["message"].as_str().expect("a message");
        assert!(message.contains(says), "{message}");
        assert_eq!(loaded.ids(), "none");
        assert_eq!(loaded.text("SELECT count(*) FROM raw.bad"), "0");
    }
    for rejects in [
        "max_rows: 11",
        "max_share: 0.11",
        "max_rows: 11, max_share: 1",
    ] {
        let loaded = Loaded::new(TABLE);
        loaded.folder.write("t.csv", &text);
        let top = format!("rejects: {{ {rejects}, to: raw.bad }}\n");
        let report = document(&loaded.run(&top, APPEND), 0);
        assert_eq!(report["streams"][0]["rejected"], 11, "{report:#}");
        assert_eq!(loaded.text("SELECT count(*) FROM raw.t"), "90");
    }
}

#[test]
fn each_way_into_a_table_keeps_what_it_refuses() {
    let rows = "id,name,total\n1,a,1\n2,bad,200\n3,c,3\n1,d,4\n,e,5\n6,long name,6\n";
    let table = "CREATE TABLE raw.t (id bigint PRIMARY KEY, name varchar(5), total float8 CHECK (total < 100))";
    let text =
        "CREATE TABLE raw.t (id bigint PRIMARY KEY, name date, total float8 CHECK (total < 100))";
    for (table, destination, ids, codes) in [
        (
            table,
            " }\n  write_mode: append",
            "1 3",
            "pg_23502 pg_23505 pg_23514 value_does_not_fit",
        ),
        (
            table,
            " }\n  write_mode: replace",
            "1 3",
            "pg_23502 pg_23505 pg_23514 value_does_not_fit",
        ),
        (
            table,
            ", replace_method: truncate }\n  write_mode: replace",
            "1 3",
            "pg_23502 pg_23505 pg_23514 value_does_not_fit",
        ),
        (
            table,
            ", load_method: insert }\n  write_mode: append",
            "1 3",
            "pg_23502 pg_23505 pg_23514 value_does_not_fit",
        ),
        (
            table,
            " }\n  write_mode: upsert\n  primary_key: [id]",
            "1 3",
            "null_key pg_23514 value_does_not_fit",
        ),
        // Every name is read as a date.
        (
            text,
            " }\n  write_mode: append",
            "none",
            "pg_22007 pg_22007 pg_22007 pg_22007 pg_22007 pg_22007",
        ),
        (
            text,
            " }\n  write_mode: upsert\n  primary_key: [id]",
            "none",
            "null_key pg_22007 pg_22007 pg_22007 pg_22007 pg_22007",
        ),
    ] {
        let loaded = Loaded::new(table);
        loaded.folder.write("t.csv", rows);
        document(&loaded.run(ALLOWED, destination), 0);
        let bad = loaded.bad();
        assert_eq!(loaded.ids(), ids, "{destination} {bad}");
        let found = loaded.text("SELECT string_agg(code, ' ' ORDER BY code) FROM raw.bad");
        assert_eq!(found, codes, "{destination} {bad}");
        let places = loaded.text("SELECT count(DISTINCT location) = count(*) FROM raw.bad");
        assert_eq!(places, "true", "{bad}");
    }
}

/// A foreign key that is checked at the end of a statement, a trigger, a check, a type and a key.
const STRICT: &str = "CREATE TABLE raw.known (id bigint PRIMARY KEY); \
    INSERT INTO raw.known SELECT generate_series(0, 9); \
    CREATE TABLE raw.t (id bigint PRIMARY KEY, name varchar(5), total float8 CHECK (total < 100), \
        known bigint REFERENCES raw.known); \
    CREATE FUNCTION raw.no() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN IF NEW.name = 'no' THEN RAISE 'no is not a name'; END IF; RETURN NEW; END $$; \
    CREATE TRIGGER no BEFORE INSERT ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.no()";

#[test]
fn exactly_the_bad_rows_of_many_are_kept_whoever_finds_them() {
    const ROWS: usize = 6000;
    let mut numbers = Numbers::new(7);
    let schema = "schema: { id: int64, name: string, total: float64, known: int64 }";
    for (destination, share) in [
        (APPEND, 300),
        (APPEND, 3),
        (" }\n  write_mode: replace", 100),
        (" }\n  write_mode: upsert\n  primary_key: [id]", 100),
        (
            ", load_method: insert, insert_rows: 50 }\n  write_mode: append",
            100,
        ),
    ] {
        let loaded = Loaded::new(STRICT);
        let mut text = "id,name,total,known\n".to_owned();
        let (mut good, mut bad) = (0, [0_u64; 5]);
        for id in 0..ROWS {
            let mut fields = [
                id.to_string(),
                "a".into(),
                "1".into(),
                (id % 10).to_string(),
            ];
            let kind = match numbers.below(share) {
                0 => numbers.below(5),
                _ => 5,
            };
            match kind {
                0 => fields[1] = "too long".into(),
                1 => fields[1] = "no".into(),
                2 => fields[2] = "100".into(),
                3 => fields[3] = "11".into(),
                4 => fields[0] = "x".into(),
                _ => good += 1,
            }
            if let Some(count) = bad.get_mut(kind) {
                *count += 1;
            }
            text += &format!("{}\n", fields.join(","));
        }
        loaded.folder.write("t.csv", &text);
        let top = format!(
            "rejects: {{ max_rows: {ROWS}, to: raw.bad }}\nresources: {{ batch_bytes: 64kb }}\n"
        );
        let report = document(&loaded.with("run", &top, schema, destination, None), 0);
        let rejected = &report["streams"][0]["rejected"];
        assert_eq!(rejected, &json!(bad.iter().sum::<u64>()), "{destination}");
        let sum = "SELECT count(*) || ' ' || sum(id) || ' ' || sum(known) FROM raw.t";
        let expected = "SELECT count(*) || ' ' || sum(id) || ' ' || sum(known) FROM \
            (SELECT a[1]::int8 AS id, a[4]::int8 AS known FROM \
                (SELECT regexp_split_to_array(line, ',') AS a FROM regexp_split_to_table($t$TEXT$t$, '\n') AS line) x \
             WHERE a[1] ~ '^[0-9]+$' AND a[2] = 'a' AND a[3] = '1' AND a[4] <> '11') y";
        let expected = loaded.text(&expected.replace("TEXT", &text));
        assert_eq!(loaded.text(sum), expected, "{destination}");
        assert!(expected.starts_with(&format!("{good} ")), "{expected}");
        let codes = "SELECT string_agg(c, ' ' ORDER BY c) FROM \
            (SELECT code || CASE location ~ '^row' WHEN true THEN '' ELSE '!' END || ':' || count(*) AS c FROM raw.bad \
             GROUP BY code, location ~ '^row') x";
        let [long, no, check, known, id] = bad;
        let expected = [
            format!("pg_23503:{known}"),
            format!("pg_23514:{check}"),
            format!("pg_P0001:{no}"),
            format!("value_does_not_fit!:{id}"),
            format!("value_does_not_fit:{long}"),
        ];
        let mut expected: Vec<String> = expected
            .into_iter()
            .filter(|one| !one.ends_with(":0"))
            .collect();
        expected.sort();
        let mut found: Vec<String> = loaded.text(codes).split(' ').map(str::to_owned).collect();
        found.sort();
        assert_eq!(found, expected, "{destination}");
    }
}

#[test]
fn rows_that_a_step_cannot_take_are_kept_and_the_others_go_on() {
    const ROWS: usize = 3000;
    let loaded = Loaded::new("");
    let mut text = "id,name,total\n".to_owned();
    for id in 0..ROWS {
        let total = match id % 500 {
            7 => "x",
            8 => "0",
            _ => "4",
        };
        text += &format!("{id},n{id},{total}\n");
    }
    loaded.folder.write("t.csv", &text);
    let source = "schema: { id: int64, name: string, total: string }";
    let steps = "\n    transforms:\n      - cast: { total: int32 }\n      - set: { part: \"12 / total\" }\n      \
                 - filter: \"id <> 11\"";
    let destination = format!("{APPEND}\n");
    let top = "rejects: { max_rows: 100, to: raw.bad }\n";
    let pipeline = |top: &str| {
        loaded.with("plan", top, source, &destination, None);
        let file = loaded.folder.read("p.yaml");
        let file = file.replace("streams: [t]", &format!("streams:\n  - name: t{steps}"));
        loaded.folder.write("p.yaml", &file);
        loaded
            .folder
            .rapidbyte(&["run", "p.yaml", "--output", "json"])
    };
    let failed = document(&pipeline(""), 4);
    assert_eq!(failed["error"]["code"], "transform_failed", "{failed:#}");
    let report = document(&pipeline(top), 0);
    assert_eq!(report["streams"][0]["rejected"], 12, "{report:#}");
    let sum = loaded.text("SELECT count(*) || ' ' || sum(id) || ' ' || sum(part) FROM raw.t");
    let ids: usize = (0..ROWS)
        .filter(|id| ![7, 8].contains(&(id % 500)) && *id != 11)
        .sum();
    assert_eq!(sum, format!("{} {ids} {}", ROWS - 13, 3 * (ROWS - 13)));
    let first = "SELECT string_agg(concat_ws('|', location, column_name, code, record), ' ') FROM \
        (SELECT * FROM raw.bad ORDER BY location = 'row 8' DESC, location = 'row 9' DESC LIMIT 2) x";
    assert_eq!(
        loaded.text(first),
        "row 8|total|transform_failed|{\"id\":7,\"name\":\"n7\",\"total\":\"x\"} \
         row 9|part|transform_failed|{\"id\":8,\"name\":\"n8\",\"total\":\"0\"}"
    );
    let places =
        "SELECT string_agg(location, ' ' ORDER BY length(location), location) FROM raw.bad";
    let expected = (0..ROWS).filter(|id| [7, 8].contains(&(id % 500)));
    let expected: Vec<String> = expected.map(|id| format!("row {}", id + 1)).collect();
    assert_eq!(loaded.text(places), expected.join(" "));
}

/// The server names columns of the table that rows are staged in.
#[test]
fn a_text_that_an_upsert_cannot_cast_is_kept_with_its_column() {
    let loaded = Loaded::new(
        "CREATE TABLE raw.t (id bigint PRIMARY KEY, name text, b bytea, j jsonb, at timestamptz)",
    );
    let rows = "id,name,b,j,at\n1,a,\\x01,{},2020-01-01\n2,b,\\x0g,{},2020-01-01\n3,c,\\x01,{x,2020-01-01\n\
                4,d,\\x01,[],2020-01-41\n";
    loaded.folder.write("t.csv", rows);
    let source = "schema: { id: int64, name: string, b: string, j: string, at: string }";
    let upsert = " }\n  write_mode: upsert\n  primary_key: [id]";
    let report = loaded.with("run", ALLOWED, source, upsert, None);
    assert_eq!(document(&report, 0)["streams"][0]["rejected"], 3);
    let columns =
        "SELECT string_agg(concat_ws(' ', location, column_name), ', ' ORDER BY id) FROM raw.bad";
    assert_eq!(loaded.text(columns), "row 2 b, row 3 j, row 4 at");
    assert_eq!(loaded.ids(), "1");
}

#[test]
fn rows_that_depend_on_others_of_their_batch_are_not_rejected_for_their_order() {
    let table = "CREATE TABLE raw.t (id bigint PRIMARY KEY, name text, total float8 CHECK (total < 100), \
        known bigint REFERENCES raw.t)";
    let schema = "schema: { id: int64, name: string, total: float64, known: int64 }";
    let loaded = Loaded::new(table);
    let mut text = "id,name,total,known\n".to_owned();
    for id in 1..=20 {
        let total = if id == 19 { 100 } else { 1 };
        let known = if id > 16 {
            String::new()
        } else {
            (id + 4).to_string()
        };
        text += &format!("{id},a,{total},{known}\n");
    }
    loaded.folder.write("t.csv", &text);
    document(&loaded.with("run", ALLOWED, schema, APPEND, None), 0);
    assert_eq!(loaded.ids(), "1 2 4 5 6 8 9 10 12 13 14 16 17 18 20");
    let bad = "SELECT string_agg(location, ' ' ORDER BY length(location), location) FROM raw.bad";
    assert_eq!(loaded.text(bad), "row 3 row 7 row 11 row 15 row 19");
}

#[test]
fn a_reject_is_never_lost_and_an_error_that_is_about_no_row_stops_the_stream() {
    let rows = "id,name,total\n1,a,1\nx,b,2\n3,c,300\n4,d,4\n";
    let trigger = |body: &str, on: &str| {
        format!(
            "CREATE FUNCTION raw.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; \
             CREATE TRIGGER f BEFORE INSERT ON {on} FOR EACH ROW EXECUTE FUNCTION raw.f()"
        )
    };
    // The table of rejects swallows its rows.
    let loaded = Loaded::new(TABLE);
    loaded.folder.write("t.csv", "id,name,total\n1,a,1\n");
    document(&loaded.run(ALLOWED, APPEND), 0);
    loaded
        .client()
        .batch_execute("DELETE FROM raw.t")
        .expect("no rows");
    loaded
        .client()
        .batch_execute(&trigger("RETURN NULL;", "raw.bad"))
        .expect("a trigger");
    loaded.folder.write("t.csv", rows);
    let failed = document(&loaded.run(ALLOWED, APPEND), 4);
    assert_eq!(failed["error"]["code"], "rows_not_kept", "{failed:#}");
    assert_eq!(loaded.ids(), "none");
    // A code of its own, a broken trigger, and one that drops rows.
    let refuse = "IF NEW.id = 4 THEN RAISE 'four' USING ERRCODE = '45000'; END IF; RETURN NEW;";
    for (body, expected) in [
        (refuse, Ok("1")),
        ("PERFORM no_such_function(); RETURN NEW;", Err("pg_42883")),
        ("RETURN NULL;", Err("rows_not_kept")),
    ] {
        let loaded = Loaded::new(&format!("{TABLE}; {}", trigger(body, "raw.t")));
        loaded.folder.write("t.csv", rows);
        let ended = loaded.run(ALLOWED, APPEND);
        match expected {
            Ok(ids) => {
                document(&ended, 0);
                assert_eq!(loaded.ids(), ids);
                assert!(loaded.bad().contains("row 3|pg_45000|"), "{}", loaded.bad());
            }
            Err(code) => {
                let failed: Value = serde_json::from_str(&ended.stdout).expect("JSON");
                assert_eq!(failed["error"]["code"], code, "{failed:#}");
                assert_eq!(loaded.ids(), "none");
            }
        }
    }
}

#[test]
fn the_first_rejects_are_shown_whether_the_run_succeeds_or_not() {
    let loaded = Loaded::new(TABLE);
    loaded
        .folder
        .write("t.csv", "id,name,total\n1,a,1\nx,b,2\n3,c,300\n4,d,4\n");
    document(
        &loaded.run("rejects: { max_rows: 1, to: raw.bad }\n", APPEND),
        4,
    );
    for (rejects, code) in [(1, 4), (2, 0)] {
        let file = loaded.folder.read("p.yaml");
        let file = file.replace("max_rows: 1,", &format!("max_rows: {rejects},"));
        loaded.folder.write("p.yaml", &file);
        let ended = loaded
            .folder
            .rapidbyte(&["run", "p.yaml", "--report", "r.html"]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let page = loaded.folder.read("r.html");
        for text in [&ended.stderr, &page] {
            assert!(text.contains("t.csv:3: column"), "{text}");
        }
        if code == 4 {
            assert!(
                ended.stderr.contains("violates check constraint"),
                "{}",
                ended.stderr
            );
            assert!(page.contains("violates check constraint"), "{page}");
        }
    }
    let page = loaded.folder.read("r.html");
    assert!(page.contains("<h2>Rejects</h2>"), "{page}");
}

#[test]
fn a_table_of_rejects_is_not_the_target_of_a_stream() {
    let folder = Folder::new();
    let target = shared().database();
    for name in ["a", "b"] {
        folder.write(&format!("{name}.csv"), "id\n1\n");
    }
    for table in ["a", "b"] {
        let text = format!(
            "version: 1\npipeline: p\nrejects: {{ max_rows: 1, to: raw.{table} }}\nsource:\n  use: source-file\n  \
             config: {{ path: \"{{stream}}.csv\" }}\n  streams: [a, b]\ndestination:\n  \
             use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: append\n",
            target.url()
        );
        folder.write("p.yaml", &text);
        let failed = document(&folder.rapidbyte(&["run", "p.yaml", "--output", "json"]), 2);
        let message = failed["error"].to_string();
        assert!(message.contains("shared_target"), "{failed:#}");
        let sql = "SELECT to_regclass('raw.a')::text";
        let found: Option<String> = target.client().query_one(sql, &[]).expect("a row").get(0);
        assert_eq!(found, None);
    }
}

#[test]
fn a_new_table_keeps_rejects_and_the_plan_names_theirs() {
    let loaded = Loaded::new("");
    loaded.folder.write(
        "t.jsonl",
        "{\"id\":1}\n{\"id\":\"x\"}\n{broken\n{\"id\":4}\n",
    );
    let source = "schema: { id: int64 }";
    let plan = document(&loaded.with("plan", ALLOWED, source, APPEND, None), 0);
    let statements = plan["streams"][0]["statements"].to_string();
    assert!(
        statements.contains("CREATE TABLE IF NOT EXISTS raw.bad ("),
        "{statements}"
    );
    document(&loaded.with("run", ALLOWED, source, APPEND, None), 0);
    assert_eq!(loaded.ids(), "1 4");
    assert_eq!(
        loaded.bad(),
        "t.jsonl:2|id|value_does_not_fit|{\"id\":\"x\"} t.jsonl:3|jsonl_broken_line|{broken"
    );
    let plan = document(&loaded.with("plan", ALLOWED, source, APPEND, None), 0);
    let statements = plan["streams"][0]["statements"].to_string();
    assert!(!statements.contains("raw.bad"), "{statements}");
}

#[test]
fn a_wrong_place_or_limit_is_refused_before_anything_moves() {
    let loaded = Loaded::new(&format!("{TABLE}; CREATE TABLE raw.other (a int)"));
    loaded.folder.write("t.csv", "id,name,total\n1,a,1\n");
    for (rejects, destination, code, exit) in [
        ("{ max_rows: 5 }", APPEND, "invalid_value", 2),
        ("{ to: raw.bad }", APPEND, "invalid_value", 2),
        ("{ max_rows: 5, to: raw. }", APPEND, "invalid_name", 2),
        ("{ max_rows: 5, to: a.b.c }", APPEND, "invalid_name", 2),
        ("{ max_rows: -1, to: raw.bad }", APPEND, "invalid_value", 2),
        (
            "{ max_share: 1.5, to: raw.bad }",
            APPEND,
            "invalid_value",
            2,
        ),
        ("{ max_share: x, to: raw.bad }", APPEND, "invalid_value", 2),
        ("{ most: 5, to: raw.bad }", APPEND, "unknown_key", 2),
        ("{ max_rows: 5, to: raw.t }", APPEND, "shared_target", 2),
        (
            "{ max_rows: 5, to: _rapidbyte.checkpoint }",
            APPEND,
            "invalid_name",
            2,
        ),
        (
            "{ max_rows: 5, to: raw.other }",
            APPEND,
            "rejects_table_differs",
            4,
        ),
        (
            "{ max_rows: 5, to: raw.bad }",
            ", replace_method: swap }\n  write_mode: replace",
            "replace_not_possible",
            2,
        ),
    ] {
        let failed = document(
            &loaded.run(&format!("rejects: {rejects}\n"), destination),
            exit,
        );
        assert_eq!(failed["error"]["code"], code, "{rejects} {failed:#}");
        assert_eq!(loaded.text("SELECT to_regclass('raw.bad')"), "none");
    }
    let zero = "rejects: { max_rows: 0, to: raw.bad }\n";
    document(&loaded.run(zero, APPEND), 0);
    assert_eq!(loaded.text("SELECT to_regclass('raw.bad')"), "none");
}

#[test]
fn a_destination_without_a_place_for_rejects_says_so() {
    let folder = Folder::new();
    folder.write("t.csv", "id\n1\n");
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: p\nrejects: {{ max_rows: 1, to: bad }}\nsource:\n  use: source-file\n  \
             config: {{ path: t.csv }}\n  streams: [t]\ndestination:\n  use: {}\n  write_mode: replace\n",
            testkit("dest-null")
        ),
    );
    let failed = document(&folder.rapidbyte(&["run", "p.yaml", "--output", "json"]), 2);
    assert_eq!(failed["error"]["code"], "unsupported_rejects", "{failed:#}");
    assert_eq!(failed["error"]["location"], "p.yaml:3:1", "{failed:#}");
}

#[test]
fn rejects_commit_with_the_rows_around_them() {
    for point in [
        "dest-postgres.rejects_made",
        "dest-postgres.writing",
        "dest-postgres.flushed",
        "dest-postgres.checkpointing",
        "dest-postgres.commit_sent",
        "dest-postgres.committed",
        "engine.committed",
    ] {
        for how in ["kill", "error"] {
            let loaded = Loaded::new(TABLE);
            loaded
                .folder
                .write("t.csv", "id,name,total\n1,a,1\nx,b,2\n3,c,300\n4,d,4\n");
            let fault = format!("{point}={how}");
            let ended = loaded.with("run", ALLOWED, SCHEMA, APPEND, Some(&fault));
            if ended.code != Some(0) {
                document(&loaded.run(ALLOWED, APPEND), 0);
            }
            assert_eq!(loaded.ids(), "1 4", "{fault}");
            assert_eq!(loaded.text("SELECT count(*) FROM raw.bad"), "2", "{fault}");
        }
    }
}
