//! Through a real PgBouncer.

use rapidbyte_testkit::postgres::{Client, Database, PGBOUNCER, PgBouncer, PoolMode, shared};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::until;
use crate::overlap::{Started, refused, run};
use crate::support::Folder;
use crate::wired::end_of;

/// A PgBouncer in front of the shared server, or the reason why there is none.
fn pooler(mode: PoolMode) -> Option<PgBouncer> {
    let pooler = PgBouncer::start(shared(), mode).unwrap_or_else(|failure| panic!("{failure}"));
    if pooler.is_none() {
        eprintln!("SKIPPED: {PGBOUNCER} names no program");
    }
    pooler
}

fn seeded() -> Database<'static> {
    let database = shared().database();
    database
        .client()
        .batch_execute(
            "CREATE SCHEMA app;
             CREATE TABLE app.t AS SELECT i AS id, 'row ' || i AS s, i / 7.0 AS n,
                 now() + i * interval '1 s' AS at FROM generate_series(1, 3000) i;
             CREATE TABLE app.u AS SELECT i AS id FROM generate_series(1, 10) i",
        )
        .expect("tables");
    database
}

/// Copies both tables through the pooler on both sides.
fn pipeline(pooler: &PgBouncer, from: &Database<'_>, to: &Database<'_>, method: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [\"app.*\"] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw, load_method: {method} }}, \
         write_mode: replace }}\nresources: {{ parallelism: 2, memory: 512mb }}\n",
        pooler.url(from.name()),
        pooler.url(to.name())
    )
}

fn same(from: &Database<'_>, to: &Database<'_>) {
    let hash = |database: &Database<'_>, table: &str| -> (i64, String) {
        let sql =
            format!("SELECT count(*), md5(string_agg(x::text, ',' ORDER BY id)) FROM {table} x");
        let row = database.client().query_one(&sql, &[]).expect("a hash");
        (row.get(0), row.get(1))
    };
    for table in ["t", "u"] {
        let (source, target) = (format!("app.{table}"), format!("raw.{table}"));
        assert_eq!(hash(from, &source), hash(to, &target), "{table}");
    }
}

#[test]
fn a_pooler_of_sessions_changes_nothing() {
    let Some(pooler) = pooler(PoolMode::Session) else {
        return;
    };
    let (from, to) = (seeded(), shared().database());
    for method in ["copy", "insert", "copy"] {
        Folder::new().report(&pipeline(&pooler, &from, &to, method));
        same(&from, &to);
    }
}

