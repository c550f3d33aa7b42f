//! Whole processes, timed from their start to their end, and ended when they take too long.
//!
//! Each run is a process group of its own, so that what a program has started ends with it. All
//! clients of an interrupted bench lose their server, and end by that.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::failure::{Failure, Missed};

/// The kept bytes of a program's output; the rest is read and dropped.
const MAX_PRINTED: u64 = 16 << 20;
/// How long the system may take to end processes that were killed.
const GRACE: Duration = Duration::from_secs(10);

/// The time and the output of a process, or of a pipe of two.
#[derive(Debug)]
pub struct Timed {
    /// From starting the first to the end of the last.
    pub wall_secs: f64,
    /// User and system time of both, in steps of 10 ms; nothing where `/proc` is not there.
    pub cpu_secs: Option<f64>,
    /// Standard output of the last.
    pub stdout: Vec<u8>,
}

/// Runs a program that must end well within `limit`; `name` is how people call it.
pub fn timed(name: &str, command: &mut Command, limit: Duration) -> Result<Timed, Missed> {
    run(name, &mut [command], limit)
}

/// Runs two programs, the standard output of one being the standard input of the other.
pub fn timed_pipe(
    name: &str,
    from: &mut Command,
    to: &mut Command,
    limit: Duration,
) -> Result<Timed, Missed> {
    run(name, &mut [from, to], limit)
}

/// Programs from left to right, each reading what the one before it prints.
fn run(name: &str, commands: &mut [&mut Command], limit: Duration) -> Result<Timed, Missed> {
    let cpu = children_cpu_secs();
    let begun = Instant::now();
    let mut group = Group::begin(limit);
    for command in commands {
        group
            .start(command)
            .map_err(|error| Failure(format!("{name} did not start: {error}")))?;
    }
    let mut programs = group.wait()?;
    if programs.iter().any(|program| !program.ended_well()) {
        let ends: Vec<String> = programs.iter().map(Program::end).collect();
        return Err(Failure(format!("{name} failed: {}", ends.join("; "))).into());
    }
    let ended = programs.iter().filter_map(|program| program.ended).max();
    Ok(Timed {
        wall_secs: ended.map_or(0.0, |ended| (ended - begun).as_secs_f64()),
        cpu_secs: spent_since(cpu),
        stdout: programs.pop().map(|last| last.stdout).unwrap_or_default(),
    })
}

/// Programs that run together, and end together when the time is over.
struct Group {
    programs: Vec<Program>,
    limit: Duration,
    deadline: Instant,
    sender: Sender<News>,
    receiver: Receiver<News>,
    /// The number of events that are still to come on the channel.
    expected: usize,
}

/// One of them.
struct Program {
    process: Child,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ended: Option<Instant>,
    status: Option<ExitStatus>,
}

/// From the threads that watch a program: its place in the group, and the event.
struct News(usize, Event);

enum Event {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(Instant),
}

