//! The hostile corpus: connectors of both worlds that go wrong in every call. For each the program
//! survives and says who did what, in time and within its memory; what the destination has stays
//! as it was; and the next run is good. `README.md` says where its guests are.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::guests::{self, Wat};
use crate::support::{Folder, generate, testkit};

/// Runs at a time: many of them wait for a limit.
const WORKERS: usize = 5;
/// The longer one of the limits below, in seconds.
const LIMIT_SECS: u64 = 3;
/// A run that takes longer was not stopped by its limits, however busy the machine is.
const NEVER: Duration = Duration::from_secs(120);
/// The memory that the program itself may use on top of `resources.memory`. The pages of its file count, which contains
/// the compiled connectors.
const OWN_MIB: u64 = 80;
const OLD: &str = "n\n7\n";

/// Where a guest comes from.
#[derive(Clone)]
enum Guest {
    /// The test kit's component in Rust, with the lines of its configuration.
    Rust(String),
    /// A component from text.
    Wat(Box<Wat>),
}

/// One guest and how its run ends.
#[derive(Clone)]
struct Case {
    /// `source` or `dest`.
    world: &'static str,
    guest: Guest,
    /// The command, and the run that it makes.
    verb: Verb,
    /// `ok` for a run that goes well.
    code: &'static str,
    exit: i32,
    /// The function of the contract in which it happened, where that matters.
    export: Option<&'static str>,
}

/// How a guest gets to be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    /// A run that replaces a file.
    Run,
    /// A run that adds to a folder and keeps a cursor.
    Incremental,
    /// `check`, which alone calls `session.check`.
    Check,
    /// A run that may try again.
    Again,
    /// A run whose source fails after two batches.
    Failing,
}

/// Deeds that never return or that end the guest, in any call, and the error code of the run.
const DEEDS: [(&str, &str); 8] = [
    ("loop", "no_progress"),
    ("sleep", "stalled"),
    ("panic", "panicked"),
    ("trap", "trapped"),
    ("huge_panic", "panicked"),
    ("memory", "memory_limit"),
    ("stack", "trapped"),
    ("abort", "trapped"),
];
/// This many of the first deeds are done in every call, the others only in the first `ALL_DEEDS_IN` calls.
const EVERYWHERE: usize = 4;
const SOURCE_CALLS: [(&str, &str, Verb); 8] = [
    ("open", "open", Verb::Run),
    ("next", "reader.next", Verb::Run),
    ("discover", "session.discover", Verb::Run),
    ("snapshot", "session.snapshot", Verb::Run),
    ("read", "session.read", Verb::Run),
    ("schemas", "reader.schemas", Verb::Run),
    ("check", "session.check", Verb::Check),
    ("acknowledge", "reader.acknowledge", Verb::Incremental),
];
const DESTINATION_CALLS: [(&str, &str, Verb); 11] = [
    ("write", "writer.write", Verb::Run),
    ("commit", "load.commit", Verb::Run),
    ("open", "open", Verb::Run),
    ("plan", "session.plan", Verb::Run),
    ("begin", "session.begin", Verb::Run),
    ("open_writer", "load.open-writer", Verb::Run),
    ("flush", "writer.flush", Verb::Run),
    ("check", "session.check", Verb::Check),
    ("progress", "session.progress", Verb::Again),
    ("working", "session.working", Verb::Run),
    ("beat", "session.beat", Verb::Run),
];
/// This many of the first calls of each world get every deed.
const ALL_DEEDS_IN: usize = 2;

/// Wrong or excessive answers and calls of a source: its settings, the error code and the exit code.
const LIES: [(&str, &str, i32); 23] = [
    ("idle", "stalled", 1),
    ("empty_batches", "stalled", 1),
    ("read_nothing, path: in.csv", "no_progress", 1),
    ("find_again, path: in.csv", "no_progress", 1),
    ("checkpoint_flood", "contract_broken", 1),
    ("checkpoint_first", "contract_broken", 1),
    ("huge_value, batch_rows: 2000000", "too_large", 1),
    ("long_error", "misbehave", 4),
    ("lie_rows", "contract_broken", 1),
    ("garbage", "contract_broken", 1),
    ("truncated", "contract_broken", 1),
    ("other_schema", "contract_broken", 1),
    ("garbage_schema", "contract_broken", 1),
    ("bad_offsets", "contract_broken", 1),
    ("end_twice", "ok", 0),
    ("huge_batch", "memory_limit", 1),
    ("huge_garbage", "memory_limit", 1),
    ("huge_error", "too_large", 1),
    ("log_flood", "ok", 0),
    ("log_huge", "ok", 0),
    ("log_control", "ok", 0),
    ("stderr_flood", "ok", 0),
    ("handles, path: in.csv", "too_many_files", 1),
];

