//! Limits that take minutes or gigabytes as the program has them, with small ones.

use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rapidbyte_runtime::{
    Cancel, Clock, Connector, ConnectorError, Error, Event, Grants, Limits, MemoryBudget, Origin,
    ReadRequest, Runtime, Sandbox, Source,
};

use crate::support::{Ended, Folder, testkit};

/// Compiled once for all tests. The runtime lives as long as the connector is used: its ticks stop a busy guest.
fn misbehave() -> &'static Connector {
    static LOADED: OnceLock<(Runtime, Connector)> = OnceLock::new();
    let (_runtime, connector) = LOADED.get_or_init(|| {
        let runtime = Runtime::new(None, |_| ()).expect("a runtime");
        let origin = Origin::File(testkit("source-misbehave").into());
        let connector = runtime.load(&origin).expect("a connector");
        (runtime, connector)
    });
    connector
}

fn sandbox(memory: &Arc<MemoryBudget>, limits: Limits) -> Sandbox {
    Sandbox {
        grants: Arc::new(Grants::none()),
        memory: Arc::clone(memory),
        limits,
        clock: Clock::new(),
        cancel: Cancel::new(),
        log: Arc::new(|_, _, _, _| {}),
        redact: rapidbyte_runtime::no_secrets(),
        stream: None,
    }
}

/// Reads until something else than a batch comes.
fn read(source: &mut Source, how: &str) -> Result<Event, ConnectorError> {
    let failed = |error: Error| match error {
        Error::Failed { error, .. } => *error,
        other => panic!("{other}"),
    };
    let config = format!(r#"{{"how": "{how}", "at_batch": 2}}"#);
    source.open(&config).map_err(failed)?;
    let request = ReadRequest {
        stream: "rows".into(),
        schema: Vec::new(),
        snapshot: String::new(),
        increment: None,
        cursor: None,
        columns: None,
        filter: None,
        query: None,
        forms: Vec::new(),
        batch_bytes: 1 << 20,
        max_record_bytes: 1 << 20,
        keeps_rejects: false,
        records: None,
        rows: None,
        follows_columns: false,
        follows_types: Vec::new(),
    };
    source.read(&[request]).map_err(failed)?;
    loop {
        match source.next(1000).map_err(failed)? {
            Event::Batch(_) => {}
            other => return Ok(other),
        }
    }
}

#[test]
fn a_guest_that_computes_without_progress_is_stopped() {
    let limits = Limits {
        busy: Duration::from_secs(1),
        ..Limits::default()
    };
    let memory = MemoryBudget::new(64 << 20);
    let connector = misbehave();
    let mut source = connector.source(sandbox(&memory, limits)).expect("it");
    let error = read(&mut source, "loop").expect_err("no end");
    assert_eq!(error.code, "no_progress");
    assert!(error.message.contains("1 s"), "{}", error.message);
    // It cannot be entered again.
    let again = source.next(0).expect_err("dead").to_string();
    assert!(again.contains("cannot be used"), "{again}");
}

#[test]
fn more_than_a_call_may_hand_over_is_refused_by_its_size() {
    let limits = Limits {
        batch_bytes: 1 << 20,
        ..Limits::default()
    };
    let memory = MemoryBudget::new(1 << 30);
    let connector = misbehave();
    let mut source = connector.source(sandbox(&memory, limits)).expect("it");
    let error = read(&mut source, "huge_garbage").expect_err("300 MB");
    assert_eq!(error.code, "too_large");
    assert!(error.message.contains("33 MiB"), "{}", error.message);
}

#[test]
fn a_budget_is_shared_and_given_back() {
    let connector = misbehave();
    let memory = MemoryBudget::new(512 << 20);
    let sandbox = || sandbox(&memory, Limits::default());
    for _ in 0..3 {
        // Two of 300 MB do not fit at a time, one after the other they do.
        let mut first = connector.source(sandbox()).expect("room");
        let error = read(&mut first, "huge_garbage").expect_err("no batch");
        assert_eq!(error.code, "contract_broken", "{}", error.message);
        let mut second = connector.source(sandbox()).expect("room");
        let error = read(&mut second, "huge_garbage").expect_err("no room");
        assert_eq!(error.code, "memory_limit", "{}", error.message);
        assert!(error.message.contains("512 MiB"), "{}", error.message);
    }
    assert!((300_000_000..=memory.total()).contains(&memory.peak()));
}

#[test]
fn a_limit_of_the_machine_is_named_and_is_not_a_fault_of_a_connector() {
    let folder = Folder::new();
    // Loaded before, so that no connector is compiled within a limit.
    folder.report(
        "version: 1\npipeline: t\n\
         source: { use: source-generate, config: { rows: 50000, preset: narrow }, streams: [rows] }\n\
         destination: { use: dest-file, config: { path: \"out/{stream}.csv\" }, write_mode: replace }\n\
         retry: { max_attempts: 1 }\n",
    );
    // Where the limit is met first differs: the lock file, a connector, the history, the rows.
    let mut limits: Vec<String> = (6..=14).map(|files| format!("-n {files}")).collect();
    limits.extend([1, 40, 90, 100, 120, 150, 200].map(|blocks| format!("-f {blocks}")));
    limits.push("-v 4000000".to_owned());
    for limit in &limits {
        let program = folder.command(&["run", "p.yaml"]);
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")])
            .arg(program.get_program())
            .args(program.get_args())
            .current_dir(folder.path())
            .env_clear()
            .envs(program.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let ended: Ended = limited.output().expect("a shell").into();
        assert_eq!(ended.code, Some(3), "{limit}: {}", ended.stderr);
        let flag = format!("ulimit {}", &limit[..2]);
        for part in ["error[machine_limit]", &flag] {
            assert!(ended.stderr.contains(part), "{limit}: {}", ended.stderr);
        }
        assert!(
            !ended.stderr.contains("author"),
            "{limit}: {}",
            ended.stderr
        );
    }
}
