//! The guides of `docs/authors/`, followed word by word, and what the verbs for authors refuse.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use rapidbyte_testkit::http::{Reply, Server};
use serde_json::Value;

use crate::examples::{Shop, examples};
use crate::support::{Ended, Folder, built, testkit};

/// Commands that install tools. `cargo xtask test` has installed the same versions; what it calls
/// them, and where the command would leave them in a project.
const INSTALLS: [(&str, Option<&str>, &str); 3] = [
    (
        "python3 -m venv .venv",
        Some("RAPIDBYTE_COMPONENTIZE_PY"),
        ".venv",
    ),
    (".venv/bin/pip install -r requirements.txt", None, ""),
    (
        "npm install",
        Some("RAPIDBYTE_COMPONENTIZE_JS"),
        "node_modules",
    ),
];

/// A block of a guide: the language and the file from its first line, and the text.
struct Block {
    language: String,
    /// A file of the project, for a block that is one.
    file: Option<String>,
    text: String,
}

/// The blocks of a page in order.
fn blocks(page: &str) -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/authors");
    let text = std::fs::read_to_string(path.join(page)).expect("UTF-8");
    let mut blocks = Vec::new();
    let mut parts = text.split("\n```");
    parts.next();
    while let (Some(block), Some(_)) = (parts.next(), parts.next()) {
        let (info, text) = block.split_once('\n').expect("a line");
        let (language, file) = match info.split_once(' ') {
            Some((language, file)) => (language, Some(file.to_owned())),
            None => (info, None),
        };
        blocks.push(Block {
            language: language.to_owned(),
            file,
            text: format!("{text}\n"),
        });
    }
    assert!(blocks.len() > 3, "{page} has only {} blocks", blocks.len());
    blocks
}

fn has_javascript() -> bool {
    let is_there = !built("RAPIDBYTE_COMPONENTIZE_JS").as_os_str().is_empty();
    if !is_there {
        eprintln!("SKIPPED: componentize-js could not be installed");
    }
    is_there
}

/// Somebody who follows a guide, in a folder with the program.
struct Author {
    folder: Folder,
    /// Where the last command ended.
    place: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Author {
    fn new() -> Self {
        let folder = Folder::new();
        folder.write("bin/.keep", "");
        let program = folder.path().join("bin/rapidbyte");
        std::os::unix::fs::symlink(built("RAPIDBYTE_BIN"), program).expect("a link");
        // Compiled dependencies stay, so that only the first test run compiles them.
        let compiled = built("RAPIDBYTE_TESTKIT").with_file_name("authoring");
        Self {
            place: folder.path().to_owned(),
            variables: vec![
                ("CARGO_TARGET_DIR", compiled),
                // Nobody waits for these rows, but for the compiler.
                ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0".into()),
                ("CARGO_PROFILE_RELEASE_LTO", "off".into()),
            ],
            folder,
        }
    }

    /// Types the commands of a block, which must succeed, and gives what they print.
    #[track_caller]
    fn types(&mut self, block: &str) -> String {
        let (mut script, mut printed) = (String::new(), String::new());
        for line in block.lines() {
            let command = line.strip_prefix("$ ");
            let command = command.unwrap_or_else(|| panic!("{line:?} is not a command"));
            match INSTALLS.iter().find(|(installs, ..)| *installs == command) {
                None => script += &format!("{command}\n"),
                Some((_, variable, name)) => {
                    printed += &self.runs(&std::mem::take(&mut script));
                    if let Some(tools) = variable.map(built) {
                        // The installed folder contains the folder `node_modules`.
                        let tools = if *name == "node_modules" {
                            tools.join(name)
                        } else {
                            tools
                        };
                        std::os::unix::fs::symlink(tools, self.place.join(name)).expect("a link");
                    }
                }
            }
        }
        printed + &self.runs(&script)
    }

    #[track_caller]
    fn runs(&mut self, script: &str) -> String {
        let told = self.folder.path().join("bin/.place");
        let script = format!("{script}pwd > '{}'\n", told.display());
        let mut shell = self.command("bash");
        let output = shell.args(["-euo", "pipefail", "-c", &script]).output();
        let ended: Ended = output.expect("bash").into();
        assert_eq!(ended.code, Some(0), "{script}\n{ended:?}");
        let place = std::fs::read_to_string(told).expect("UTF-8");
        self.place = place.trim_end().into();
        ended.stdout
    }

    fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").expect("PATH");
        let node = std::env::var("RAPIDBYTE_NODE_BIN").unwrap_or_default();
        let bin = self.folder.path().join("bin");
        let base = self.folder.command(&[]);
        let mut command = Command::new(program);
        command
            .current_dir(&self.place)
            .env_clear()
            .envs(base.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .envs(
                ["CARGO_HOME", "RUSTUP_HOME"]
                    .iter()
                    .filter_map(|name| Some((*name, std::env::var_os(name)?))),
            )
            .env("PATH", format!("{}:{node}:{path}", bin.display()))
            // Everything that the SDK needs is there: this workspace has the same versions.
            .env("CARGO_NET_OFFLINE", "true")
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Follows a page: types its commands, writes its files, and compares the files of `out/`. `made` checks
    /// a new project right after the block that makes and builds it: another build would take half a minute.
    #[track_caller]
    fn follows(&mut self, page: &str, made: impl Fn(&mut Self, &str)) {
        for block in blocks(page) {
            match (&*block.language, &block.file) {
                ("console", None) => {
                    self.types(&block.text);
                    let new = block.text.split_once("connector new ");
                    if let Some((name, _)) = new.and_then(|(_, name)| name.split_once(' ')) {
                        made(self, name);
                    }
                }
                (_, Some(file)) if file.starts_with("out/") => {
                    let written = std::fs::read_to_string(self.place.join(file));
                    assert_eq!(written.expect("UTF-8"), block.text, "{file}");
                }
                (_, Some(file)) => {
                    let path = self.place.join(file);
                    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                    std::fs::write(path, &block.text).expect("a file");
                }
                (language, None) => panic!("{page}: a block of {language} that nobody tries"),
            }
        }
    }

    /// The error of a command of the program.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let mut command = self.command("rapidbyte");
        let output = command.args(arguments).args(["--output", "json"]).output();
        let ended: Ended = output.expect("the program starts").into();
        let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
        (document["error"].clone(), ended.code)
    }
}

fn new<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["connector", "new", name];
    arguments.extend(more);
    arguments
}

