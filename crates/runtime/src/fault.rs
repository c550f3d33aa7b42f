//! Faults on purpose, for the tests of the delivery rule.
//!
//! Code calls [`point`] where a crash would matter. It does nothing unless the environment names
//! the point: `RAPIDBYTE_FAULTS=engine.committed=kill@2,dest-postgres.commit=error`. An entry is
//! `point=action` with `@n` for the n-th time the point is reached (the first, if it is left
//! out). A fault that is about to happen says so on standard error, `fault: <point> <action>`, so
//! that a test can prove it.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The variable that names points and actions.
const VARIABLE: &str = "RAPIDBYTE_FAULTS";

/// Longer than a process needs to stop after the stop signal.
const STOPPING: Duration = Duration::from_millis(200);

/// The action at a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The caller gets an error.
    Error,
    /// The caller panics.
    Panic,
    /// The process is gone at once, as by `kill -9`.
    Kill,
    /// The process is stopped until somebody continues it.
    Stop,
    /// The thread waits for ever.
    Stall,
}

#[derive(Debug)]
struct Fault {
    point: String,
    action: Action,
    /// On this hit, counted from 1.
    hit: u64,
    hits: AtomicU64,
}

/// The error of a failpoint whose action is `error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fault was injected at {0}")]
pub struct Injected(pub String);

/// Reaches a failpoint.
///
/// # Errors
/// When the environment asks for an error here.
///
/// # Panics
/// When the environment asks for a panic here.
pub fn point(name: &str) -> Result<(), Injected> {
    static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
    // A program that embeds the host has called `check`, or does not inject faults.
    let faults = FAULTS.get_or_init(|| asked_for().unwrap_or_default());
    for fault in faults.iter().filter(|fault| fault.point == name) {
        if fault.hits.fetch_add(1, Ordering::Relaxed) + 1 == fault.hit {
            fault.act()?;
        }
    }
    Ok(())
}

/// Checks the variable of the environment: a test with a typo in it must not run without its faults.
///
/// # Errors
/// The entry that cannot be read, in a sentence.
pub fn check() -> Result<(), String> {
    asked_for().map(drop)
}

fn asked_for() -> Result<Vec<Fault>, String> {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let wrong =
        |entry| format!("{VARIABLE} has {entry:?}, which is no POINT=ACTION or POINT=ACTION@HIT");
    parse(&text).map_err(wrong)
}

impl Fault {
    fn act(&self) -> Result<(), Injected> {
        let Self { point, action, .. } = self;
        let line = format!("fault: {point} {action:?}\n").to_lowercase();
        // The test that cannot read it fails.
        let _ = std::io::stderr().write_all(line.as_bytes());
        match action {
            Action::Error => return Err(Injected(point.clone())),
            Action::Panic => panic!("a fault was injected at {point}"),
            Action::Kill => signal(rustix::process::Signal::KILL),
            Action::Stop => {
                signal(rustix::process::Signal::STOP);
                // The system may give the signal to another thread first; this one must not go on
                // until that has stopped them all.
                std::thread::sleep(STOPPING);
                return Ok(());
            }
            Action::Stall => {}
        }
        loop {
            std::thread::park();
        }
    }
}

fn signal(signal: rustix::process::Signal) {
    // If this fails, the process enters the loop, and the test sees that.
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

fn parse(text: &str) -> Result<Vec<Fault>, &str> {
    let entries = text.split(',').map(str::trim).filter(|e| !e.is_empty());
    entries.map(|entry| one(entry).ok_or(entry)).collect()
}

fn one(entry: &str) -> Option<Fault> {
    let (point, action) = entry.split_once('=')?;
    let (action, hit) = action.split_once('@').unwrap_or((action, "1"));
    let action = match action {
        "error" => Action::Error,
        "panic" => Action::Panic,
        "kill" => Action::Kill,
        "stop" => Action::Stop,
        "stall" => Action::Stall,
        _ => return None,
    };
    Some(Fault {
        point: point.to_owned(),
        action,
        hit: hit.parse().ok().filter(|hit| *hit > 0)?,
        hits: AtomicU64::new(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let faults = parse("a.b=kill@3, c=error").unwrap();
        let read: Vec<_> = faults
            .iter()
            .map(|fault| (fault.point.as_str(), fault.action, fault.hit))
            .collect();
        assert_eq!(read, [("a.b", Action::Kill, 3), ("c", Action::Error, 1)]);
        assert!(parse("").unwrap().is_empty());
        for wrong in ["a", "a=b", "a=kill@0", "a=kill@x"] {
            assert_eq!(parse(wrong).unwrap_err(), wrong);
        }
    }
}
