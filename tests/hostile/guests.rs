//! The guests from text: what each changes in a module that is well, and how its run ends.

use crate::wat::{Guest, MORE_OF_WASI, TIME, list};

/// One guest and how its run ends.
#[derive(Clone)]
pub struct Wat {
    pub name: String,
    pub guest: Guest,
    pub code: &'static str,
    pub exit: i32,
    pub export: &'static str,
}

const LOOP: &str = "(loop $l (br $l))";
const SLEEP: &str = "(call $block (call $after (i64.const 3600000000000)))";
const TRAP: &str = "unreachable";
const GROW: &str =
    "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
const RECURSE: &str = "(call $deed)";
const SESSIONS: &str = "(loop $l (drop (call $new_session (i32.const 1))) (br $l))";
const TIMERS: &str = "(loop $l (drop (call $after (i64.const 1))) (br $l))";

/// Ours have a few thousand.
const MANY_FUNCTIONS: usize = 50_000;
/// Bytes of a guest's memory at its start.
const MEMORY: u32 = 131_072;

/// Texts of a source: the places of their address and length, and the function that gives them.
const SOURCE_TEXTS: [(u32, &str); 9] = [
    (2048, "describe"),
    (2056, "describe"),
    (2064, "describe"),
    (2072, "describe"),
    (5120, "session.discover"),
    (3080, "session.snapshot"),
    (5376, "session.check"),
    (5480, "session.check"),
    (4116, "reader.next"),
];
/// The same of lists of texts.
const SOURCE_LISTS: [(u32, &str); 5] = [
    (2096, "describe"),
    (5136, "session.discover"),
    (5144, "session.discover"),
    (5152, "session.discover"),
    (5192, "session.discover"),
];
const DESTINATION_TEXTS: [(u32, &str); 10] = [
    (2048, "describe"),
    (2056, "describe"),
    (2064, "describe"),
    (2072, "describe"),
    (2824, "session.plan"),
    (5120, "session.plan"),
    (5128, "session.plan"),
    (5144, "session.plan"),
    (4780, "load.progress"),
    (4496, "load.commit"),
];
const DESTINATION_LISTS: [(u32, &str); 4] = [
    (2096, "describe"),
    (2840, "session.plan"),
    (2848, "session.plan"),
    (4960, "load.schema-changes"),
];
/// Texts of an error of `open`.
const ERROR_TEXTS: [u32; 6] = [2336, 2344, 2356, 2368, 2380, 2392];

/// All of them.
pub fn all() -> Vec<Wat> {
    let mut all = Vec::new();
    for world in ["source", "destination"] {
        all.extend(deeds(world));
        all.extend(starts(world));
        all.extend(shapes(world));
        all.extend(reallocs(world));
        all.extend(asks(world));
        all.extend(waits(world));
        all.extend(errors(world));
        all.extend(numbers(world));
    }
    // The texts of a destination come last. These many guests evict the code of dest-file, which the
    // others write with, from the cache, and compiling must not count as time of a run.
    all.extend(texts("source", &SOURCE_TEXTS, &SOURCE_LISTS));
    all.extend(messages());
    all.extend(floods());
    all.extend(texts("destination", &DESTINATION_TEXTS, &DESTINATION_LISTS));
    all
}

fn wat(name: &str, guest: Guest, code: &'static str, export: &'static str) -> Wat {
    let exit = match code {
        "ok" => 0,
        "invalid_world" => 2,
        _ => 1,
    };
    Wat {
        name: format!("wat {} {name}", guest.world),
        guest,
        code,
        exit,
        export,
    }
}

/// Deeds in `describe`, where a guest in Rust does not know its settings yet, and in destructors.
fn deeds(world: &'static str) -> Vec<Wat> {
    let dropped = match world {
        "source" => 10,
        _ => 12,
    };
    let at = |at, deed: &str| Guest {
        at,
        deed: deed.into(),
        imports: TIME,
        ..Guest::good(world)
    };
    let describe = [
        ("loop", LOOP, "no_progress"),
        ("sleep", SLEEP, "stalled"),
        ("trap", TRAP, "trapped"),
        ("grow", GROW, "memory_limit"),
        ("recurse", RECURSE, "stack_overflow"),
        ("sessions", SESSIONS, "too_many_handles"),
        ("timers", TIMERS, "too_many_handles"),
    ];
    let mut wats: Vec<Wat> = describe
        .map(|(name, deed, code)| wat(&format!("describe {name}"), at(1, deed), code, "describe"))
        .into();
    for deed in [LOOP, TRAP] {
        wats.push(wat(&format!("drop {deed}"), at(dropped, deed), "ok", ""));
    }
    wats
}