const RUST: [&str; 4] = ["--kind", "source", "--lang", "rust"];

#[test]
fn the_guide_for_rust_leads_to_rows() {
    let mut author = Author::new();
    author.follows("tutorial-rust.md", |author, _| {
        a_source_keeps_the_contract(author)
    });
    // From nothing to rows that were moved.
    let first = blocks("tutorial-rust.md").remove(0);
    assert!(first.text.lines().count() < 10);
    assert!(first.text.contains("rapidbyte run"));
    let place = author.place.clone();
    std::fs::write(place.join("data/north.txt"), "2026-11-21T10:00:00Z warm\n").expect("a file");
    let (error, exit) = author.refused(&["run", "pipeline.yaml"]);
    let found = (error["code"].as_str(), exit);
    assert_eq!(found, (Some("no_number"), Some(4)), "{error:#}");
    assert!(error.to_string().contains("data/north.txt:1"), "{error:#}");
    a_destination_is_built_and_written_to(&mut author);
    a_transform_hides_texts_and_keeps_the_contract(&mut author);
    wrong_code_is_reported(&mut author);
}

/// After the guide, with what it compiled.
fn a_destination_is_built_and_written_to(author: &mut Author) {
    author.place = author.folder.path().to_owned();
    let typed = "$ rapidbyte connector new dest-lines --kind destination --lang rust\n\
                 $ rapidbyte connector build dest-lines\n\
                 $ rapidbyte run dest-lines/pipeline.yaml\n\
                 $ cd dest-lines\n$ cargo test --release > /dev/null\n$ cd ..\n\
                 $ cat dest-lines/out/rows.jsonl";
    let printed = author.types(typed);
    let rows = printed.lines().filter(|line| line.starts_with("{\"id\":"));
    assert_eq!(rows.count(), 1000);
}

/// Likewise.
fn a_transform_hides_texts_and_keeps_the_contract(author: &mut Author) {
    let typed = "$ rapidbyte connector new transform-mask --kind transform --lang rust\n\
                 $ rapidbyte connector build transform-mask\n\
                 $ rapidbyte run transform-mask/pipeline.yaml\n\
                 $ cat transform-mask/out/rows.csv";
    let printed = author.types(typed);
    let rows = printed.lines().filter(|line| line.ends_with(",***"));
    assert_eq!(rows.count(), 1000);
    let typed = "$ rapidbyte connector test transform-mask/transform-mask.wasm --config '{ column: c_string }'\n\
                 $ cd transform-mask\n$ cargo test --release > /dev/null\n$ cd ..";
    let printed = author.types(typed);
    assert!(
        printed.contains(" passed, 0 failed, 0 skipped"),
        "{printed}"
    );
}

fn wrong_code_is_reported(author: &mut Author) {
    let code = author.place.join("dest-lines/src/lib.rs");
    std::fs::write(code, "fn broken(").expect("a file");
    let (error, exit) = author.refused(&["connector", "build", "dest-lines"]);
    assert_eq!(
        (error["code"].as_str(), exit),
        (Some("build_failed"), Some(1))
    );
    // A component that is there stays as it is.
    assert!(author.place.join("dest-lines/dest-lines.wasm").is_file());
}

/// In the guides in scripting languages, the source: a line that cannot be read.
#[track_caller]
fn a_bad_line_is_reported_with_its_place(author: &mut Author) {
    author.place = author.folder.path().join("source-weather");
    let place = author.place.clone();
    std::fs::write(place.join("data/north.txt"), "2026-11-21T10:00:00Z warm\n").expect("a file");
    let (error, exit) = author.refused(&["run", "pipeline.yaml"]);
    let found = (error["code"].as_str(), exit);
    assert_eq!(found, (Some("no_number"), Some(4)), "{error:#}");
    assert!(error.to_string().contains("data/north.txt:1"), "{error:#}");
    // A value that its column cannot hold: the place is the row.
    std::fs::write(
        place.join("data/north.txt"),
        "2026-11-21T10:00:00Z 1\nnoon 2\n",
    )
    .expect("a file");
    let (error, exit) = author.refused(&["run", "pipeline.yaml"]);
    let found = (error["code"].as_str(), error["column"].as_str(), exit);
    assert_eq!(
        found,
        (Some("value_does_not_fit"), Some("time"), Some(4)),
        "{error:#}"
    );
    assert!(error.to_string().contains("row 2"), "{error:#}");
}

/// The destination of those guides: the error names a column that cannot be written, a stream that fails
/// leaves no file, and no value loses a digit.
#[track_caller]
fn a_destination_is_whole_or_not_there(author: &mut Author) {
    let table = author.folder.path().join("dest-table");
    author.place = table.clone();
    let before = author.folder.files("dest-table/out");
    std::fs::write(table.join("notes.jsonl"), EVERY_TYPE).expect("a file");
    let pipeline = |types: &str| {
        format!(
            "version: 1\npipeline: notes\nsource:\n  use: source-file\n  config:\n    path: notes.jsonl\n    \
             schema: {{ {types} }}\n  streams: [notes]\ndestination:\n  use: ./dest-table.wasm\n  config: \
             {{ path: \"out/{{stream}}.md\" }}\n  write_mode: replace\n"
        )
    };
    std::fs::write(table.join("notes.yaml"), pipeline(TYPES)).expect("a file");
    // By `plan` already.
    let (error, _) = author.refused(&["run", "notes.yaml"]);
    assert_eq!(error["column"], "tags", "{error:#}");
    let flat = TYPES.replace(", tags: \"list<decimal(4, 2)>\"", "");
    let broken = "{\"id\": 1}\n{\"id\": \"two\"}\n";
    std::fs::write(table.join("notes.jsonl"), broken).expect("a file");
    std::fs::write(table.join("notes.yaml"), pipeline(&flat)).expect("a file");
    let (error, exit) = author.refused(&["run", "notes.yaml"]);
    let found = (error["code"].as_str(), error["column"].as_str(), exit);
    let expected = (Some("value_does_not_fit"), Some("id"), Some(4));
    assert_eq!(found, expected, "{error:#}");
    assert_eq!(author.folder.files("dest-table/out"), before);
    // A BigInt, a decimal and a document keep all of their digits.
    let values = EVERY_TYPE.replace(", \"tags\": [1.50]", "");
    std::fs::write(table.join("notes.jsonl"), values).expect("a file");
    author.types("$ rapidbyte run notes.yaml");
    let written = std::fs::read_to_string(table.join("out/notes.md")).expect("UTF-8");
    assert_eq!(
        written.lines().nth(2),
        Some(
            "| 9007199254740993 | -12345678901234567.125 | 2026-11-22T10:00:00.500000Z | \\x00ff | {\"a\": 1.10} | ä\\|b |"
        )
    );
}

