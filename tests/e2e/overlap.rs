//! Runs of one pipeline that overlap: which one works, and what the other says.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use rapidbyte_testkit::postgres::{Client, Database, shared};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::network::until;
use crate::support::{Ended, Folder, generate};
use crate::wired::{HANGS, end_of};

/// A run of `p.yaml` under way.
pub(crate) struct Started {
    pub child: Child,
    lines: mpsc::Receiver<String>,
}

impl Started {
    pub fn new(folder: &Folder, faults: &str) -> Self {
        let mut child = folder
            .command(&["run", "p.yaml", "--output", "json"])
            .env("RAPIDBYTE_FAULTS", faults)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // Nobody may listen any more.
                let _ = tell.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits until it says this on standard error.
    #[track_caller]
    pub fn says(&self, part: &str) -> String {
        loop {
            match self.lines.recv_timeout(HANGS) {
                Ok(line) if line.contains(part) => return line,
                Ok(_) => {}
                Err(error) => panic!("it does not say {part:?}: {error}"),
            }
        }
    }

    /// A run that stays where the fault is.
    pub fn at(folder: &Folder, fault: &str) -> Self {
        let started = Self::new(folder, fault);
        started.says("fault: ");
        started
    }

    /// A run that is stopped where it is.
    pub fn stopped_at(folder: &Folder, point: &str) -> Self {
        let started = Self::at(folder, &format!("{point}=stop"));
        let stat = format!("/proc/{}/stat", started.pid());
        let is_stopped = || {
            let stat = std::fs::read_to_string(&stat).expect("a process");
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        until(is_stopped, "the run has stopped");
        started
    }

    /// As by `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("it ends");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

pub(crate) fn run(folder: &Folder) -> Ended {
    folder.rapidbyte(&["run", "p.yaml", "--output", "json"])
}

/// The error of a run that names the run at work.
#[track_caller]
pub(crate) fn refused(ended: &Ended) -> String {
    let message = refused_to(ended);
    assert!(ended.stdout.contains("when_running: wait"), "{ended:?}");
    message
}

/// The error that names the run at work.
#[track_caller]
fn refused_to(ended: &Ended) -> String {
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let error = &document["error"];
    assert_eq!(error["code"], "already_running", "{error:#}");
    assert_eq!(error["class"], "busy", "{error:#}");
    error["message"].as_str().expect("a message").to_owned()
}

/// Whether the hint names `when_running: replace`.
fn suggests_to_fence(ended: &Ended) -> bool {
    refused(ended);
    ended.stdout.contains("when_running: replace")
}

#[test]
fn a_refused_run_is_pointed_to_replace_only_where_the_destination_can_fence() {
    let many = "out/{stream}/{part}.csv";
    for (pipeline, fences) in [
        (into_files("out/{stream}.csv", "replace"), false),
        (into_files(many, "replace"), false),
        (into_files(many, "append"), true),
        (
            into_files(many, "append").replace("[rows]", "[\"*\"]"),
            true,
        ),
        // It keeps no cursor.
        (generate(10, ""), false),
    ] {
        let folder = Folder::new();
        folder.write("p.yaml", &pipeline);
        let older = Started::at(&folder, "engine.flush=stall");
        assert_eq!(suggests_to_fence(&run(&folder)), fences, "{pipeline}");
        older.kill();
        // The suggestion is true.
        folder.write("p.yaml", format!("{pipeline}when_running: replace\n"));
        let checked = folder.rapidbyte(&["check", "p.yaml"]);
        assert_eq!(checked.code == Some(0), fences, "{pipeline}: {checked:?}");
    }
}

/// A run that replaces another one needs to know both: whether the destination fences, and where the stream resumes.
#[test]
fn the_destination_is_asked_once_for_the_progress_of_a_stream() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let streams = "[{ name: public.t, sync_mode: incremental, cursor_field: id }]";
    let pipeline = crate::postgres::copy(&source, &target, streams, "schema: public");
    let folder = Folder::new();
    let more = "when_running: replace\nretry: { max_attempts: 1 }\n";
    folder.write("p.yaml", format!("{pipeline}{more}"));
    for (time, code) in [(1, 1), (2, 0)] {
        let fault = format!("dest-postgres.asked=error@{time}");
        let mut plan = folder.command(&["plan", "p.yaml"]);
        let ended = plan.env("RAPIDBYTE_FAULTS", &fault).output();
        let ended = ended.expect("the program starts");
        assert_eq!(ended.status.code(), Some(code), "{fault}: {ended:?}");
    }
}

#[test]
fn a_run_is_refused_or_waits_while_another_one_works_and_not_after_it_was_killed() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, ""));
    let older = Started::at(&folder, "engine.flush=stall");
    let message = refused(&run(&folder));
    let runs = folder.rapidbyte(&["runs", "p.yaml", "--output", "json"]);
    let runs: Value = serde_json::from_str(&runs.stdout).expect("one JSON document");
    let id = runs["runs"][0]["id"].as_str().expect("an id");
    for part in [id, &format!("process {}", older.pid()), "s ago"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    // Another pipeline of the folder has nothing to do with it.
    folder.write(
        "other.yaml",
        generate(10, "").replace("pipeline: t", "pipeline: u"),
    );
    let other = folder.rapidbyte(&["run", "other.yaml"]);
    assert_eq!(other.code, Some(0), "{other:?}");

    folder.write("p.yaml", generate(10, "when_running: wait"));
    let waiting = Started::new(&folder, "");
    let told = waiting.says("waits for ");
    assert!(told.contains(id), "{told}");
    older.kill();
    let ended = end_of(waiting.child, "waiting");
    assert_eq!(ended.code, Some(0), "{ended:?}");

    folder.write("p.yaml", generate(10, ""));
    Started::at(&folder, "engine.flush=stall").kill();
    let next = run(&folder);
    assert_eq!(next.code, Some(0), "{next:?}");
}