/// Guests that go wrong before the host can call a function.
fn starts(world: &'static str) -> Vec<Wat> {
    let with = |more: String| Guest {
        more,
        ..Guest::good(world)
    };
    let start = |text: &str| with(format!("(func $start {text}) (start $start)"));
    let tables = "(table 900000 funcref)".repeat(20);
    vec![
        wat("start loop", start(LOOP), "no_progress", "instantiate"),
        wat("start trap", start(TRAP), "trapped", "instantiate"),
        wat("start grow", start(GROW), "memory_limit", "instantiate"),
        wat(
            "huge table",
            with("(table 2000000 funcref)".into()),
            "memory_limit",
            "instantiate",
        ),
        wat("huge tables", with(tables), "memory_limit", "instantiate"),
        wat(
            "huge memory",
            with("(memory 60000)".into()),
            "memory_limit",
            "instantiate",
        ),
        wat(
            "many memories",
            with("(memory 1)".repeat(20)),
            "contract_broken",
            "instantiate",
        ),
    ]
}

/// Two components that are not connectors, a good one, and a large good one.
fn shapes(world: &'static str) -> Vec<Wat> {
    let contract = |from, to| Guest {
        contract: (from, to),
        ..Guest::good(world)
    };
    let wrong = contract("supports-filter: bool,", "supports-filter: u8,");
    let missing = contract(
        match world {
            "source" => {
                "        read: func(requests: list<read-request>) -> result<reader, error>;\n"
            }
            _ => "        abort: func() -> result<_, error>;\n",
        },
        "",
    );
    let large = Guest {
        more: "(func (result i32) i32.const 1)".repeat(MANY_FUNCTIONS),
        ..Guest::good(world)
    };
    vec![
        wat("wrong type", wrong, "contract_broken", "instantiate"),
        wat("missing export", missing, "invalid_world", ""),
        wat("as it stands", Guest::good(world), "ok", ""),
        wat("large", large, "ok", ""),
    ]
}

/// An allocator that lies.
fn reallocs(world: &'static str) -> Vec<Wat> {
    let with = |realloc| Guest {
        realloc,
        ..Guest::good(world)
    };
    vec![
        wat(
            "realloc outside",
            with("(return (i32.const -8))"),
            "contract_broken",
            "open",
        ),
        wat(
            "realloc at the end",
            with("(return (i32.const 131071))"),
            "contract_broken",
            "open",
        ),
        wat(
            "realloc loop",
            with("(loop $l (br $l))"),
            "no_progress",
            "open",
        ),
        wat("realloc trap", with("unreachable"), "trapped", "open"),
    ]
}

/// Functions of the host.
const HOST: &str = r#"
    (import "rapidbyte:connector/log@0.2.0" "log" (func $log (param i32 i32 i32)))
    (import "rapidbyte:connector/files@0.2.0" "open" (func $open_file (param i32 i32 i32)))
    (import "rapidbyte:connector/connection@0.2.0" "[method]connection.read"
      (func $read (param i32 i32 i32 i32)))"#;

/// Wrong arguments that a guest hands to the host in `open`: texts, addresses, a level, and an unknown handle.
fn asks(world: &'static str) -> Vec<Wat> {
    let asks = [
        (
            "log no UTF-8",
            "(call $log (i32.const 2) (i32.const 64) (i32.const 2))",
        ),
        (
            "log outside",
            "(call $log (i32.const 2) (i32.const -16) (i32.const 64))",
        ),
        (
            "log too long",
            "(call $log (i32.const 2) (i32.const 0) (i32.const -1))",
        ),
        (
            "log at no level",
            "(call $log (i32.const 9) (i32.const 0) (i32.const 1))",
        ),
        (
            "path no UTF-8",
            "(call $open_file (i32.const 64) (i32.const 2) (i32.const 512))",
        ),
        (
            "answer outside",
            "(call $open_file (i32.const 0) (i32.const 1) (i32.const -8))",
        ),
        (
            "no such handle",
            "(call $read (i32.const 77) (i32.const 1) (i32.const 1) (i32.const 512))",
        ),
    ];
    let asked = asks.map(|(name, deed)| {
        let guest = Guest {
            at: 2,
            deed: deed.into(),
            imports: HOST,
            ..Guest::good(world)
        };
        wat(name, guest, "contract_broken", "open")
    });
    asked.into()
}

