//! The answers to the questions of `rapidbyte_pg::digest`, for the connectors of both sides.

use rapidbyte_sdk::prelude::*;

use crate::client::Client;
use crate::rows::{Row, Rows};

/// A result has 2^20 buckets or the most rows that the host asks for.
const MAX_RESULT_BYTES: usize = 128 << 20;
/// Since this version a server notices that nobody waits for its answer.
const NOTICES: u32 = 140_000;

impl Client {
    /// Computes digests in a transaction that `begin` opens: its settings and `proof`, then `question`. Waits as long as
    /// the server computes. Errors: `digests_differ` if the server computes digests otherwise; the server's.
    pub fn digests(
        &mut self,
        begin: &str,
        (proof, proven): (&str, &str),
        question: impl FnOnce(bool) -> String,
    ) -> Result<Rows> {
        let encoding = self.parameter("server_encoding").unwrap_or("UTF8");
        let recodes = !["UTF8", "SQL_ASCII"].contains(&encoding);
        let notice = match self.server_version() >= NOTICES {
            true => "SET LOCAL client_connection_check_interval = '5s'; ",
            false => "",
        };
        self.set_max_result_bytes(MAX_RESULT_BYTES);
        self.set_reply_timeout(std::time::Duration::MAX);
        let sql = format!("{begin}; {notice}{proof}; {}; ROLLBACK", question(recodes));
        let answers = self.query_all(&sql);
        if answers.is_err() && self.is_usable() {
            self.execute("ROLLBACK")?;
        }
        let [proof, answer]: [Rows; 2] = answers?;
        match proof.single()? == proven {
            true => Ok(answer),
            false => {
                let text =
                    "the server computes other hashes than PostgreSQL on machines of this kind";
                Err(Error::config("digests_differ", text).hint(
                    "compare with a server on a machine whose numbers begin with the lowest byte",
                ))
            }
        }
    }
}

/// The buckets of an answer.
pub fn buckets(answer: &Rows) -> Result<Vec<Bucket>> {
    let bucket = |row: &Row| {
        Ok(Bucket {
            number: number(row, 0)?,
            rows: number(row, 1)?,
            high: sum(row, 2)?,
            low: sum(row, 3)?,
        })
    };
    answer.rows.iter().map(bucket).collect()
}

/// The rows of an answer: both halves, the key, and with `has_columns` the digests of the columns.
pub fn digested_rows(answer: &Rows, key: usize, has_columns: bool) -> Result<Vec<DigestedRow>> {
    let row = |row: &Row| {
        let end = 2 + key;
        let key = (2..end).map(|at| Ok(row.text(at)?.map(str::to_owned)));
        let key: Option<Vec<String>> = key.collect::<Result<_>>()?;
        let columns = match has_columns {
            true => halves(text(row, end)?)?,
            false => Vec::new(),
        };
        Ok(DigestedRow {
            high: sum(row, 0)?,
            low: sum(row, 1)?,
            key: key.unwrap_or_default(),
            columns,
        })
    };
    answer.rows.iter().map(row).collect()
}

/// Digests from the text of an array.
fn halves(array: &str) -> Result<Vec<u64>> {
    let inner = array.trim_start_matches('{').trim_end_matches('}');
    let digests = inner.split(',').filter(|text| !text.is_empty());
    let digests = digests.map(|text| text.parse::<i64>().map(i64::cast_unsigned));
    digests
        .collect::<Result<_, _>>()
        .map_err(|_| unexpected(array))
}

fn text(row: &Row, at: usize) -> Result<&str> {
    Ok(row.text(at)?.unwrap_or_default())
}

fn number<T: std::str::FromStr>(row: &Row, at: usize) -> Result<T> {
    let text = text(row, at)?;
    text.parse().map_err(|_| unexpected(text))
}

/// A sum of signed numbers, modulo 2^64.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the sum is modulo 2^64"
)]
fn sum(row: &Row, at: usize) -> Result<u64> {
    Ok(number::<i128>(row, at)? as u64)
}

fn unexpected(text: &str) -> Error {
    Error::internal(format!("the server's answer has {text:?} for a digest"))
}
