//! `run --select --exclude --limit --dry-run`.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::{Ended, Folder};

/// Three streams of three columns each, to CSV.
fn pipeline(write_mode: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source:\n  use: source-generate\n  config:\n    rows: 1000\n    streams: [a.one, a.two, b.one]\n\
         \x20   columns: {{ id: {{ type: int64, sequence: true }}, name: string, total: float64 }}\n\
         \x20 streams: [{{ name: \"*\", rename: {{ name: label }} }}]\n\
         destination:\n  use: dest-file\n  config: {{ path: \"out/{{stream}}.csv\" }}\n  write_mode: {write_mode}\n"
    )
}

#[track_caller]
fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr))
}

/// The files that a run with these flags writes, with the first line of each.
#[track_caller]
fn written(flags: &[&str]) -> Vec<(String, String)> {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline("append"));
    let ended = folder.rapidbyte(&[&["run", "p.yaml"], flags].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let files = folder.files("out").into_iter();
    files
        .map(|name| {
            let text = folder.read(&format!("out/{name}"));
            (name, text.lines().next().unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn select_and_exclude_choose_streams_and_columns() {
    let all = "id,label,total";
    for (flags, expected) in [
        (
            &["--select", "a.*"][..],
            &[("a.one.csv", all), ("a.two.csv", all)][..],
        ),
        (
            &["-s", "b.one", "-s", "a.two"],
            &[("a.two.csv", all), ("b.one.csv", all)],
        ),
        (
            &["--select", "b.one.total", "--select", "b.one.id"],
            &[("b.one.csv", "id,total")],
        ),
        (&["--exclude", "a.*"], &[("b.one.csv", all)]),
        (
            &["--select", "a.one", "--exclude", "*.name"],
            &[("a.one.csv", "id,total")],
        ),
    ] {
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(name, head)| ((*name).to_owned(), (*head).to_owned()))
            .collect();
        assert_eq!(written(flags), expected, "{flags:?}");
    }
}

#[test]
fn names_that_nothing_has_are_errors_with_a_suggestion() {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline("append"));
    for (flags, code, part) in [
        (
            &["--select", "a.on"][..],
            "unknown_selection",
            "did you mean \"a.one\"?",
        ),
        (
            &["--exclude", "a.one.nam"],
            "unknown_selection",
            "\"a.one.name\"",
        ),
        (
            &["--select", "a.one", "--exclude", "a.*"],
            "nothing_selected",
            "--exclude overrides",
        ),
        (&["--limit", "0"], "invalid_argument", "0"),
        (&["--limit-replaces"], "invalid_argument", "--limit"),
    ] {
        let ended = folder.rapidbyte(&[&["run", "p.yaml", "--output", "json"], flags].concat());
        let document = json(&ended);
        let error = &document["error"];
        assert_eq!(
            (error["code"].as_str(), ended.code),
            (Some(code), Some(2)),
            "{error:#}"
        );
        assert!(
            error["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains(part))
                || error["message"].to_string().contains(part),
            "{error:#}"
        );
    }
    assert_eq!(folder.files("out"), [""; 0]);
}

#[test]
fn limit_moves_the_first_rows_and_says_so() {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline("append"));
    let flags = ["run", "p.yaml", "--limit", "7", "--output", "json"];
    let report = json(&folder.rapidbyte(&flags));
    assert_eq!(
        (report["limit"].as_u64(), report["rows"].as_u64()),
        (Some(7), Some(21)),
        "{report:#}"
    );
    assert_eq!(report["streams"][0]["limited"], true);
    let text = folder.read("out/b.one.csv");
    let ids: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').next())
        .collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6"]);
    let folder = Folder::new();
    folder.write("p.yaml", pipeline("append"));
    let ended = folder.rapidbyte(&["run", "p.yaml", "--limit", "7"]);
    assert!(
        ended.stdout.contains("limited to 7 rows of each stream"),
        "{}",
        ended.stdout
    );
    let folder = Folder::new();
    folder.write("p.yaml", pipeline("append"));
    let report = json(&folder.rapidbyte(&["run", "p.yaml", "--limit", "2000", "--output", "json"]));
    assert_eq!(report["rows"], 3000);
    assert!(report["streams"][0]["limited"].is_null(), "{report:#}");
}

#[test]
fn a_limit_does_not_replace_unless_it_may() {
    let folder = Folder::new();
    folder
        .write("p.yaml", pipeline("replace"))
        .write("out/a.one.csv", "old\n");
    for verb in ["run", "plan"] {
        let ended = folder.rapidbyte(&[verb, "p.yaml", "--limit", "3", "--output", "json"]);
        assert_eq!(json(&ended)["error"]["code"], "limit_replaces");
        assert_eq!(json(&ended)["error"]["key"], "destination.write_mode");
        assert_eq!(ended.code, Some(2));
    }
    assert_eq!(folder.read("out/a.one.csv"), "old\n");
    let ended = folder.rapidbyte(&["run", "p.yaml", "--limit", "3", "--limit-replaces"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(folder.read("out/a.one.csv").lines().count(), 4);
}

#[test]
fn a_dry_run_is_the_plan_and_writes_nothing() {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline("replace"));
    let flags = ["p.yaml", "--select", "a.one", "--output", "json"];
    let dry = folder.rapidbyte(&[&["run", "--dry-run"], &flags[..]].concat());
    let plan = folder.rapidbyte(&[&["plan"], &flags[..]].concat());
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert_eq!(dry.stdout, plan.stdout);
    assert_eq!(json(&dry)["streams"].as_array().map(Vec::len), Some(1));
    assert_eq!(folder.files("."), ["p.yaml"]);
}

#[test]
fn a_limit_ends_the_read_of_a_table_early_and_keeps_every_kind_of_value() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute(
        "CREATE TABLE t AS SELECT n, CASE WHEN n % 2 = 0 THEN n::text END AS even,\
         ARRAY[n, NULL] AS list, n::numeric / 3 AS share, n % 3 = 0 AS third FROM generate_series(1, 20000) n",
    )
    .expect("a table");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [public.t]\n\
             destination:\n  use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: append\n",
            source.url(),
            target.url()
        ),
    );
    let ended = folder.rapidbyte(&["run", "p.yaml", "--limit", "1001", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
    assert_eq!(json(&ended)["rows"], 1001);
    let hash = "SELECT count(*) || md5(string_agg(t::text, ',' ORDER BY n)) \
                FROM (SELECT * FROM public.t ORDER BY n LIMIT 1001) t";
    let of = |client: &mut rapidbyte_testkit::postgres::Client| {
        let row = client.query_one(hash, &[]).expect("a hash");
        row.get::<_, String>(0)
    };
    assert_eq!(of(&mut target.client()), of(&mut source.client()));
    let count = "SELECT count(*) FROM public.t";
    let row = target.client().query_one(count, &[]).expect("a count");
    assert_eq!(row.get::<_, i64>(0), 1001);
}

#[test]
fn the_error_for_an_invalid_limit_says_what_is_valid() {
    let folder = Folder::new();
    for (limit, part) in [
        ("-1", "whole number of rows"),
        ("1e6", "whole number of rows"),
        ("many", "whole number of rows"),
        ("0", "--dry-run"),
        ("99999999999999999999", "above 18446744073709551615"),
    ] {
        let ended = folder.rapidbyte(&["run", "p.yaml", "--limit", limit]);
        assert_eq!(ended.code, Some(2), "{limit}: {}", ended.stderr);
        for part in [part, "--limit", limit] {
            assert!(ended.stderr.contains(part), "{limit}: {}", ended.stderr);
        }
    }
}

#[test]
fn the_pipeline_excludes_streams_of_its_wildcards() {
    let folder = Folder::new();
    let excluding = |patterns: &str| {
        pipeline("append").replace(
            "destination:",
            &format!("  exclude: [{patterns}]\ndestination:"),
        )
    };
    folder.report(&excluding("a.two"));
    assert_eq!(folder.files("out"), ["a.one.csv", "b.one.csv"]);
    let parts = ["exclude leaves out all streams", "p.yaml:9:"];
    folder.refuses(&excluding("\"?.*\""), "wildcard_matches_nothing", 2, &parts);
}

/// `plan` has seen the texts: it says what the run would say.
#[test]
fn plan_refuses_texts_that_no_integer_column_reads_as_the_run_does() {
    let database = shared().database();
    let sql = "CREATE TABLE public.t (id int)";
    database.client().batch_execute(sql).expect("a table");
    for (texts, is_refused) in [
        ("007\n8", false),
        ("+7\n 8", false),
        ("-0\n007", false),
        ("x1\n2", true),
        ("007\n-0.0", true),
        ("007\n1e3", true),
        ("007\n1.0", true),
        ("007\n00000000099999999999", true),
    ] {
        let folder = Folder::new();
        folder.write("t.csv", format!("id\n{texts}\n"));
        let pipeline = format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-file, config: {{ path: '{{stream}}.csv' }}, streams: [t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: public }}, write_mode: append }}\n",
            database.url()
        );
        folder.write("p.yaml", pipeline);
        for command in ["plan", "run"] {
            let ended = folder.rapidbyte(&[command, "p.yaml"]);
            let expected = if is_refused { 4 } else { 0 };
            assert_eq!(
                ended.code,
                Some(expected),
                "{command} {texts:?}: {}",
                ended.stderr
            );
            let code = ended.stderr.contains("error[column_refused]");
            assert_eq!(code, is_refused, "{command} {texts:?}: {}", ended.stderr);
        }
    }
}