/// Columns of such types, and one row.
const TYPES: &str = "id: int64 not null, total: \"decimal(20, 3)\", at: timestamptz, raw: binary, any: json, \
                     text: string, tags: \"list<decimal(4, 2)>\"";
const EVERY_TYPE: &str = r#"{"id": 9007199254740993, "total": -12345678901234567.125, "at": "2026-11-22T12:00:00.5+02:00", "raw": "\\x00ff", "any": {"a": 1.10}, "text": "ä|b", "tags": [1.50]}"#;

#[test]
fn the_guide_for_python_leads_to_rows() {
    let mut author = Author::new();
    author.follows("tutorial-python.md", |author, name| match name {
        "source-weather" => {
            a_build_failed(author);
            does_not_grow_with_its_rows(author);
            a_source_keeps_the_contract(author);
        }
        _ => keeps_the_contract(author),
    });
    no_build_failed(&author);
    a_destination_is_whole_or_not_there(&mut author);
    a_bad_line_is_reported_with_its_place(&mut author);
}

/// Leaves the log of a build that failed in `source-weather`, before the guide builds it again.
fn a_build_failed(author: &Author) {
    author
        .folder
        .write("source-weather/rapidbyte/build.log", "failed");
}

/// A build that succeeds removes the log of one that failed.
#[track_caller]
fn no_build_failed(author: &Author) {
    let built = author.folder.files("source-weather/rapidbyte");
    assert!(
        !built.is_empty() && !built.contains(&"build.log".to_owned()),
        "{built:?}"
    );
}

/// A tool that keeps what it hands over would show: the rows are more than the memory.
#[track_caller]
fn does_not_grow_with_its_rows(author: &mut Author) {
    let pipeline = std::fs::read_to_string(author.place.join("pipeline.yaml")).expect("UTF-8");
    let more = pipeline.replace("rows: 100000 ", "rows: 400000 ");
    assert_ne!(more, pipeline);
    let more = more.replace("pipeline: ", "pipeline: more-") + "resources: { memory: 32mb }\n";
    std::fs::write(author.place.join("more.yaml"), more).expect("a file");
    author.types("$ rapidbyte run more.yaml\n$ rm -r more.yaml out");
}

/// A new source keeps the contract, including the size of its batches.
#[track_caller]
fn a_source_keeps_the_contract(author: &mut Author) {
    let printed = author.types(
        "$ rapidbyte connector test ./source-weather.wasm --config '{ rows: 20000 }' --output json",
    );
    let document: Value = serde_json::from_str(&printed).expect("one document");
    let clauses = document["clauses"].as_array().expect("clauses");
    let sizes = clauses.iter().find(|clause| clause["id"] == "batch-bytes");
    assert_eq!(sizes.expect("it")["verdict"], "pass", "{document:#}");
}

/// A new destination in a scripting language keeps the contract. The test skips some clauses: the
/// destination keeps no cursor, and its tool imports all that it may.
#[track_caller]
fn keeps_the_contract(author: &mut Author) {
    let printed = author.types(
        "$ rapidbyte connector test ./dest-table.wasm --config '{ path: \"out/{stream}.jsonl\" }' \
         --peer source-file --peer-config '{ path: \"out/{stream}.jsonl\" }' --output json",
    );
    let document: Value = serde_json::from_str(&printed).expect("one document");
    let clauses = document["clauses"].as_array().expect("clauses");
    let skipped = clauses.iter().filter(|clause| clause["verdict"] != "pass");
    let skipped: Vec<_> = skipped.map(|clause| clause["id"].as_str()).collect();
    let expected = [
        "imports",
        "append",
        "upsert",
        "progress",
        "commit-once",
        "fence",
        "pipelines",
        "rejects",
    ]
    .map(Some);
    assert_eq!(skipped, expected, "{document:#}");
}

/// A script that does not run: the last exception and the author's line, and where the rest is.
#[track_caller]
fn a_wrong_script_is_reported(
    language: &str,
    install: &str,
    file: &str,
    line: &str,
    parts: &[&str],
) {
    let mut author = Author::new();
    author.types(&format!(
        "$ rapidbyte connector new source-shop --kind source --lang {language}\n$ cd source-shop\n{install}"
    ));
    let path = author.place.join(file);
    let text = std::fs::read_to_string(&path).expect("UTF-8");
    let number = text.lines().count() + 1;
    std::fs::write(&path, format!("{text}{line}\n")).expect("a file");
    let told = |verbose: &[&str]| -> Ended {
        let mut command = author.command("rapidbyte");
        let output = command.args(["connector", "build"]).args(verbose).output();
        output.expect("the program starts").into()
    };
    let ended = told(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let place = format!("error[build_failed] {file}:{number}");
    for part in parts.iter().copied().chain([place.as_str(), "build.log"]) {
        assert!(
            ended.stderr.contains(part),
            "{part} is not in {}",
            ended.stderr
        );
    }
    assert!(ended.stderr.lines().count() <= 4, "{}", ended.stderr);
    let log = std::fs::read_to_string(author.place.join("rapidbyte/build.log")).expect("UTF-8");
    assert!(
        parts.iter().all(|part| log.contains(part)) && log.lines().count() > 4,
        "{log}"
    );
    // The tool stops before it runs the script, which takes a moment instead of half a minute.
    std::fs::remove_dir_all(author.place.join("rapidbyte/wit")).expect("a folder");
    let ended = told(&["--verbose"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("rapidbyte/wit"), "{ended:?}");
    assert!(
        ended.stderr.contains("what is wrong stands above"),
        "{ended:?}"
    );
}

#[test]
fn a_wrong_script_in_python_is_reported() {
    let (line, parts) = (
        "nothing_there.x = 1",
        ["NameError: name 'nothing_there' is not defined"],
    );
    a_wrong_script_is_reported(
        "python",
        "$ python3 -m venv .venv\n",
        "connector.py",
        line,
        &parts,
    );
}

#[test]
fn a_wrong_script_in_javascript_is_reported() {
    if has_javascript() {
        let (line, parts) = (
            "nothingThere.x = 1;",
            ["ReferenceError: nothingThere is not defined"],
        );
        a_wrong_script_is_reported(
            "javascript",
            "$ npm install\n",
            "connector.js",
            line,
            &parts,
        );
    }
}

/// A language of the guides: how a project of it is set up, and what the guides say of `append`, put into what a
/// destination begins as: a new file for each run, under the first number that is free where `path` has one.
struct Appends {
    language: &'static str,
    install: &'static str,
    file: &'static str,
    changes: &'static [[&'static str; 2]],
    /// Begins a file twice and commits both, and gives settings that an `enum` and a `maximum` forbid, all without
    /// the host.
    natively: &'static str,
}

