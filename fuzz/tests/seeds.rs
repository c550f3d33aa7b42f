//! Every committed seed runs through the body of its target, without libFuzzer: seeds cannot rot.

mod make;

use std::path::PathBuf;

use rapidbyte_fuzz::TARGETS;

/// A target's seeds; those that a crash was found with are among them.
fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target)
}

#[test]
fn every_seed_passes() {
    for (name, body) in TARGETS {
        let seeds = std::fs::read_dir(folder(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut count = 0;
        for seed in seeds {
            let path = seed.expect("a seed").path();
            let bytes = std::fs::read(&path).expect("a file");
            assert!(bytes.len() <= 64 << 10, "{} is too large", path.display());
            println!("{}", path.display());
            body(&bytes);
            count += 1;
        }
        assert!(count > 0, "{name} has no seeds");
    }
}

/// A seed that is refused at its first key leads libFuzzer to nothing behind it.
#[test]
fn pipelines_among_the_seeds_are_read() {
    for (name, yaml) in make::PIPELINES {
        assert_eq!(rapidbyte_fuzz::document::refusal(yaml), None, "{name}");
    }
}

/// A conversation that the client ends at its first message leads libFuzzer to nothing behind it, either.
#[test]
fn conversations_among_the_seeds_are_held_to_their_end() {
    let good = [
        "simple",
        "query",
        "prepared",
        "copy-out",
        "copy-in",
        "copy-in-failed",
    ];
    for name in good {
        let talk = std::fs::read(folder("server").join(name)).expect(name);
        rapidbyte_fuzz::server::talk(&talk).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    }
}

/// Answers of MongoDB among the seeds are taken to their end, too.
#[test]
fn answers_among_the_seeds_are_taken_to_their_end() {
    for name in [
        "find",
        "find-ahead",
        "insert",
        "update",
        "sections",
        "compressed-plain",
        "compressed-snappy",
    ] {
        let talk = std::fs::read(folder("mongo").join(name)).expect(name);
        rapidbyte_fuzz::mongo::talk(&talk).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    }
}

/// Requests among the seeds reach the work behind their routes.
#[test]
fn requests_among_the_seeds_are_taken() {
    for (name, status) in [
        ("ingest", 202),
        ("multipart", 202),
        ("run", 202),
        ("jobs", 200),
        ("cursors", 200),
        ("rejects", 200),
        ("records", 200),
        ("page-pipeline", 200),
        ("metrics", 200),
    ] {
        let seed = std::fs::read(folder("router").join(name)).expect(name);
        let request = rapidbyte_fuzz::router::request(&seed).expect(name);
        let answer = rapidbyte_fuzz::router::answer(request);
        let body = String::from_utf8_lossy(&answer.body);
        let is_taken = answer.status == status || answer.status == 200;
        assert!(is_taken, "{name}: {} {body}", answer.status);
    }
}

/// Inputs that are made of the seeds by chance, for the seconds in `RAPIDBYTE_FUZZ_SECONDS` and the targets in
/// `RAPIDBYTE_FUZZ_TARGETS` (default: all): for machines without libFuzzer.
#[test]
#[ignore = "runs as long as it is told"]
fn mutated_seeds_pass() {
    let wanted = std::env::var("RAPIDBYTE_FUZZ_TARGETS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    let targets = TARGETS.iter().filter(|(name, _)| is_wanted(name));
    let targets: Vec<_> = targets.collect();
    assert!(!targets.is_empty(), "no target has the name {wanted:?}");
    let seconds = std::env::var("RAPIDBYTE_FUZZ_SECONDS").ok();
    let seconds = seconds
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(10);
    for (name, body) in &targets {
        let time =
            std::time::Duration::from_secs(seconds) / u32::try_from(targets.len()).unwrap_or(1);
        let inputs = pass(name, *body, time);
        println!("{name}: {inputs} inputs in {} s", time.as_secs());
    }
}

/// Runs inputs that are made of the seeds of a target, and counts them.
fn pass(name: &str, body: fn(&[u8]), time: std::time::Duration) -> u64 {
    let until = std::time::Instant::now() + time;
    let seeds = std::fs::read_dir(folder(name)).expect("seeds");
    let seeds: Vec<Vec<u8>> = seeds
        .map(|seed| std::fs::read(seed.expect("a seed").path()).expect("a file"))
        .collect();
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut inputs: u64 = 0;
    while std::time::Instant::now() < until {
        let mut input = chance.of(&seeds).clone();
        for _ in 0..chance.below(6) {
            mutate(&mut input, &seeds, &mut chance);
        }
        input.truncate(64 << 10);
        // The input that breaks the target is shown as it is.
        let shown = String::from_utf8_lossy(&input).into_owned();
        let passed = std::panic::catch_unwind(|| body(&input));
        assert!(passed.is_ok(), "{name}: {shown:?}: {input:02x?}");
        inputs += 1;
    }
    inputs
}

/// Numbers by chance, the same in each run (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Texts that mean something somewhere.
const WORDS: [&[u8]; 20] = [
    b"%00",
    b"%2F",
    b"%ff",
    b"..",
    b"/",
    b"?",
    b"&",
    b"=",
    b"\n",
    b"\n\n",
    b"-1",
    b"9223372036854775807",
    b"99999999999999999999",
    b"null",
    b"{\"",
    b"[[[[[[[[",
    b"\xff\xfe",
    b"content-encoding: zstd\n",
    b"accept: text/html\n",
    b"authorization: Bearer rb_x\n",
];

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    match chance.below(8) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
        1 => {
            input.drain(at..(at + chance.below(8)).min(input.len()));
        }
        2 => {
            let word = chance.of(&WORDS).iter().copied();
            input.splice(at..at, word);
        }
        3 => {
            // The rest of another request.
            let other = chance.of(seeds);
            input.truncate(at);
            input.extend_from_slice(&other[chance.below(other.len())..]);
        }
        4 => {
            // A length, or another number of four bytes.
            let numbers = [0, 1, 4, 5, -1, i32::MAX, i32::MIN, 16, 48_000_000];
            let number = chance.of(&numbers).to_le_bytes();
            if let Some(bytes) = input.get_mut(at..at + 4) {
                bytes.copy_from_slice(&number);
            }
        }
        5 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = u8::try_from(chance.below(256)).unwrap_or(0);
            }
        }
        6 => {
            // The head of one request and the body of another.
            let other = chance.of(seeds);
            let end = |bytes: &[u8]| bytes.windows(2).position(|pair| pair == b"\n\n");
            if let (Some(mine), Some(theirs)) = (end(input), end(other)) {
                input.truncate(mine);
                input.extend_from_slice(&other[theirs..]);
            }
        }
        _ => {
            // The path of one request with the method and the headers of another.
            let path = |bytes: &[u8]| {
                let start = bytes.iter().position(|byte| *byte == b' ')? + 1;
                let end = bytes
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(bytes.len());
                (start <= end).then_some(start..end)
            };
            let other = chance.of(seeds);
            if let (Some(mine), Some(theirs)) = (path(input), path(other)) {
                input.splice(mine, other[theirs].iter().copied());
            }
        }
    }
}

/// `cargo test --test seeds -- --ignored` makes the seeds that a program makes.
#[test]
#[ignore = "writes files into the repository"]
fn make_seeds() {
    for (target, name, bytes) in make::seeds() {
        let folder = folder(target);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name), bytes).expect("a file");
    }
}
