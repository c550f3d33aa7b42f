//! `rejects`: what happens to records that cannot become rows of the target.

use serde::Serialize;

use super::declare::keys;
use super::error::Result;
use super::kinds::{count, name};
use super::read::Spot;
use super::share::{Share, share};

const EXAMPLE: &str = "rejects: { max_rows: 100, to: rejects }";

keys! {
    /// `rejects`: what happens to records that cannot be read, and rows that the target does not take.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Rejects: Default {
        /// A stream fails when it has more rejects than this in a run.
        ///
        /// If only max_share is set, there is no such limit; otherwise the default is 0: the first reject fails the
        /// stream.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_rows: Option<u64> = count().optional(),
        /// A stream fails when a larger share of its records are rejects, such as 0.01.
        ///
        /// It is compared at each commit after 10,000 records, and at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_share: Option<Share> = share().optional(),
        /// The place for the rejects in the destination: for dest-postgres a table, such as raw.rejects; for dest-mongodb a
        /// collection; for dest-file the name of files.
        ///
        /// The run makes a table that is missing.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub to: Option<String> = name().optional(),
    }
}

impl Rejects {
    /// Whether a run may continue after a reject.
    pub fn are_allowed(&self) -> bool {
        let rows = self.max_rows.unwrap_or(u64::from(self.max_share.is_some()));
        rows > 0 && self.max_share.is_none_or(|share| share.millionths() > 0)
    }
}

/// Rejects that nobody keeps would be lost.
pub(super) fn kept(at: &Spot<'_>, rejects: Rejects) -> Result<Rejects> {
    if rejects.max_rows.is_none() && rejects.max_share.is_none() {
        let message = "nothing says how many rejects are allowed".to_owned();
        return Err(at
            .bad_value(message)
            .hint(format!("set max_rows or max_share, such as {EXAMPLE}")));
    }
    if rejects.are_allowed() && rejects.to.is_none() {
        let message = "rejects are allowed, and nothing says where they are kept".to_owned();
        return Err(at
            .bad_value(message)
            .hint(format!("name a place for them: {EXAMPLE}")));
    }
    Ok(rejects)
}
