//! Where a stream is to go: its table, and what is known of both before the server is asked.

use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings};

/// Where a stream is to go.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub settings: &'a Settings,
    pub target: &'a Target,
    pub name: &'a Name,
    pub schema: &'a Schema,
    /// The open transaction has made the table: no rows have to be replaced.
    pub is_made: bool,
}
