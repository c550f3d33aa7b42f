//! The program alone, as `cargo install` and the archive leave it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Ended, Folder, built};

/// The program without its folder of connectors, and nothing of our environment.
fn alone(program: &Path, folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(folder.path())
        .env_clear();
    command
}

fn ended(mut command: Command) -> Ended {
    command.output().expect("the program starts").into()
}

#[test]
fn one_file_is_all_there_is_to_install() {
    let install = Folder::new();
    let program = install.path().join("rapidbyte");
    // Copied by a process of its own: a file that this one had open for writing could be held so
    // by a program that another test starts, and would not start ("text file busy").
    let copied = Command::new("cp")
        .arg(built("RAPIDBYTE_BIN"))
        .arg(&program)
        .status();
    assert!(copied.expect("cp starts").success());
    install.set_mode("rapidbyte", 0o555);
    let readonly = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(install.path(), readonly).expect("read-only");

    let work = Folder::new();
    // Small connectors: nothing here is in the cache.
    work.write(
        "p.yaml",
        "version: 1\npipeline: p\n\
         source: { use: source-generate, config: { rows: 2, preset: narrow }, streams: [rows] }\n\
         destination: { use: dest-file, config: { path: 'out/{stream}.jsonl' }, write_mode: replace }\n",
    );
    let run = ["run", "p.yaml", "--output", "json"];

    // Without HOME the run works without a cache, and a message says so.
    let ended_alone = ended(alone(&program, &work, &run));
    assert_eq!(ended_alone.code, Some(0), "{}", ended_alone.stderr);
    assert!(ended_alone.stderr.contains("every run compiles"));
    assert_eq!(work.read("out/rows.jsonl").lines().count(), 2);

    let home = Folder::new();
    for from_cache in [false, true] {
        let mut command = alone(&program, &work, &run);
        command.env("HOME", home.path());
        let ended = ended(command);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        // A message announces each compilation, which can take seconds.
        let told = ended.stderr.matches(" for this machine, once\n").count();
        let lines = ended.stderr.lines().count();
        assert_eq!((told, lines), if from_cache { (0, 0) } else { (2, 2) });
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a report");
        for connector in report["connectors"].as_array().expect("connectors") {
            assert_eq!(connector["from_cache"], from_cache, "{connector}");
        }
    }

    // A connector in the folder beside the program, or a path, comes first.
    let writable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(install.path(), writable).expect("writable");
    install.write("connectors/source-generate.wasm", "not a component");
    let mut broken = alone(&program, &work, &run);
    broken.env("HOME", home.path());
    let broken = ended(broken);
    assert_eq!(broken.code, Some(2));
    assert!(
        broken.stdout.contains("not_a_component"),
        "{}",
        broken.stdout
    );
}