#[test]
fn a_pooler_of_transactions_works_and_its_sessions_stay_as_they_were() {
    let Some(pooler) = pooler(PoolMode::Transaction) else {
        return;
    };
    let (from, to) = (seeded(), shared().database());
    for method in ["copy", "insert", "insert"] {
        let folder = Folder::new();
        folder.report(&pipeline(&pooler, &from, &to, method));
        same(&from, &to);
        let check = folder.rapidbyte(&["check", "p.yaml"]);
        assert!(check.stdout.contains("pooler"), "{}", check.stdout);
    }
    // The settings that other clients find in the sessions of these runs.
    for database in [&from, &to] {
        let mut client = Client::connect(
            &pooler.url(database.name()),
            rapidbyte_testkit::postgres::NoTls,
        )
        .expect("a connection");
        for (name, usual) in [
            ("search_path", "\"$user\", public"),
            ("statement_timeout", "0"),
            ("bytea_output", "hex"),
            ("jit", "on"),
            ("row_security", "on"),
            ("extra_float_digits", "1"),
        ] {
            let row = client
                .simple_query(&format!("SHOW {name}"))
                .expect("a setting");
            let value = row.iter().find_map(|message| match message {
                rapidbyte_testkit::postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            assert_eq!(value, Some(usual), "{name}");
        }
    }
}

/// One pipeline in two directories, which know nothing of each other, into a database behind a pooler.
struct Apart {
    here: Folder,
    there: Folder,
    pipeline: String,
    target: Database<'static>,
    client: Client,
    _source: Database<'static>,
    _pooler: PgBouncer,
}

impl Apart {
    fn new(mode: PoolMode) -> Option<Self> {
        let pooler = pooler(mode)?;
        let (source, target) = (shared().database(), shared().database());
        let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
        source.client().batch_execute(table).expect("a table");
        let mut client = target.client();
        client
            .batch_execute("CREATE TABLE t (id integer)")
            .expect("a table");
        let pipeline = crate::postgres::copy(&source, &target, "[public.t]", "schema: public");
        let apart = Self {
            here: Folder::new(),
            there: Folder::new(),
            pipeline: pipeline.replace(&target.url(), &pooler.url(target.name())),
            target,
            client,
            _source: source,
            _pooler: pooler,
        };
        for folder in [&apart.here, &apart.there] {
            folder.write("p.yaml", &apart.pipeline);
        }
        Some(apart)
    }

    /// The next run of the second directory has another `when_running`.
    fn here_running(&self, mode: &str) {
        let pipeline = format!("{}when_running: {mode}\n", self.pipeline);
        self.here.write("p.yaml", pipeline);
    }

    /// A session that lets a run begin, and no row be written.
    fn holder(&self) -> Client {
        let mut holder = self.target.client();
        let sql = "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE";
        holder.batch_execute(sql).expect("a lock");
        holder
    }

    /// A run that works until the lock is given back.
    fn works(&self) -> Started {
        let older = Started::new(&self.there, "");
        older.says("waits for a lock on");
        older
    }

    fn count(&mut self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).expect("a count").get(0)
    }
}

const BEATS: &str = "SELECT count(*) FROM _rapidbyte.checkpoint_beat";
const ROWS: &str = "SELECT count(*) FROM t";

#[track_caller]
fn ends_well(started: Started) {
    let ended = end_of(started.child, "the run");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_run_behind_a_pooler_is_seen_until_it_ends_or_is_killed() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let Some(mut apart) = Apart::new(mode) else {
            return;
        };
        let planned = apart.there.rapidbyte(&["plan", "p.yaml"]).stdout;
        let table = "CREATE UNLOGGED TABLE IF NOT EXISTS";
        assert!(planned.contains(table), "{planned}");
        let mut holder = apart.holder();
        let older = apart.works();
        let message = refused(&run(&apart.here));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let place = format!(
            "process {} on {}, behind a pooler",
            older.pid(),
            host.trim()
        );
        for part in [&place, "running for", "the pipeline t"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        holder.batch_execute("COMMIT").expect("the lock is free");
        ends_well(older);
        assert_eq!(apart.count(BEATS), 0, "a run that ended takes it back");
        let next = run(&apart.here);
        assert_eq!(next.code, Some(0), "{next:?}");

        // The machine knows that the process has ended.
        Started::at(&apart.there, "engine.flush=stall").kill();
        let left = "it could not take it back, and the run before it did:";
        assert_eq!(apart.count(BEATS), 1, "{left} {next:?}");
        let next = run(&apart.here);
        assert_eq!(next.code, Some(0), "{next:?}");
        assert_eq!(apart.count(ROWS), 30);
    }
}

/// The test makes a run silent, and waits for its next heartbeat.
#[test]
fn a_run_behind_a_pooler_renews_its_heartbeat_and_holds_no_transaction_open_for_it() {
    let Some(mut apart) = Apart::new(PoolMode::Session) else {
        return;
    };
    let mut holder = apart.holder();
    let older = apart.works();
    let silent = "UPDATE _rapidbyte.checkpoint_beat SET beat = now() - interval '31 s'";
    assert_eq!(apart.client.execute(silent, &[]).expect("an update"), 1);
    let young = format!("{BEATS} WHERE beat > now() - interval '30 s'");
    until(|| apart.count(&young) == 1, "the next heartbeat");
    refused(&run(&apart.here));
    // The session that loads waits for the lock, with a transaction open.
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'rapidbyte' AND xact_start IS NOT NULL";
    until(
        || apart.count(open) == 1,
        "the heartbeat's transaction ends",
    );
    holder.batch_execute("COMMIT").expect("the lock is free");
    ends_well(older);
    assert_eq!(apart.count(BEATS), 0);
}

#[test]
fn a_run_that_fails_behind_a_pooler_takes_its_heartbeat_back() {
    let Some(mut apart) = Apart::new(PoolMode::Transaction) else {
        return;
    };
    let once = format!("{}retry: {{ max_attempts: 1 }}\n", apart.pipeline);
    apart.there.write("p.yaml", once);
    let older = Started::new(&apart.there, "engine.flush=error");
    let ended = end_of(older.child, "the run");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(apart.count(BEATS), 0);
    // A run that is interrupted takes its heartbeat back, too.
    let mut holder = apart.holder();
    let older = apart.works();
    kill_process(Pid::from_child(&older.child), Signal::INT).expect("it is there");
    assert_eq!(end_of(older.child, "the run").code, Some(130));
    assert_eq!(apart.count(BEATS), 0);
    holder.batch_execute("COMMIT").expect("the lock is free");
}

/// The test makes a stopped run silent for half a minute.
#[test]
fn a_run_behind_a_pooler_that_is_silent_for_half_a_minute_is_fenced() {
    let Some(mut apart) = Apart::new(PoolMode::Transaction) else {
        return;
    };
    let older = Started::stopped_at(&apart.there, "engine.fenced");
    let silent = "UPDATE _rapidbyte.checkpoint_beat SET beat = now() - interval '31 s'";
    // A beat may be on its way to the server when the process stops.
    let counts_as_dead = || {
        assert_eq!(apart.client.execute(silent, &[]).expect("an update"), 1);
        let newer = run(&apart.here);
        let is_refused = newer.stdout.contains("already_running");
        assert!(newer.code == Some(0) || is_refused, "{newer:?}");
        newer.code == Some(0)
    };
    until(counts_as_dead, "the silent run counts as dead");
    kill_process(Pid::from_child(&older.child), Signal::CONT).expect("it is there");
    let ended = end_of(older.child, "the older run");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("run_superseded"), "{ended:?}");
    assert_eq!(apart.count(ROWS), 10);
    assert_eq!(apart.count(BEATS), 0);
}

