//! One statement and its answer.

use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::prelude::*;

/// The answer of one statement.
pub(crate) fn query(client: &mut Client, sql: &str) -> Result<Rows> {
    let answer = client.simple_query(sql)?.pop();
    answer.ok_or_else(|| Error::internal("a statement without an answer"))
}
