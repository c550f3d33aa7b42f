//! End to end: the real binary, the real components, real files.
//!
//! `cargo xtask test` builds what is needed and says where it is.

mod appended;
mod authoring;
mod bad_input;
mod changing;
mod codes;
mod columnar;
mod columns;
mod compressed;
mod conformance;
mod connectors;
#[path = "../hostile/corpus.rs"]
mod corpus;
mod cosmos;
mod deletes;
mod dest_cosmos;
mod dest_mongodb;
mod doctor;
mod documents;
mod dotted;
mod drift;
mod dropped;
mod examples;
mod faults;
mod ferretdb;
mod file_rejects;
mod files;
mod frozen;
mod granted;
#[path = "../hostile/guests.rs"]
mod guests;
mod hostile;
mod http;
mod init;
mod installed;
mod interrupt;
mod limits;
mod locks;
mod mongodb;
mod narrow;
mod network;
mod openapi;
mod output;
mod overlap;
mod permissions;
mod planned;
mod pooler;
mod postgres;
mod query;
mod questions;
mod races;
mod rejects;
mod remote;
mod remote_kept;
mod repairs;
mod repeats;
mod replays;
mod report;
mod schema;
mod serving;
mod settings;
mod several;
mod state;
mod support;
mod terminal;
mod tls;
mod transforms;
mod tutorial;
mod types;
mod verify;
#[path = "../hostile/wat.rs"]
mod wat;
mod wired;
mod xml;
