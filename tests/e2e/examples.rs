//! The examples in `pipelines/`: each runs, and a guide leads to it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rapidbyte_testkit::postgres::{Client, Database, PASSWORD, shared};
use serde_json::Value;

use crate::documents::pages;
use crate::support::{Ended, Folder, built};
use crate::tls;

/// The examples that need no database, then those that do; the rest have tests of their own.
const OF_FILES: [&str; 4] = [
    "quickstart",
    "quickstart-parquet",
    "csv-to-parquet",
    "parquet-to-csv",
];
const OF_DATABASES: [&str; 7] = [
    "incremental-upsert",
    "deletes",
    "append-with-lag",
    "append-xmin",
    "several-streams",
    "replace",
    "retry",
];
const OTHERS: [&str; 4] = ["http", "postgres", "tls", "python/pipeline"];

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines")
}

/// A folder with the examples and their data, without what earlier runs wrote.
fn folder() -> Folder {
    let folder = Folder::new();
    for (from, to) in [("", ""), ("data", "data/")] {
        for entry in std::fs::read_dir(examples().join(from)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .expect("UTF-8");
                let content = std::fs::read(&path).expect("a file");
                folder.write(&format!("{to}{name}"), content);
            }
        }
    }
    folder
}

/// Runs an example and gives its rows.
#[track_caller]
fn rows(folder: &Folder, example: &str, variables: &[(&str, String)]) -> u64 {
    let file = format!("{example}.yaml");
    let mut command = folder.command(&["run", &file, "--output", "json"]);
    let variables = variables.iter().map(|(name, value)| (name, value));
    let ended: Ended = command.envs(variables).output().expect("it starts").into();
    assert_eq!(
        ended.code,
        Some(0),
        "{file}: {}{}",
        ended.stderr,
        ended.stdout
    );
    let report: Value = serde_json::from_str(&ended.stdout).expect("one document");
    report["rows"].as_u64().expect("a number")
}

#[test]
fn every_example_is_run_here_and_linked_from_the_documentation() {
    let mut names: Vec<String> = Vec::new();
    for folder in ["", "python/"] {
        for entry in std::fs::read_dir(examples().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let name = name.to_str().expect("UTF-8");
            names.extend(
                name.strip_suffix(".yaml")
                    .map(|name| format!("{folder}{name}")),
            );
        }
    }
    let known = OF_FILES.iter().chain(&OF_DATABASES).chain(&OTHERS);
    let mut known: Vec<String> = known.map(|name| (*name).to_owned()).collect();
    names.sort();
    known.sort();
    assert_eq!(
        names, known,
        "an example without a test, or a test without an example"
    );
    let pages: String = pages()
        .iter()
        .filter(|page| !page.ends_with("CHANGELOG.md"))
        .map(|page| std::fs::read_to_string(page).expect("UTF-8"))
        .collect();
    let is_linked = |name: &String| {
        let of_folder = name
            .strip_suffix("/pipeline")
            .map(|folder| format!("pipelines/{folder})"));
        pages.contains(&format!("pipelines/{name}.yaml)"))
            || of_folder.is_some_and(|link| pages.contains(&link))
    };
    let missing: Vec<_> = names.iter().filter(|name| !is_linked(name)).collect();
    assert!(missing.is_empty(), "no page links {missing:?}");
    // The list names a guide for each, and the guide leads back to the example.
    let guides = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
    let list = std::fs::read_to_string(guides.join("examples.md")).expect("UTF-8");
    let lines = list.lines().filter_map(|line| line.strip_prefix("| ["));
    let mut listed = 0;
    for line in lines {
        let (example, rest) = line.split_once(']').expect("a link");
        let (_, guide) = rest.rsplit_once("](").expect("a guide");
        let guide = guide.split([')', '#']).next().expect("a path");
        let text = std::fs::read_to_string(guides.join(guide)).expect("UTF-8");
        assert!(
            text.contains(&format!("pipelines/{example}")),
            "{guide} does not link {example}"
        );
        listed += 1;
    }
    assert_eq!(listed, names.len(), "examples in the list");
}

