//! Networks that break and servers that are killed, at each phase of a run and on either side: the
//! run ends in a typed error before its deadline or goes well after a retry, and after one more run
//! every row is there once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte_testkit::postgres::{Client, Options, Server, shared};
use rapidbyte_testkit::proxy::{Break, Fault, Proxy, Way, When};
use serde_json::Value;

use crate::faults::scenario::breaks;
use crate::faults::{ACTIONS, UNANSWERED, number};
use crate::postgres::content;
use crate::support::Ended;
use crate::wired::{Bench, End, HANGS, NAMES, Run, end_of, named, sources};

/// The deadlines, so short that a stalled connection is noticed soon.
const READS: &str = ", connect_timeout: 4, read_timeout: 4";
const WRITES: &str = ", connect_timeout: 4, write_timeout: 4, commit_timeout: 4";
/// Cases at a time: most of their time they wait.
const WORKERS: usize = 6;
/// Cases of a run of all tests; `RAPIDBYTE_FAULTS_NETWORK` sets another number.
const SELECTED: usize = 28;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

/// When it breaks: by what the connectors send.
const PHASES: [(Side, &str, When); 14] = [
    (Side::Source, "connecting", When::Before("user\0")),
    (Side::Source, "logging in", When::Before("SCRAM-SHA-256")),
    (
        Side::Source,
        "discovering",
        When::Before("pg_catalog.pg_class"),
    ),
    (
        Side::Source,
        "exporting",
        When::Before("pg_export_snapshot"),
    ),
    (
        Side::Source,
        "joining",
        When::Before("SET TRANSACTION SNAPSHOT"),
    ),
    (
        Side::Source,
        "reading",
        When::After("TO STDOUT (FORMAT binary)", Way::ToClient, 8000),
    ),
    (Side::Target, "connecting", When::Connected),
    (
        Side::Target,
        "planning",
        When::Before("pg_catalog.pg_namespace"),
    ),
    (
        Side::Target,
        "fencing",
        When::Before("ON CONFLICT (pipeline"),
    ),
    (
        Side::Target,
        "fenced, unheard",
        When::After("ON CONFLICT (pipeline", Way::ToServer, 0),
    ),
    (
        Side::Target,
        "opening",
        When::Before("client_connection_check_interval"),
    ),
    (
        Side::Target,
        "writing",
        When::After("FROM STDIN (FORMAT binary", Way::ToServer, 5000),
    ),
    (Side::Target, "committing", When::Before("WITH moved AS")),
    (
        Side::Target,
        "committed, unheard",
        When::After("WITH moved AS", Way::ToServer, 0),
    ),
];

/// Each break, and whether it hits every connection.
const BREAKS: [(Break, bool); 7] = [
    (Break::Reset, false),
    (Break::Stall, false),
    (Break::Lose(Way::ToClient), false),
    (Break::Close, false),
    (Break::Stall, true),
    (Break::Lose(Way::ToServer), false),
    (Break::Reset, true),
];

/// Every break at every phase, in rounds over the phases; the scenarios take turns.
fn cases() -> impl Iterator<Item = (usize, usize, usize)> {
    (0..PHASES.len() * BREAKS.len()).map(|n| {
        let (phase, round) = (n % PHASES.len(), n / PHASES.len());
        let breaks = (phase + 2 * round) % BREAKS.len();
        (phase, breaks, (phase / 2 + round) % NAMES.len())
    })
}

/// Two databases, each behind a proxy.
struct Wired {
    source: Proxy,
    target: Proxy,
    bench: Bench,
}

impl Wired {
    fn new() -> Self {
        let proxy = |server: &Server| Proxy::to(server.port()).expect("a free port");
        let (source, target) = (proxy(sources()), proxy(shared()));
        let mut from = End::behind(&source, sources());
        let mut to = End::behind(&target, shared());
        (from.settings, to.settings) = (READS, WRITES);
        let mut bench = Bench::between(from, to);
        bench.max_attempts = 2;
        Self {
            source,
            target,
            bench,
        }
    }

    fn case(&mut self, (phase, breaks, scenario): (usize, usize, usize)) -> Ended {
        let (side, phase, when) = PHASES[phase];
        let (what, is_everywhere) = BREAKS[breaks];
        let scenario = named(NAMES[scenario]);
        let about = format!(
            "{side:?} {phase} {what:?} {is_everywhere} {}",
            scenario.name
        );
        let proxy = match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        };
        let before = proxy.counts().faults;
        let mut run = self.bench.begin(scenario);
        run.prepare();
        proxy.arm(Fault {
            when,
            what,
            is_everywhere,
        });
        let begin = Instant::now();
        let ended = end_of(run.start(""), &about);
        let took = begin.elapsed();
        assert_eq!(proxy.counts().faults, before + 1, "{about}: {ended:?}");
        is_typed(&ended, &about);
        assert!(took < HANGS / 2, "{about}: {took:?}");
        println!("network: {about}: {took:?} {}", told(&ended));
        proxy.heal().expect("the port is free");
        make_good(&mut run, &about, &ended);
        ended
    }
}

