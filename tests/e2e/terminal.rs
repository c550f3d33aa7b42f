//! The person at the terminal: explain, completions, help.

use std::process::{Command, Stdio};

use rapidbyte_testkit::postgres::{Database, shared};
use serde_json::Value;

use crate::support::{Ended, Folder};

/// The one JSON document of a command.
#[track_caller]
fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr))
}

#[test]
fn explain_tells_what_a_code_means_and_what_to_do() {
    let folder = Folder::new();
    for code in [
        "unknown_key",
        "error[unknown_key]",
        " UNKNOWN_KEY ",
        "unknown key",
    ] {
        let ended = folder.rapidbyte(&["explain", code]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for part in ["exit code 2", "indented", "connector inspect"] {
            assert!(ended.stdout.contains(part), "{}", ended.stdout);
        }
        let widest = ended.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{}", ended.stdout);
    }
    let document = json(&folder.rapidbyte(&["explain", "pg_22P02", "--output", "json"]));
    assert_eq!(document["error"]["code"], "pg_22xxx");
    assert_eq!(document["error"]["exit_codes"][0], 4);
    let document = json(&folder.rapidbyte(&["explain", "28p01", "--output", "json"]));
    assert_eq!(document["error"]["code"], "pg_28P01");
}

#[test]
fn explain_lists_all_codes_and_suggests_the_nearest() {
    let folder = Folder::new();
    let all = folder.rapidbyte(&["explain"]);
    assert_eq!(all.code, Some(0));
    assert!(all.stdout.contains("csv_ragged_row") && all.stdout.contains("pg_28P01"));
    let document = json(&folder.rapidbyte(&["explain", "--output", "json"]));
    assert!(document["errors"].as_array().expect("a list").len() > 200);
    let ended = folder.rapidbyte(&["explain", "unknwon_key"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("did you mean \"unknown_key\""),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_terminal_alone_is_told_of_explain() {
    let ended = Folder::new().rapidbyte(&["run", "nowhere.yaml"]);
    assert!(ended.stderr.contains("file_not_found"), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("rapidbyte explain"),
        "{}",
        ended.stderr
    );
}

/// A pipeline between two databases whose table has types of every fit.
fn tables() -> (Folder, Database<'static>, Database<'static>) {
    let (source, target) = (shared().database(), shared().database());
    let sql = "CREATE TYPE mood AS ENUM ('good', 'bad');
        CREATE TABLE a_table_with_a_rather_long_name (id bigint PRIMARY KEY, mood mood, n numeric,
            a_column_with_a_rather_long_name_too timestamp(3) with time zone, o interval);
        INSERT INTO a_table_with_a_rather_long_name SELECT generate_series(1, 500);
        ANALYZE a_table_with_a_rather_long_name";
    source.client().batch_execute(sql).expect("a table");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [\"public.*\"]\n\
             destination:\n  use: dest-postgres\n  config: {{ url: \"{}\" }}\n",
            source.url(),
            target.url()
        ),
    );
    (folder, source, target)
}

#[test]
fn plan_shows_everything_on_80_columns() {
    let (folder, _source, _target) = tables();
    let ended = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let port = shared().port().to_string();
    for part in [
        &format!("may connect 127.0.0.1:{port}") as &str,
        "about 500 rows",
        "CREATE TABLE",
        "CREATE TYPE",
        "timestamp(3) with time zone",
        "5 exact",
        "1 stream, 5 columns",
    ] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is not in {}",
            ended.stdout
        );
    }
    for line in ended.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn plan_as_json_is_complete() {
    let (folder, _source, _target) = tables();
    let plan = json(&folder.rapidbyte(&["plan", "p.yaml", "--limit", "9", "--output", "json"]));
    let stream = &plan["streams"][0];
    assert_eq!(stream["name"], "public.a_table_with_a_rather_long_name");
    assert_eq!(
        (plan["limit"].as_u64(), stream["estimated_rows"].as_u64()),
        (Some(9), Some(9))
    );
    assert_eq!(stream["primary_key"][0], "id");
    assert_eq!(stream["columns"].as_array().map(Vec::len), Some(5));
    for key in ["name", "source_type", "type", "target_type", "fit"] {
        assert!(stream["columns"][1][key].is_string(), "{key}: {stream:#}");
    }
    assert!(stream["statements"].to_string().contains("CREATE TABLE"));
    assert!(
        plan["source"]["grants"][0]
            .as_str()
            .is_some_and(|g| g.starts_with("connect "))
    );
    let fits = plan["fits"].as_object().expect("fits");
    let counted: u64 = fits.values().filter_map(Value::as_u64).sum();
    assert_eq!((fits.len(), counted), (6, 5), "{fits:?}");
    assert!(plan["estimated_bytes"].is_u64() && plan["resources"]["memory"].is_u64());
}

#[test]
fn plan_shows_what_is_refused_and_then_fails() {
    let (folder, source, _target) = tables();
    let more = "ALTER TABLE a_table_with_a_rather_long_name ADD COLUMN seen gtsvector";
    source.client().batch_execute(more).expect("a column");
    let ended = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(ended.code, Some(4), "{}{}", ended.stdout, ended.stderr);
    for part in ["5 exact, 1 refused", "  - seen: "] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is not in {}{}",
            ended.stdout,
            ended.stderr
        );
    }
    let document = json(&folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]));
    assert_eq!(document["error"]["code"], "column_refused");
    assert_eq!(document["fits"]["refused"], 1);
}