const IN_PYTHON: Appends = Appends {
    language: "python",
    install: "$ python3 -m venv .venv",
    file: "connector.py",
    changes: &[
        ["write_modes = [\"replace\"]", "write_modes = [\"append\"]"],
        [
            "        path = self.file(target.stream)\n        return Plan(",
            "        path = self.next(target)\n        return Plan(",
        ],
        [
            "        return Writer(self.file(target.stream))\n",
            "        assert target.write_mode == \"append\"\n        return Writer(self.next(target))\n\n    \
             def next(self, target):\n        path, number = self.file(target.stream), 1\n        \
             while \"{part}\" in path and exists(path.replace(\"{part}\", str(number))):\n            \
             number += 1\n        return path.replace(\"{part}\", str(number))\n",
        ],
        [
            "self.file = Output(path)",
            "self.file = Output.create_new(path)",
        ],
    ],
    natively: "from rapidbyte import Error, checked_config\nfrom rapidbyte.files import Output\n\
               a, b = Output.create_new('new'), Output.create_new('new')\n\
               a.write('first'), b.write('second'), a.commit()\n\
               try:\n    b.commit()\nexcept Error as error:\n    print(error.code)\na.abort(), b.abort()\n\
               items = {'type': 'array', 'items': {'type': ['string', 'null'], 'pattern': '^[a-z]+$'}}\n\
               schema = {'properties': {'a': {'enum': ['x', 1]}, 'n': {'maximum': 3}, 'l': items}}\n\
               checked_config(schema, {'a': 'x', 'n': 3}), checked_config(schema, {'a': 1})\n\
               checked_config(schema, {'l': []}), checked_config(schema, {'l': ['abc', None]})\n\
               for config in [{'a': 'z'}, {'a': True}, {'n': 4}, {'l': ['a', 1]}, {'l': ['a', 'B']}]:\n    try:\n        checked_config(schema, config)\n    \
               except Error as error:\n        print(error.code)\n",
};

const IN_JAVASCRIPT: Appends = Appends {
    language: "javascript",
    install: "$ npm install",
    file: "connector.js",
    changes: &[
        ["writeModes = [\"replace\"]", "writeModes = [\"append\"]"],
        [
            "    const location = this.file(target.stream);\n",
            "    const location = this.next(target);\n",
        ],
        [
            "    return new Writer(this.file(target.stream));\n  }\n",
            "    return new Writer(this.next(target));\n  }\n\n  next(target) {\n    \
             const path = this.file(target.stream);\n    let number = 1;\n    \
             while (path.includes(\"{part}\") && exists(path.replace(\"{part}\", number))) number++;\n    \
             return path.replace(\"{part}\", number);\n  }\n",
        ],
        [
            "this.file = new Output(path)",
            "this.file = Output.createNew(path)",
        ],
    ],
    natively: "import { Output } from './rapidbyte/files.js';\n\
               import { checkedConfig } from './rapidbyte/rapidbyte.js';\n\
               const [a, b] = [Output.createNew('new'), Output.createNew('new')];\n\
               a.write('first'); b.write('second'); a.commit();\n\
               try { b.commit(); } catch (error) { console.log(error.code); }\na.abort(); b.abort();\n\
               const items = { type: 'array', items: { type: ['string', 'null'], pattern: '^[a-z]+$' } };\n\
               const schema = { properties: { a: { enum: ['x', 1] }, n: { maximum: 3 }, l: items } };\n\
               checkedConfig(schema, { a: 'x', n: 3 }), checkedConfig(schema, { a: 1 });\n\
               checkedConfig(schema, { l: [] }), checkedConfig(schema, { l: ['abc', null] });\n\
               for (const config of [{ a: 'z' }, { a: true }, { n: 4 }, { l: ['a', 1] }, { l: ['a', 'B'] }]) {\n  \
               try { checkedConfig(schema, config); } catch (error) { console.log(error.code); }\n}\n",
};

