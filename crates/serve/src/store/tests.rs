use std::time::Duration;

use super::*;

const LIMITS: QueueLimits = QueueLimits {
    jobs: 3,
    bytes: 100,
};

fn job(key: Option<&str>, body: &[u8]) -> NewJob {
    let sha256 = ring::digest::digest(&ring::digest::SHA256, body);
    NewJob {
        pipeline: "p".into(),
        stream: "s".into(),
        format: "jsonl",
        encoding: None,
        bytes: body.len() as u64,
        sha256: sha256.as_ref().try_into().expect("32 bytes"),
        key: key.map(str::to_owned),
        is_known_by_content: false,
        expected_by: None,
        token: None,
        body: Body::Inline(body.into()),
    }
}

fn by_content(body: &[u8]) -> NewJob {
    NewJob {
        is_known_by_content: true,
        ..job(None, body)
    }
}

fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(work)
}

/// A store in a new folder, and its end.
struct Opened {
    store: Store,
    threads: Threads,
    folder: tempfile::TempDir,
}

fn open(limits: QueueLimits) -> Opened {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, threads) = Store::open(&folder.path().join("jobs.db"), limits).expect("a store");
    Opened {
        store,
        threads,
        folder,
    }
}

impl Opened {
    fn admit_all(&self, jobs: Vec<NewJob>) -> Outcome {
        block(self.store.admit(jobs, |_| {}, |_| {})).expect("an answer")
    }

    fn admit(&self, job: NewJob) -> Result<Admitted, Refused> {
        let outcome = self.admit_all(vec![job]);
        let outcome = outcome.map(|mut admitted| admitted.remove(0));
        outcome.map_err(|(_, refused)| refused)
    }

    fn new_job(&self, job: NewJob) -> Job {
        match self.admit(job) {
            Ok(Admitted::New(job)) => Arc::unwrap_or_clone(job),
            other => panic!("{other:?}"),
        }
    }

    /// Admits these jobs, and returns the calls of the store in their order.
    fn said(&self, jobs: Vec<NewJob>) -> Vec<String> {
        let (tell, told) = crossbeam_channel::unbounded();
        let also = tell.clone();
        let next = move |next: NextJob| {
            let _ = tell.send(format!("next: {}", next.job.id));
        };
        let stored = move |_: &Outcome| {
            let _ = also.send("stored".to_owned());
        };
        let outcome = block(self.store.admit(jobs, next, stored)).expect("an answer");
        outcome.expect("admitted");
        told.try_iter().collect()
    }

    fn ids(&self, filter: JobFilter, limit: u32) -> Vec<i64> {
        let jobs = block(self.store.jobs(filter, limit)).expect("jobs");
        jobs.iter().map(|job| job.id).collect()
    }

    fn again(self, limits: QueueLimits) -> Self {
        drop(self.store);
        self.threads.join();
        let file = self.folder.path().join("jobs.db");
        let (store, threads) = Store::open(&file, limits).expect("a store");
        Self {
            store,
            threads,
            folder: self.folder,
        }
    }
}

#[test]
fn a_run_that_waits_gets_its_next_job_before_it_is_stored() {
    let opened = open(QueueLimits { jobs: 10, ..LIMITS });
    let queue = opened.store.tried("p", "s").expect("stored").queue;
    let expected = |queue: &str| NewJob {
        expected_by: Some(queue.to_owned()),
        ..job(None, b"a")
    };
    let done = |last| opened.store.done_through("p", "s", last).expect("stored");
    assert_eq!(opened.said(vec![expected(&queue)]), ["next: 1", "stored"]);
    // Another job is pending before it.
    assert_eq!(opened.said(vec![expected(&queue)]), ["stored"]);
    done(2);
    // The stream was bound anew.
    assert_eq!(opened.said(vec![expected("another")]), ["stored"]);
    done(3);
    let both = vec![expected(&queue), expected(&queue)];
    assert_eq!(opened.said(both), ["stored"]);
    done(5);
    let spooled = NewJob {
        body: Body::Spooled("file".into()),
        ..expected(&queue)
    };
    assert_eq!(opened.said(vec![spooled]), ["stored"]);
    done(6);
    assert_eq!(opened.said(vec![job(None, b"a")]), ["stored"]);
    done(7);
    assert_eq!(opened.said(vec![expected(&queue)]), ["next: 8", "stored"]);
}

