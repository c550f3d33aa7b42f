//! The result of a comparison.

use rapidbyte_runtime::{Bucket, RowLimit};

use crate::failure::{Class, Failure};

/// The rows of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Their number.
    pub rows: u64,
    /// The sum of the first halves of their digests.
    high: u64,
    /// The sum of the second halves.
    low: u64,
}

impl Sum {
    pub(super) fn of<'a>(buckets: impl IntoIterator<Item = &'a Bucket>) -> Self {
        buckets
            .into_iter()
            .fold(Self::default(), |sum, bucket| Self {
                rows: sum.rows + bucket.rows,
                high: sum.high.wrapping_add(bucket.high),
                low: sum.low.wrapping_add(bucket.low),
            })
    }

    /// The checksum of the rows: 32 hexadecimal digits.
    pub fn checksum(&self) -> String {
        format!("{:016x}{:016x}", self.high, self.low)
    }
}

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Both sides have the key, with other values.
    Changed,
    /// Only the source has the row.
    Missing,
    /// Only the target has the row.
    Extra,
    /// The row changed each time it was compared.
    Changing,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The values of its key as texts. Empty if the stream has no key.
    pub key: Vec<String>,
    /// How it differs.
    pub difference: Difference,
    /// The columns that differ, if they are known.
    pub columns: Vec<String>,
}

/// The comparison of one stream.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The name of the stream.
    pub stream: String,
    /// The table or file that has the rows.
    pub location: String,
    /// The columns of the key.
    pub key: Vec<String>,
    /// The rows at the source.
    pub source: Sum,
    /// The rows in the target.
    pub target: Sum,
    /// The rows that count: only those that the cursor of an incremental stream covers.
    pub limits: Vec<RowLimit>,
    /// The cursor of the target.
    pub cursor: Option<String>,
    /// The rows that differ.
    pub rows: Vec<Row>,
    /// There are more rows that differ than `rows` has.
    pub has_more: bool,
    /// Rows that the source changed after the cursor. They do not count.
    pub newer: u64,
    /// The rows that differed and were moved again: at most 20,000. `rows` has those that still differ.
    pub repaired: Vec<Row>,
    /// The time that the comparison took.
    pub seconds: f64,
}

impl Compared {
    /// Both sides have the same rows, except rows that the source changed after the cursor.
    pub fn is_equal(&self) -> bool {
        self.rows.is_empty() && !self.has_more
    }
}

/// The comparison of all streams of a pipeline.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// The pipeline.
    pub pipeline: String,
    /// The name of the source's connector.
    pub source: String,
    /// The name of the destination's connector.
    pub destination: String,
    /// The streams that were compared.
    pub streams: Vec<Compared>,
    /// The streams that could not be compared.
    pub failures: Vec<Failure>,
}

impl Verified {
    /// The failure of the command. `None` if all rows are equal.
    pub fn failure(&self) -> Option<Failure> {
        let differing = rows_differ(&self.streams);
        let differing = differing.map(|failure| {
            failure.hint(
                "if the source has changed since the last run, run the pipeline and compare again; `rapidbyte explain \
                 rows_differ` lists other reasons",
            )
        });
        differing.or_else(|| self.failures.first().cloned())
    }
}

/// The failure for streams that differ. `None` if all are equal.
pub(super) fn rows_differ(streams: &[Compared]) -> Option<Failure> {
    let differing: Vec<&str> = streams
        .iter()
        .filter(|one| !one.is_equal())
        .map(|one| one.stream.as_str())
        .collect();
    let text = match differing.as_slice() {
        [] => return None,
        [one] => format!("the target does not have the rows of the source in {one}"),
        several => format!(
            "the targets do not have the rows of the source in {} streams: {}",
            several.len(),
            several.join(", ")
        ),
    };
    Some(Failure::new(Class::Run, "rows_differ", text))
}