/// A run adds all of its rows to the rows of earlier runs, or none. A destination in a scripting language
/// cannot change rows.
#[track_caller]
fn a_destination_appends(appends: &Appends) {
    let mut author = Author::new();
    author.types(&format!(
        "$ rapidbyte connector new dest-lines --kind destination --lang {}\n$ cd dest-lines\n{}",
        appends.language, appends.install
    ));
    let edit = |file: &str, changes: &[[&str; 2]]| {
        let path = author.place.join(file);
        let mut text = std::fs::read_to_string(&path).expect("UTF-8");
        for [from, to] in changes {
            assert!(text.contains(from), "{from:?} is not in {file}");
            text = text.replace(from, to);
        }
        std::fs::write(path, text).expect("a file");
    };
    edit(appends.file, appends.changes);
    edit(
        "pipeline.yaml",
        &[
            ["{stream}.jsonl", "{stream}-{part}.jsonl"],
            ["write_mode: replace", "write_mode: append"],
        ],
    );
    author.types(
        "$ rapidbyte connector build\n$ rapidbyte run pipeline.yaml\n$ rapidbyte run pipeline.yaml",
    );
    let lines = |file: &str| {
        let text = std::fs::read_to_string(author.place.join("out").join(file)).expect("UTF-8");
        text.lines().count()
    };
    let files = author.folder.files("dest-lines/out");
    assert_eq!(files, ["rows-1.jsonl", "rows-2.jsonl"]);
    assert!(files.iter().all(|file| lines(file) == 1000));
    let plan = author.types("$ rapidbyte plan pipeline.yaml");
    assert!(plan.contains("rows-3.jsonl"), "{plan}");
    // A run that fails adds no file.
    let pipeline = std::fs::read_to_string(author.place.join("pipeline.yaml")).expect("UTF-8");
    std::fs::write(
        author.place.join("in.jsonl"),
        "{\"id\": 1}\n{\"id\": \"two\"}\n",
    )
    .expect("a file");
    let (head, rest) = pipeline
        .split_once("  use: source-generate\n")
        .expect("a source");
    let (_, rest) = rest.split_once("destination:\n").expect("a destination");
    let broken = format!(
        "{head}  use: source-file\n  config: {{ path: in.jsonl, schema: {{ id: int64 }} }}\n  \
         streams: [in]\ndestination:\n{rest}"
    );
    std::fs::write(author.place.join("broken.yaml"), broken).expect("a file");
    let (error, _) = author.refused(&["run", "broken.yaml"]);
    assert_eq!(error["code"], "value_does_not_fit", "{error:#}");
    assert_eq!(author.folder.files("dest-lines/out").len(), 2);
    // A write mode that it does not offer is refused before anything else.
    std::fs::write(
        author.place.join("upsert.yaml"),
        pipeline.replace(
            "write_mode: append",
            "write_mode: upsert\n  primary_key: [id]",
        ),
    )
    .expect("a file");
    let (error, exit) = author.refused(&["run", "upsert.yaml"]);
    let found = (error["code"].as_str(), exit);
    assert_eq!(
        found,
        (Some("unsupported_write_mode"), Some(2)),
        "{error:#}"
    );
    a_new_file_replaces_none(&mut author, &pipeline, appends);
}

/// Two runs that chose the same name: the second one does not replace the first one's file. Without a number in
/// `path` every run chooses as if it were alone.
#[track_caller]
fn a_new_file_replaces_none(author: &mut Author, pipeline: &str, appends: &Appends) {
    let [first, second] = [("first", 7), ("second", 8)].map(|(name, rows)| {
        let text = pipeline.replace("-{part}.jsonl", "-same.jsonl");
        let text = text.replace("rows: 1000", &format!("rows: {rows}"));
        std::fs::write(author.place.join(format!("{name}.yaml")), &text).expect("a file");
        assert!(text.contains(&format!("rows: {rows}")), "{text}");
        format!("{name}.yaml")
    });
    author.types(&format!("$ rapidbyte run {first}"));
    let (error, exit) = author.refused(&["run", &second]);
    let found = (error["code"].as_str(), exit);
    assert_eq!(found, (Some("file_exists"), Some(2)), "{error:#}");
    let written = std::fs::read_to_string(author.place.join("out/rows-same.jsonl"));
    assert_eq!(written.expect("UTF-8").lines().count(), 7);
    let files = author.folder.files("dest-lines/out");
    assert_eq!(files.len(), 3, "{files:?}");
    // The same in tests without the host.
    let script = author.place.join(if appends.language == "python" {
        "twice.py"
    } else {
        "twice.mjs"
    });
    std::fs::write(&script, appends.natively).expect("a file");
    let run = match appends.language {
        "python" => "$ python3 twice.py\n",
        _ => "$ node --import ./rapidbyte/native.mjs twice.mjs\n",
    };
    let printed = author.types(&format!("{run}$ cat new\n$ ls new*"));
    let refused = "invalid_config\n".repeat(5);
    assert_eq!(printed, format!("file_exists\n{refused}firstnew\n"));
}

#[test]
fn a_destination_in_python_appends() {
    a_destination_appends(&IN_PYTHON);
}

#[test]
fn a_destination_in_javascript_appends() {
    if has_javascript() {
        a_destination_appends(&IN_JAVASCRIPT);
    }
}

#[test]
fn the_guide_for_javascript_leads_to_rows() {
    if !has_javascript() {
        return;
    }
    let mut author = Author::new();
    author.follows("tutorial-javascript.md", |author, name| match name {
        "dest-table" => keeps_the_contract(author),
        _ => a_build_failed(author),
    });
    no_build_failed(&author);
    a_destination_is_whole_or_not_there(&mut author);
    a_bad_line_is_reported_with_its_place(&mut author);
}