#[test]
fn a_job_is_admitted_once_by_its_key_or_its_content() {
    let opened = open(LIMITS);
    let first = opened.new_job(job(Some("k"), b"a"));
    assert_eq!(
        opened.admit(job(Some("k"), b"a")),
        Ok(Admitted::Known(first.clone().into()))
    );
    assert_eq!(
        opened.admit(job(Some("k"), b"b")),
        Err(Refused::KeyOfAnother(first.clone().into()))
    );
    // The same bytes are other rows as CSV.
    let as_csv = NewJob {
        format: "csv",
        ..job(Some("k"), b"a")
    };
    assert_eq!(
        opened.admit(as_csv),
        Err(Refused::KeyOfAnother(first.clone().into()))
    );
    let elsewhere = NewJob {
        stream: "t".into(),
        ..job(Some("k"), b"b")
    };
    assert_eq!(opened.new_job(elsewhere).id, first.id + 1);
    assert_eq!(
        opened.admit(by_content(b"a")),
        Ok(Admitted::Known(first.clone().into()))
    );
    // A dead job moves nothing: its bytes may come again.
    let reason = serde_json::json!({ "code": "c" });
    opened.store.dead(first.id, &reason).expect("stored");
    assert_eq!(opened.new_job(by_content(b"a")).id, first.id + 2);
    let found = block(opened.store.job(first.id))
        .expect("an answer")
        .expect("a job");
    assert_eq!((found.state, found.reason), (JobState::Dead, Some(reason)));
    assert_eq!(block(opened.store.job(77)).expect("an answer"), None);
}

#[test]
fn a_body_that_is_remembered_is_the_job_that_the_store_has() {
    let opened = open(LIMITS);
    let store = &opened.store;
    let known = |job: NewJob| match opened.admit(job) {
        Ok(Admitted::Known(job)) => Some((job.id, job.state, job.has_body)),
        _ => None,
    };
    let first = opened.new_job(by_content(b"1")).id;
    // A job that is pending changes.
    for _ in 0..2 {
        let pending = Some((first, JobState::Pending, true));
        assert_eq!(known(by_content(b"1")), pending);
    }
    store.tried("p", "s").expect("stored");
    store.done_through("p", "s", first).expect("stored");
    for _ in 0..2 {
        assert_eq!(known(by_content(b"1")), Some((first, JobState::Done, true)));
    }
    // The same bytes as another format, for another stream and with a key are other jobs.
    let as_csv = NewJob {
        format: "csv",
        ..by_content(b"1")
    };
    let elsewhere = NewJob {
        stream: "other".into(),
        ..by_content(b"1")
    };
    assert_eq!((known(as_csv), known(elsewhere)), (None, None));
    assert_eq!(known(job(Some("k"), b"1")), None);
    assert_eq!(known(by_content(b"1")), Some((first, JobState::Done, true)));
    block(store.discard(first)).expect("stored");
    let without_body = Some((first, JobState::Done, false));
    assert_eq!(known(by_content(b"1")), without_body);
    assert_eq!(known(by_content(b"1")), without_body);
    let nothing = Retention {
        bodies: Duration::ZERO,
        bytes: 0,
        jobs: Duration::ZERO,
        rows: 0,
    };
    while store.forget(nothing).expect("stored").has_more {}
    let left = known(by_content(b"1")).map(|known| known.0);
    assert_ne!(left, Some(first));
}

