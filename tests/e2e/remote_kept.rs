//! `state --server` and `rejects --server`: the same results as on this machine, by the API of a server.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rapidbyte_testkit::postgres::{Database, shared};
use serde_json::Value;

use crate::remote::{Ends, Server, json, run};
use crate::support::{Ended, Folder};

/// A folder with the pipeline `p`, whose rejects are kept, and with `in`, which takes rows over HTTP.
fn with_rejects() -> (Folder, Database<'static>) {
    let target = shared().database();
    let sql = "CREATE SCHEMA raw; CREATE TABLE raw.t (id bigint PRIMARY KEY, name text, total float8 CHECK (total < 100))";
    target.client().batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let to = format!(
        "destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }}, write_mode: append }}\n\
         rejects: {{ max_rows: 10, to: raw.bad }}\n",
        target.url()
    );
    folder.write(
        "pipelines/p.yaml",
        format!(
            "version: 1\npipeline: p\n\
             source:\n  use: source-file\n  \
             config: {{ path: t.csv, schema: {{ id: int64, name: string, total: float64 }} }}\n  streams: [t]\n{to}"
        ),
    );
    folder.write(
        "pipelines/in.yaml",
        format!(
            "version: 1\npipeline: in\n\
             source: {{ use: ingest, config: {{ schema: {{ id: int64 }} }}, streams: [jobs] }}\n{to}"
        ),
    );
    folder.write(
        "pipelines/t.csv",
        "id,name,total\n1,a,1.5\nx,b,2\n3,c\n4,d,4\n5,e,500\n6,f,6\n4,again,7\n",
    );
    let ended = folder.rapidbyte(&["run", "pipelines/p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    (folder, target)
}

fn start(folder: &Folder) -> Server {
    Server::start(folder, &["--listen", "127.0.0.1:0"])
}

/// Runs a command here and on the server, and compares the results. Gives that of the server.
#[track_caller]
fn same(folder: &Folder, server: &Server, verb: &[&str], more: &[&str]) -> Ended {
    let of = |arguments: &[&[&str]]| folder.rapidbyte(&arguments.concat());
    let local = of(&[verb, &["pipelines/p.yaml"], more]);
    let remote = of(&[verb, &["p"], more, &["--server", &server.url]]);
    let named = format!("p --server {}", server.url);
    let expected = local.stdout.replace("pipelines/p.yaml", &named);
    assert_eq!(remote.stdout, expected, "{verb:?} {more:?}");
    // Messages name the pipeline as the command does.
    let expected = local.stderr.replace("pipelines/p.yaml", "p");
    assert_eq!(remote.stderr, expected, "{verb:?} {more:?}");
    assert_eq!(remote.code, local.code, "{verb:?} {more:?}");
    remote
}

#[test]
fn rejects_of_a_server_are_shown_and_replayed_as_on_this_machine() {
    let (folder, target) = with_rejects();
    let server = start(&folder);
    for more in [
        &[][..],
        &["--output", "json"],
        &["--stream", "t"],
        &["--stream", "other"],
        &["--stream", "other", "--output", "json"],
    ] {
        let listed = same(&folder, &server, &["rejects", "list"], more);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    }
    for more in [
        &[][..],
        &["--output", "json"],
        &["--jsonl"],
        &["--limit", "2"],
        &["--limit", "2", "--output", "json"],
        &["--code", "value_does_not_fit"],
        &["--column", "id", "--output", "json"],
        &["--stream", "other"],
        &["--stream", "t", "--code", "other"],
        &["--limit", "1", "--jsonl"],
    ] {
        let shown = same(&folder, &server, &["rejects", "show"], more);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    }
    let lines = folder.rapidbyte(&["rejects", "show", "p", "--server", &server.url, "--jsonl"]);
    let lines: Vec<Value> = lines
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 4);
    // One record is repaired. A line that names no reject is refused with its place, and changes nothing.
    let mut repaired = lines
        .iter()
        .find(|line| line["record"] == "x,b,2")
        .expect("the record")
        .clone();
    repaired["record"] = "2,b,2".into();
    folder.write(
        "unknown.jsonl",
        repaired.to_string().replace("\"id\":\"", "\"id\":\"9"),
    );
    folder.write("repaired.jsonl", repaired.to_string());
    let from = |file: &'static str| ["--stream", "t", "--from", file];
    let refused = same(
        &folder,
        &server,
        &["rejects", "replay"],
        &from("unknown.jsonl"),
    );
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("error[reject_missing]")
            && refused.stderr.contains("unknown.jsonl:1"),
        "{}",
        refused.stderr
    );
    let of =
        |arguments: &[&str]| folder.rapidbyte(&[arguments, &["--server", &server.url]].concat());
    let replayed = json(&of(&[
        "rejects",
        "replay",
        "p",
        "--stream",
        "t",
        "--from",
        "repaired.jsonl",
        "--output",
        "json",
    ]));
    assert_eq!(
        (
            &replayed["replayed"],
            &replayed["rows"],
            &replayed["rejected"]
        ),
        (&1.into(), &1.into(), &0.into()),
        "{replayed:#}"
    );
    let again = of(&["rejects", "replay", "p", "--stream", "t"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(
        again
            .stdout
            .contains("3 of raw.bad replayed, 0 rows in the target")
            && again.stdout.contains("3 failed again"),
        "{}",
        again.stdout
    );
    let sql = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM raw.t";
    let ids: String = target.client().query_one(sql, &[]).expect("a row").get(0);
    assert_eq!(ids, "1 2 4 6");
    for (name, code) in [("nowhere", "unknown_pipeline"), ("in", "reads_queue")] {
        let refused = of(&["rejects", "replay", name, "--stream", "jobs"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(
            refused.stderr.contains(&format!("error[{code}]")),
            "{}",
            refused.stderr
        );
    }
    let refused = of(&["rejects", "list", "p", "--env-file", ".env"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused
            .stderr
            .contains("--env-file does not work with a server"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_token_that_may_read_sees_no_values_of_rejects() {
    let (folder, _target) = with_rejects();
    let token = |scope: &str| {
        let made = folder.rapidbyte(&[
            "serve",
            "token",
            "add",
            "--pipelines",
            "pipelines",
            "--scope",
            scope,
            "--output",
            "json",
        ]);
        json(&made)["secret"].as_str().expect("a secret").to_owned()
    };
    let (reader, operator) = (token("read:p"), token("operate:p"));
    let server = start(&folder);
    let of = |token: &str, arguments: &[&str]| {
        let variables = [
            ("RAPIDBYTE_SERVER", &*server.url),
            ("RAPIDBYTE_TOKEN", token),
        ];
        run(&folder, &variables, arguments)
    };
    let listed = of(&reader, &["rejects", "list", "p"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let newest = listed.stdout.lines().next().expect("a line");
    assert!(
        newest.starts_with("4 rejects of p in raw.bad; the newest: "),
        "{newest}"
    );
    assert!(
        newest.ends_with(']') && !newest.contains("again"),
        "{newest}"
    );
    for arguments in [
        &["rejects", "show", "p"][..],
        &["rejects", "replay", "p", "--stream", "t"],
        &["state", "get", "p", "t"],
        &["state", "set", "p", "t", "{\"a\":1}"],
        &["state", "clear", "p", "--all"],
        &["state", "rebind", "p", "--all"],
    ] {
        let refused = of(&reader, arguments);
        assert_eq!(refused.code, Some(3), "{arguments:?} {}", refused.stderr);
        assert!(
            refused.stderr.contains("error[scope_missing]"),
            "{}",
            refused.stderr
        );
    }
    let listed = of(&reader, &["state", "list", "p"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert_eq!(of(&operator, &["rejects", "show", "p"]).code, Some(0));
    let other = of(&operator, &["rejects", "list", "in"]);
    assert_eq!(other.code, Some(3), "{}", other.stderr);
}

/// Two databases, and the pipeline `p` between them, which resumes.
fn incremental() -> (Folder, [Database<'static>; 2]) {
    let (source, target) = (shared().database(), shared().database());
    let sql = "CREATE TABLE t (id bigint); INSERT INTO t SELECT generate_series(1, 100)";
    source.client().batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let of = |name: &str, from: &str| {
        let text = format!(
            "version: 1\npipeline: {name}\nsource: {from}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }}, write_mode: append }}\n",
            target.url()
        );
        folder.write(&format!("pipelines/{name}.yaml"), text);
    };
    of(
        "p",
        &format!(
            "{{ use: source-postgres, config: {{ url: \"{}\" }}, \
             streams: [{{ name: public.t, sync_mode: incremental, cursor_field: id }}] }}",
            source.url()
        ),
    );
    of(
        "in",
        "{ use: ingest, config: { schema: { id: int64 } }, streams: [jobs] }",
    );
    of(
        "many",
        "{ use: source-generate, config: { preset: narrow, rows: 1000000000000 }, streams: ['*'] }",
    );
    (folder, [source, target])
}

#[test]
fn cursors_of_a_server_are_shown_and_moved_as_on_this_machine() {
    let (folder, _databases) = incremental();
    let server = start(&folder);
    let of =
        |arguments: &[&str]| folder.rapidbyte(&[arguments, &["--server", &server.url]].concat());
    let rows = || json(&of(&["run", "p", "--output", "json"]))["rows"].clone();
    let none = same(&folder, &server, &["state", "get"], &["public.t"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(none.stderr.contains("error[no_cursor]"), "{}", none.stderr);
    same(&folder, &server, &["state", "list"], &[]);
    assert_eq!(rows(), 100);
    for more in [&[][..], &["--output", "json"]] {
        same(&folder, &server, &["state", "list"], more);
        same(
            &folder,
            &server,
            &["state", "get"],
            &[&["public.t"], more].concat(),
        );
    }
    let unknown = same(&folder, &server, &["state", "get"], &["public.u"]);
    assert!(
        unknown.stderr.contains("error[unknown_stream]"),
        "{}",
        unknown.stderr
    );
    let cursor = of(&["state", "get", "p", "public.t"]).stdout;
    let earlier = cursor.trim().replace("\"100\"", "\"90\"");
    assert_ne!(earlier, cursor.trim());
    let set = of(&["state", "set", "p", "public.t", &earlier]);
    assert_eq!(set.code, Some(0), "{}", set.stderr);
    assert_eq!(
        set.stdout,
        format!("public.t: the next run resumes from {earlier}\n")
    );
    assert_eq!(rows(), 10);
    // A cursor that the source does not take is refused as here.
    let wrong = of(&["state", "set", "p", "public.t", "{\"wrong\":1}"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stdout);
    assert!(
        wrong.stderr.contains("error[cursor_unreadable]")
            && wrong.stderr.contains("`rapidbyte state get p public.t`"),
        "{}",
        wrong.stderr
    );
    let no_keys = same(&folder, &server, &["state", "set"], &["public.t", "{}"]);
    assert!(
        no_keys.stderr.contains("error[invalid_cursor]"),
        "{}",
        no_keys.stderr
    );
    let edited = {
        let mut command =
            folder.command(&["state", "edit", "p", "public.t", "--server", &server.url]);
        command.env("VISUAL", "sed -i s/\\\"100\\\"/\\\"95\\\"/");
        Ended::from(command.output().expect("the program starts"))
    };
    assert_eq!(edited.code, Some(0), "{}", edited.stderr);
    assert_eq!(rows(), 5);
    let rebound = json(&of(&[
        "state", "rebind", "p", "public.t", "--output", "json",
    ]));
    assert_eq!(
        rebound["streams"][0]["cursor"]["source"],
        Value::Null,
        "{rebound:#}"
    );
    assert_eq!(rows(), 0);
    let cleared = of(&["state", "clear", "p", "--all"]);
    assert_eq!(
        (cleared.code, &*cleared.stdout),
        (
            Some(0),
            "public.t: the next run starts with its first row\n"
        ),
        "{}",
        cleared.stderr
    );
    let unmoved = json(&of(&["state", "list", "p", "--output", "json"]));
    assert_eq!(unmoved["streams"][0]["cursor"], Value::Null, "{unmoved:#}");
    // The jobs of the queue move its cursors.
    assert_eq!(of(&["state", "list", "in"]).code, Some(0));
    for arguments in [
        &["state", "set", "in", "jobs", "{\"queue\":\"x\",\"job\":1}"][..],
        &["state", "clear", "in", "--all"],
        &["state", "rebind", "in", "--all"],
    ] {
        let refused = of(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?} {}", refused.stderr);
        assert!(
            refused.stderr.contains("error[reads_queue]"),
            "{}",
            refused.stderr
        );
    }
    // The server knows which jobs of a stream are done.
    for verb in ["rebind", "clear"] {
        let moved = of(&["state", verb, "in", "jobs"]);
        assert_eq!(moved.code, Some(0), "{verb} {}", moved.stderr);
    }
    let refused = of(&["state", "list", "p", "--state", "s.db"]);
    assert!(
        refused
            .stderr
            .contains("--state does not work with a server"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_cursor_does_not_move_under_a_run_unless_the_run_is_fenced() {
    let (folder, _databases) = incremental();
    let server = start(&folder);
    let command = folder
        .command(&["run", "-v", "many", "--server", &server.url])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut client = Ends(command.expect("the program starts"));
    let messages = BufReader::new(client.0.stderr.take().expect("messages"));
    let mut lines = messages.lines().map(|line| line.expect("UTF-8"));
    let begun = lines.find(|line| line.contains("started"));
    assert!(begun.is_some(), "the run did not begin");
    let of =
        |arguments: &[&str]| folder.rapidbyte(&[arguments, &["--server", &server.url]].concat());
    let busy = of(&["state", "clear", "many", "--all"]);
    assert_eq!(busy.code, Some(5), "{}", busy.stderr);
    assert!(
        busy.stderr.contains("error[already_running]"),
        "{}",
        busy.stderr
    );
    let fenced = of(&["state", "clear", "many", "narrow", "--force"]);
    assert_eq!(fenced.code, Some(0), "{}", fenced.stderr);
    assert!(
        fenced.stderr.contains("this command fences it"),
        "{}",
        fenced.stderr
    );
}
