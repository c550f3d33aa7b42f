//! Rejects of a directory that grows: a file of them is part of the manifest that commits the rows around them.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::overlap::Started;
use crate::rejects::document;
use crate::support::{Ended, Folder};

const ROWS: &str =
    "id,total,name\n1,1.5,a\nx,2,b\n3,NaN,c\n4,4,__HIVE_DEFAULT_PARTITION__\n5,5,a\n";

struct Files(Folder);

impl Files {
    fn new() -> Self {
        let folder = Folder::new();
        folder.write("t.csv", ROWS);
        Self(folder)
    }

    fn run(&self, to: &str, destination: &str, fault: Option<&str>) -> Ended {
        let text = format!(
            "version: 1\npipeline: p\nrejects: {{ max_rows: 5, to: {to} }}\nsource:\n  use: source-file\n  \
             config: {{ path: t.csv, schema: {{ id: int64, total: float64, name: string }} }}\n  streams: [t]\n\
             destination:\n  use: dest-file\n  {destination}\n"
        );
        self.0.write("p.yaml", &text);
        let mut command = self.0.command(&["run", "p.yaml", "--output", "json"]);
        if let Some(fault) = fault {
            command.env("RAPIDBYTE_FAULTS", fault);
        }
        command.output().expect("the program starts").into()
    }