impl Group {
    fn begin(limit: Duration) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self {
            programs: Vec::new(),
            limit,
            deadline: Instant::now() + limit,
            sender,
            receiver,
            expected: 0,
        }
    }

    /// Connects its standard input to the output of the program before it.
    fn start(&mut self, command: &mut Command) -> std::io::Result<()> {
        let before = self.programs.last_mut();
        let stdin = before.and_then(|program| program.process.stdout.take());
        // The first leads the group: it is there, if only in name, until it is waited for.
        let leader = self.leader().map_or(0, |pid| pid.as_raw_nonzero().get());
        let process = command
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(leader)
            .spawn()?;
        self.programs.push(Program {
            process,
            stdout: Vec::new(),
            stderr: Vec::new(),
            ended: None,
            status: None,
        });
        Ok(())
    }

    fn leader(&self) -> Option<Pid> {
        let first = self.programs.first();
        first.map(|program| Pid::from_child(&program.process))
    }

    /// Waits for all programs and returns them; kills them at the deadline.
    fn wait(mut self) -> Result<Vec<Program>, Missed> {
        for at in 0..self.programs.len() {
            self.watch(at);
        }
        let in_time = self.receive(self.deadline);
        if !in_time {
            self.kill();
            // So that nothing of it is left when the next one runs.
            self.receive(Instant::now() + GRACE);
        }
        for program in &mut self.programs {
            program.status = program.process.try_wait()?;
        }
        match in_time {
            true => Ok(std::mem::take(&mut self.programs)),
            false => Err(Missed::TimedOut(self.limit)),
        }
    }

    /// Has threads read what a program prints, and wait for its end.
    fn watch(&mut self, at: usize) {
        let process = &mut self.programs[at].process;
        let pid = Pid::from_child(process);
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        if let Some(stdout) = stdout {
            self.spawn(at, move || Event::Stdout(drained(stdout)));
        }
        if let Some(stderr) = stderr {
            self.spawn(at, move || Event::Stderr(drained(stderr)));
        }
        self.spawn(at, move || Event::Ended(end_of(pid)));
    }

    fn spawn(&mut self, at: usize, work: impl FnOnce() -> Event + Send + 'static) {
        let sender = self.sender.clone();
        self.expected += 1;
        // Nobody listens any more when the group was given up.
        std::thread::spawn(move || drop(sender.send(News(at, work()))));
    }

    /// False when the deadline comes first.
    fn receive(&mut self, deadline: Instant) -> bool {
        while self.expected > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok(News(at, event)) => {
                    self.expected -= 1;
                    self.programs[at].take(event);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    fn kill(&self) {
        if let Some(leader) = self.leader() {
            // An error means that nobody is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// A program that could not be joined by the next one of its pipe must not stay.
impl Drop for Group {
    fn drop(&mut self) {
        if self.programs.iter().any(|program| program.status.is_none()) {
            self.kill();
        }
        for program in &mut self.programs {
            let _ = program.process.try_wait();
        }
    }
}

impl Program {
    fn take(&mut self, event: Event) {
        match event {
            Event::Stdout(bytes) => self.stdout = bytes,
            Event::Stderr(bytes) => self.stderr = bytes,
            Event::Ended(at) => self.ended = Some(at),
        }
    }

    fn ended_well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// How it ended, with its words.
    fn end(&self) -> String {
        let status = self.status.map(|status| status.to_string());
        let said = String::from_utf8_lossy(&self.stderr);
        let status = status.unwrap_or_else(|| "no exit status".into());
        match said.trim() {
            "" => status,
            said => format!("{status}: {said}"),
        }
    }
}

/// All that comes; of more than [`MAX_PRINTED`] bytes the first.
fn drained(mut from: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    // An error ends it as the end does.
    let _ = from.by_ref().take(MAX_PRINTED).read_to_end(&mut kept);
    let _ = std::io::copy(&mut from, &mut std::io::sink());
    kept
}

/// When a child ended. It can be waited for still: until then its number is nobody else's.
fn end_of(pid: Pid) -> Instant {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
    Instant::now()
}

fn spent_since(before: Option<f64>) -> Option<f64> {
    Some(children_cpu_secs()? - before?)
}

/// User and system time of all children of this process that have ended.
fn children_cpu_secs() -> Option<f64> {
    cpu_of_children(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// `cutime` and `cstime` of the proc(5) manual page.
fn cpu_of_children(stat: &str) -> Option<f64> {
    // `USER_HZ`, which Linux keeps at 100 for programs whatever the kernel's own clock is.
    const TICKS_PER_SEC: f64 = 100.0;
    // The program's name is in brackets and may hold any character; the state follows it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / TICKS_PER_SEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_s_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 500 600 70 8 20 0 1 0 1 2 3";
        assert_eq!(cpu_of_children(stat), Some(0.78));
        assert_eq!(cpu_of_children("7 (a) S 1 7"), None);
    }

    /// Long, and over at once when it is killed.
    const HANGS: &str = "sleep 1000 & sleep 1000";
    const LONG: Duration = Duration::from_secs(100);
    const SHORT: Duration = Duration::from_millis(50);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_words() {
        let mut command = shell("echo no such table >&2; exit 3");
        let missed = timed("psql", &mut command, LONG).expect_err("it failed");
        let Failure(text) = missed.into();
        assert!(
            text.contains("psql failed") && text.contains("no such table"),
            "{text}"
        );
    }

    #[test]
    fn the_output_of_a_program_is_kept_and_a_pipe_carries_its_bytes() {
        let long = timed("sh", &mut shell("echo $((6 * 7))"), LONG).expect("it ends well");
        assert_eq!(long.stdout, b"42\n");
        let (mut from, mut to) = (shell("echo 42"), shell("read it; echo got $it"));
        let pipe = timed_pipe("a pipe", &mut from, &mut to, LONG).expect("it ends well");
        assert_eq!(pipe.stdout, b"got 42\n");
        assert!(pipe.wall_secs > 0.0);
    }

    #[test]
    fn either_end_of_a_pipe_may_fail_it() {
        let ends = [
            ("exit 1", "cat >/dev/null"),
            ("exit 0", "cat >/dev/null; exit 1"),
        ];
        for (from, to) in ends {
            let missed = timed_pipe("a pipe", &mut shell(from), &mut shell(to), LONG);
            let Failure(text) = missed.expect_err("it failed").into();
            assert!(text.contains("a pipe failed"), "{text}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_all_that_it_has_started() {
        let begun = Instant::now();
        let missed = timed("sh", &mut shell(HANGS), SHORT).expect_err("it hangs");
        assert!(matches!(missed, Missed::TimedOut(SHORT)), "{missed:?}");
        // Its child holds its standard output: if the child were alive, this would take all of
        // `GRACE`.
        assert!(begun.elapsed() < GRACE / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn either_end_of_a_pipe_may_hang() {
        for (from, to) in [(HANGS, "cat"), ("exit 0", HANGS)] {
            let missed = timed_pipe("a pipe", &mut shell(from), &mut shell(to), SHORT);
            let missed = missed.expect_err("it hangs");
            assert!(matches!(missed, Missed::TimedOut(SHORT)), "{missed:?}");
        }
    }

    #[test]
    fn the_first_of_a_pipe_does_not_outlive_a_second_that_is_not_there() {
        let mut group = Group::begin(LONG);
        group.start(&mut shell("sleep 30")).expect("a shell");
        let first = group.leader().expect("it was started");
        let missing = group.start(&mut Command::new("no-such-program-7f3a"));
        assert!(missing.is_err());
        drop(group);
        // Killed, and perhaps waited for already; left alone it would end well.
        let end = waitid(WaitId::Pid(first), WaitIdOptions::EXITED);
        let ended_well = matches!(&end, Ok(Some(status)) if status.exited());
        assert!(!ended_well, "{end:?}");
    }
}
