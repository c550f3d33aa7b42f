//! Guests that no compiler makes: from the text of a core module to a component of the contract.
//!
//! `source.wat` and `destination.wat` are correct. A [`Guest`] changes one thing in them:
//! what a call does, what `cabi_realloc` answers, what lies at an address of memory, which functions
//! there are.

use std::sync::OnceLock;

use arrow_schema::{DataType, Field, Schema};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId};

const CONTRACT: &str = include_str!("../../wit/rapidbyte.wit");
const SOURCE: &str = include_str!("source.wat");
const DESTINATION: &str = include_str!("destination.wat");
/// The part of the standard set that the guests here import.
const STANDARD: &str = "
    package wasi:io@0.2.0 {
        interface poll {
            resource pollable { block: func(); }
            poll: func(in: list<borrow<pollable>>) -> list<u32>;
        }
        interface error { resource error; }
        interface streams {
            use error.{error};
            use poll.{pollable};
            variant stream-error { last-operation-failed(error), closed }
            resource output-stream {
                write: func(contents: list<u8>) -> result<_, stream-error>;
                blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
                blocking-write-zeroes-and-flush: func(len: u64) -> result<_, stream-error>;
                subscribe: func() -> pollable;
            }
        }
    }
    package wasi:random@0.2.0 {
        interface random { get-random-bytes: func(len: u64) -> list<u8>; }
    }
    package wasi:cli@0.2.0 {
        interface exit { exit: func(status: result); }
    }
    package wasi:http@0.2.0 {
        interface types {
            use wasi:io/streams@0.2.0.{output-stream};
            resource fields { constructor(); }
            resource outgoing-request {
                constructor(headers: fields);
                body: func() -> result<outgoing-body>;
            }
            resource outgoing-body { write: func() -> result<output-stream>; }
        }
    }
    package wasi:clocks@0.2.0 {
        interface monotonic-clock {
            use wasi:io/poll@0.2.0.{pollable};
            subscribe-duration: func(nanos: u64) -> pollable;
        }
    }";
/// The functions of [`STANDARD`], as a core module imports them.
pub const TIME: &str = r#"
    (import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration"
      (func $after (param i64) (result i32)))
    (import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))"#;

/// Further ones.
pub const MORE_OF_WASI: &str = r#"
    (import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration"
      (func $after (param i64) (result i32)))
    (import "wasi:io/poll@0.2.0" "poll" (func $poll (param i32 i32 i32)))
    (import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))
    (import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))
    (import "wasi:cli/exit@0.2.0" "exit" (func $exit (param i32)))
    (import "rapidbyte:connector/log@0.2.0" "log" (func $log (param i32 i32 i32)))
    (import "wasi:http/types@0.2.0" "[constructor]fields" (func $fields (result i32)))
    (import "wasi:http/types@0.2.0" "[constructor]outgoing-request"
      (func $request (param i32) (result i32)))
    (import "wasi:http/types@0.2.0" "[method]outgoing-request.body"
      (func $body_of (param i32 i32)))
    (import "wasi:http/types@0.2.0" "[method]outgoing-body.write"
      (func $stream_of (param i32 i32)))
    (import "wasi:io/streams@0.2.0" "[method]output-stream.write"
      (func $write (param i32 i32 i32 i32)))
    (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-and-flush"
      (func $write_all (param i32 i32 i32 i32)))
    (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-zeroes-and-flush"
      (func $write_zeroes (param i32 i64 i32)))
    (import "wasi:io/streams@0.2.0" "[method]output-stream.subscribe"
      (func $when_free (param i32) (result i32)))"#;

/// A call that never happens.
const NEVER: u32 = 0;
/// The address of a schema message in `source.wat`.
const SCHEMA_AT: u32 = 8192;

