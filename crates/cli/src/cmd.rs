//! One file for each verb.

pub mod check;
pub mod completions;
pub mod connector;
pub mod discover;
pub mod doctor;
pub mod explain;
pub mod init;
pub mod lock;
pub mod plan;
pub mod reference;
pub mod rejects;
pub mod run;
pub mod runs;
pub mod schema;
pub mod serve;
pub mod state;
pub mod verify;
pub mod version;
