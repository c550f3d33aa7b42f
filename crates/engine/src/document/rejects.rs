//! `rejects`: what happens to records that cannot become rows of the target.

use serde::Serialize;
use serde_json::json;

use super::declare::Kind;
use super::declare::keys;
use super::error::Result;
use super::kinds::{count, name, or_variable};
use super::read::Spot;

const EXAMPLE: &str = "rejects: { max_rows: 100, to: raw.rejects }";

keys! {
    /// `rejects`: what happens to records that cannot be read, and rows that the target does not take.
    #[derive(Debug, Clone, PartialEq, Serialize)]
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
        pub max_share: Option<f64> = share().optional(),
        /// The place for the rejects in the destination; for dest-postgres a table, such as raw.rejects.
        ///
        /// The run makes the table if it is missing.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub to: Option<String> = name().optional(),
    }
}

impl Rejects {
    /// Whether a run may go on after a reject.
    pub fn are_allowed(&self) -> bool {
        let rows = self.max_rows.unwrap_or(u64::from(self.max_share.is_some()));
        rows > 0 && self.max_share.is_none_or(|share| share > 0.0)
    }
}

/// A share from 0 to 1.
fn share() -> Kind<f64> {
    let schema = || {
        or_variable(vec![
            json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        ])
    };
    Kind::new(schema, |at| {
        let text = at.text()?;
        let number = text.text.parse::<f64>().ok();
        if let Some(share) = number.filter(|share| (0.0..=1.0).contains(share)) {
            return Ok(share);
        }
        let message = format!("{at} cannot be {}", text.shown());
        Err(at
            .bad_value(message)
            .hint("write a number from 0 to 1, such as 0.01"))
    })
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