/// The changes to a good module.
#[derive(Clone)]
pub struct Guest {
    /// `source` or `destination`.
    pub world: &'static str,
    /// The number of the call in which it does its deed.
    pub at: u32,
    /// The deed, as instructions without a result.
    pub deed: String,
    pub imports: &'static str,
    /// Further fields of the module.
    pub more: String,
    /// The first instructions of `cabi_realloc`.
    pub realloc: &'static str,
    /// Bytes at an address.
    pub patches: Vec<(u32, Vec<u8>)>,
    /// A part of the contract that is another one for this guest.
    pub contract: (&'static str, &'static str),
}

impl Guest {
    /// One that is well.
    pub fn good(world: &'static str) -> Self {
        Self {
            world,
            at: NEVER,
            deed: String::new(),
            imports: "",
            more: String::new(),
            realloc: "",
            patches: Vec::new(),
            contract: ("", ""),
        }
    }

    /// The text of its core module.
    fn module(&self) -> String {
        let text = match self.world {
            "source" => SOURCE,
            _ => DESTINATION,
        };
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        let schema = rapidbyte_wire::ipc::encode_schema(&schema).expect("a schema");
        let schema_at = [SCHEMA_AT, schema.len() as u32]
            .map(u32::to_le_bytes)
            .concat();
        let patch = |(at, bytes): &(u32, Vec<u8>)| {
            format!("(data (i32.const {at}) \"{}\")\n", escaped(bytes))
        };
        let patches: String = self.patches.iter().map(patch).collect();
        text.replace("{x}", &format!("rapidbyte:connector/{}@0.2.0#", self.world))
            .replace("{at}", &self.at.to_string())
            .replace("{deed}", &self.deed)
            .replace("{imports}", self.imports)
            .replace("{more}", &self.more)
            .replace("{realloc}", self.realloc)
            .replace("{schema}", &escaped(&schema))
            .replace("{schema_at}", &escaped(&schema_at))
            .replace("{patches}", &patches)
    }

    /// The component.
    pub fn build(&self) -> Vec<u8> {
        let mut wasm = wat::parse_str(self.module()).unwrap_or_else(|e| panic!("{e}"));
        // Parsing takes most of the time, and nearly all guests have the same contract.
        static WORLDS: [OnceLock<(Resolve, WorldId)>; 2] = [const { OnceLock::new() }; 2];
        let at = &WORLDS[usize::from(self.world == "source")];
        let changed;
        let (resolve, world) = match self.contract.0 {
            "" => at.get_or_init(|| self.world_of(CONTRACT)),
            from => {
                changed = self.world_of(&CONTRACT.replace(from, self.contract.1));
                &changed
            }
        };
        embed_component_metadata(&mut wasm, resolve, *world, StringEncoding::UTF8)
            .expect("metadata");
        let mut encoder = ComponentEncoder::default();
        let encoder = encoder.module(&wasm).expect("a module");
        encoder.encode().unwrap_or_else(|e| panic!("{e:#}"))
    }

    /// The world of a guest under this contract.
    fn world_of(&self, contract: &str) -> (Resolve, WorldId) {
        let mut resolve = Resolve::default();
        resolve
            .push_str("contract.wit", contract)
            .expect("a contract");
        let world = format!(
            "package test:hostile; {STANDARD} world hostile {{ import wasi:io/poll@0.2.0; \
             import wasi:clocks/monotonic-clock@0.2.0; import wasi:io/streams@0.2.0; \
             import wasi:random/random@0.2.0; import wasi:cli/exit@0.2.0; \
             import wasi:http/types@0.2.0; \
             include rapidbyte:connector/{}-connector@0.2.0; }}",
            self.world
        );
        let package = resolve.push_str("world.wit", &world).expect("a world");
        let world = resolve
            .select_world(&[package], Some("hostile"))
            .expect("it");
        (resolve, world)
    }
}

/// As a string of the text format.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("\\{b:02x}")).collect()
}

/// A text or list: its address and its length, as a component hands them over.
pub fn list(at: u32, len: u32) -> Vec<u8> {
    [at, len].map(u32::to_le_bytes).concat()
}
