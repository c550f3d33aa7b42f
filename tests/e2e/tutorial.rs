//! The commands of `docs/guides/tutorial.md`, typed unchanged, between two real databases.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rapidbyte_testkit::postgres::{Database, shared};
use serde_json::Value;

use crate::support::{Ended, Folder, built};

/// Commands that need more than this test has: a toolchain's half hour, a service manager, psql. The
/// test makes the tables itself.
const LEFT_OUT: [&str; 5] = [
    "cargo install ",
    "systemctl ",
    "journalctl ",
    "sudo -u ",
    "psql ",
];

/// Runs the page's Python with stand-ins for the two schedulers, and prints what they were given.
const SCHEDULERS: &str = "
import json, sys
from unittest.mock import MagicMock
for name in ['pendulum', 'airflow', 'airflow.operators', 'airflow.operators.bash', 'dagster']:
    sys.modules[name] = MagicMock()
operator = sys.modules['airflow.operators.bash'].BashOperator
sys.modules['dagster'].asset = lambda function: function
sys.modules['dagster'].MaterializeResult = lambda metadata: metadata
given = {}
for text in sys.argv[1:]:
    names = {}
    exec(compile(text, 'the page', 'exec'), names)
    if 'shop' in names:
        given['dagster'] = names['shop'](None)
given['airflow'] = operator.call_args.kwargs['bash_command']
print(json.dumps(given))
";

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/tutorial.md");
    std::fs::read_to_string(path).expect("UTF-8")
}

/// The page's blocks of a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("\n```{language}\n");
    let blocks = page.split(&begin).skip(1);
    let blocks = blocks.filter_map(|block| Some(block.split_once("\n```")?.0.to_owned()));
    blocks.collect()
}

/// The commands of a block: each command begins after a `$` and ends before the next one.
fn commands(block: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(command)) => *command += &format!("\n{line}"),
            (None, None) => panic!("{line:?} stands before a command"),
        }
    }
    commands
}

/// A reader of the page at work: a folder, and the two databases that the environment names.
struct Reader {
    folder: Folder,
    source: Database<'static>,
    target: Database<'static>,
}

impl Reader {
    fn new() -> Self {
        let (source, target) = (shared().database(), shared().database());
        let tables = "CREATE TABLE customers (id bigint PRIMARY KEY, name text);
            INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 30) n;
            CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2));
            INSERT INTO orders SELECT n, n / 100.0 FROM generate_series(1, 500) n";
        source.client().batch_execute(tables).expect("tables");
        let folder = Folder::new();
        folder.write("bin/.keep", "");
        let program = folder.path().join("bin/rapidbyte");
        std::os::unix::fs::symlink(built("RAPIDBYTE_BIN"), program).expect("a link");
        Self {
            folder,
            source,
            target,
        }
    }

    /// A command with this reader's environment, in a folder.
    fn environment(&self, program: impl AsRef<std::ffi::OsStr>, place: &str) -> Command {
        let path = std::env::var("PATH").expect("PATH");
        let bin = self.folder.path().join("bin");
        let base = self.folder.command(&[]);
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path().join(place))
            .env_clear()
            .envs(base.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env("PATH", format!("{}:{path}", bin.display()))
            // The page's `.env` names hosts that are not there; the environment wins.
            .env("SOURCE_URL", self.source.url())
            .env("TARGET_URL", self.target.url());
        command
    }

    /// Types a script, which must succeed. Gives the folder that it ended in.
    #[track_caller]
    fn types(&self, script: &str, place: &str) -> String {
        let told = self.folder.path().join("bin/.place");
        let script = format!("{script}\npwd > '{}'\n", told.display());
        let mut shell = self.environment("bash", place);
        let output = shell.args(["-euo", "pipefail", "-c", &script]).output();
        let ended: Ended = output.expect("bash").into();
        assert_eq!(ended.code, Some(0), "{script}\n{ended:?}");
        let place = std::fs::read_to_string(told).expect("UTF-8");
        place.trim_end().to_owned()
    }

    /// A scheduler's command, in the places of this reader.
    fn here(&self, command: &str) -> String {
        let nightly = self.folder.path().join("nightly");
        command
            .replace("/srv/nightly", nightly.to_str().expect("UTF-8"))
            .replace("/tmp/nightly.lock", "nightly.lock")
            .replace("/usr/local/bin/rapidbyte", "rapidbyte")
    }

    fn empty_target(&self) {
        let sql = "TRUNCATE raw.customers, raw.orders";
        self.target.client().batch_execute(sql).expect("tables");
    }

    #[track_caller]
    fn assert_copied(&self) {
        for (table, rows) in [("customers", 30), ("orders", 500)] {
            let sql = format!("SELECT count(*) FROM raw.{table}");
            let row = self.target.client().query_one(&sql, &[]).expect("a table");
            assert_eq!(row.get::<_, i64>(0), rows, "{table}");
        }
    }
}

