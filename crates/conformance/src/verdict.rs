//! The clauses, and their verdicts.

use rapidbyte_runtime::Kind;
use serde::Serialize;

/// The detail of a clause where no peer compared the values.
pub(crate) const COUNTED: &str = "counted only: give --peer";

/// One promise of the contract.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Clause {
    /// Short and stable, such as `read-again`.
    pub id: &'static str,
    /// The promise, as one line.
    pub title: &'static str,
}

/// The result for a clause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// It holds.
    Pass {
        /// The checked things, in words.
        detail: String,
    },
    /// It does not hold.
    Fail {
        /// The observation.
        seen: String,
        /// The fix for the connector's author.
        action: String,
    },
    /// It could not be judged.
    Skip {
        /// Why, and what to give so that it can.
        reason: String,
        /// Something outside failed, such as a server that answers 503: another test may tell.
        outside: bool,
        /// The settings of the test, a credential or the data are wrong: the operator corrects them.
        setup: bool,
    },
}

/// A clause with its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The clause.
    #[serde(flatten)]
    pub clause: &'static Clause,
    /// Its verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, in seconds.
    pub secs: f64,
}

/// All outcomes, in the order in which they came.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The connector's own name.
    pub connector: String,
    /// Its version.
    pub version: String,
    /// `source`, `transform` or `destination`.
    pub kind: &'static str,
    /// Clauses that hold.
    pub passed: usize,
    /// Clauses that do not.
    pub failed: usize,
    /// Clauses that could not be judged.
    pub skipped: usize,
    /// How many of these because something outside failed.
    pub outside: usize,
    /// How many because the settings of the test, a credential or the data are wrong.
    pub setup: usize,
    /// How the names of the streams begin that the test left at the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// Each clause.
    pub clauses: Vec<Outcome>,
}

impl Report {
    /// The clauses of a destination that hold as far as counting tells: no peer compared the values.
    pub fn counted_only(&self) -> usize {
        let is_counted = |outcome: &&Outcome| matches!(&outcome.verdict, Verdict::Pass { detail } if detail.contains(COUNTED));
        self.clauses.iter().filter(is_counted).count()
    }
}

/// A judge's answer: the detail of a pass, or another verdict.
pub(crate) type Judged = Result<String, Verdict>;

/// It does not hold.
pub(crate) fn fail(seen: impl Into<String>, action: impl Into<String>) -> Verdict {
    Verdict::Fail {
        seen: seen.into(),
        action: action.into(),
    }
}

/// It could not be judged.
pub(crate) fn skip(reason: impl Into<String>) -> Verdict {
    Verdict::Skip {
        reason: reason.into(),
        outside: false,
        setup: false,
    }
}

/// The same, because something outside failed.
pub(crate) fn outside(reason: impl Into<String>) -> Verdict {
    Verdict::Skip {
        reason: reason.into(),
        outside: true,
        setup: false,
    }
}

/// The same, because the settings of the test, a credential or the data are wrong.
pub(crate) fn setup(reason: impl Into<String>) -> Verdict {
    Verdict::Skip {
        reason: reason.into(),
        outside: false,
        setup: true,
    }
}