#[test]
fn a_run_that_waits_ends_at_ctrl_c_and_one_that_replaces_does_not_wait() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, "when_running: wait"));
    let older = Started::at(&folder, "engine.flush=stall");
    let waiting = Started::new(&folder, "");
    waiting.says("waits for ");
    kill_process(Pid::from_child(&waiting.child), Signal::INT).expect("it is there");
    assert_eq!(end_of(waiting.child, "waiting").code, Some(130));
    let replaces = "when_running: replace\n";
    folder.write(
        "p.yaml",
        into_files("out/{stream}/{part}.csv", "append") + replaces,
    );
    let newer = run(&folder);
    assert_eq!(newer.code, Some(0), "{newer:?}");
    older.kill();
}

/// Ten rows into files.
fn into_files(path: &str, write_mode: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-generate, config: {{ rows: 10, preset: narrow }}, streams: [rows] }}\n\
         destination:\n  use: dest-file\n  config: {{ path: \"{path}\" }}\n  write_mode: {write_mode}\n"
    )
}

/// Nothing stops an older run that renames its file over the newer one.
#[test]
fn a_run_cannot_replace_another_one_where_nothing_fences_the_older_one() {
    let folder = Folder::new();
    let replaces = "when_running: replace\n";
    for pipeline in [
        generate(10, replaces),
        into_files("out/{stream}.csv", "replace") + replaces,
        into_files("out/{stream}/{part}.csv", "replace") + replaces,
    ] {
        folder.write("p.yaml", &pipeline);
        for verb in ["plan", "check", "run"] {
            let ended = folder.rapidbyte(&[verb, "p.yaml", "--output", "json"]);
            assert_eq!(ended.code, Some(2), "{verb}: {ended:?}");
            let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
            let error = &document["error"];
            assert_eq!(error["code"], "cannot_replace_run", "{verb}: {error:#}");
            assert_eq!(error["key"], "when_running", "{verb}: {error:#}");
            let hint = error["hint"].as_str().expect("a hint");
            assert!(hint.contains("when_running: wait"), "{hint}");
        }
        assert_eq!(folder.files("out"), [""; 0], "{pipeline}");
    }
    // A directory that grows has manifests, which fence: also where it is replaced later.
    for write_mode in ["append", "replace"] {
        let pipeline = into_files("out/{stream}/{part}.csv", write_mode) + replaces;
        folder.report(&pipeline);
    }
}

