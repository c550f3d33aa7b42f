//! The settings with which each run began. A run that resumes another run compares them with its own settings.

use rusqlite::{Connection, OptionalExtension, named_params};

pub(crate) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS settings (run_id TEXT PRIMARY KEY, settings TEXT NOT NULL) STRICT;";

/// Stores the settings of a run, and removes the settings of runs that the history no longer has.
pub(crate) fn keep(db: &Connection, run: &str, settings: &str) -> rusqlite::Result<()> {
    let keep = "INSERT OR REPLACE INTO settings VALUES (:run, :settings)";
    db.execute(keep, named_params! { ":run": run, ":settings": settings })?;
    let forget = "DELETE FROM settings WHERE run_id NOT IN (SELECT id FROM runs)";
    db.execute(forget, []).map(drop)
}

/// The settings of a run. `None` if the history does not know them.
pub(crate) fn of(db: &Connection, run: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT settings FROM settings WHERE run_id = :run";
    let found = db.query_row(sql, named_params! { ":run": run }, |row| row.get(0));
    found.optional()
}