/// The example of a language reads the pages of an API, says who it is, and tells what it is refused.
#[track_caller]
fn an_example_reads_an_api(language: &str, install: &str, test: &str) {
    // More pages than fit the limit of handles if a request kept one of each kind, and a server that is
    // busy now and then.
    const PAGES: u64 = 1100;
    let asked = AtomicU64::new(0);
    let server = Server::start(move |request| {
        if request.path == "/long/items" {
            let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
            // Twice it says when it is to be asked again.
            if number.is_multiple_of(37) {
                let busy = Reply::status(503, "busy");
                return match number > 100 {
                    true => busy.header("retry-after", "0"),
                    false => busy,
                };
            }
            let page = request
                .param("after")
                .map_or(0, |after| after.parse().expect("a page"));
            let next = match page + 1 < PAGES {
                true => format!(r#", "next": "{}""#, page + 1),
                false => String::new(),
            };
            return Reply::json(format!(r#"{{"items": [{{"id": {page}}}]{next}}}"#));
        }
        assert_eq!(request.path, "/v1/items");
        if request.header("authorization") != Some("Bearer t0ken") {
            return Reply::status(401, "who are you?");
        }
        let page = match request.param("after") {
            None => r#"{"items": [{"id": 1, "name": "ä"}, {"id": 2, "other": 0}], "next": "2"}"#,
            Some("2") => {
                r#"{"items": [{"id": 9007199254740991, "updated_at": "2026-11-22T10:00:00+01:00"}]}"#
            }
            Some(after) => panic!("{after} was never given"),
        };
        Reply::json(page)
    });
    let mut author = Author::new();
    author.types(&format!(
        "$ rapidbyte connector new source-api --kind source --lang {language} --http\n\
         $ cd source-api\n{install}{test}$ rapidbyte connector build"
    ));
    author.variables.push(("API_URL", server.url("/v1").into()));
    let (error, exit) = author.refused(&["run", "pipeline.yaml"]);
    assert_eq!(error["code"], "http_unauthorized", "{error:#}");
    assert_eq!(exit, Some(3));
    let pipeline = author.place.join("pipeline.yaml");
    let text = std::fs::read_to_string(&pipeline).expect("UTF-8");
    let url = "base_url: \"${API_URL}\"";
    let with_token = text.replace(url, &format!("{url}\n    token: t0ken"));
    std::fs::write(&pipeline, with_token).expect("a file");
    let printed = author.types("$ rapidbyte run pipeline.yaml > /dev/null\n$ cat out/items.jsonl");
    let expected = "{\"id\":1,\"name\":\"ä\",\"updated_at\":null}\n\
        {\"id\":2,\"name\":null,\"updated_at\":null}\n\
        {\"id\":9007199254740991,\"name\":null,\"updated_at\":\"2026-11-22T09:00:00Z\"}\n";
    assert_eq!(printed, expected);
    // A busy server fails no read of many pages, and no request keeps its handles.
    let once = format!("{}\nretry: {{ max_attempts: 1 }}\n", text.trim_end());
    std::fs::write(&pipeline, once).expect("a file");
    author
        .variables
        .push(("API_URL", server.url("/long").into()));
    author.types("$ rapidbyte run pipeline.yaml > /dev/null");
    let written = std::fs::read_to_string(author.place.join("out/items.jsonl"));
    let ids = written
        .expect("UTF-8")
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).expect("JSON");
            row["id"].as_u64().expect("a number")
        })
        .collect::<Vec<_>>();
    assert_eq!(ids, (0..PAGES).collect::<Vec<_>>());
    let long = server.requests();
    let long = long.iter().filter(|request| request.path == "/long/items");
    assert_eq!(long.count() as u64, PAGES + PAGES / 36);
    // Where nobody listens.
    author
        .variables
        .push(("API_URL", "http://127.0.0.1:1".into()));
    let (error, exit) = author.refused(&["run", "pipeline.yaml"]);
    assert_eq!(exit, Some(3), "{error:#}");
}

#[test]
fn the_example_in_python_reads_an_api() {
    an_example_reads_an_api(
        "python",
        "$ python3 -m venv .venv\n",
        "$ python3 -m unittest\n",
    );
}

#[test]
fn the_example_of_pipelines_reads_a_feed_and_is_locked() {
    let (mut author, shop) = (Author::new(), Shop::start());
    let example = examples().join("python");
    author.variables.push(("EXAMPLE", example));
    author.variables.push(("API_URL", shop.url().into()));
    let printed = author.types(
        "$ rapidbyte connector new source-feed --kind source --lang python --http > /dev/null\n\
         $ cp \"$EXAMPLE\"/connector.py \"$EXAMPLE\"/pipeline.yaml source-feed/\n\
         $ cd source-feed\n\
         $ python3 -m venv .venv\n\
         $ rapidbyte connector build > /dev/null\n\
         $ rapidbyte lock pipeline.yaml > /dev/null\n\
         $ rapidbyte run pipeline.yaml > /dev/null\n\
         $ cat out/entries.jsonl",
    );
    let expected = "{\"id\":1,\"at\":\"2026-11-01\",\"title\":\"We are open\"}\n\
        {\"id\":2,\"at\":\"2026-11-02\",\"title\":\"Ünïcode in stock\"}\n\
        {\"id\":3,\"at\":\"2026-11-03\",\"title\":\"Free delivery & returns\"}\n";
    assert_eq!(printed, expected);
    std::fs::copy(
        testkit("source-python"),
        author.place.join("source-feed.wasm"),
    )
    .expect("a copy");
    let (error, exit) = author.refused(&["run", "pipeline.yaml"]);
    assert_eq!(error["code"], "connector_changed", "{error:#}");
    assert_eq!(exit, Some(2));
}

#[test]
fn the_example_in_javascript_reads_an_api() {
    if !has_javascript() {
        return;
    }
    an_example_reads_an_api("javascript", "$ npm install\n", "$ npm test\n");
}

/// A transform keeps the contract with a column of every type. The clauses that it skips need more than the template has.
#[track_caller]
fn a_transform_keeps_the_contract(author: &mut Author, name: &str) {
    let printed = author.types(&format!(
        "$ rapidbyte connector test {name}.wasm --config '{{ column: c_string }}' --output json"
    ));
    let document: Value = serde_json::from_str(&printed).expect("one document");
    let clauses = document["clauses"].as_array().expect("clauses");
    let passed = clauses.iter().filter(|clause| clause["verdict"] == "pass");
    assert!(passed.count() >= 10, "{document:#}");
}

/// Sends lines of JSON through a transform of this column.
#[track_caller]
fn transformed(
    author: &mut Author,
    transform: &str,
    column: &str,
    schema: &str,
    rows: &[String],
) -> Vec<String> {
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(author.place.join("in.jsonl"), lines).expect("a file");
    let pipeline = format!(
        "version: 1\npipeline: lines\nsource:\n  use: source-file\n  config: {{ path: in.jsonl, schema: {{ {schema} }} \
         }}\n  streams:\n    - name: in\n      transforms: [{{ use: {transform}, config: {{ column: {column} }} \
         }}]\ndestination:\n  use: dest-file\n  config: {{ path: \"out/{{stream}}.jsonl\" }}\n  write_mode: replace\n"
    );
    std::fs::write(author.place.join("lines.yaml"), pipeline).expect("a file");
    author.types("$ rapidbyte run lines.yaml");
    let found = std::fs::read_to_string(author.place.join("out/in.jsonl")).expect("rows");
    found.lines().map(str::to_owned).collect()
}

