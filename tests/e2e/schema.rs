//! The JSON Schema of pipelines, checked by a validator that is not ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::documents::pages;
use crate::support::Folder;

/// Gives the faults of each document as one JSON list of texts, in order of the arguments.
const CHECK: &str = "
import json, sys
import jsonschema, yaml
schema = json.load(open(sys.argv[1], encoding='utf-8'))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
documents = [yaml.safe_load(open(path, encoding='utf-8')) for path in sys.argv[2:]]
print(json.dumps([[e.message for e in validator.iter_errors(d)] for d in documents]))
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn published() -> PathBuf {
    root().join("docs/pipeline.schema.json")
}

/// The faults of each file.
#[track_caller]
fn faults(folder: &Folder, files: &[PathBuf]) -> Vec<Vec<String>> {
    folder.write("check.py", CHECK);
    let python = std::env::var_os("RAPIDBYTE_PYTHON").expect("set by `cargo xtask test`");
    let output = Command::new(python)
        .arg(folder.path().join("check.py"))
        .arg(published())
        .args(files)
        .output()
        .expect("Python starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).expect("lists of texts")
}

/// The pipelines of the repository.
fn examples() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("pipelines")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() >= 2, "{found:?}");
    found
}

#[test]
fn the_published_schema_is_what_the_program_prints() {
    let folder = Folder::new();
    for format in ["text", "json"] {
        let ended = folder.rapidbyte(&["schema", "--output", format]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let printed: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let published = std::fs::read_to_string(published()).expect("docs/pipeline.schema.json");
        let published: Value = serde_json::from_str(&published).expect("JSON");
        assert!(
            printed == published,
            "stale: target/release/rapidbyte schema > docs/pipeline.schema.json"
        );
    }
}

#[test]
fn the_published_reference_is_what_the_program_prints() {
    let printed = Folder::new().rapidbyte(&["reference"]);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    let published = root().join("docs/reference.md");
    let published = std::fs::read_to_string(published).expect("docs/reference.md");
    assert_eq!(
        published, printed.stdout,
        "run `rapidbyte reference > docs/reference.md`"
    );
}

/// The whole pipelines in a page.
fn pipelines_of(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("UTF-8");
    let blocks = text.split("\n```yaml\n").skip(1);
    let blocks = blocks.filter_map(|block| Some(block.split_once("\n```")?.0.to_owned()));
    blocks
        .filter(|block| block.contains("version: 1"))
        .collect()
}

#[test]
fn every_pipeline_of_the_documentation_keeps_the_schema() {
    let folder = Folder::new();
    let (mut names, mut files) = (Vec::new(), Vec::new());
    for page in pages() {
        for pipeline in pipelines_of(&page) {
            let name = format!("{}.yaml", names.len());
            folder.write(&name, pipeline);
            files.push(folder.path().join(&name));
            names.push(page.display().to_string());
        }
    }
    assert!(files.len() > 8, "{names:?}");
    for ((name, file), faults) in names.iter().zip(&files).zip(faults(&folder, &files)) {
        let text = std::fs::read_to_string(file).expect("UTF-8");
        assert_eq!(faults, [""; 0], "{name}: {text}");
    }
}

#[test]
fn every_example_names_the_schema_and_keeps_it() {
    let examples = examples();
    for (path, faults) in examples.iter().zip(faults(&Folder::new(), &examples)) {
        assert_eq!(faults, [""; 0], "{}", path.display());
        let text = std::fs::read_to_string(path).expect("UTF-8");
        let first = text.lines().next().unwrap_or_default();
        let named = first.strip_prefix("# yaml-language-server: $schema=");
        let named = named.unwrap_or_else(|| panic!("{}: {first}", path.display()));
        let named = path.parent().expect("a folder").join(named);
        let named = named.canonicalize().expect("the schema is there");
        assert_eq!(named, published().canonicalize().expect("a path"));
    }
}

const LEAST: &str = "\
version: 1
pipeline: orders
source:
  use: source-file
  config: { path: a.csv }
  streams: [orders]
destination:
  use: dest-file
  config: { path: b.csv }
";

const GOOD: [&str; 3] = [
    LEAST,
    "version: 1\npipeline: p\n\
     source:\n  use: source-postgres\n  config: { host: h, port: \"${PORT}\" }\n  streams: [\"a.*\"]\n\
     destination:\n  use: ./own.wasm\n  config: { any: thing }\n  write_mode: merge\n  primary_key: [id]\n\
     resources: { memory: \"${MEMORY}\", batch_bytes: 512kb, parallelism: 2, compression: lz4 }\n",
    "version: 1\npipeline: p\n\
     source:\n  use: source-generate\n  config: { rows: 10, columns: { a: int64, b: { type: string, length: [1, 2], nullable: \"${N}\" } } }\n  streams: [{ name: rows, rename: { a: b } }]\n\
     destination: { use: dest-postgres, config: { url: \"${U}\", load_method: \"${M}\", insert_rows: \"${R}\" } }\n",
];

const WRONG: [(&str, &str); 18] = [
    ("version: 1", "version: 2"),
    ("pipeline: orders", "pipeline: or ders"),
    ("pipeline: orders", "pipline: orders"),
    ("[orders]", "[{ name: orders, colums: [a] }]"),
    ("[orders]", "[{ columns: [a] }]"),
    ("[orders]", "[{ name: orders, sync_mode: full }]"),
    ("[orders]", "[]"),
    ("[orders]", "orders"),
    ("{ path: a.csv }", "{ path: a.csv, delimeter: x }"),
    ("{ path: a.csv }", "{}"),
    ("  config: { path: a.csv }\n", ""),
    ("{ path: a.csv }", "{ path: a.csv, header: maybe }"),
    ("{ path: a.csv }", "{ path: a.csv, format: cvs }"),
    ("{ path: a.csv }", "{ path: a.csv, sample_rows: -1 }"),
    ("use: source-file", "use: source-files"),
    ("use: source-file", "use: dest-file"),
    ("{ path: b.csv }", "{ path: b.csv }\n  write_mode: upsert"),
    (
        "{ path: b.csv }",
        "{ path: b.csv }\nresources: { memory: much }",
    ),
];

#[test]
fn the_schema_takes_what_is_right_and_refuses_wrong_keys_and_values() {
    let folder = Folder::new();
    let texts: Vec<String> = GOOD
        .into_iter()
        .map(str::to_owned)
        .chain(WRONG.map(|(from, to)| LEAST.replacen(from, to, 1)))
        .collect();
    let mut files = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let name = format!("{at}.yaml");
        folder.write(&name, text);
        files.push(folder.path().join(name));
    }
    for (at, faults) in faults(&folder, &files).into_iter().enumerate() {
        assert_eq!(
            faults.is_empty(),
            at < GOOD.len(),
            "{}{faults:#?}",
            texts[at]
        );
    }
}