#[test]
fn the_examples_of_files_run() {
    let folder = folder();
    let counts = OF_FILES.map(|example| rows(&folder, example, &[]));
    assert_eq!(counts, [3618, 3618, 7, 7]);
    let partitions = folder.files("out/orders");
    assert_eq!(
        partitions
            .iter()
            .filter(|name| name.starts_with("ordered_on="))
            .count(),
        5
    );
    let mut text = Command::new("gzip");
    text.args(["-dc", "out/orders.csv.gz"])
        .current_dir(folder.path());
    let text = String::from_utf8(text.output().expect("gzip").stdout).expect("UTF-8");
    let expected = "id,customer_id,total,note,ordered_on\n\
        1001,1,19.90,,2026-10-28\n\
        1002,2,250.00,two boxes; one is fragile,2026-10-28\n";
    assert!(text.starts_with(expected), "{text}");
}

/// The server of the examples, stopped at the end.
pub struct Shop(Child, String);

impl Shop {
    pub fn start() -> Self {
        let mut command = Command::new(built("RAPIDBYTE_PYTHON"));
        command.arg(examples().join("data/shop_server.py")).arg("0");
        let quiet = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = quiet.spawn().expect("Python starts");
        let mut url = String::new();
        let printed = child.stdout.take().expect("its output");
        BufReader::new(printed).read_line(&mut url).expect("a line");
        Self(child, url.trim_end().to_owned())
    }

    pub fn url(&self) -> &str {
        &self.1
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("stopped");
    }
}

#[test]
fn the_example_of_an_api_runs() {
    let (folder, shop) = (folder(), Shop::start());
    // More than once, so that each request meets the busy server at some time.
    for _ in 0..4 {
        assert_eq!(rows(&folder, "http", &[("API_URL", shop.url().into())]), 5);
    }
    assert!(
        folder
            .files("out")
            .contains(&"http-orders.parquet".to_owned())
    );
}

/// A database of the shop, its target, and the variables that the examples need.
fn shop() -> (
    Database<'static>,
    Database<'static>,
    Vec<(&'static str, String)>,
) {
    let (source, target) = (shared().database(), shared().database());
    sql(&mut source.client(), "shop.sql");
    let urls = vec![("SOURCE_URL", source.url()), ("TARGET_URL", target.url())];
    (source, target, urls)
}

fn sql(client: &mut Client, file: &str) {
    let text = std::fs::read_to_string(examples().join("data").join(file)).expect("UTF-8");
    client.batch_execute(&text).expect("it runs");
}

/// The rows of a table as text, in order.
fn table(client: &mut Client, name: &str) -> Vec<String> {
    let rows = client.query(&format!("SELECT t::text FROM {name} t ORDER BY 1"), &[]);
    let rows = rows.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn the_examples_of_databases_run_and_follow_the_next_day() {
    let (source, target, urls) = shop();
    let folder = folder();
    let first = OF_DATABASES.map(|example| rows(&folder, example, &urls));
    assert_eq!(first, [3, 3, 3, 3, 8, 3, 6]);
    sql(&mut source.client(), "shop-next-day.sql");
    let second = OF_DATABASES.map(|example| rows(&folder, example, &urls));
    // An upsert reads the last five minutes again; a late event is found by the lag and by xmin.
    assert_eq!(second, [3, 3, 3, 2, 11, 4, 8]);
    let (mut source, mut target) = (source.client(), target.client());
    let orders = table(&mut source, "shop.orders");
    let events = table(&mut source, "shop.events");
    for (copy, of) in [
        ("incremental_upsert.orders", &orders),
        ("replaced.orders", &orders),
        ("retried.orders", &orders),
        ("append_with_lag.events", &events),
        ("append_xmin.events", &events),
    ] {
        assert_eq!(table(&mut target, copy), *of, "{copy}");
    }
    let ids = |rows: Vec<String>| -> Vec<String> {
        rows.iter()
            .map(|row| row.split(',').next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(
        ids(table(&mut target, "deletes.customers")),
        ["(1", "(2", "(4"]
    );
    let customers = table(&mut target, "several_streams.customers");
    assert_eq!(customers, ["(1,Ada,GB)", "(2,Björn,NO)", "(4,Dmitri,EE)"]);
    assert_eq!(folder.files("out/reports").len(), 2);
}

#[test]
fn the_example_of_tls_runs() {
    let (folder, server) = (folder(), tls::certified_server());
    sql(&mut server.client("postgres"), "shop.sql");
    folder.write("root.pem", tls::authority().pem());
    let variables = [
        ("SOURCE_HOST", "localhost".to_owned()),
        ("SOURCE_PORT", server.port().to_string()),
        ("SOURCE_DATABASE", "postgres".to_owned()),
        ("SOURCE_USER", "postgres".to_owned()),
        ("SOURCE_PASSWORD", PASSWORD.to_owned()),
    ];
    assert_eq!(rows(&folder, "tls", &variables), 3);
}