/// A run says every few seconds that it is alive. The test makes a stopped one silent for half a minute.
#[test]
fn a_run_that_stands_still_for_half_a_minute_is_fenced() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, ""));
    let older = Started::stopped_at(&folder, "engine.flush");
    refused(&run(&folder));
    let lock = folder.path().join(".rapidbyte/pipeline-t.lock");
    let lock = std::fs::File::open(lock).expect("the lock of the run");
    let silent = SystemTime::now() - Duration::from_secs(31);
    lock.set_modified(silent).expect("a time");
    let newer = run(&folder);
    assert_eq!(newer.code, Some(0), "{newer:?}");
    let (said, pid) = ("has not answered", older.pid().to_string());
    assert!(newer.stderr.contains(said), "{newer:?}");
    assert!(newer.stderr.contains(&pid), "{newer:?}");
    older.kill();
}

/// Two folders know nothing of each other: the server lists the session of the older run.
#[test]
fn a_run_of_another_folder_is_seen_by_its_session_on_the_server() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let pipeline = crate::postgres::copy(&source, &target, "[public.t]", "schema: public");
    let (here, there) = (Folder::new(), Folder::new());
    for folder in [&here, &there] {
        folder.write("p.yaml", &pipeline);
    }
    let older = Started::at(&there, "engine.flush=stall");
    for folder in [&here, &there] {
        assert!(suggests_to_fence(&run(folder)));
    }
    let message = refused(&run(&here));
    assert!(message.contains("server process"), "{message}");
    older.kill();
    let mut client = target.client();
    // Where the server lists it, a run needs neither a heartbeat nor a session for it.
    let beats = "SELECT to_regclass('_rapidbyte.checkpoint_beat') IS NULL";
    let has_none: bool = client.query_one(beats, &[]).expect("an answer").get(0);
    assert!(has_none);
    let sessions = "SELECT count(*) FROM pg_stat_activity AS a JOIN _rapidbyte.checkpoint AS c \
                    ON a.pid = c.backend_pid";
    until(
        || {
            client
                .query_one(sessions, &[])
                .expect("a count")
                .get::<_, i64>(0)
                == 0
        },
        "the server has noticed",
    );
    let next = run(&here);
    assert_eq!(next.code, Some(0), "{next:?}");
}

/// The copy says that the run did not end, and nobody holds the copy's lock. Neither proves that the run is dead.
#[test]
fn a_run_is_alive_for_a_copy_of_its_folder() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let pipeline = crate::postgres::copy(&source, &target, "[public.t]", "schema: public");
    let (here, there) = (Folder::new(), Folder::new());
    for folder in [&here, &there] {
        folder.write("p.yaml", &pipeline);
    }
    let older = Started::at(&there, "engine.flush=stall");
    std::fs::create_dir(here.path().join(".rapidbyte")).expect("a folder");
    for entry in std::fs::read_dir(there.path().join(".rapidbyte")).expect("a history") {
        let file = entry.expect("a file").path();
        let name = file.file_name().expect("a name");
        std::fs::copy(&file, here.path().join(".rapidbyte").join(name)).expect("a copy");
    }
    let clear = ["state", "clear", "p.yaml", "--all", "--output", "json"];
    assert!(refused_to(&here.rapidbyte(&clear)).contains("server process"));
    // The second time the copy's own files have been written.
    for _ in 0..2 {
        let message = refused(&run(&here));
        assert!(message.contains("server process"), "{message}");
    }
    // In its own folder it is known to be dead at once.
    older.kill();
    let next = run(&there);
    assert_eq!(next.code, Some(0), "{next:?}");
    let count = "SELECT count(*) FROM public.t";
    let rows: i64 = target
        .client()
        .query_one(count, &[])
        .expect("a count")
        .get(0);
    assert_eq!(rows, 10);
}

