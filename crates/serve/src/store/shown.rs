//! What pages and metrics show of the store, at a cost that does not grow with the number of jobs. One exception: the
//! jobs of a state that has no index of its own are found behind the newer jobs of other states.

use rusqlite::{Connection, OptionalExtension, params};

use super::job::{COLUMNS, Job, JobState, and_discarded, job_of};
use super::{Store, StoreError};

/// Streams of one answer.
const MAX_STREAMS: usize = 10_000;
/// Jobs of a stream that are counted: beyond them the count is this number.
pub const MAX_COUNTED: u64 = 10_000;

/// The jobs of a stream that need attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The pipeline.
    pub pipeline: String,
    /// The stream.
    pub stream: String,
    /// Its pending jobs, up to [`MAX_COUNTED`].
    pub pending: u64,
    /// The bytes of their bodies.
    pub pending_bytes: u64,
    /// When the oldest pending job was received, in milliseconds since 1970-01-01.
    pub oldest_ms: Option<i64>,
    /// Its dead jobs, up to [`MAX_COUNTED`].
    pub dead: u64,
}

/// Which jobs a page shows.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Jobs of these pipelines. `None`: of all, which have no order of their own.
    pub pipelines: Option<Vec<String>>,
    /// Jobs in this state.
    pub state: Option<JobState>,
    /// Dead jobs whose body was discarded, or all others.
    pub discarded: Option<bool>,
    /// Jobs before this one. `None`: from the newest on.
    pub before: Option<i64>,
}

impl Store {
    /// All streams that have pending or dead jobs, in order.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn stream_states(&self) -> Result<Vec<StreamState>, StoreError> {
        self.look(|connection| {
            let mut keys = streams(connection, Some(JobState::Pending), None)?;
            keys.extend(streams(connection, Some(JobState::Dead), None)?);
            keys.sort_unstable();
            keys.dedup();
            keys.truncate(MAX_STREAMS);
            keys.into_iter()
                .map(|(pipeline, stream)| state_of(connection, pipeline, stream))
                .collect()
        })
        .await
    }

    /// At most `limit` jobs, the newest first.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn newest(&self, shown: Shown, limit: u32) -> Result<Vec<Job>, StoreError> {
        self.look(move |connection| newest(connection, &shown, limit))
            .await
    }
}

