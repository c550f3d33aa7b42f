//! Signals and streams at a time, with a source that never ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, Folder, testkit};

/// Two endless streams into files.
fn endless(parallelism: u32) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-generate, config: {{ preset: narrow, streams: [a, b] }}, streams: [a, b] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n\
         resources: {{ parallelism: {parallelism} }}\n"
    )
}

fn start(folder: &Folder, pipeline: &str) -> Child {
    folder.write("p.yaml", pipeline);
    let mut command = folder.command(&["run", "-v", "p.yaml"]);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Reads lines of standard error until `count` of them hold `part`.
fn wait_for(child: &mut Child, part: &str, count: usize) -> Vec<String> {
    let stderr = child.stderr.as_mut().expect("a pipe");
    let mut lines = Vec::new();
    for line in BufReader::with_capacity(1, stderr).lines() {
        lines.push(line.expect("UTF-8"));
        if lines.iter().filter(|line| line.contains(part)).count() == count {
            return lines;
        }
    }
    panic!("only {lines:?}");
}

fn signal(child: Child, signal: Signal) -> Ended {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("it runs");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn parallelism_is_the_number_of_streams_at_a_time() {
    let folder = Folder::new();
    let mut two = start(&folder, &endless(2));
    wait_for(&mut two, "started", 2);
    signal(two, Signal::INT);
    let mut one = start(&folder, &endless(1));
    wait_for(&mut one, "started", 1);
    let ended = signal(one, Signal::INT);
    assert!(!ended.stderr.contains("started"), "{}", ended.stderr);
}

#[test]
fn an_interrupted_run_ends_with_130_or_143_and_leaves_nothing() {
    for (signal_sent, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = Folder::new();
        folder.write("out/a.csv", "old\n");
        let mut child = start(&folder, &endless(2));
        wait_for(&mut child, "started", 2);
        let ended = signal(child, signal_sent);
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert_eq!(folder.files("out"), ["a.csv"]);
        assert_eq!(folder.read("out/a.csv"), "old\n");
    }
}

#[test]
fn a_guest_that_computes_for_ever_is_interrupted() {
    let folder = Folder::new();
    let pipeline = format!(
        "version: 1\npipeline: t\n\
         source: {{ use: {}, config: {{ how: loop }}, streams: [rows] }}\n\
         destination: {{ use: {}, write_mode: replace }}\n",
        testkit("source-misbehave"),
        testkit("dest-null")
    );
    let mut child = start(&folder, &pipeline);
    wait_for(&mut child, "started", 1);
    assert_eq!(signal(child, Signal::INT).code, Some(130));
}