#[test]
fn a_run_waits_for_one_behind_a_pooler_or_replaces_it() {
    let Some(mut apart) = Apart::new(PoolMode::Transaction) else {
        return;
    };
    let mut holder = apart.holder();
    let older = apart.works();
    apart.here_running("wait");
    let waiting = Started::new(&apart.here, "");
    let told = waiting.says("waits for ");
    assert!(told.contains(&format!("process {}", older.pid())), "{told}");
    holder.batch_execute("COMMIT").expect("the lock is free");
    ends_well(older);
    ends_well(waiting);
    assert_eq!(apart.count(ROWS), 20);

    apart.here_running("replace");
    let older = Started::at(&apart.there, "engine.fenced=stall");
    let newer = run(&apart.here);
    assert_eq!(newer.code, Some(0), "{newer:?}");
    older.kill();
    assert_eq!(apart.count(ROWS), 30);
}

/// Something else has the table's name: the rows are right all the same.
#[test]
fn a_heartbeat_that_cannot_be_written_is_one_warning() {
    let Some(mut apart) = Apart::new(PoolMode::Transaction) else {
        return;
    };
    let other = "CREATE SCHEMA _rapidbyte; \
                 CREATE VIEW _rapidbyte.checkpoint_beat AS SELECT 1 AS one";
    apart.client.batch_execute(other).expect("a view");
    let ended = run(&apart.here);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = "may not see that this one is running";
    assert_eq!(ended.stderr.matches(said).count(), 1, "{ended:?}");
    assert_eq!(apart.count(ROWS), 10);
}