    /// The rejects in the files that manifests name. No other file of rejects is there.
    fn rejects(&self) -> Vec<Value> {
        let files = self.0.files("out/t/_manifest");
        let mut named = Vec::new();
        for manifest in files.iter().filter(|file| file.ends_with(".json")) {
            let text = self.0.read(&format!("out/t/_manifest/{manifest}"));
            let manifest: Value = serde_json::from_str(&text).expect("JSON");
            for file in manifest["rejects"].as_array().into_iter().flatten() {
                let path = file["path"].as_str().expect("a path");
                let text = self.0.read(&format!("out/t/{path}"));
                assert_eq!(file["size"], text.len(), "{path}");
                assert_eq!(file["rows"], text.lines().count(), "{path}");
                named.push((path.to_owned(), text));
            }
        }
        let there = files.iter().filter(|file| file.ends_with(".rejects.jsonl"));
        assert_eq!(there.count(), named.len(), "{files:?}");
        assert!(
            !files.iter().any(|file| file.ends_with(".pending")),
            "{files:?}"
        );
        let lines = named.iter().flat_map(|(_, text)| text.lines());
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

impl Files {
    fn verb(&self, verb: &str, more: &[&str], code: i32) -> Value {
        let arguments = [&["rejects", verb, "p.yaml", "--output", "json"], more].concat();
        document(&self.0.rapidbyte(&arguments), code)
    }

    /// Replays the stream as it is, or the repaired records of a file.
    fn replay(&self, more: &[&str], code: i32) -> Value {
        self.verb("replay", &[&["--stream", "t"], more].concat(), code)
    }

    /// The ids of the rejects that are left.
    fn ids(&self) -> Vec<String> {
        let shown = self.verb("show", &["--limit", "100000"], 0);
        let shown = shown["rejects"].as_array().expect("rejects");
        let ids = shown.iter().map(|one| one["id"].as_str().expect("an id"));
        ids.map(str::to_owned).collect()
    }

    /// The lines of all files of rows, sorted.
    fn lines(&self) -> Vec<String> {
        let files = self.0.files("out/t");
        let files = files.iter().filter(|file| file.starts_with("part-"));
        let texts = files.map(|file| self.0.read(&format!("out/t/{file}")));
        let mut lines: Vec<String> = texts.flat_map(|text| lines_of(&text)).collect();
        lines.sort();
        lines
    }

    /// Declares other types for the next run.
    fn declare(&self, schema: &str) {
        let file = self.0.read("p.yaml");
        let file = file.replace("id: int64, total: float64, name: string", schema);
        self.0.write("p.yaml", file);
    }
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The place, the code and the record of each reject.
fn shown(rejects: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let shown = rejects.iter().map(|one| {
        let facts = [
            &one["location"],
            &one["origin"],
            &one["code"],
            &one["record"],
        ];
        facts.map(text).join("|")
    });
    shown.collect()
}

const OF_SOURCE: &str = "t.csv:3|source|value_does_not_fit|x,2,b";

#[test]
fn each_layout_that_grows_keeps_what_it_refuses() {
    let nan = r#"row 2|destination|json_not_finite|{"id":3,"total":"NaN","name":"c"}"#;
    let folder = r#"row 3|destination|partition_value|{"id":4,"total":4.0,"name":"__HIVE_DEFAULT_PARTITION__"}"#;
    for (config, rejects) in [
        (
            "path: \"out/{stream}/part-{part}.jsonl\"",
            &[OF_SOURCE, nan][..],
        ),
        (
            "path: \"out/{stream}/part-{part}.csv.gz\", split: { rows: 1 }",
            &[OF_SOURCE],
        ),
        (
            "path: \"out/{stream}/part-{part}.csv\", partition_by: [name]",
            &[OF_SOURCE, folder],
        ),
        (
            "path: \"out/{stream}/part-{part}.jsonl\", partition_by: [name]",
            &[OF_SOURCE, nan, folder],
        ),
        ("path: \"out/{stream}/part-{part}.parquet\"", &[OF_SOURCE]),
    ] {
        let files = Files::new();
        let destination = format!("config: {{ {config} }}\n  write_mode: append");
        let report = document(&files.run("bad", &destination, None), 0);
        let stream = &report["streams"][0];
        assert_eq!(stream["rows"], 5 - rejects.len(), "{config} {stream:#}");
        assert_eq!(stream["rejected"], rejects.len(), "{config} {stream:#}");
        let kept = files.rejects();
        assert_eq!(shown(&kept), rejects, "{config}");
        assert_eq!(kept[0]["run_id"], report["run_id"]);
        assert_eq!(
            (&kept[0]["column"], &kept[0]["is_cut"]),
            (&"id".into(), &false.into())
        );
        let time = kept[0]["time"].as_str().expect("a time");
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
}

#[test]
fn rejects_and_rows_of_files_are_committed_together() {
    let destination = "config: { path: \"out/{stream}/part-{part}.jsonl\" }\n  write_mode: append";
    for point in [
        "dest-file.data_synced",
        "dest-file.linking",
        "dest-file.manifest_linked",
        "dest-file.published",
        "dest-file.committed",
        "engine.committed",
    ] {
        for how in ["kill", "error"] {
            let files = Files::new();
            let fault = format!("{point}={how}");
            let ended = files.run("bad", destination, Some(&fault));
            if ended.code != Some(0) {
                document(&files.run("bad", destination, None), 0);
            }
            assert_eq!(files.rejects().len(), 2, "{fault}");
            let rows = files.0.files("out/t");
            let rows = rows.iter().filter(|file| file.ends_with(".jsonl"));
            let rows = rows.map(|file| files.0.read(&format!("out/t/{file}")).lines().count());
            assert_eq!(rows.sum::<usize>(), 3, "{fault}");
        }
    }
}

#[test]
fn too_many_rejects_leave_no_file() {
    let files = Files::new();
    let destination = "config: { path: \"out/{stream}/part-{part}.jsonl\", partition_by: [name] }\n  \
                       write_mode: append";
    files.0.write(
        "t.csv",
        ROWS.replace('\n', "\nx,x,x\n").replacen("x,x,x\n", "", 1),
    );
    let failed = document(&files.run("bad", destination, None), 4);
    assert_eq!(failed["error"]["code"], "too_many_rejects", "{failed:#}");
    assert_eq!(files.rejects().len(), 0);
}

#[test]
fn files_that_cannot_commit_rejects_with_the_rows_refuse_them() {
    let grows = "config: { path: \"out/{stream}/part-{part}.jsonl\" }\n  write_mode: append";
    for (to, destination, code) in [
        (
            "bad",
            "config: { path: out.csv }\n  write_mode: replace",
            "rejects_need_manifests",
        ),
        (
            "bad",
            "config: { path: out.csv }\n  write_mode: append",
            "rejects_need_manifests",
        ),
        (
            "bad",
            "config: { path: \"out/part-{part}.csv\" }\n  write_mode: replace",
            "rejects_need_manifests",
        ),
        ("raw.bad", grows, "invalid_name"),
        ("../bad", grows, "invalid_name"),
    ] {
        let files = Files::new();
        let failed = document(&files.run(to, destination, None), 2);
        assert_eq!(failed["error"]["code"], code, "{destination} {failed:#}");
        if code == "rejects_need_manifests" && !destination.contains("{part}") {
            let listed = files.verb("list", &[], 2);
            assert_eq!(listed["error"]["code"], code, "{destination} {listed:#}");
        }
        assert!(!files.0.path().join("out").exists(), "{destination}");
    }
}

const JSONL: &str = "config: { path: \"out/{stream}/part-{part}.jsonl\" }\n  write_mode: append";
const CSV: &str =
    "config: { path: \"out/{stream}/part-{part}.csv\", header: false }\n  write_mode: append";

#[test]
fn rejects_of_files_are_listed_and_replayed() {
    let files = Files::new();
    document(&files.run("bad", JSONL, None), 0);
    assert_eq!(files.verb("list", &[], 0)["rejects"], 2);
    assert_eq!(files.ids(), ["out/t#2.1", "out/t#2.2"]);
    let arguments = ["rejects", "show", "p.yaml", "--jsonl"];
    let shown = files.0.rapidbyte(&arguments).stdout;
    files
        .0
        .write("fixed.jsonl", shown.replace("\"x,2,b\"", "\"2,2,b\""));
    let from = ["--from", "fixed.jsonl"];
    let replayed = files.replay(&from, 0);
    let counts = ["replayed", "rows", "rejected"].map(|key| replayed[key].as_u64().unwrap_or(99));
    assert_eq!(counts, [2, 1, 1], "{replayed:#}");
    let landed = r#"{"id":2,"total":2.0,"name":"b"}"#;
    assert_eq!(
        files.lines().iter().filter(|line| *line == landed).count(),
        1
    );
    assert_eq!(files.lines().len(), 4);
    // It failed again, at its place of before.
    assert_eq!(files.ids(), ["out/t#2.2:6.1"]);
    let again = files.replay(&from, 4);
    assert_eq!(again["error"]["code"], "reject_missing", "{again:#}");
    assert_eq!(files.lines().len(), 4);
    // Repaired in the file itself.
    let folder = files.0.files("out/t/_manifest");
    let kept = folder
        .iter()
        .filter(|file| file.ends_with(".rejects.jsonl"));
    let path = format!("out/t/_manifest/{}", kept.max().expect("a file of rejects"));
    files
        .0
        .write(&path, files.0.read(&path).replace(r#"\"NaN\""#, "3.5"));
    assert_eq!(files.replay(&[], 0)["rows"], 1);
    assert_eq!((files.lines().len(), files.ids().len()), (5, 0));
    assert_eq!(files.replay(&[], 0)["replayed"], 0);
    // The next run appends as if there had been no replay.
    document(&files.run("bad", JSONL, None), 0);
    assert_eq!((files.lines().len(), files.ids().len()), (8, 2));
    files.0.write(&path, "what\n");
    let broken = files.verb("list", &[], 4);
    assert_eq!(broken["error"]["code"], "rejects_unreadable", "{broken:#}");
    assert!(
        broken["error"]["location"]
            .as_str()
            .is_some_and(|at| at.ends_with(".jsonl:1"))
    );
}

/// Pages of two directories, with records that fail again at their places.
#[test]
fn pages_of_rejects_keep_their_order() {
    let files = Files::new();
    let folder = &files.0;
    let rows = |of: &str| {
        let bad = |n: u32| format!("{of}{n},1,a\n");
        format!(
            "id,total,name\n1,1,a\n{}",
            (0..1500).map(bad).collect::<String>()
        )
    };
    folder.write("in/t.csv", rows("t"));
    folder.write("in/u.csv", rows("u"));
    let text = "version: 1\npipeline: p\nrejects: { max_rows: 5000, to: bad }\nsource:\n  use: source-file\n  \
         config: { path: \"in/{stream}.csv\", schema: { id: int64, total: float64, name: string } }\n  \
         streams: [t, u]\ndestination:\n  use: dest-file\n  config: { path: \"out/{stream}/part-{part}.csv\" }\n  \
         write_mode: append\n";
    folder.write("p.yaml", text);
    let run = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
    document(&run, 0);
    let all = |of: &str| {
        (1..=1500)
            .map(|line| format!("out/{of}#2.{line}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(files.ids(), [all("t"), all("u")].concat());
    let again = files.replay(&[], 0);
    assert_eq!(
        (&again["replayed"], &again["rejected"]),
        (&1500.into(), &1500.into())
    );
    let of_t = all("t")
        .into_iter()
        .zip(1..)
        .map(|(id, line)| format!("{id}:4.{line}"));
    assert_eq!(files.ids(), [of_t.collect(), all("u")].concat());
}

#[test]
fn a_replay_that_is_killed_lands_each_record_once() {
    for point in [
        "dest-file.fencing",
        "dest-file.fence_linked",
        "dest-file.settled",
        "dest-file.data_synced",
        "dest-file.linking",
        "dest-file.manifest_linked",
        "dest-file.published",
        "dest-file.committed",
        "engine.committed",
    ] {
        for how in ["kill", "error"] {
            let files = Files::new();
            document(&files.run("bad", CSV, None), 0);
            assert_eq!(files.ids(), ["out/t#2.1"]);
            files.declare("id: string, total: float64, name: string");
            let mut command = files
                .0
                .command(&["rejects", "replay", "p.yaml", "--stream", "t"]);
            command.env("RAPIDBYTE_FAULTS", format!("{point}={how}"));
            let ended = command.output().expect("the program starts");
            // The replay itself retries after an error.
            let ended = ended.status.success();
            assert!(!ended || how == "error", "{point}={how}");
            files.replay(&[], 0);
            assert_eq!(files.ids(), Vec::<String>::new(), "{point}={how}");
            // The next run gives committed files their names, and appends all rows.
            let run = files.0.rapidbyte(&["run", "p.yaml", "--output", "json"]);
            document(&run, 0);
            let landed = files
                .lines()
                .into_iter()
                .filter(|line| line.starts_with('x'));
            assert_eq!(landed.count(), 2, "{point}={how}");
            assert_eq!(files.lines().len(), 10, "{point}={how}");
        }
    }
}

#[test]
fn a_replay_into_files_fences_no_run_of_this_machine() {
    let files = Files::new();
    document(&files.run("bad", CSV, None), 0);
    let run = Started::stopped_at(&files.0, "dest-file.data_synced");
    let refused = files.replay(&[], 5);
    assert_eq!(refused["error"]["code"], "already_running", "{refused:#}");
    run.kill();
    files.declare("id: string, total: float64, name: string");
    assert_eq!(files.replay(&[], 0)["rows"], 1);
}

/// A name in the row means another column now.
#[test]
fn a_row_whose_columns_were_renamed_since_then_is_not_replayed() {
    let server = shared().database();
    let mut client = server.client();
    let sql = "CREATE TABLE s (id int PRIMARY KEY, a float8, b float8); INSERT INTO s VALUES (1, 'NaN', 1), (2, 2, 2)";
    client.batch_execute(sql).expect("a table");
    let files = Files::new();
    let text = format!(
        "version: 1\npipeline: p\nrejects: {{ max_rows: 5, to: bad }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: {:?} }}\n  streams: [public.s]\ndestination:\n  use: dest-file\n  \
         config: {{ path: \"out/{{stream}}/part-{{part}}.jsonl\" }}\n  write_mode: append\n",
        server.url()
    );
    files.0.write("p.yaml", text);
    document(
        &files.0.rapidbyte(&["run", "p.yaml", "--output", "json"]),
        0,
    );
    let shown = files.0.rapidbyte(&["rejects", "show", "p.yaml", "--jsonl"]);
    files
        .0
        .write("fixed.jsonl", shown.stdout.replace("\"NaN\"", "7"));
    client
        .batch_execute(
            "ALTER TABLE s RENAME a TO c; ALTER TABLE s RENAME b TO a; ALTER TABLE s RENAME c TO b",
        )
        .expect("renames");
    let replay = |code| {
        files.verb(
            "replay",
            &["--stream", "public.s", "--from", "fixed.jsonl"],
            code,
        )
    };
    let refused = replay(4);
    assert_eq!(
        refused["error"]["code"], "reject_columns_changed",
        "{refused:#}"
    );
    client
        .batch_execute(
            "ALTER TABLE s RENAME a TO c; ALTER TABLE s RENAME b TO a; ALTER TABLE s RENAME c TO b",
        )
        .expect("renames");
    assert_eq!(replay(0)["rows"], 1);
}

/// A run that was killed after its commit is known to the next run, whatever was replayed in between.
#[test]
fn a_replay_between_an_interrupted_run_and_the_next_one_doubles_nothing() {
    for fails_again in [true, false] {
        let files = Files::new();
        let fault = Some("engine.committed=kill");
        assert_ne!(files.run("bad", CSV, fault).code, Some(0));
        let declared = files.0.read("p.yaml");
        if !fails_again {
            files.declare("id: string, total: float64, name: string");
        }
        assert_eq!(files.replay(&[], 0)["rejected"], u64::from(fails_again));
        files.0.write("p.yaml", &declared);
        let run = files.0.rapidbyte(&["run", "p.yaml", "--output", "json"]);
        document(&run, 0);
        assert_eq!(files.lines().len(), 4 + usize::from(!fails_again));
        assert_eq!(files.ids().len(), usize::from(fails_again));
    }
}

#[test]
fn a_path_that_is_not_in_its_shortest_form_is_the_same_directory() {
    for path in ["./out", "out/../out", "out/."] {
        let files = Files::new();
        let config = CSV.replace("out/{stream}", &format!("{path}/{{stream}}"));
        document(&files.run("bad", &config, None), 0);
        files.declare("id: string, total: float64, name: string");
        assert_eq!(files.replay(&[], 0)["rows"], 1, "{path}");
        assert_eq!(files.ids(), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn rejects_of_an_interrupted_commit_are_listed_and_a_file_without_a_line_is_refused() {
    let files = Files::new();
    let fault = Some("dest-file.manifest_linked=kill");
    assert_ne!(files.run("bad", JSONL, fault).code, Some(0));
    assert_eq!(files.ids(), ["out/t#2.1", "out/t#2.2"]);
    let shown = files
        .0
        .rapidbyte(&["rejects", "show", "p.yaml", "--jsonl"])
        .stdout;
    let one = shown
        .lines()
        .next()
        .expect("a line")
        .replace("x,2,b", "2,2,b");
    let of_another_run = one.replace("\"run_id\":\"", "\"run_id\":\"0");
    files.0.write("fixed.jsonl", of_another_run);
    let missing = files.replay(&["--from", "fixed.jsonl"], 4);
    assert_eq!(missing["error"]["code"], "reject_missing", "{missing:#}");
    files.0.write("fixed.jsonl", format!("\u{feff}{one}"));
    assert_eq!(files.replay(&["--from", "fixed.jsonl"], 0)["rows"], 1);
    let names = files.0.files("out/t/_manifest");
    let kept = names.iter().find(|name| name.ends_with(".rejects.jsonl"));
    let kept = format!("out/t/_manifest/{}", kept.expect("a file of rejects"));
    let text = files.0.read(&kept);
    files.0.write(&kept, text.lines().next().expect("a line"));
    let broken = files.replay(&[], 4);
    assert_eq!(broken["error"]["code"], "rejects_unreadable", "{broken:#}");
    files.0.write(&kept, &text);
    // A new column is for a run.
    let more = files.0.read("p.yaml");
    files.0.write(
        "t.csv",
        ROWS.replace("name\n", "name,more\n")
            .replace("a\n", "a,m\n"),
    );
    files.0.write(
        "p.yaml",
        more.replace("name: string", "name: string, more: string"),
    );
    files.0.write(
        "fixed.jsonl",
        r##"{"id": "out/t#2.2", "record": {"id": 3, "total": 3, "name": "c", "more": null}}"##,
    );
    let refused = files.replay(&["--from", "fixed.jsonl"], 2);
    assert_eq!(
        refused["error"]["code"], "replay_not_possible",
        "{refused:#}"
    );
    let hint = refused["error"]["hint"].as_str().unwrap_or_default();
    assert!(hint.starts_with("run the pipeline first"), "{refused:#}");
}