/// Both runs check for other runs before one of them fences.
#[test]
fn of_two_runs_that_begin_at_one_moment_in_two_folders_one_waits() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let pipeline = crate::postgres::copy(&source, &target, "[public.t]", "schema: public");
    let (here, there) = (Folder::new(), Folder::new());
    for folder in [&here, &there] {
        folder.write("p.yaml", format!("{pipeline}when_running: wait\n"));
    }
    let first = Started::stopped_at(&there, "dest-postgres.fencing");
    let second = Started::new(&here, "");
    let told = second.says("waits for ");
    for part in [
        "waits for another run of the pipeline t (still planning; ",
        "server process",
        " s) to end",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("did not start"), "{told}");
    kill_process(Pid::from_child(&first.child), Signal::CONT).expect("it is there");
    for (run, name) in [(first, "the first run"), (second, "the second run")] {
        let ended = end_of(run.child, name);
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    }
    // A run does not wait for a run that was killed before it fenced.
    Started::at(&there, "dest-postgres.fencing=stall").kill();
    let next = run(&here);
    assert_eq!(next.code, Some(0), "{next:?}");
}

/// Moving a cursor fences the run that is at work on the stream.
#[test]
fn cursors_are_not_moved_under_a_run_at_work_without_consent() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let pipeline = crate::postgres::copy(
        &source,
        &target,
        "[{ name: public.t, sync_mode: incremental, cursor_field: id }]",
        "schema: public",
    );
    let (here, there) = (Folder::new(), Folder::new());
    for folder in [&here, &there] {
        folder.write("p.yaml", &pipeline);
    }
    let cursor = "{\"mode\":\"ordered\"}";
    let verbs: [&[&str]; 3] = [
        &["set", "p.yaml", "public.t", cursor],
        &["rebind", "p.yaml", "public.t"],
        &["clear", "p.yaml", "--all"],
    ];
    let older = Started::at(&there, "engine.flush=stall");
    let (pid, session) = (format!("process {}", older.pid()), "server process");
    for (folder, who) in [(&there, pid.as_str()), (&here, session)] {
        for verb in verbs {
            let json = ["--output", "json"].as_slice();
            let ended = folder.rapidbyte(&[&["state"], verb, json].concat());
            assert_eq!(ended.code, Some(5), "{verb:?}: {ended:?}");
            let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
            let error = &document["error"];
            assert_eq!(error["code"], "already_running", "{verb:?}: {error:#}");
            let message = error["message"].as_str().expect("a message");
            assert!(message.contains(who), "{verb:?}: {message}");
            let hint = error["hint"].as_str().expect("a hint");
            assert!(hint.contains("--force"), "{verb:?}: {hint}");
        }
    }
    // It only looks.
    let list = here.rapidbyte(&["state", "list", "p.yaml"]);
    assert_eq!(list.code, Some(0), "{list:?}");
    let forced = here.rapidbyte(&["state", "clear", "p.yaml", "--all", "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(forced.stderr.contains("fences it"), "{forced:?}");
    assert!(forced.stderr.contains(session), "{forced:?}");
    older.kill();
}

/// Two tables that are copied one after the other, by a run that replaces an older one.
fn two_tables(database: &Database, each: &str, more: &str) -> String {
    let url = database.url();
    let stream = |name: &str| format!("{{ name: public.{name}{each} }}");
    format!(
        "version: 1\npipeline: t\n{more}source:\n  use: source-postgres\n  config: {{ url: \"{url}\" }}\n  \
         streams: [{}, {}]\nresources: {{ parallelism: 1 }}\ndestination:\n  use: dest-postgres\n  \
         config: {{ url: \"{url}\", schema: raw }}\n",
        stream("a"),
        stream("b")
    )
}

fn days(client: &mut Client, table: &str) -> String {
    let sql = format!("SELECT string_agg(day::text, ',' ORDER BY day) FROM {table}");
    client.query_one(&sql, &[]).expect("rows").get(0)
}

const TWO_TABLES: &str =
    "CREATE TABLE a AS SELECT 1 AS day; CREATE TABLE b AS SELECT 1 AS day; CREATE SCHEMA raw";

/// The older run would replace rows of the newer run with rows of the day before.
#[test]
fn a_run_that_was_replaced_begins_no_stream_any_more() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute(TWO_TABLES).expect("tables");
    let folder = Folder::new();
    let pipeline = two_tables(&database, "", "when_running: replace\n");
    folder.write("p.yaml", format!("{pipeline}  write_mode: replace\n"));
    let older = Started::stopped_at(&folder, "engine.recorded");
    let day = "UPDATE a SET day = 2; UPDATE b SET day = 2";
    client.batch_execute(day).expect("another day");
    let newer = run(&folder);
    assert_eq!(newer.code, Some(0), "{newer:?}");
    let (code, document) = resume(older);
    assert_eq!(document["error"]["code"], "run_superseded", "{document:#}");
    assert_eq!(code, Some(1), "{document:#}");
    for table in ["raw.a", "raw.b"] {
        assert_eq!(days(&mut client, table), "2", "{table}");
    }
}