/// The body of a request that nobody sends, as a stream whose handle is left at 524.
const BODY: &str = "(call $body_of (call $request (call $fields)) (i32.const 512)) \
    (call $stream_of (i32.load (i32.const 516)) (i32.const 520))";
/// Calls of the standard set that never answer, or that cost the host more than the guest.
fn waits(world: &'static str) -> Vec<Wat> {
    let body = |what: &str| format!("{BODY} (loop $l {what} (br $l))");
    let stream = "(i32.load (i32.const 524))";
    let write_all =
        format!("(call $write_all {stream} (i32.const 128) (i32.const 3) (i32.const 528))");
    let zeroes = format!("(call $write_zeroes {stream} (i64.const 3) (i32.const 528))");
    let write = format!("(call $write {stream} (i32.const 128) (i32.const 3) (i32.const 528))");
    let pause = format!("{BODY} {write} {write} (call $block (call $when_free {stream}))");
    let asks = [
        ("unsent body", body(&write_all), "stalled"),
        ("unsent body of zeroes", body(&zeroes), "stalled"),
        ("unsent body that is full", pause, "stalled"),
        (
            "unsent body that is too full",
            body(&write),
            "contract_broken",
        ),
        (
            "random bytes",
            "(call $random (i64.const 67108864) (i32.const 512))".into(),
            "contract_broken",
        ),
        ("exit", "(call $exit (i32.const 0))".into(), "trapped"),
        (
            "exit as failed",
            "(call $exit (i32.const 1))".into(),
            "trapped",
        ),
    ];
    let asked = asks.map(|(name, deed, code)| {
        let guest = Guest {
            at: 2,
            deed,
            imports: MORE_OF_WASI,
            ..Guest::good(world)
        };
        wat(name, guest, code, "open")
    });
    let behind = [("loop", LOOP, "no_progress"), ("trap", TRAP, "trapped")];
    let behind = behind.map(|(name, deed, code)| {
        let export = format!("cabi_post_rapidbyte:connector/{world}@0.2.0#describe");
        let more = format!("(func (export \"{export}\") (param i32) {deed})");
        let guest = Guest {
            more,
            ..Guest::good(world)
        };
        wat(&format!("behind describe {name}"), guest, code, "describe")
    });
    asked.into_iter().chain(behind).collect()
}

/// Guests that make the host hold or compute too much.
fn floods() -> Vec<Wat> {
    const ALL: &str = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) \
        (local.set $n (i32.const 131072)) \
        (loop $t (i32.store8 (local.get $n) (i32.const 0)) \
          (local.set $n (i32.add (local.get $n) (i32.const 4096))) \
          (br_if $t (i32.lt_u (local.get $n) (i32.shl (memory.size) (i32.const 16)))))";
    let log = "(call $log (i32.const 2) (i32.const 131072) (i32.const 60000000))";
    let random = "(call $random (i64.const 1048576) (i32.const 512))";
    let next = |name: &str, deed: String, code| {
        let guest = Guest {
            at: 9,
            deed: format!("(local $n i32) {deed}"),
            imports: MORE_OF_WASI,
            ..Guest::good("source")
        };
        wat(name, guest, code, "reader.next")
    };
    let grown = |name: &str, bytes: u32, at: u32, what: Vec<u8>| {
        let pages = bytes.div_ceil(65_536);
        let guest = Guest {
            at: 4,
            deed: format!("(drop (memory.grow (i32.const {pages})))"),
            patches: vec![(at, what)],
            ..Guest::good("source")
        };
        wat(name, guest, "contract_broken", "session.discover")
    };
    let describe = |name: &str, at, len: u32| {
        let guest = Guest {
            at: 1,
            deed: "(drop (memory.grow (i32.const 100)))".into(),
            patches: vec![(at, list(MEMORY, len))],
            ..Guest::good("source")
        };
        wat(name, guest, "contract_broken", "describe")
    };
    vec![
        next(
            "all memory, then a long message",
            format!("{ALL} {log}"),
            "ok",
        ),
        next(
            "all memory, then random bytes",
            format!("{ALL} {random}"),
            "ok",
        ),
        grown("many streams", 100_001 * 88, 2824, list(MEMORY, 100_001)),
        grown(
            "stream of a long name",
            20_000_000,
            5120,
            list(MEMORY, 20_000_000),
        ),
        describe("long description", 2064, 5_000_000),
        describe("long config schema", 2072, 5_000_000),
        describe("many native forms", 2096, 700_000),
    ]
}

fn patched(world: &'static str, patches: Vec<(u32, Vec<u8>)>) -> Guest {
    Guest {
        patches,
        ..Guest::good(world)
    }
}