/// A clean run, where one is needed: rows that are only added are added by the run that goes well.
#[track_caller]
fn make_good(run: &mut Run<'_>, about: &str, ended: &Ended) {
    if !(run.adds() && ended.code == Some(0)) {
        run.goes_well();
    }
    run.is_right(&format!("{about}: {}", ended.stderr));
    if !run.adds() {
        run.change();
        run.goes_well();
        run.is_right(&format!("after {about}"));
    }
}

/// It went well, or says in a typed error what did not.
#[track_caller]
fn is_typed(ended: &Ended, about: &str) {
    assert!(!ended.stderr.contains("panicked"), "{about}: {ended:?}");
    if ended.code == Some(0) {
        return;
    }
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let code = document["error"]["code"].as_str().expect("a code");
    let codes = [
        "connect_failed",
        "connection_lost",
        "timeout",
        "read_stalled",
        "write_stalled",
        "commit_stalled",
        "commit_unknown",
        "snapshot_gone",
    ];
    let is_known = codes.contains(&code) || code.starts_with("pg_");
    assert!(is_known, "{about}: {document:#} {}", ended.stderr);
    assert!(matches!(ended.code, Some(1 | 3)), "{about}: {ended:?}");
    let message = document["error"]["message"].as_str().expect("a message");
    if code.ends_with("stalled") {
        // How long, and for what.
        assert!(message.contains(" 4 s"), "{about}: {message}");
    }
}

/// The error of a run, or `well` with its standard error.
fn told(ended: &Ended) -> String {
    let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    match document["error"]["code"].as_str() {
        Some(code) => format!("{code}: {}", document["error"]["message"]),
        None => format!("well, {}", ended.stderr.trim()),
    }
}

#[test]
fn every_row_is_there_once_wherever_the_network_breaks() {
    let wanted = number("RAPIDBYTE_FAULTS_NETWORK").map_or(SELECTED, |cases| cases as usize);
    let cases: Vec<_> = cases().take(wanted).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut wired = Wired::new();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wired.case(*case);
                }
            });
        }
    });
    println!("network: {} cases", cases.len());
}

#[test]
fn cases_cover_every_break_at_every_phase() {
    let mut pairs: Vec<_> = cases().map(|(phase, breaks, _)| (phase, breaks)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), PHASES.len() * BREAKS.len());
}

#[test]
fn a_server_that_nobody_can_reach_is_named_in_time() {
    for side in [Side::Source, Side::Target] {
        let mut wired = Wired::new();
        let proxy = match side {
            Side::Source => &wired.source,
            Side::Target => &wired.target,
        };
        proxy.refuse();
        let mut run = wired.bench.begin(named(NAMES[0]));
        let ended = end_of(run.start(""), "refused");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        assert_eq!(document["error"]["code"], "connect_failed", "{document:#}");
        proxy.heal().expect("the port is free");
        make_good(&mut run, "refused", &ended);
    }
}

/// The COMMIT is on its way while its run is given up, or followed by another attempt; then it
/// arrives.
#[test]
fn a_commit_that_the_network_held_up_comes_too_late() {
    for (scenario, max_attempts) in [(0, 2), (2, 1), (4, 2)] {
        let mut wired = Wired::new();
        wired.bench.max_attempts = max_attempts;
        let scenario = named(NAMES[scenario]);
        let mut run = wired.bench.begin(scenario);
        run.prepare();
        wired.target.arm(Fault {
            when: When::Before("WITH moved AS"),
            what: Break::Stall,
            is_everywhere: false,
        });
        let ended = end_of(run.start(""), scenario.name);
        assert!(wired.target.has_fired(Duration::ZERO), "{ended:?}");
        is_typed(&ended, scenario.name);
        assert_eq!(ended.code == Some(0), max_attempts > 1, "{ended:?}");
        let mut client = run.target.client();
        let known = content(&mut client, "raw.t");
        let before = wired.target.counts().to_server;
        wired.target.heal().expect("the port is free");
        until(
            || wired.target.counts().to_server > before && sessions(&mut client) == 0,
            "the late COMMIT has arrived and its session is gone",
        );
        // A run that was reported as failed changes nothing any more.
        assert_eq!(content(&mut client, "raw.t"), known, "{ended:?}");
        if max_attempts == 1 {
            run.goes_well();
        }
        run.is_right(&format!("{}: {}", scenario.name, ended.stderr));
    }
}

