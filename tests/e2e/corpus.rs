//! The hostile corpus: connectors of both worlds that go wrong in every call. For each the program
//! survives and says who did what, in time and within its memory; what the destination has stays
//! as it was; and the next run is good.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::support::{Folder, generate, testkit};

/// Runs at a time: many of them wait for a limit.
const WORKERS: usize = 4;
/// The longer one of the limits below, in seconds.
const LIMIT_SECS: u64 = 3;
/// On top of the limit, for loading, ending and a machine that others use too.
const GRACE: Duration = Duration::from_secs(8);
/// What the program itself may use beside `resources.memory`.
const OWN_MIB: u64 = 64;
const OLD: &str = "n\n7\n";

/// One guest and how its run ends.
#[derive(Clone)]
struct Case {
    /// `source` or `dest`.
    world: &'static str,
    /// The lines of its configuration.
    config: String,
    /// `ok` for a run that goes well.
    code: &'static str,
    exit: i32,
    /// The function of the contract in which it happened, where that matters.
    export: Option<&'static str>,
}

/// What never comes back or dies, in whatever call it does, and how that ends.
const DEEDS: [(&str, &str); 7] = [
    ("loop", "no_progress"),
    ("sleep", "stalled"),
    ("panic", "panicked"),
    ("huge_panic", "panicked"),
    ("trap", "trapped"),
    ("memory", "memory_limit"),
    ("stack", "trapped"),
];
const SOURCE_CALLS: [(&str, &str); 5] = [
    ("open", "open"),
    ("discover", "session.discover"),
    ("snapshot", "session.snapshot"),
    ("read", "session.read"),
    ("next", "reader.next"),
];
const DESTINATION_CALLS: [(&str, &str); 7] = [
    ("open", "open"),
    ("plan", "session.plan"),
    ("fence", "session.fence"),
    ("open_writer", "session.open-writer"),
    ("write", "writer.write"),
    ("flush", "writer.flush"),
    ("commit", "session.commit"),
];

/// What a source gives that it should not, and how much of it.
const LIES: [(&str, &str, i32); 19] = [
    ("idle", "stalled", 1),
    ("empty_batches", "stalled", 1),
    ("checkpoint_flood", "stalled", 1),
    ("lie_rows", "contract_broken", 1),
    ("garbage", "contract_broken", 1),
    ("truncated", "contract_broken", 1),
    ("other_schema", "contract_broken", 1),
    ("garbage_schema", "contract_broken", 1),
    ("bad_offsets", "malformed_batch", 1),
    ("end_twice", "ok", 0),
    ("huge_batch", "memory_limit", 1),
    ("huge_garbage", "memory_limit", 1),
    ("huge_error", "too_large", 1),
    ("huge_cursor", "too_large", 1),
    ("log_flood", "ok", 0),
    ("log_huge", "ok", 0),
    ("log_control", "ok", 0),
    ("stderr_flood", "ok", 0),
    ("handles, path: in.csv", "too_many_files", 1),
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

fn cases(port: u16) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |world, config: String, code, exit, export| {
        cases.push(Case {
            world,
            config,
            code,
            exit,
            export,
        });
    };
    for (how, code) in DEEDS {
        for (at, export) in SOURCE_CALLS {
            add(
                "source",
                format!("how: {how}, at: {at}"),
                code,
                1,
                Some(export),
            );
        }
        for (at, export) in DESTINATION_CALLS {
            add(
                "dest",
                format!("how: {how}, at: {at}"),
                code,
                1,
                Some(export),
            );
        }
    }
    for (how, code, exit) in LIES {
        add("source", format!("how: {how}"), code, exit, None);
    }
    let local = format!("host: localhost, port: {port}");
    add(
        "source",
        format!("how: hoard, {local}"),
        "too_many_connections",
        1,
        None,
    );
    for path in PATHS {
        let config = format!("how: forbidden_file, path: in.csv, ungranted_path: \"{path}\"");
        add("source", config, "file_not_granted", 2, None);
    }
    for host in SERVERS {
        let wanted = format!("ungranted_host: \"{host}\", ungranted_port: {port}");
        let config = format!("how: forbidden_connect, {local}, {wanted}");
        add("source", config, "network_not_granted", 2, None);
    }
    for host in NAMES {
        let config = format!("how: connect, host: \"{host}\", port: {port}");
        add("source", config, "address_not_granted", 2, None);
    }
    for (how, code, exit) in [
        ("lie_on_flush", "contract_broken", 1),
        ("lie_on_commit", "contract_broken", 1),
        ("error_on_abort", "misbehave", 4),
        ("panic_on_abort", "misbehave", 4),
    ] {
        add("dest", format!("how: {how}"), code, exit, None);
    }
    cases
}

