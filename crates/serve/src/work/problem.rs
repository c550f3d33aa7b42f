//! Why the jobs of a stream stay pending.

use std::io;
use std::path::PathBuf;

use rapidbyte::Failure;
use serde_json::{Value, json};

use crate::queue::SHARED;
use crate::store::StoreError;

/// The reason why the jobs of a stream stay pending.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("error[{}] {}", .0.code, .0.message)]
    Run(Box<Failure>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the disk of the server: {0}")]
    Disk(#[from] io::Error),
    #[error("the body of the job {job}, {}, {why}", file.display())]
    Body {
        job: i64,
        file: PathBuf,
        why: String,
    },
    #[error("no pipeline file has this stream any more")]
    NoPipeline,
    #[error(
        "another queue has written to the target of this stream, and may have the place of jobs of this one"
    )]
    Foreign,
    #[error(
        "the destination has the jobs up to {has} of this queue, and this store has given only those up to {tried} to \
         a run: it is older than the destination, such as one that was restored from a backup"
    )]
    Restored { has: i64, tried: i64 },
    #[error("the thread of the run panicked: the server has a bug")]
    Panicked,
}

const REBIND_HINT: &str = "cancel the pending jobs whose rows the destination has; then \
    POST /v1/pipelines/PIPELINE/streams/STREAM/rebind moves all others";

/// For a table that does not exist any more.
const CLEAR_HINT: &str = "if the table is meant to be gone, `rapidbyte state clear PIPELINE STREAM --server URL` lets the \
    stream begin with a new one; then replay the jobs whose rows are needed";

/// For a table whose rows are gone.
const LOST_ROWS_HINT: &str = "if the rows are meant to be gone, `rapidbyte state rebind PIPELINE STREAM --server URL` lets \
    the stream go on; otherwise replay the jobs whose rows are needed after it";

/// For a column of the pipeline file that the table does not take. The plan, which shows all columns, has no bodies here.
const COLUMN_HINT: &str =
    "change the column of the table, or the one of `schema` in the pipeline file";

impl Problem {
    /// As JSON: the code, what happened, what to do next.
    pub(super) fn told(&self) -> Value {
        let of = |code: &str, hint: Option<&str>| json!({ "code": code, "message": self.to_string(), "hint": hint });
        match self {
            Self::Run(failure) => {
                let mut told = json!(failure);
                // The engine's hints are for sources that can be read again.
                match failure.code.as_str() {
                    "target_lost_rows" => told["hint"] = LOST_ROWS_HINT.into(),
                    "target_missing" | "checkpoint_invalid" | "cursor_missing" => {
                        told["hint"] = CLEAR_HINT.into();
                    }
                    "column_refused" => told["hint"] = COLUMN_HINT.into(),
                    _ => {}
                }
                told
            }
            Self::Store(_) => of("store_failed", None),
            Self::Disk(_) => of(
                "spool_failed",
                Some("free space, or make the folder of the server writable"),
            ),
            Self::Body { job, .. } => {
                let hint = format!(
                    "bring the file back, such as from a backup; or give the job up, and the others go on: \
                     POST /v1/jobs/{job}/cancel"
                );
                let mut told = of("spool_failed", Some(&hint));
                told["job"] = (*job).into();
                told
            }
            Self::NoPipeline => of(
                "unknown_stream",
                Some("put the file back, or cancel the jobs"),
            ),
            Self::Foreign => of(SHARED, Some(REBIND_HINT)),
            Self::Restored { .. } => of("queue_restored", Some(REBIND_HINT)),
            Self::Panicked => of("internal", None),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Run(Box::new(failure))
    }
}