/// The same of a read with checkpoints.
const CURSORS: [(&str, &str, i32); 7] = [
    ("checkpoint_flood", "stalled", 1),
    ("cursor_backwards", "contract_broken", 1),
    ("cursor_garbage", "contract_broken", 1),
    ("long_cursor", "contract_broken", 1),
    ("huge_cursor", "too_large", 1),
    ("checkpoint_missing", "contract_broken", 1),
    ("checkpoint_first", "ok", 0),
];

/// Ways to say a path that was not granted; `in.csv` and `d/*.csv` are.
const PATHS: [&str; 10] = [
    "/etc/passwd",
    "../../../../etc/passwd",
    "./in.csv/../../secret",
    "in.csv/../secret.txt",
    "//etc//passwd",
    "/proc/self/environ",
    "/dev/zero",
    "d/../secret.txt",
    "d/link.csv/../secret.txt",
    ".",
];

/// Ways to say a server that was not granted; `localhost` is.
const SERVERS: [&str; 10] = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "169.254.169.254",
    "localhost.",
];

/// Ways to say an address that nobody reaches under a name, though the name is granted.
const NAMES: [&str; 5] = ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0"];

/// `port` answers nothing, `closing` ends every connection at once.
fn cases(port: u16, closing: u16) -> Vec<Case> {
    let mut cases = deeds();
    let mut add = |world, verb, config: String, code, exit| {
        cases.push(Case {
            world,
            guest: Guest::Rust(config),
            verb,
            code,
            exit,
            export: None,
        });
    };
    for (how, code, exit) in LIES {
        add("source", Verb::Run, format!("how: {how}"), code, exit);
    }
    for (how, code, exit) in CURSORS {
        let config = format!("how: {how}");
        add("source", Verb::Incremental, config, code, exit);
    }
    let local = format!("host: localhost, port: {port}");
    let hoard = format!("how: hoard, {local}");
    add("source", Verb::Run, hoard, "too_many_connections", 1);
    let nothing = format!("how: read_nothing, host: localhost, port: {closing}");
    add("source", Verb::Run, nothing, "no_progress", 1);
    for path in PATHS {
        let config = format!("how: forbidden_file, path: in.csv, ungranted_path: \"{path}\"");
        add("source", Verb::Run, config, "file_not_granted", 2);
    }
    for host in SERVERS {
        let wanted = format!("ungranted_host: \"{host}\", ungranted_port: {port}");
        let config = format!("how: forbidden_connect, {local}, {wanted}");
        add("source", Verb::Run, config, "network_not_granted", 2);
    }
    for host in NAMES {
        let config = format!("how: connect, host: \"{host}\", port: {port}");
        add("source", Verb::Run, config, "address_not_granted", 2);
    }
    add("dest", Verb::Run, "how: lie_on_plan".into(), "too_large", 1);
    add("dest", Verb::Run, "how: huge_worker".into(), "too_large", 1);
    for how in [
        "lie_on_flush",
        "lie_on_commit",
        "many_workers",
        "long_worker",
    ] {
        add(
            "dest",
            Verb::Run,
            format!("how: {how}"),
            "contract_broken",
            1,
        );
    }
    cases.extend(guests::all().into_iter().map(Case::of_wat));
    cases
}

/// The deeds in the calls of both worlds. A deed while aborting or dropping does not change how a run ends.
fn deeds() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, (how, code)) in DEEDS.into_iter().enumerate() {
        let calls = SOURCE_CALLS
            .map(|call| ("source", call))
            .into_iter()
            .enumerate();
        let others = DESTINATION_CALLS
            .map(|call| ("dest", call))
            .into_iter()
            .enumerate();
        for (place, (world, (at, export, verb))) in calls.chain(others) {
            if number < EVERYWHERE || place < ALL_DEEDS_IN {
                let config = format!("how: {how}, at: {at}");
                cases.push(Case {
                    world,
                    guest: Guest::Rust(config),
                    verb,
                    code,
                    exit: 1,
                    export: Some(export),
                });
            }
        }
    }
    for how in ["loop", "sleep", "panic", "trap", "memory", "error_on_abort"] {
        cases.push(Case {
            world: "dest",
            guest: Guest::Rust(format!("how: {how}, at: abort")),
            verb: Verb::Failing,
            code: "misbehave",
            exit: 4,
            export: Some("reader.next"),
        });
        if how != "error_on_abort" {
            cases.extend(["source", "dest"].map(|world| Case {
                world,
                guest: Guest::Rust(format!("how: {how}, at: drop")),
                verb: Verb::Run,
                code: "ok",
                exit: 0,
                export: None,
            }));
            // The rows are committed by then: a warning.
            cases.push(Case {
                world: "dest",
                guest: Guest::Rust(format!("how: {how}, at: last_beat")),
                verb: Verb::Run,
                code: "ok",
                exit: 0,
                export: None,
            });
        }
    }
    cases
}