/// Gives a script to a shell; nothing where that shell is not installed.
fn shell(program: &str, arguments: &[&str], script: &str) -> Option<Ended> {
    let folder = Folder::new();
    folder.write("script", script);
    let output = Command::new(program)
        .args(arguments)
        .arg("script")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output();
    output.ok().map(Ended::from)
}

#[test]
fn completions_load_in_their_shells() {
    let folder = Folder::new();
    for (name, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = folder.rapidbyte(&["completions", name]);
        assert_eq!(script.code, Some(0), "{}", script.stderr);
        for part in ["rapidbyte", "dry-run", "explain", "doctor"] {
            assert!(script.stdout.contains(part), "{name}: {part}");
        }
        let checked = shell(name, &[check], &script.stdout);
        if let Some(checked) = &checked {
            assert_eq!(checked.code, Some(0), "{name}: {}", checked.stderr);
        }
        assert!(checked.is_some() || name != "bash", "the tests need bash");
    }
    let script = folder.rapidbyte(&["completions", "bash"]).stdout;
    let ask = "\ncomplete -p rapidbyte\n\
               COMP_WORDS=(rapidbyte pl); COMP_CWORD=1; COMP_LINE='rapidbyte pl'; COMP_POINT=12\n\
               _rapidbyte rapidbyte pl rapidbyte; echo \"found ${COMPREPLY[*]}\"\n";
    let loaded = shell("bash", &[], &format!("{script}{ask}")).expect("bash");
    assert!(
        loaded.stdout.contains("-F _rapidbyte rapidbyte"),
        "{loaded:?}"
    );
    assert!(loaded.stdout.contains("found plan"), "{loaded:?}");
}

/// The verbs that a help text lists, without `help` itself.
fn verbs(help: &str) -> Vec<String> {
    let commands = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = commands.lines().take_while(|line| !line.is_empty());
    lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_help_of_every_verb_has_examples_that_parse() {
    let folder = Folder::new();
    let mut paths: Vec<Vec<String>> = verbs(&folder.rapidbyte(&["--help"]).stdout)
        .into_iter()
        .map(|verb| vec![verb])
        .collect();
    assert!(paths.len() >= 11, "{paths:?}");
    let mut examples = 0;
    while let Some(path) = paths.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let help = folder.rapidbyte(&[&words[..], &["--help"]].concat());
        assert_eq!(help.code, Some(0), "{words:?}: {}", help.stderr);
        for verb in verbs(&help.stdout) {
            paths.push(path.iter().cloned().chain([verb]).collect());
        }
        let found: Vec<&str> = help
            .stdout
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("rapidbyte "))
            .collect();
        assert!(!found.is_empty(), "the help of {words:?} has no example");
        for example in found {
            examples += 1;
            parses(&folder, example);
        }
    }
    assert!(examples > 20, "{examples}");
}

/// Splits an example as a shell would, and checks that the program accepts its arguments.
fn parses(folder: &Folder, example: &str) {
    let command = example.split(" > ").next().unwrap_or_default();
    // Quoted text is one word; a line may end with a backslash.
    let parts = command.trim_end_matches('\\').split('\'').enumerate();
    let words: Vec<&str> = parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .skip(1)
        .collect();
    // Asked for help at its end, the program parses and does nothing; a wrong flag, an unknown
    // value or a missing argument before it is refused first.
    let mut arguments = words;
    arguments.push("--help");
    let ended = folder.rapidbyte(&arguments);
    assert_eq!(ended.code, Some(0), "{example}: {}", ended.stderr);
    let wrong = folder.rapidbyte(&[&arguments[..arguments.len() - 1], &["--wrong"]].concat());
    assert_eq!(wrong.code, Some(2), "{example}: {}", wrong.stderr);
    let said = format!("{}{}", wrong.stdout, wrong.stderr);
    assert!(said.contains("--wrong"), "{example}: {said}");
}
