//! Signals and streams at a time, with a source that never ends.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::net;
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
    started(folder, &["run", "-v", "p.yaml"], pipeline)
}

fn started(folder: &Folder, arguments: &[&str], pipeline: &str) -> Child {
    folder.write("p.yaml", pipeline);
    let mut command = folder.command(arguments);
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

/// A port of this machine that takes no connection: its queue is full.
fn full_port() -> (OwnedFd, Vec<OwnedFd>, u16) {
    let new = || net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None);
    let listener = new().expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    net::bind(&listener, &any).expect("a free port");
    net::listen(&listener, 0).expect("it listens");
    let address = SocketAddr::try_from(net::getsockname(&listener).expect("an address"));
    let address = address.expect("an internet address");
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let socket = new().expect("a socket");
        rustix::io::ioctl_fionbio(&socket, true).expect("non-blocking");
        // Completes or stays in progress: either way it takes a place in the queue.
        let _ = net::connect(&socket, &address);
        waiting.push(socket);
    }
    (listener, waiting, address.port())
}

fn misbehave(config: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: {}, config: {{ {config} }}, streams: [rows] }}\n\
         destination: {{ use: {}, write_mode: replace }}\n",
        testkit("source-misbehave"),
        testkit("dest-null")
    )
}

#[test]
fn a_guest_that_waits_is_interrupted() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent_port = silent.local_addr().expect("an address").port();
    let (_listener, _waiting, full_port) = full_port();
    for config in [
        "how: sleep".to_owned(),
        format!("how: read, host: 127.0.0.1, port: {silent_port}"),
        format!("how: connect, host: 127.0.0.1, port: {full_port}"),
    ] {
        let folder = Folder::new();
        let mut child = start(&folder, &misbehave(&config));
        wait_for(&mut child, "started", 1);
        // Dropped, it would end, and the guest with it.
        let _connection = config
            .contains("read")
            .then(|| silent.accept().expect("the guest connects"));
        let since = Instant::now();
        let ended = signal(child, Signal::INT);
        println!("{config}: ended {:?} after the signal", since.elapsed());
        assert_eq!(ended.code, Some(130), "{config}: {}", ended.stderr);
    }
}

/// A full pipe; keep its reading end. The bytes in it are not output of the program.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("non-blocking");
    while rustix::io::write(&writer, &[b' '; 4096]).is_ok() {}
    while rustix::io::write(&writer, b" ").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("blocking");
    (reader, writer)
}

#[test]
fn a_second_signal_ends_a_program_that_cannot_end_by_itself() {
    /// A program that does not end at all is killed then, and the test fails.
    const PATIENCE: Duration = Duration::from_secs(60);
    for (second, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = server.local_addr().expect("an address").port();
        let folder = Folder::new();
        let config = format!("how: read, host: 127.0.0.1, port: {port}");
        folder.write("p.yaml", misbehave(&config));
        // The reader of standard error has stopped reading, so the program cannot print its error.
        let (_reader, writer) = full_pipe();
        let mut command = folder.command(&["run", "p.yaml"]);
        command.stdout(Stdio::null()).stderr(writer);
        let mut child = command.spawn().expect("the program starts");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        let (mut connection, _) = server.accept().expect("the guest connects");
        kill_process(pid, Signal::INT).expect("it runs");
        // The first one has been seen: the run is being cancelled.
        let end = connection.read(&mut [0]);
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
        assert!(child.try_wait().expect("a child").is_none(), "too early");
        kill_process(pid, second).expect("it still runs");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(child.wait()));
        let ended = told.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            let _ = kill_process(pid, Signal::KILL);
            panic!("{second:?} did not end it: {error}")
        });
        assert_eq!(ended.expect("a child").code(), Some(code));
    }
}

/// Otherwise it would tell of connectors that fail.
#[test]
fn a_doctor_that_is_interrupted_finds_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("an address").port();
    let folder = Folder::new();
    let pipeline = format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-postgres, config: {{ url: \"postgres://u@127.0.0.1:{port}/d\" }}, streams: [t] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n"
    );
    let child = started(&folder, &["doctor", "p.yaml"], &pipeline);
    let _connection = silent.accept().expect("the guest connects");
    let ended = signal(child, Signal::INT);
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_guest_that_computes_for_ever_is_interrupted() {
    // The last two come back, and never with a row or the end.
    for how in ["loop", "idle", "empty_batches"] {
        let folder = Folder::new();
        let mut child = start(&folder, &misbehave(&format!("how: {how}")));
        wait_for(&mut child, "started", 1);
        assert_eq!(signal(child, Signal::INT).code, Some(130), "{how}");
    }
}

#[test]
fn the_next_run_removes_leftovers_of_a_killed_run_and_not_of_an_active_one() {
    let folder = Folder::new();
    let mut killed = start(&folder, &endless(2));
    wait_for(&mut killed, "writes", 2);
    let names = |part: &str| {
        let files = folder.files("out").into_iter();
        files.filter(|name| name.contains(part)).collect::<Vec<_>>()
    };
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    folder.write("out/.a.csv.1-1.tmp", "left by another run");
    let mut running = start(&folder, &endless(1));
    wait_for(&mut running, "writes", 1);
    assert_eq!(names(".a.csv.").len(), 1, "{:?}", folder.files("out"));
    // Another pipeline does not wait for this one.
    let finite = endless(1)
        .replace("preset: narrow", "preset: narrow, rows: 10")
        .replace("pipeline: ", "pipeline: other-");
    folder.report(&finite);
    assert_eq!(names(".a.csv.").len(), 1, "{:?}", folder.files("out"));
    assert_eq!(signal(running, Signal::INT).code, Some(130));
    assert_eq!(folder.files("out"), ["a.csv", "b.csv"]);
}