/// The project as it is made, and then with the code of the guide.
#[test]
fn a_transform_in_python_follows_the_guide() {
    let page = blocks("transforms.md");
    let typed = page
        .iter()
        .find(|block| block.text.contains("--lang python"));
    let code = page.iter().find(|block| block.language == "python");
    let (typed, code) = (typed.expect("commands"), code.expect("a connector"));
    let mut author = Author::new();
    author.types(typed.text.trim_start());
    let write = |author: &Author, path: &str, text: &str| {
        std::fs::write(author.place.join(path), text).expect("a file");
    };
    write(&author, "connector.py", code.text.trim_start());
    write(
        &author,
        "people.csv",
        "id,email\n1,ada@example.com\n2,\n3,x\n",
    );
    write(
        &author,
        "people.yaml",
        "version: 1\npipeline: people\nsource:\n  use: source-file\n  config: { path: people.csv }\n  streams:\n    \
         - name: people\n      transforms: [{ use: ./transform-domain.wasm, config: { column: email } }]\n\
         destination:\n  use: dest-file\n  config: { path: \"out/{stream}.csv\" }\n  write_mode: replace\n",
    );
    author.types("$ rapidbyte connector build\n$ rapidbyte run people.yaml");
    let row = r#"{"email":"ada@x.y","j":JSON,"l":[9007199254740993]}"#;
    let documents = [r#"{"a":1.0}"#, r#""text""#, "1e400", "[null]"];
    let rows = documents.map(|document| row.replace("JSON", document));
    let schema = "email: string, j: json, l: list<int64>";
    let found = transformed(
        &mut author,
        "./transform-domain.wasm",
        "email",
        schema,
        &rows,
    );
    let expected = rows.map(|row| {
        row.replace("}\n", "")
            .replacen("]}", "],\"domain\":\"x.y\"}", 1)
    });
    assert_eq!(found, expected);
    let rows = std::fs::read_to_string(author.place.join("out/people.csv")).expect("rows");
    assert_eq!(
        rows,
        "id,email,domain\n1,ada@example.com,example.com\n2,,\n3,x,x\n"
    );
    a_transform_keeps_the_contract(&mut author, "transform-domain");
}

#[test]
fn a_transform_in_javascript_hides_texts() {
    if !has_javascript() {
        return;
    }
    let mut author = Author::new();
    author.types(
        "$ rapidbyte connector new transform-mask --kind transform --lang javascript\n$ cd transform-mask\n\
         $ npm install\n$ npm test\n$ rapidbyte connector build\n$ rapidbyte run pipeline.yaml",
    );
    let rows = std::fs::read_to_string(author.place.join("out/rows.csv")).expect("rows");
    assert_eq!(rows.lines().count(), 1001);
    // Objects of JavaScript put such names first, and assigning to `__proto__` sets the prototype.
    let row =
        r#"{"name":"Ada","2":"two","1":"one","__proto__":"p","l":[9007199254740993],"j":"text"}"#;
    let schema =
        "name: string, '2': string, '1': string, __proto__: string, l: list<int64>, j: json";
    let wasm = "./transform-mask.wasm";
    let found = transformed(&mut author, wasm, "name", schema, &[row.to_owned()]);
    let [found] = found.as_slice() else {
        panic!("{found:?}");
    };
    let [found, row]: [Value; 2] =
        [found, &row.replace("Ada", "***")].map(|row| serde_json::from_str(row).expect("JSON"));
    assert_eq!(found, row);
    let is_hidden = |line: &str| line.ends_with(",***") || line.ends_with(',');
    assert!(rows.lines().skip(1).all(is_hidden), "{rows}");
    a_transform_keeps_the_contract(&mut author, "transform-mask");
}

#[test]
fn a_folder_that_holds_something_is_left_as_it_is() {
    let mut author = Author::new();
    author.folder.write("source-shop/notes.txt", "mine");
    let (error, exit) = author.refused(&new("source-shop", &RUST));
    assert_eq!(
        (error["code"].as_str(), exit),
        (Some("file_exists"), Some(2))
    );
    assert_eq!(author.folder.files("source-shop"), ["notes.txt"]);
    author.folder.write("here/.keep", "");
    let dir = [&RUST[..], &["--dir", "here"]].concat();
    author.types("$ rapidbyte connector new source-shop --kind source --lang rust --dir here");
    assert!(
        author
            .folder
            .path()
            .join("here/source-shop/src/lib.rs")
            .is_file()
    );
    assert_eq!(author.refused(&new("source-shop", &dir)).1, Some(2));
}

#[test]
fn names_that_cannot_be_built_are_refused() {
    let author = Author::new();
    for arguments in [
        ["--kind", "destination", "--lang", "python", "--http"],
        ["--kind", "destination", "--lang", "javascript", "--http"],
        ["--kind", "transform", "--lang", "python", "--http"],
        ["--kind", "transform", "--lang", "javascript", "--http"],
    ] {
        let (error, exit) = author.refused(&new("dest-shop", &arguments));
        assert_eq!(
            (error["code"].as_str(), exit),
            (Some("invalid_argument"), Some(2))
        );
        assert!(error.to_string().contains("remove --http"), "{error:#}");
    }
    for name in [
        "Shop", "../shop", "3shop", "shop-", "a.b", "fn", "serde", "",
    ] {
        let (error, exit) = author.refused(&new(name, &RUST));
        assert_eq!(
            (error["code"].as_str(), exit),
            (Some("invalid_argument"), Some(2)),
            "{name}"
        );
    }
    assert_eq!(author.folder.files("."), ["bin"]);
}

#[test]
fn a_missing_tool_is_reported_with_the_command_that_installs_it() {
    let mut author = Author::new();
    author.types("$ rapidbyte connector new source-shop --kind source --lang rust");
    author
        .variables
        .push(("PATH", author.folder.path().join("bin")));
    let program = author.folder.path().join("bin/rapidbyte");
    let mut command = author.command(program.to_str().expect("UTF-8"));
    let output = command.args(["connector", "build", "source-shop"]).output();
    let ended: Ended = output.expect("the program starts").into();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    for part in ["tool_missing", "https://rustup.rs", "rustup target add"] {
        assert!(
            ended.stderr.contains(part),
            "{part} is not in {}",
            ended.stderr
        );
    }
    let (error, exit) = Author::new().refused(&["connector", "build", "."]);
    assert_eq!(
        (error["code"].as_str(), exit),
        (Some("not_a_connector_project"), Some(2))
    );
}

/// The values that a script may give for a row, as `text.js` writes them, or the code of the error.
#[test]
fn values_that_javascript_would_change_are_refused() {
    if !has_javascript() {
        return;
    }
    let node = built("RAPIDBYTE_NODE_BIN").join("node");
    let text = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../templates/javascript/common/rapidbyte/text.js");
    let script = r#"
const { rowsText, columnsText } = await import(process.argv[1]);
const TYPES = { n: "int64", d: "decimal(38, 0)", j: "json", f: "float64", s: "string", l: "list<float64>" };
class Own { constructor() { this.n = 1; } }
class Hidden { #n = 1; get n() { return this.#n; } }
class Json extends Own { toJSON() { return { n: 2 }; } }
const holes = [{ n: 1 }]; holes[2] = { n: 3 };
const cases = {
  plain: [{ n: 1, s: "a" }], own: [new Own()], wide: [{ n: 9007199254740993n }],
  function: [() => 1], symbol: [Symbol("x")], undefined: [undefined], nothing: [null], array: [[1]], text: ["a"],
  map: [new Map([["n", 1]])], hidden: [new Hidden()], json: [new Json()], inherited: [Object.create({ n: 1 })],
  half: [Object.assign(Object.create({ n: 1 }), { s: "a" })], holes,
  decimal: [{ d: 2 ** 53 }], document: [{ j: { id: 2 ** 53 } }], float: [{ f: 2 ** 53, l: [2 ** 60] }],
  zero: [{ n: -0, d: -0, f: -0 }], error: [{ j: { a: new Error("x") } }], bytes: [{ j: new Uint8Array(2) }],
  date: [{ s: new Date(0) }], large: [{ j: 1e300 }],
};
for (const [name, rows] of Object.entries(cases)) {
  let result;
  try { result = rowsText(rows, TYPES); } catch (error) { result = error.code; }
  console.log(`${name}: ${result.replaceAll("\n", " ")}`);
}
const columns = (values) => {
  try { return columnsText(values, ["n"], TYPES, "it has").join(" "); } catch (error) { return error.message; }
};
console.log(columns({ n: [1n, , 3] }), columns({ n: [1], x: [1] }), columns({ s: [1] }));
"#;
    let output = Command::new(node)
        .args(["--input-type=module", "-e", script])
        .arg(text)
        .output()
        .expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let expected = r#"plain: {"n":1,"s":"a"}
own: {"n":1}
wide: {"n":9007199254740993}
function: not_a_batch
symbol: not_a_batch
undefined: not_a_batch
nothing: not_a_batch
array: not_a_batch
text: not_a_batch
map: not_a_batch
hidden: not_a_batch
json: not_a_batch
inherited: not_a_batch
half: not_a_batch
holes: not_a_batch
decimal: value_does_not_fit
document: value_does_not_fit
float: {"f":9.007199254740992e+15,"l":[1.152921504606847e+18]}
zero: {"n":0,"d":0,"f":-0.0}
error: not_json
bytes: not_json
date: {"s":"1970-01-01T00:00:00.000Z"}
large: {"j":1e+300}
[1,null,3] it has the column `x`, which nobody declared it has no array of values for `n`
"#;
    assert_eq!(said, expected);
}

/// The same for `host.py`, whose imports of the component are empty here.
#[test]
fn values_that_python_would_change_are_refused() {
    let common = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates/python/common");
    let script = r#"
import datetime, decimal, sys, types, uuid
for name in ("componentize_py_types", "wit_world", "wit_world.imports"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["componentize_py_types"].Err = type("Err", (Exception,), {})
sys.modules["wit_world.imports"].log = sys.modules["wit_world.imports"].types = None
types.Error = object
sys.modules["wit_world.imports"].types = types
sys.path.insert(0, sys.argv[1])
from rapidbyte import Columns, Error
from rapidbyte.host import _plain, columns_text, rows_text
TYPES = {"n": "int64 not null", "b": "binary", "s": "string", "d": "date", "t": "timestamptz", "x": "decimal(4, 2)", "u": "uuid", "l": "list<binary>"}
now = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
cases = {
    "plain": [{"n": 1, "s": "a"}], "bytes": [{"b": b"a", "l": [b"a"]}], "text": [{"s": b"a"}],
    "date": [{"d": datetime.date(2026, 1, 2), "t": now}], "day": [{"s": datetime.date(2026, 1, 2)}],
    "number": [{"x": decimal.Decimal("1.10")}], "whole": [{"n": decimal.Decimal(1)}],
    "uuid": [{"u": uuid.UUID(int=1)}], "rows": [1], "nan": [{"x": float("nan")}],
}
for name, rows in cases.items():
    try:
        said = rows_text(rows, TYPES, "it", "give")
    except Error as error:
        said = f"{error.code} {error.column or error.message}"
    print(f"{name}: {said}")
for columns in ({"s": [b"a"]}, {"s": ["a"], 5: [1]}, {"n": [1]}):
    try:
        print(columns_text(Columns(columns), ["s"], TYPES, "it has"))
    except Error as error:
        print(error.message)
print(Error("data", "c", "m", location=7).location, _plain("a\ud800"))
"#;
    let output = Command::new(built("RAPIDBYTE_PYTHON"))
        // Without compiled modules in the folder of the templates.
        .args(["-B", "-c", script])
        .arg(common)
        .output()
        .expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let expected = r#"plain: {"n":1,"s":"a"}
bytes: {"b":"\\x61","l":["\\x61"]}
text: value_does_not_fit s
date: {"d":"2026-01-02","t":"2026-01-02T00:00:00+00:00"}
day: value_does_not_fit s
number: {"x":"1.10"}
whole: value_does_not_fit n
uuid: {"u":"00000000-0000-0000-0000-000000000001"}
rows: not_a_batch it a list with a value of type int, which is not a batch
nan: not_json x
a value of type bytes in a column of the type string
it has the column 5, which nobody declared
it has no list of values for 's'
7 a\ud800
"#;
    assert_eq!(said, expected);
}