#[test]
fn the_jobs_of_a_request_are_admitted_together_or_not_at_all() {
    let opened = open(LIMITS);
    let known = opened.new_job(job(Some("k/1"), b"a"));
    let jobs = || vec![job(Some("k/1"), b"a"), job(Some("k/2"), b"b")];
    let both = opened.admit_all(jobs()).expect("admitted");
    assert!(matches!(&both[..], [Admitted::Known(job), Admitted::New(_)] if **job == known));
    assert_eq!(opened.store.held().jobs, 2);
    // The third has a place in the queue, and the fourth does not.
    let many = vec![job(Some("k/1"), b"a"), job(None, b"c"), job(None, b"d")];
    assert_eq!(opened.admit_all(many), Err((2, Refused::Full)));
    let other = vec![job(None, b"c"), job(Some("k/2"), b"x")];
    let second = both[1].job().clone();
    assert_eq!(
        opened.admit_all(other),
        Err((1, Refused::KeyOfAnother(second.into())))
    );
    assert_eq!(
        (opened.store.held().jobs, opened.store.held().bytes),
        (2, 2)
    );
    assert_eq!(opened.ids(JobFilter::default(), 10), [1, 2]);
    opened.new_job(job(None, b"e"));
    assert_eq!(opened.again(LIMITS).store.held().jobs, 3);
}

#[test]
fn a_full_queue_admits_no_job_also_after_a_restart() {
    let opened = open(LIMITS);
    opened.new_job(job(None, &[1; 60]));
    assert_eq!(opened.admit(job(None, &[1; 41])), Err(Refused::Full));
    opened.new_job(job(None, &[1; 40]));
    let opened = opened.again(LIMITS);
    assert_eq!(
        (opened.store.held().jobs, opened.store.held().bytes),
        (2, 100)
    );
    assert_eq!(opened.admit(job(None, &[1])), Err(Refused::Full));
    opened.new_job(job(None, &[]));
    assert_eq!(opened.admit(job(None, &[])), Err(Refused::Full));
    assert_eq!(opened.ids(JobFilter::default(), 10), [1, 2, 3]);
    let of = |pipeline: &str, after| JobFilter {
        pipeline: Some(pipeline.into()),
        after,
        ..JobFilter::default()
    };
    assert_eq!(opened.ids(of("p", 1), 1), [2]);
    assert!(opened.ids(of("q", 0), 9).is_empty());
    // A dead job has left the queue, but its body takes its room until it is discarded.
    opened
        .store
        .dead(1, &serde_json::json!({}))
        .expect("stored");
    opened.new_job(job(None, &[]));
    assert_eq!(opened.admit(job(None, &[1])), Err(Refused::Full));
    let (discarded, file) = block(opened.store.discard(1)).expect("an answer");
    assert!(
        matches!(discarded, Touched::Done(job) if !job.has_body),
        "it has no body"
    );
    assert_eq!(file, None);
    assert_eq!(opened.store.held().bytes, 40);
    let dead = JobFilter {
        state: Some(JobState::Dead),
        ..of("p", 0)
    };
    assert_eq!(opened.ids(dead, 9), [1]);
}

