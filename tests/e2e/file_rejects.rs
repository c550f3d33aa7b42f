//! Rejects of a directory that grows: a file of them is part of the manifest that commits the rows around them.

use serde_json::Value;

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
        assert!(!files.0.path().join("out").exists(), "{destination}");
    }
    let files = Files::new();
    document(&files.run("bad", grows, None), 0);
    for more in [
        &["list", "p.yaml"][..],
        &["replay", "p.yaml", "--stream", "t"],
    ] {
        let arguments = [&["rejects"], more, &["--output", "json"]].concat();
        let failed = document(&files.0.rapidbyte(&arguments), 2);
        assert_eq!(failed["error"]["code"], "rejects_in_files", "{failed:#}");
    }
}