fn state_of(
    connection: &Connection,
    pipeline: String,
    stream: String,
) -> Result<StreamState, StoreError> {
    let sql = "SELECT count(*), coalesce(sum(bytes), 0), min(received) FROM (SELECT bytes, received FROM job \
               WHERE state = 'pending' AND pipeline = ?1 AND stream = ?2 ORDER BY id LIMIT ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    let of_stream = params![pipeline, stream, MAX_COUNTED];
    let pending = statement.query_row(of_stream, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let (pending, pending_bytes, oldest_ms) = pending?;
    let sql = "SELECT count(*) FROM (SELECT 1 FROM job \
               WHERE state = 'dead' AND pipeline = ?1 AND stream = ?2 LIMIT ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    let dead = statement.query_row(of_stream, |row| row.get(0))?;
    Ok(StreamState {
        pipeline,
        stream,
        pending,
        pending_bytes,
        oldest_ms,
        dead,
    })
}

/// The streams that have jobs, ordered: those of one pipeline, or of all. Each costs two steps into an index.
fn streams(
    connection: &Connection,
    state: Option<JobState>,
    pipeline: Option<&str>,
) -> Result<Vec<(String, String)>, StoreError> {
    let of_state = condition(state);
    let mut next_stream = connection.prepare_cached(&next_stream(&of_state))?;
    let mut next_pipeline = connection.prepare_cached(&next_pipeline(&of_state))?;
    let of_row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let mut next: Option<(String, String)> = match pipeline {
        Some(name) => next_stream.query_row([name, ""], of_row).optional()?,
        None => next_pipeline.query_row([""], of_row).optional()?,
    };
    let mut found = Vec::new();
    while let Some(key) = next.take().filter(|_| found.len() < MAX_STREAMS) {
        next = next_stream.query_row([&key.0, &key.1], of_row).optional()?;
        if next.is_none() && pipeline.is_none() {
            next = next_pipeline.query_row([&key.0], of_row).optional()?;
        }
        found.push(key);
    }
    Ok(found)
}

/// SQLite reads all jobs of a stream for `(pipeline, stream) > (?1, ?2)`: these two queries read one.
fn next_stream(of_state: &str) -> String {
    format!(
        "SELECT pipeline, stream FROM job WHERE pipeline = ?1 AND stream > ?2{of_state} ORDER BY stream LIMIT 1"
    )
}

fn next_pipeline(of_state: &str) -> String {
    format!(
        "SELECT pipeline, stream FROM job WHERE pipeline > ?1{of_state} ORDER BY pipeline, stream LIMIT 1"
    )
}

/// Of a state that has an index by stream.
fn condition(state: Option<JobState>) -> String {
    state.map_or(String::new(), |state| {
        format!(" AND state = '{}'", state.name())
    })
}

fn newest(connection: &Connection, shown: &Shown, limit: u32) -> Result<Vec<Job>, StoreError> {
    let before = shown.before.unwrap_or(i64::MAX);
    let of_state = condition(shown.state) + and_discarded(shown.discarded);
    let is_common = matches!(shown.state, None | Some(JobState::Done));
    let keys = match &shown.pipelines {
        // Jobs in any state lie in the order of their ids.
        None if is_common => {
            let sql = format!(
                "SELECT {COLUMNS} FROM job WHERE id < ?1{of_state} ORDER BY id DESC LIMIT ?2"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let jobs = statement.query_map(params![before, limit], job_of)?;
            return Ok(jobs.collect::<Result<_, _>>()?);
        }
        None => streams(connection, shown.state, None)?,
        Some(pipelines) => {
            let mut keys = Vec::new();
            // The jobs that are done have no index of their own by stream, but that of all jobs.
            let state = shown.state.filter(|state| *state != JobState::Done);
            for pipeline in pipelines {
                keys.extend(streams(connection, state, Some(pipeline))?);
            }
            keys.truncate(MAX_STREAMS);
            keys
        }
    };
    // The newest of each stream, of which an index has the order, and then the newest of these.
    let sql = format!(
        "SELECT id FROM job WHERE pipeline = ?1 AND stream = ?2 AND id < ?3{of_state} ORDER BY id DESC LIMIT ?4"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut ids: Vec<i64> = Vec::new();
    for (pipeline, stream) in keys {
        let of_stream = params![pipeline, stream, before, limit];
        let found = statement.query_map(of_stream, |row| row.get(0))?;
        for id in found {
            ids.push(id?);
        }
    }
    ids.sort_unstable_by(|one, other| other.cmp(one));
    ids.truncate(limit as usize);
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM job WHERE id = ?1"))?;
    let jobs = ids.into_iter().map(|id| statement.query_row([id], job_of));
    Ok(jobs.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::super::tables::{connect, prepare};
    use super::*;

    /// The jobs 1, 2, … of these streams and in these states.
    fn store(jobs: &[(&str, &str, JobState)]) -> (Connection, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut connection = connect(&folder.path().join("jobs.db")).expect("a file");
        prepare(&mut connection).expect("tables");
        let sql = "INSERT INTO job (pipeline, stream, format, bytes, sha256, state, received, body) \
                   VALUES (?1, ?2, 'jsonl', 10, x'00', ?3, 1000 + (SELECT count(*) FROM job), x'00')";
        for (pipeline, stream, state) in jobs {
            let of_job = params![pipeline, stream, state.name()];
            connection.execute(sql, of_job).expect("a job");
        }
        (connection, folder)
    }

    use JobState::{Cancelled, Dead, Done, Pending};

    const JOBS: [(&str, &str, JobState); 9] = [
        ("a", "s", Done),
        ("a", "t", Dead),
        ("b", "s", Pending),
        ("a", "s", Pending),
        ("a", "s", Dead),
        ("a", "s", Pending),
        ("a'b", "s", Dead),
        ("b", "s", Done),
        ("a", "t", Cancelled),
    ];

    #[test]
    fn each_stream_is_found_once() {
        let (connection, _folder) = store(&JOBS);
        let names = |state, pipeline| -> Vec<String> {
            let found = streams(&connection, state, pipeline).expect("streams");
            let names = found.iter().map(|(one, other)| format!("{one}.{other}"));
            names.collect()
        };
        assert_eq!(names(Some(Pending), None), ["a.s", "b.s"]);
        assert_eq!(names(Some(Dead), None), ["a.s", "a.t", "a'b.s"]);
        assert_eq!(names(Some(Dead), Some("a")), ["a.s", "a.t"]);
        assert_eq!(names(None, None), ["a.s", "a.t", "a'b.s", "b.s"]);
        assert_eq!(names(None, Some("c")), [""; 0]);
        let state = state_of(&connection, "a".into(), "s".into()).expect("a state");
        assert_eq!(
            (
                state.pending,
                state.pending_bytes,
                state.dead,
                state.oldest_ms
            ),
            (2, 20, 1, Some(1003))
        );
    }

    #[test]
    fn pages_have_the_newest_jobs_first_and_lose_none() {
        let (connection, _folder) = store(&JOBS);
        let ids = |pipelines: Option<&[&str]>, state, before| -> Vec<i64> {
            let pipelines =
                pipelines.map(|names| names.iter().map(|name| (*name).into()).collect());
            let shown = Shown {
                pipelines,
                state,
                before,
                ..Shown::default()
            };
            let jobs = newest(&connection, &shown, 3).expect("jobs");
            jobs.iter().map(|job| job.id).collect()
        };
        assert_eq!(ids(None, None, None), [9, 8, 7]);
        assert_eq!(ids(None, None, Some(7)), [6, 5, 4]);
        assert_eq!(ids(None, Some(Dead), None), [7, 5, 2]);
        assert_eq!(ids(None, Some(Dead), Some(5)), [2]);
        assert_eq!(ids(Some(&["a"]), None, None), [9, 6, 5]);
        assert_eq!(ids(Some(&["a", "b"]), Some(Pending), None), [6, 4, 3]);
        assert_eq!(ids(Some(&["a", "b"]), Some(Done), None), [8, 1]);
        assert_eq!(ids(Some(&[]), None, None), [0; 0]);
    }

    #[test]
    fn a_step_to_the_next_stream_does_not_read_the_jobs_of_a_stream() {
        let many = vec![("a", "s", Pending); 2000];
        let (connection, _folder) = store(&many);
        let of_state = condition(Some(Pending));
        for (sql, parameters) in [
            (next_stream(&of_state), &["a", "s"][..]),
            (next_stream(&of_state), &["a", ""]),
            (next_pipeline(&of_state), &["a"]),
            (next_pipeline(&of_state), &[""]),
        ] {
            let mut statement = connection.prepare(&sql).expect("SQL");
            let mut rows = statement
                .query(rusqlite::params_from_iter(parameters))
                .expect("rows");
            while rows.next().expect("a row").is_some() {}
            drop(rows);
            let steps = statement.get_status(rusqlite::StatementStatus::VmStep);
            assert!((1..100).contains(&steps), "{sql}: {steps}");
        }
    }
}