#[test]
fn a_job_is_cancelled_only_before_a_run_has_it_and_replayed_after_its_end() {
    let opened = open(LIMITS);
    let store = &opened.store;
    let (first, second) = (
        opened.new_job(job(None, b"a")).id,
        opened.new_job(job(None, b"b")).id,
    );
    store.tried("p", "s").expect("an answer");
    assert_eq!(store.try_through("p", "s", first).expect("stored").0, 1);
    assert!(matches!(
        block(store.cancel(first)).expect("an answer"),
        Touched::Running(_)
    ));
    let cancelled = block(store.cancel(second)).expect("an answer");
    assert!(matches!(cancelled, Touched::Done(job) if job.state == JobState::Cancelled));
    // A run that has read both jobs before learns that one is gone.
    assert_eq!(store.try_through("p", "s", second).expect("stored").0, 1);
    assert!(matches!(
        block(store.replay(first)).expect("an answer"),
        Touched::NotNow(_)
    ));
    let Touched::Done(replay) = block(store.replay(second)).expect("an answer") else {
        panic!("no replay");
    };
    assert_eq!(
        (replay.id, replay.replay_of, replay.state),
        (3, Some(second), JobState::Pending)
    );
    store.done_through("p", "s", replay.id).expect("stored");
    let states: Vec<JobState> = block(store.jobs(JobFilter::default(), 9))
        .expect("jobs")
        .iter()
        .map(|job| job.state)
        .collect();
    assert_eq!(
        states,
        [JobState::Done, JobState::Cancelled, JobState::Done]
    );
    assert_eq!((store.held().jobs, store.held().bytes), (0, 0));
    assert!(matches!(
        block(store.replay(99)).expect("an answer"),
        Touched::Unknown
    ));
}

#[test]
fn a_file_is_forgotten_with_the_last_job_that_has_it() {
    let opened = open(QueueLimits {
        jobs: 9,
        bytes: 1000,
    });
    let store = &opened.store;
    let spooled = NewJob {
        body: Body::Spooled("f".into()),
        ..job(None, &[1; 50])
    };
    let first = opened.new_job(spooled).id;
    store.dead(first, &serde_json::json!({})).expect("stored");
    block(store.replay(first)).expect("an answer");
    store.done_through("p", "s", 9).expect("stored");
    let retention = Retention {
        bodies: Duration::from_secs(3600),
        bytes: 0,
        jobs: Duration::from_secs(3600),
        rows: 10,
    };
    // The body of the job that is done goes at once, because of the bytes; the dead job still has the file.
    let forgotten = store.forget(retention).expect("stored");
    assert!(forgotten.files.is_empty());
    assert_eq!((store.held().bytes, store.held().kept_bytes), (50, 0));
    let no_rows = Retention {
        rows: 0,
        ..retention
    };
    let forgotten = store.forget(no_rows).expect("stored");
    assert_eq!(forgotten.files, ["f"]);
    assert_eq!(store.held(), Held::default());
    assert!(opened.ids(JobFilter::default(), 9).is_empty());
    // Ids are never used again.
    assert_eq!(opened.new_job(job(None, b"a")).id, 3);
}

#[test]
fn a_stream_knows_what_it_has_tried() {
    let opened = open(LIMITS);
    let store = &opened.store;
    let first = opened.new_job(job(None, b"a")).id;
    let begun = store.tried("p", "s").expect("an answer");
    assert_eq!(
        (begun.tried, begun.seen.clone(), begun.is_in_doubt),
        (0, None, false)
    );
    store.saw("p", "s", Some("other".into())).expect("stored");
    store.try_through("p", "s", first).expect("stored");
    let tried = store.tried("p", "s").expect("an answer");
    let expected = Tried {
        tried: first,
        seen: Some("other".into()),
        is_in_doubt: true,
        ..begun.clone()
    };
    assert_eq!(tried, expected);
    store.done_through("p", "s", first).expect("stored");
    assert!(!store.tried("p", "s").expect("an answer").is_in_doubt);
    block(store.rebind("p", "s")).expect("stored");
    let again = store.tried("p", "s").expect("an answer");
    assert_eq!((again.tried, again.seen), (0, None));
    assert_ne!(again.queue, begun.queue);
}