/// Texts that are none, and lists that lead anywhere.
fn texts(
    world: &'static str,
    texts: &[(u32, &'static str)],
    lists: &[(u32, &'static str)],
) -> Vec<Wat> {
    let broken = "contract_broken";
    let mut wats = Vec::new();
    for (at, export) in texts {
        let one = |name: &str, bytes: Vec<u8>| {
            let mut patches = vec![(*at, bytes)];
            if *export == "reader.next" {
                // A checkpoint.
                patches.push((4104, vec![1]));
            }
            wat(
                &format!("{name} at {at}"),
                patched(world, patches),
                broken,
                export,
            )
        };
        wats.push(one("no UTF-8", list(64, 2)));
        wats.push(one("too long", list(128, u32::MAX)));
        wats.push(one("outside", list(0xffff_fff0, 8)));
        wats.push(one("over the end", list(MEMORY - 1, 2)));
        wats.push(one("as long as memory", list(0, MEMORY)));
    }
    for (at, export) in lists {
        let one = |name: &str, bytes| {
            let guest = patched(world, vec![(*at, bytes)]);
            wat(&format!("{name} at {at}"), guest, broken, export)
        };
        wats.push(one("list of no UTF-8", list(216, 1)));
        wats.push(one("list too long", list(208, u32::MAX)));
        wats.push(one("list outside", list(0xffff_fff0, 1)));
        wats.push(one("list of no address", list(209, 1)));
        wats.push(one("list as long as memory", list(0, MEMORY / 8)));
    }
    // 8,000 times the same 32 KiB: 64 KiB of memory that become 250 MB.
    let many = [16_384u32, 32_768]
        .map(u32::to_le_bytes)
        .concat()
        .repeat(8_000);
    let patches = vec![(65_536, many), (2096, list(65_536, 8_000))];
    wats.push(wat(
        "many times the same text",
        patched(world, patches),
        "too_large",
        "describe",
    ));
    // Which of several is meant.
    wats.push(wat(
        "no such mode",
        patched(world, vec![(192, vec![9])]),
        broken,
        "describe",
    ));
    wats.push(wat(
        "no such result",
        patched(world, vec![(2304, vec![9])]),
        broken,
        "open",
    ));
    wats
}

/// The texts of an error.
fn errors(world: &'static str) -> Vec<Wat> {
    let each = ERROR_TEXTS.map(|at| {
        let patches = vec![(2304, vec![1]), (at, list(64, 2))];
        wat(
            &format!("error at {at}"),
            patched(world, patches),
            "contract_broken",
            "open",
        )
    });
    each.into()
}

/// Answers that are not about each stream, and about no other one. The guest has one.
fn numbers(world: &'static str) -> Vec<Wat> {
    let lists: &[_] = match world {
        "source" => &[(3840, 3856, "reader.schemas")],
        _ => &[(4736, 4752, "load.progress"), (4360, 4480, "load.commit")],
    };
    let counts = lists.iter().flat_map(|(at, items, export)| {
        [0, 2].map(|count| {
            (
                format!("{count} of {export}"),
                vec![(*at, list(*items, count))],
                *export,
            )
        })
    });
    let events = [("batch", 0), ("checkpoint", 1)].map(|(name, event)| {
        let patches = vec![(4104, vec![event]), (4112, vec![1])];
        (format!("{name} of another stream"), patches, "reader.next")
    });
    let events = events.into_iter().filter(|_| world == "source");
    counts
        .chain(events)
        .map(|(name, patches, export)| {
            wat(&name, patched(world, patches), "contract_broken", export)
        })
        .collect()
}

/// Messages that should be Arrow.
fn messages() -> Vec<Wat> {
    let source =
        |name, patches, export| wat(name, patched("source", patches), "contract_broken", export);
    let batch =
        |at, len, rows: u8| vec![(4104, vec![0]), (4120, list(at, len)), (4128, vec![rows])];
    vec![
        source(
            "schema as long as memory",
            vec![(3856, list(0, MEMORY))],
            "reader.schemas",
        ),
        source(
            "schema outside",
            vec![(3856, list(u32::MAX, 1))],
            "reader.schemas",
        ),
        source(
            "batch as long as memory",
            batch(0, MEMORY, 1),
            "reader.next",
        ),
        source("batch of nothing", batch(0, 0, 1), "reader.next"),
        source("batch that is a schema", batch(8192, 64, 1), "reader.next"),
        source("batch outside", batch(0xffff_fff0, 64, 1), "reader.next"),
        source("no such event", vec![(4104, vec![9])], "reader.next"),
    ]
}