/// Meanwhile the older run may commit rows that are newer than the snapshot of the run that replaces it.
#[test]
fn a_run_that_replaces_another_one_reads_again_what_that_one_begins_after_it_has_planned() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute(TWO_TABLES).expect("tables");
    let folder = Folder::new();
    let each = ", sync_mode: incremental, cursor_field: day";
    let pipeline = two_tables(&database, each, "when_running: replace\n");
    folder.write("p.yaml", format!("{pipeline}  write_mode: append\n"));
    let older = Started::at(
        &folder,
        "dest-postgres.fencing=stop,engine.acknowledged=stop",
    );
    let newer = Started::stopped_at(&folder, "engine.planned");
    // Rows of the snapshot of neither.
    let day = "INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)";
    client.batch_execute(day).expect("another day");
    kill_process(Pid::from_child(&older.child), Signal::CONT).expect("it is there");
    older.says("fault: engine.acknowledged stop");
    let (code, document) = resume(newer);
    assert_eq!(code, Some(0), "{document:#}");
    let (_, document) = resume(older);
    assert_eq!(document["error"]["code"], "run_superseded", "{document:#}");
    for table in ["raw.a", "raw.b"] {
        let all = days(&mut client, table);
        assert!(["1", "1,2"].contains(&all.as_str()), "{table}: {all}");
    }
    let last = run(&folder);
    assert_eq!(last.code, Some(0), "{last:?}");
    for table in ["raw.a", "raw.b"] {
        assert_eq!(days(&mut client, table), "1,2", "{table}");
    }
}

/// A stopped run counts as dead, and its successor has an id of its own.
#[test]
fn the_successor_of_a_run_that_stands_still_does_not_append_its_streams_again() {
    // Also where the history did not hear of the commit.
    for point in ["engine.recorded", "engine.committed"] {
        let database = shared().database();
        let mut client = database.client();
        client.batch_execute(TWO_TABLES).expect("tables");
        let folder = Folder::new();
        let pipeline = two_tables(&database, "", "");
        folder.write("p.yaml", format!("{pipeline}  write_mode: append\n"));
        let older = Started::stopped_at(&folder, point);
        let lock = folder.path().join(".rapidbyte/pipeline-t.lock");
        let lock = std::fs::File::open(lock).expect("the lock of the run");
        let silent = SystemTime::now() - Duration::from_secs(31);
        lock.set_modified(silent).expect("a time");
        let newer = run(&folder);
        assert_eq!(newer.code, Some(0), "{newer:?}");
        for table in ["raw.a", "raw.b"] {
            assert_eq!(days(&mut client, table), "1", "{table}");
        }
        let (_, document) = resume(older);
        assert_eq!(document["error"]["code"], "run_superseded", "{document:#}");
        let day = "UPDATE a SET day = 2; UPDATE b SET day = 2";
        client.batch_execute(day).expect("another day");
        let next = run(&folder);
        assert_eq!(next.code, Some(0), "{next:?}");
        for table in ["raw.a", "raw.b"] {
            assert_eq!(days(&mut client, table), "1,2", "{table}");
        }
    }
}

/// Lets a stopped run continue; its exit code and its document.
pub(crate) fn resume(started: Started) -> (Option<i32>, Value) {
    let pid = Pid::from_raw(started.pid() as i32).expect("a process");
    kill_process(pid, Signal::CONT).expect("it continues");
    let ended = started.child.wait_with_output().expect("it ends");
    let document = serde_json::from_slice(&ended.stdout).expect("one JSON document");
    (ended.status.code(), document)
}