#[test]
fn every_command_of_the_tutorial_works_and_so_do_the_schedulers() {
    let page = page();
    let reader = Reader::new();
    let mut place = String::from(".");
    let mut left_out = Vec::new();
    for block in blocks(&page, "console") {
        let (out, typed): (Vec<String>, Vec<String>) = commands(&block)
            .into_iter()
            .partition(|command| LEFT_OUT.iter().any(|begin| command.starts_with(begin)));
        left_out.extend(out);
        if !typed.is_empty() {
            place = reader.types(&typed.join("\n"), &place);
        }
    }
    for begin in LEFT_OUT {
        assert!(left_out.iter().any(|c| c.starts_with(begin)), "{begin}");
    }
    reader.assert_copied();
    let nightly = reader.folder.path().join("nightly");
    let mode = std::fs::metadata(nightly.join(".env")).expect("a file");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    for report in ["first.html", "report.html"] {
        assert!(nightly.join(report).is_file(), "{report}");
    }
    is_what_init_wrote(&reader, &blocks(&page, "yaml")[0]);
    for command in scheduled(&reader, &page) {
        reader.empty_target();
        reader.types(&reader.here(&command), ".");
        reader.assert_copied();
    }
}

/// The page's pipeline has the same plan as the pipeline that `init` wrote.
fn is_what_init_wrote(reader: &Reader, pipeline: &str) {
    reader.folder.write("nightly/page.yaml", pipeline);
    let [page, written] = ["page.yaml", "nightly.yaml"].map(|file| {
        let mut command = reader.environment("rapidbyte", "nightly");
        let output = command.args(["plan", file, "--output", "json"]).output();
        let ended: Ended = output.expect("the program starts").into();
        serde_json::from_str::<Value>(&ended.stdout).expect("JSON")
    });
    assert_eq!(page["status"], "ok", "{page:#}");
    assert_eq!(page, written);
}

/// The commands that cron, systemd and Airflow run. Dagster's function runs here.
fn scheduled(reader: &Reader, page: &str) -> Vec<String> {
    let cron = page.lines().find(|line| line.starts_with("15 2 * * *"));
    let cron = cron.and_then(|line| line.splitn(6, ' ').nth(5));
    let service = page
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let python: Vec<String> = blocks(page, "python")
        .iter()
        .map(|block| reader.here(block))
        .collect();
    assert_eq!(python.len(), 2);
    let mut command = reader.environment(built("RAPIDBYTE_PYTHON"), ".");
    let output = command.args(["-c", SCHEDULERS]).args(&python).output();
    let ended: Ended = output.expect("Python").into();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let given: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let expected = serde_json::json!({ "public.customers": 30, "public.orders": 500 });
    assert_eq!(given["dagster"], expected);
    let airflow = given["airflow"].as_str().expect("a command");
    [cron.expect("a line"), service.expect("a line"), airflow]
        .map(|command| command.trim().to_owned())
        .to_vec()
}