impl Case {
    fn of_wat(wat: Wat) -> Self {
        Self {
            world: match wat.guest.world {
                "source" => "source",
                _ => "dest",
            },
            verb: match wat.export {
                "session.check" => Verb::Check,
                _ => Verb::Run,
            },
            code: wat.code,
            exit: wat.exit,
            export: Some(wat.export).filter(|export| !export.is_empty()),
            guest: Guest::Wat(Box::new(wat)),
        }
    }

    fn config(&self) -> &str {
        match &self.guest {
            Guest::Rust(config) => config,
            Guest::Wat(wat) => &wat.name,
        }
    }

    /// `resources.memory`: enough for what is huge to be made.
    fn memory_mib(&self) -> u64 {
        match self.config().contains("huge_panic") {
            true => 512,
            false => 256,
        }
    }

    /// The connector that the error names.
    fn connector(&self) -> String {
        match (&self.guest, self.verb) {
            (Guest::Wat(_), _) => "guest".into(),
            (_, Verb::Failing) => "source-misbehave".into(),
            _ => format!("{}-misbehave", self.world),
        }
    }

    /// The lines of a stage with the guest.
    fn stage(&self) -> String {
        // A flood takes a while, whether it goes well or reaches a limit of number.
        let is_flood = self.exit == 0 || self.code.starts_with("too_many");
        let (busy, stall) = match is_flood {
            true => (60, 60),
            false => (1, LIMIT_SECS),
        };
        let limits = format!(
            "permissions: {{ limits: {{ no_progress_seconds: {busy}, stall_seconds: {stall}, \
             abort_seconds: 1 }} }}"
        );
        match (&self.guest, self.world) {
            (Guest::Wat(_), _) => format!("  use: ./guest.wasm\n  {limits}\n"),
            (Guest::Rust(config), "source") => format!(
                "  use: {}\n  {limits}\n  config: {{ at_batch: 2, {config} }}\n",
                testkit("source-misbehave")
            ),
            (Guest::Rust(config), _) => format!(
                "  use: {}\n  {limits}\n  config: {{ {config} }}\n",
                testkit("dest-misbehave")
            ),
        }
    }

    fn pipeline(&self) -> String {
        let memory = self.memory_mib();
        let record = match self.config().contains("huge_value") {
            true => ", max_record_bytes: 1mb",
            false => "",
        };
        let attempts = match self.verb {
            Verb::Again => 2,
            _ => 1,
        };
        let head = format!(
            "version: 1\npipeline: t\nresources: {{ memory: {memory}mb{record} }}\n\
             retry: {{ max_attempts: {attempts}, backoff_seconds: 1 }}\n"
        );
        let stage = self.stage();
        if self.world == "source" {
            let (streams, path, mode) = match self.verb {
                Verb::Incremental => (
                    "[{ name: rows, sync_mode: incremental, cursor_field: n }]",
                    "out/rows-{part}.csv",
                    "append",
                ),
                _ => ("[rows]", "out/{stream}.csv", "replace"),
            };
            return format!(
                "{head}source:\n{stage}  streams: {streams}\n\
                 destination: {{ use: dest-file, config: {{ path: \"{path}\" }}, write_mode: {mode} }}\n"
            );
        }
        let how = match self.verb {
            Verb::Failing => "error",
            _ => "nothing",
        };
        format!(
            "{head}source: {{ use: {}, config: {{ how: {how}, at_batch: 2, batch_rows: 50 }}, \
             streams: [rows] }}\ndestination:\n{stage}  write_mode: replace\n",
            testkit("source-misbehave")
        )
    }

