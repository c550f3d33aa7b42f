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
