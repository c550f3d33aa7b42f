//! The bodies of the fuzz targets: bytes in, nothing out, a panic where a promise is broken.
//!
//! Each is a plain function, so that `tests/seeds.rs` runs the committed seeds through the same
//! code without libFuzzer. A target asserts more than "no panic" wherever there is more to say: that
//! what was read can be written and read again, that it does not matter where pieces end, that
//! nothing is granted that nobody wrote.

// The modules that are included by path bring their own tests, which their own crates run.
#![cfg(not(test))]

pub mod bson;
pub mod columnar;
pub mod copy;
pub mod cursor;
pub mod document;
pub mod grants;
pub mod ipc;
pub mod manifest;
pub mod mongo;
pub mod router;
pub mod server;
pub mod text;

/// The engine's own source of the pipeline file, without the rest of the engine.
#[allow(
    dead_code,
    unused_imports,
    reason = "the engine uses what is not used here"
)]
#[path = "../../crates/engine/src"]
mod engine {
    pub mod compress;
    pub mod document;
}
use engine::compress;

/// A target: its name and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All of them; `fuzz_targets` has a file for each.
pub const TARGETS: [Target; 15] = [
    ("arrow", columnar::arrow),
    ("bson", bson::run),
    ("copy", copy::run),
    ("csv", text::csv),
    ("cursor", cursor::run),
    ("document", document::run),
    ("grants", grants::run),
    ("ipc", ipc::run),
    ("json", text::json),
    ("jsonl", text::jsonl),
    ("manifest", manifest::run),
    ("mongo", mongo::run),
    ("parquet", columnar::parquet),
    ("router", router::run),
    ("server", server::run),
];

/// The next byte of the input, 0 behind its end.
fn byte(data: &mut &[u8]) -> u8 {
    let Some((first, rest)) = data.split_first() else {
        return 0;
    };
    *data = rest;
    *first
}

/// A way to cut the input into pieces, from one byte of it: whole for 0.
fn piece(byte: u8) -> usize {
    match byte {
        0 => usize::MAX,
        _ => usize::from(byte),
    }
}

/// Defines libFuzzer's entry for a body.
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! target {
    ($body:path) => {
        #[cfg(not(test))]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $body(data));
    };
}