macro_rules! table {
    ($(#[$doc:meta] $set:ident: $($name:ident $id:literal $title:literal;)+)+) => {
        $($(pub(crate) const $name: Clause = Clause { id: $id, title: $title };)+)+
        $(#[$doc] const $set: &[&Clause] = &[$(&$name),+];)+
    };
}

table! {
    /// Judged first, of every connector.
    FIRST:
    DESCRIBE "describe" "says what it is without settings and grants";
    CONFIG_SCHEMA "config-schema" "its config schema is one that the host can read";
    GRANT_MARKS "grant-marks" "the marks that grant something are known ones";
    IMPORTS "imports" "imports no more than its settings can grant";
    UNKNOWN_KEY "unknown-key" "refuses a key that it does not know, before it reaches for anything";
    MISSING_KEY "missing-key" "refuses to be without a required key, and names it";
    CHECK "check" "opens with its settings, and check names what it looked at";
    DENIED "denied" "without any grant it gives errors and lives on";
    /// Judged of a source.
    SOURCE:
    DISCOVER "discover" "discover gives streams with names, schemas and keys that fit";
    DISCOVER_AGAIN "discover-again" "discover gives the same again";
    READ "read" "a stream is read to its end";
    READ_SCHEMA "read-schema" "what is read has the schema that discover said";
    BATCHES "batches" "every batch decodes and has the rows that it says";
    BATCH_BYTES "batch-bytes" "batches have about the asked size";
    WHOLE "whole" "a whole read is batches, no checkpoint, and an end that is final";
    WAIT "wait" "next waits about as long as it is told, and does not spin";
    READ_AGAIN "read-again" "the same rows come again";
    OTHER_BATCHES "other-batches" "in batches of another size come the same rows";
    SESSION "session" "a session that has read one stream reads another, as a new one does";
    SNAPSHOT "snapshot" "another session reads what one session's snapshot fixed";
    MAX_RECORD "max-record" "a record above the limit comes whole or is refused";
    FILTER "filter" "a condition is obeyed, and a text that is none is refused";
    COLUMNS "columns" "asked for some columns it gives these, in that order";
    UNKNOWN_STREAM "unknown-stream" "refuses a stream that it does not have";
    UNKNOWN_COLUMN "unknown-column" "refuses a column or cursor field that it does not have";
    CHECKPOINTS "checkpoints" "an incremental read has checkpoints, the last behind its last row";
    ORDER "order" "no row behind a checkpoint lies before one in front of it";
    RESUME "resume" "from each checkpoint on come exactly the rows behind it";
    CURSOR_COLUMNS "cursor-columns" "an incremental read gives the asked columns and no others";
    INITIAL "initial" "a read without a cursor begins at the initial value";
    LATE_ROWS "late-rows" "a way to find late rows is kept to, or refused";
    OTHER_CURSOR "other-cursor" "a cursor of another stream is refused, or taken as its value";
    FOREIGN_CURSOR "foreign-cursor" "refuses a cursor that it did not make";
    SOURCE_CANCEL "cancel" "a cancelled read ends at once, and the next one is not in its way";
    /// Judged of a transform; `open` in the place of `check`.
    TRANSFORM:
    OPEN "open" "opens with its settings";
    TRANSFORM_PLAN "plan" "plan returns columns, a source type for each, and a key that consists of them";
    TRANSFORM_PLAN_AGAIN "plan-again" "plan returns the same again, also in another session";
    BEGIN "begin" "a stream begins with the schema of its plan";
    TRANSFORM_BATCHES "batches" "each batch has the planned schema and the rows that it declares";
    SAME_ROWS "same-rows" "the same batch gives the same rows again, whatever came before it";
    NO_ROWS "empty" "a batch without rows gives no rows";
    NULLS "nulls" "a batch of NULLs is transformed, or refused by column";
    END "end" "next returns nothing more after the last batch";
    TRANSFORM_SESSION "session" "a session that has transformed one stream transforms another like a new session";
    /// Judged of a destination.
    DESTINATION:
    PLAN "plan" "plan answers for each column, and changes nothing";
    WRITE "write" "the rows that are written are the rows that are committed";
    TYPES "types" "every type is taken as planned, or refused by name before its first row";
    EDGE_VALUES "edge-values" "values at the edges of the types are kept, or refused by column";
    EMPTY "empty" "a stream without rows is committed as one";
    BATCHES_KEPT "batch-sizes" "every row of every batch is kept, however large it is";
    PARTS "parts" "every part of a commit is committed, once";
    REPLACE "replace" "new rows take the place of the older ones";
    APPEND "append" "new rows come beside the older ones";
    UPSERT "upsert" "of each key the last row is kept";
    PLAN_AGAIN "plan-again" "where there are rows plan knows of them, changes nothing, and says the same again";
    STREAMS "streams" "a session writes one stream after the other, each by itself";
    STAGED "staged" "nothing is visible before the commit";
    ABORT "abort" "an abort leaves nothing, and the stream can be written again";
    BAD_BATCH "bad-batch" "a batch that is none is refused, and nothing of it stays";
    PROGRESS "progress" "a commit moves the cursor, and the next run is told where to go on";
    COMMIT_ONCE "commit-once" "a commit that comes again is refused and changes nothing";
    FENCE "fence" "a newer run shuts out an older one";
    PIPELINES "pipelines" "each pipeline has a cursor of its own";
    REJECTS "rejects" "rejects are kept in the commit of the rows around them, and a replay removes them";
    DESTINATION_CANCEL "cancel" "a cancelled write ends at once, and the next one is not in its way";
    /// Judged last, of every connector: what all calls together showed.
    LAST:
    REACH "reach" "reaches for nothing that its settings do not grant";
    NO_TRAP "no-trap" "no call panics or traps";
    LIMITS "limits" "keeps within the default limits of memory and time";
    ERRORS "errors" "every error has a code, a message and who acts on it";
}

/// The clauses for a kind of connector, in the order in which they are judged.
pub fn clauses(kind: Kind) -> Vec<&'static Clause> {
    let is_for =
        |clause: &&&Clause| kind != Kind::Transform || ![&CHECK, &DENIED].contains(*clause);
    let first: Vec<_> = FIRST.iter().filter(is_for).copied().collect();
    let middle = match kind {
        Kind::Source => SOURCE,
        Kind::Transform => TRANSFORM,
        Kind::Destination => DESTINATION,
    };
    [&first[..], middle, LAST].concat()
}

impl Report {
    /// Whether no clause failed, and neither something outside nor the test's own settings kept one from
    /// being judged.
    pub fn is_well(&self) -> bool {
        self.failed == 0 && self.outside == 0 && self.setup == 0
    }

    /// Why the settings of the test, a credential or the data are wrong, in the words of the first clause
    /// that met it.
    pub fn wrong_setup(&self) -> Option<&str> {
        self.clauses
            .iter()
            .find_map(|outcome| match &outcome.verdict {
                Verdict::Skip {
                    reason,
                    setup: true,
                    ..
                } => Some(reason.as_str()),
                _ => None,
            })
    }
}
