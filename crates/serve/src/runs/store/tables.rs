//! The tables, and how those of an older version become them.

use rusqlite::{Connection, Transaction};

use super::super::{changes, outbox};
use super::{RunsError, transaction};

/// The steps from an empty file to the tables of this version. A file has taken as many of them as its `user_version` says.
const STEPS: [&str; 4] = [FIRST, WITH_LOGS, outbox::TABLES, changes::TABLES];

const FIRST: &str = r#"
-- Times are milliseconds since 1970.
CREATE TABLE run (
    -- In the order in which they were recorded; never used again.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    "trigger" TEXT NOT NULL,
    scheduled_ms INTEGER,
    state TEXT NOT NULL,
    options TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    resumes INTEGER,
    queued_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms INTEGER,
    rows INTEGER,
    error TEXT,
    report TEXT
) STRICT;
CREATE UNIQUE INDEX run_by_time ON run (pipeline, scheduled_ms) WHERE scheduled_ms IS NOT NULL;
CREATE INDEX run_by_pipeline ON run (pipeline, id);
CREATE INDEX run_queued ON run (pipeline, id) WHERE state = 'queued';
CREATE INDEX run_running ON run (pipeline) WHERE state = 'running';
CREATE TABLE schedule (
    pipeline TEXT PRIMARY KEY,
    -- The expression and its time zone: others begin at the moment at which they are seen first.
    cron TEXT NOT NULL,
    -- The last fire that is settled.
    last_ms INTEGER NOT NULL
) STRICT;
"#;

const WITH_LOGS: &str = r#"
-- The last lines of a run that has ended.
ALTER TABLE run ADD COLUMN log TEXT;
CREATE INDEX run_succeeded ON run (pipeline, id) WHERE state = 'succeeded';
-- The moment at which the expression was seen first.
ALTER TABLE schedule ADD COLUMN since_ms INTEGER NOT NULL DEFAULT 0;
UPDATE schedule SET since_ms = last_ms;
"#;

/// Takes the steps that the file has not taken.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), RunsError> {
    transaction(connection, |transaction: &Transaction<'_>| {
        let version: i64 =
            transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let taken = usize::try_from(version).ok();
        let steps = taken.and_then(|taken| STEPS.get(taken..));
        for step in steps.ok_or(RunsError::Version(version))? {
            transaction.execute_batch(step)?;
        }
        Ok(transaction.pragma_update(None, "user_version", STEPS.len() as i64)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_version_gets_the_tables_of_this_one() {
        let mut connection = Connection::open_in_memory().expect("a store");
        connection.execute_batch(FIRST).expect("tables");
        connection
            .execute_batch(
                "PRAGMA user_version = 1; INSERT INTO schedule (pipeline, cron, last_ms) VALUES ('p', 'c', 7)",
            )
            .expect("a schedule");
        prepare(&mut connection).expect("the tables of this version");
        prepare(&mut connection).expect("nothing to do");
        let sql = "SELECT since_ms, (SELECT count(log) FROM run) FROM schedule";
        let found = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(found, Ok((7, 0)));
        let set = connection.pragma_update(None, "user_version", 99);
        set.expect("a version");
        let newer = prepare(&mut connection);
        assert!(matches!(newer, Err(RunsError::Version(99))), "{newer:?}");
    }
}