#[test]
fn a_job_that_a_run_waits_for_is_given_to_it_at_once() {
    let opened = open(LIMITS);
    let store = &opened.store;
    let before = opened.new_job(job(None, b"1"));
    let queue = store.tried("p", "s").expect("stored").queue;
    let pending = || {
        let pending = store.pending(("p", "s"), 10, 100, 100).expect("read");
        let ids: Vec<i64> = pending.0.iter().map(|job| job.id).collect();
        (ids, pending.1)
    };
    assert_eq!(pending(), (vec![before.id], None));
    let expected = |queue: &str, body: &[u8]| NewJob {
        expected_by: Some(queue.into()),
        ..job(None, body)
    };
    let of_another = opened.new_job(expected("another", b"2"));
    let both = vec![before.id, of_another.id];
    assert_eq!(pending(), (both.clone(), None));
    let given = opened.new_job(expected(&queue, b"3"));
    let all = [both, vec![given.id]].concat();
    assert_eq!(pending(), (all, Some(queue)));
    // Each of them may be committed before somebody looks.
    let cancelled = block(store.cancel(given.id)).expect("stored");
    assert!(matches!(cancelled, Touched::Running(_)), "{cancelled:?}");
    assert_eq!(store.tried("p", "s").expect("stored").tried, given.id);
}

#[test]
fn the_store_of_a_newer_program_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let connection = Connection::open(&file).expect("a file");
    connection
        .pragma_update(None, "user_version", 7)
        .expect("a version");
    let opened = Store::open(&file, LIMITS);
    assert!(matches!(opened, Err(StoreError::Version(7))));
}

#[test]
fn a_closed_store_is_one_file() {
    for _ in 0..100 {
        let opened = open(LIMITS);
        opened.new_job(job(None, b"{}"));
        let Opened {
            store,
            threads,
            folder,
        } = opened;
        block(store.jobs(JobFilter::default(), 9)).expect("jobs");
        drop(store);
        threads.join();
        let log = std::fs::metadata(folder.path().join("jobs.db-wal"));
        assert_eq!(log.map_or(0, |log| log.len()), 0);
    }
}

fn of_token(token: &TokenLimits, body: &[u8]) -> NewJob {
    NewJob {
        token: Some(token.clone()),
        ..job(None, body)
    }
}

fn limited(id: &str, open_jobs: Option<u64>, rows_per_second: Option<u64>) -> TokenLimits {
    TokenLimits {
        id: id.into(),
        open_jobs,
        rows_per_second,
    }
}

const MANY: QueueLimits = QueueLimits {
    jobs: 1000,
    bytes: 1 << 20,
};