impl Case {
    /// `resources.memory`: enough for what is huge to be made.
    fn memory_mib(&self) -> u64 {
        match self.config.contains("huge_panic") {
            true => 512,
            false => 256,
        }
    }

    /// The connector that the error names.
    fn connector(&self) -> String {
        match self.code {
            // Offsets are looked at by whoever decodes them.
            "malformed_batch" => "dest-file".into(),
            _ => format!("{}-misbehave", self.world),
        }
    }

    fn pipeline(&self) -> String {
        let config = &self.config;
        let memory = self.memory_mib();
        // A flood that goes well takes a while.
        let (busy, stall) = match self.exit {
            0 => (60, 60),
            _ => (1, LIMIT_SECS),
        };
        let limits = format!(
            "permissions: {{ limits: {{ no_progress_seconds: {busy}, stall_seconds: {stall} }} }}"
        );
        match self.world {
            "source" => format!(
                "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nresources: {{ memory: {memory}mb }}\n\
                 source:\n  use: {}\n  streams: [rows]\n  {limits}\n  config: {{ at_batch: 2, {config} }}\n\
                 destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n",
                testkit("source-misbehave")
            ),
            _ => format!(
                "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nresources: {{ memory: {memory}mb }}\n\
                 source: {{ use: source-generate, config: {{ rows: 100, preset: narrow }}, streams: [rows] }}\n\
                 destination:\n  use: {}\n  write_mode: replace\n  {limits}\n  config: {{ {config} }}\n",
                testkit("dest-misbehave")
            ),
        }
    }

    fn run(&self, folder: &Folder) {
        let about = format!("{} {}", self.world, self.config);
        folder
            .write("p.yaml", self.pipeline())
            .write("out/rows.csv", OLD);
        let begin = Instant::now();
        let (exit, document, peak_kib) = measured(folder);
        let took = begin.elapsed();
        assert_eq!(exit, Some(self.exit), "{about}: {document:#}");
        if self.exit != 0 {
            let error = &document["error"];
            assert_eq!(error["code"], self.code, "{about}: {document:#}");
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
            }
            assert_eq!(folder.read("out/rows.csv"), OLD, "{about}");
        }
        assert_eq!(folder.files("out"), ["rows.csv"], "{about}");
        let most = Duration::from_secs(LIMIT_SECS) + GRACE;
        assert!(self.exit == 0 || took < most, "{about}: {took:?}");
        let limit = (self.memory_mib() + OWN_MIB) << 10;
        assert!(peak_kib < limit, "{about}: {peak_kib} KiB");
        assert_eq!(
            folder.report(&generate(10, ""))["rows"],
            10,
            "after {about}"
        );
    }
}

/// Runs `p.yaml`: the exit code, the document and the most memory that was seen, in KiB.
fn measured(folder: &Folder) -> (Option<i32>, Value, u64) {
    let output = folder.path().join("stdout.json");
    let file = std::fs::File::create(&output).expect("a file");
    let mut command = folder.command(&["run", "p.yaml", "--output", "json"]);
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
    let cases = cases(port);
    assert!(cases.len() > 40, "{}", cases.len());
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let folder = Folder::new();
                    folder.write("in.csv", "a\n").write("secret.txt", "s\n");
                    folder.write("d/link.csv", "a\n");
                    // All of them are told, not the first alone.
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