/// The older run has fenced the stream, but the answer is lost. A newer run reads the changed rows and ends
/// before the older run retries.
#[test]
fn a_run_that_lost_the_answer_to_its_fence_brings_no_older_rows() {
    let mut wired = Wired::new();
    wired.bench.replaces = true;
    let mut run = wired.bench.begin(named("replace"));
    run.prepare();
    wired.target.arm(Fault {
        when: When::After("ON CONFLICT (pipeline", Way::ToServer, 0),
        what: Break::Lose(Way::ToClient),
        is_everywhere: false,
    });
    let older = run.start("");
    until(
        || wired.target.has_fired(Duration::ZERO),
        "it has sent its fence",
    );
    run.change();
    run.goes_well();
    let older = end_of(older, "the older run");
    run.is_right(&format!("{older:?}"));
}

/// The answer to COMMIT is lost, and each later request breaks in turn.
#[test]
fn a_commit_without_an_answer_is_settled_whatever_is_killed_then() {
    let mut wired = Wired::new();
    let commit = "WITH moved AS";
    // It has not arrived; or it has, and mostly its answer is lost.
    for when in [When::Before(commit), When::After(commit, Way::ToServer, 0)] {
        for (n, point) in UNANSWERED.iter().enumerate() {
            for (m, action) in ACTIONS.iter().enumerate() {
                let scenario = named(NAMES[(n + m) % NAMES.len()]);
                let about = format!("{when:?} {point} {action} {}", scenario.name);
                let mut run = wired.bench.begin(scenario);
                run.prepare();
                wired.target.arm(Fault {
                    when,
                    what: Break::Reset,
                    is_everywhere: false,
                });
                let broken = breaks(&run, &format!("{point}={action}"));
                let may_be_heard = matches!(when, When::After(..)) && broken.is_ok;
                assert!(broken.fired || may_be_heard, "{about}: {}", broken.told);
                wired.target.heal().expect("the port is free");
                if !(run.adds() && broken.is_ok) {
                    run.goes_well();
                }
                run.is_right(&format!("{about}: {}", broken.told));
            }
        }
    }
}

fn sessions(client: &mut Client) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND application_name = 'rapidbyte'";
    client.query_one(sql, &[]).expect("a count").get(0)
}

/// Asks again and again, a minute at most.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60, "not in a minute: {what}");
        // Leaves the processor to what it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a server of its own in each phase of a run, and starts it again.
fn killed(side: Side, phases: &[(&str, usize)]) {
    let options = Options {
        // The server must not restart by itself: the test starts it again.
        conf: vec!["restart_after_crash = off".into()],
        ..Options::default()
    };
    let server = Server::start(&options).expect("a server");
    let proxy = Proxy::to(server.port()).expect("a free port");
    let url = server.url_through(&proxy, "postgres");
    let server = Arc::new(Mutex::new(server));
    let locked = |server: &Mutex<Server>, act: &mut dyn FnMut(&mut Server)| {
        act(&mut server.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let knows = Arc::clone(&server);
    let mut own = End::new(url, move || {
        let server = knows.lock().unwrap_or_else(PoisonError::into_inner);
        server.client("postgres")
    });
    let (mut from, mut to) = match side {
        Side::Source => {
            own.settings = READS;
            (own, End::fresh(shared()))
        }
        Side::Target => {
            own.settings = WRITES;
            (End::fresh(sources()), own)
        }
    };
    if side == Side::Source {
        to.settings = WRITES;
    } else {
        from.settings = READS;
    }
    let mut bench = Bench::between(from, to);
    for (phase, scenario) in phases {
        let found = PHASES
            .iter()
            .find(|(of, name, _)| (*of, name) == (side, phase));
        let (_, _, when) = found.expect("a phase");
        let scenario = named(NAMES[*scenario]);
        let about = format!("{side:?} killed while {phase}, {}", scenario.name);
        let mut run = bench.begin(scenario);
        run.prepare();
        // It waits there until the server is dead.
        proxy.arm(Fault {
            when: *when,
            what: Break::Stall,
            is_everywhere: false,
        });
        let child = run.start("");
        assert!(proxy.has_fired(HANGS), "{about}");
        let mut processes = 0;
        locked(&server, &mut |server| processes = server.kill());
        // The first process and the session at least.
        assert!(processes >= 2, "{about}: {processes}");
        proxy.heal().expect("the port is free");
        locked(&server, &mut |server| {
            server.run_again().expect("it starts")
        });
        let ended = end_of(child, &about);
        is_typed(&ended, &about);
        println!("network: {about}: {}", told(&ended));
        make_good(&mut run, &about, &ended);
    }
}

#[test]
fn every_row_is_there_once_when_the_source_is_killed() {
    killed(
        Side::Source,
        &[("reading", 0), ("reading", 4), ("joining", 3)],
    );
}

#[test]
fn every_row_is_there_once_when_the_target_is_killed() {
    let phases = [
        ("fenced, unheard", 2),
        ("writing", 4),
        ("writing", 0),
        ("committed, unheard", 2),
        ("committing", 1),
    ];
    killed(Side::Target, &phases);
}