#[test]
fn a_token_has_exactly_as_many_pending_jobs_as_it_may() {
    let opened = open(MANY);
    let token = limited("a", Some(5), None);
    let admitted: usize = std::thread::scope(|scope| {
        let (opened, token) = (&opened, &token);
        let clients: Vec<_> = (0..16_u8)
            .map(|client| {
                scope.spawn(move || {
                    let tries = (0..4).map(|_| opened.admit(of_token(token, &[client])));
                    tries.filter(Result::is_ok).count()
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("no panic"))
            .sum()
    });
    assert_eq!(admitted, 5);
    let spent = Err(Refused::Spent(Spent::OpenJobs(5)));
    let opened = opened.again(MANY);
    assert_eq!(opened.admit(of_token(&token, b"x")), spent);
    assert_eq!(
        block(opened.store.spent(token.clone())).expect("read"),
        Some(Spent::OpenJobs(5))
    );
    // Another token has its own limit, and requests without one have none.
    opened.new_job(of_token(&limited("b", Some(1), None), b"x"));
    let other = opened.new_job(job(None, b"x"));
    // Jobs that end make room: done, dead and cancelled ones.
    opened.store.done_through("p", "s", 2).expect("stored");
    opened
        .store
        .dead(3, &serde_json::Value::Null)
        .expect("stored");
    block(opened.store.cancel(4)).expect("stored");
    // A request of several parts is admitted as a whole, or counts nothing.
    let parts = |count: usize| vec![of_token(&token, b"y"); count];
    let refused = opened.admit_all(parts(5));
    assert_eq!(refused, Err((4, Refused::Spent(Spent::OpenJobs(5)))));
    assert_eq!(opened.admit_all(parts(4)).expect("admitted").len(), 4);
    assert_eq!(opened.admit(of_token(&token, b"x")), spent);
    // A replay has no token.
    assert!(matches!(
        block(opened.store.replay(1)),
        Ok(Touched::Done(_))
    ));
    opened
        .store
        .done_through("p", "s", other.id + 100)
        .expect("stored");
    assert_eq!(
        block(opened.store.spent(token.clone())).expect("read"),
        None
    );
    opened.new_job(of_token(&token, b"z"));
}

#[test]
fn a_token_waits_for_its_rows_also_after_a_restart() {
    let opened = open(MANY);
    let (slow, fast) = (
        limited("slow", None, Some(1)),
        limited("fast", None, Some(100)),
    );
    let wait = |opened: &Opened, token: &TokenLimits| match block(opened.store.spent(token.clone()))
    {
        Ok(Some(Spent::Rows(seconds))) => seconds,
        Ok(None) => 0,
        other => panic!("{other:?}"),
    };
    opened.new_job(of_token(&slow, b"0123456789"));
    opened.new_job(of_token(&fast, b"012345678901234567890123456789"));
    let last = opened.new_job(job(None, b"0123456789"));
    assert_eq!((wait(&opened, &slow), wait(&opened, &fast)), (0, 0));
    opened
        .store
        .done_with_rows("p", "s", last.id, 50_000)
        .expect("stored");
    // A fifth of the bytes at 1 row a second, and three fifths at 100.
    let is_about = |waits: u64, seconds: u64| waits <= seconds && waits + 100 > seconds;
    assert!(
        is_about(wait(&opened, &slow), 10_000),
        "{}",
        wait(&opened, &slow)
    );
    assert!(
        is_about(wait(&opened, &fast), 300),
        "{}",
        wait(&opened, &fast)
    );
    let opened = opened.again(MANY);
    assert!(
        is_about(wait(&opened, &slow), 10_000),
        "{}",
        wait(&opened, &slow)
    );
    assert!(matches!(
        opened.admit(of_token(&slow, b"x")),
        Err(Refused::Spent(Spent::Rows(_)))
    ));
    // Jobs without a token bring no wait, and rows add up.
    let last = opened.new_job(job(None, b"x"));
    opened
        .store
        .done_with_rows("p", "s", last.id, 50_000)
        .expect("stored");
    assert!(
        is_about(wait(&opened, &slow), 10_000),
        "{}",
        wait(&opened, &slow)
    );
    // The store keeps a token that waits, and forgets the others.
    let keeps = Retention {
        bodies: Duration::MAX,
        bytes: u64::MAX,
        jobs: Duration::MAX,
        rows: u64::MAX,
    };
    opened.store.forget(keeps).expect("stored");
    assert!(
        is_about(wait(&opened, &slow), 10_000),
        "{}",
        wait(&opened, &slow)
    );
}

#[test]
fn a_store_of_the_first_version_keeps_its_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let connection = tables::connect(&file).expect("a file");
    connection.execute_batch(tables::TABLES).expect("tables");
    let sql = "INSERT INTO job (pipeline, stream, format, bytes, sha256, state, received, body) \
               VALUES ('p', 's', 'jsonl', 2, zeroblob(32), 'pending', 1, '{}'); PRAGMA user_version = 1";
    let sql = sql.replace("'{}'", "x'7b7d'");
    connection.execute_batch(&sql).expect("a job");
    drop(connection);
    for _ in 0..2 {
        let (store, threads) = Store::open(&file, MANY).expect("a store");
        assert_eq!(store.held().jobs, 1);
        let job = block(store.job(1)).expect("read").expect("the job");
        assert_eq!((job.state, job.bytes), (JobState::Pending, 2));
        drop(store);
        threads.join();
    }
    let connection = tables::connect(&file).expect("a file");
    connection
        .execute_batch("PRAGMA user_version = 99")
        .expect("a version");
    drop(connection);
    assert!(matches!(
        Store::open(&file, MANY),
        Err(StoreError::Version(99))
    ));
}