    fn run(&self, folder: &Folder) {
        let about = format!("{} {}", self.world, self.config());
        folder.write("p.yaml", self.pipeline());
        if let Guest::Wat(wat) = &self.guest {
            folder.write("guest.wasm", wat.guest.build());
            // Compiling must not count as time of the run, and the many guests evict the code of the other
            // side from the cache.
            let other: String = match self.world {
                "source" => "dest-file".into(),
                _ => testkit("source-misbehave"),
            };
            // The guest last: it may be invalid.
            folder.rapidbyte(&["connector", "compile", &other, "guest.wasm"]);
        }
        if self.verb != Verb::Incremental {
            folder.write("out/rows.csv", OLD);
        }
        let verb = match self.verb {
            Verb::Check => "check",
            _ => "run",
        };
        let begin = Instant::now();
        let (exit, document, peak_kib) = measured(folder, verb);
        let took = begin.elapsed();
        assert_eq!(exit, Some(self.exit), "{about}: {document:#}");
        if self.exit != 0 {
            self.is_told(&document, &about);
        }
        if self.verb != Verb::Incremental {
            if self.exit != 0 {
                assert_eq!(folder.read("out/rows.csv"), OLD, "{about}");
            }
            assert_eq!(folder.files("out"), ["rows.csv"], "{about}");
        } else if self.exit != 0 && !self.config().contains("acknowledge") {
            // The right to write, and no rows.
            assert_eq!(folder.files("out"), ["_manifest"], "{about}");
        }
        let limit = (self.memory_mib() + OWN_MIB) << 10;
        assert!(peak_kib < limit, "{about}: {peak_kib} KiB");
        let rows = &folder.report(&generate(10, ""))["rows"];
        assert_eq!(*rows, 10, "after {about}");
        assert!(took < NEVER, "{about}: {took:?}");
    }

    /// The error names the connector, the call and the problem, in a few words.
    fn is_told(&self, document: &Value, about: &str) {
        let failed = document["checks"].as_array().into_iter().flatten();
        let failed = failed.map(|check| &check["error"]).find(|e| !e.is_null());
        let error = match document["error"].is_null() {
            true => failed.expect("a failed check"),
            false => &document["error"],
        };
        // On a busy machine a second of computing takes more than the three of standing still.
        let is_late = self.code == "no_progress" && error["code"] == "stalled";
        assert!(
            error["code"] == self.code || is_late,
            "{about}: {document:#}"
        );
        let said = error["message"].as_str().expect("a message");
        assert!(
            !said.is_empty() && said.len() < 32 << 10,
            "{about}: {}",
            said.len()
        );
        assert_eq!(
            error["connector"],
            self.connector(),
            "{about}: {document:#}"
        );
        if let Some(export) = self.export {
            assert_eq!(error["export"], export, "{about}: {document:#}");
            let of_a_stream = ["reader", "writer", "session.read", "load.commit"];
            if of_a_stream.iter().any(|begin| export.starts_with(begin)) {
                assert_eq!(error["stream"], "rows", "{about}: {document:#}");
                assert!(error["phase"].is_string(), "{about}: {document:#}");
            }
        }
        if self.code == "stalled" && self.config().contains("sleep") {
            assert!(said.contains("waiting for a pause"), "{about}: {said}");
        }
    }
}

/// Runs `p.yaml`: the exit code, the document and the most memory that was seen, in KiB.
fn measured(folder: &Folder, verb: &str) -> (Option<i32>, Value, u64) {
    let output = folder.path().join("stdout.json");
    let file = std::fs::File::create(&output).expect("a file");
    let mut command = folder.command(&[verb, "p.yaml", "--output", "json"]);
    let command = command.stdout(file).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let pid = Pid::from_child(&child);
    let ended: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).expect("a process");
    let often = Timespec::try_from(Duration::from_millis(5)).expect("a time");
    let mut peak = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(number.unwrap_or(0));
        let mut fds = [PollFd::new(&ended, PollFlags::IN)];
        if poll(&mut fds, Some(&often)).expect("poll") > 0 {
            break;
        }
    }
    let code = child.wait().expect("its end").code();
    let text = std::fs::read_to_string(&output).expect("UTF-8");
    let document = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    (code, document, peak)
}

#[test]
fn every_hostile_connector_is_survived() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    let closing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closing_port = closing.local_addr().expect("an address").port();
    std::thread::spawn(move || closing.incoming().for_each(drop));
    let cases = cases(port, closing_port);
    let of_wat = cases.iter();
    let of_wat = of_wat.filter(|case| matches!(case.guest, Guest::Wat(_)));
    let of_wat = of_wat.count();
    assert!(
        of_wat > 100 && cases.len() > of_wat + 40,
        "{of_wat} of {}",
        cases.len()
    );
    // Compile before anything is measured.
    for (source, destination) in [
        (testkit("source-misbehave"), testkit("dest-misbehave")),
        ("source-file".into(), "dest-file".into()),
        (testkit("source-misbehave"), testkit("dest-null")),
    ] {
        for connector in [source, destination] {
            Folder::new().rapidbyte(&["connector", "inspect", &connector]);
        }
    }
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let folder = Folder::new();
                    folder.write("in.csv", "a\n").write("secret.txt", "s\n");
                    folder.write("d/link.csv", "a\n");
                    // Report every failure, not only the first one.
                    if catch_unwind(AssertUnwindSafe(|| case.run(&folder))).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "of {}", cases.len());
    println!("hostile: {} guests", cases.len());
}
