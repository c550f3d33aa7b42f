use super::*;
use crate::compress::Compression;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn resources(lines: &str) -> Resources {
    good(&with(&format!("resources: {{ {lines} }}\n"))).resources
}

fn message(lines: &str) -> String {
    fails(&with(&format!("resources: {{ {lines} }}\n"))).to_string()
}

#[test]
fn sizes_are_bytes_or_powers_of_1024_in_any_case() {
    let cases = [
        ("33554432", 32 * MIB),
        ("'33554432'", 32 * MIB),
        ("65536kb", 64 * MIB),
        ("65536KiB", 64 * MIB),
        ("64mb", 64 * MIB),
        ("64 MB", 64 * MIB),
        ("64Mib", 64 * MIB),
        ("1gb", GIB),
        ("64GIB", 64 * GIB),
    ];
    for (text, bytes) in cases {
        assert_eq!(
            resources(&format!("memory: {text}")).memory,
            bytes,
            "{text}"
        );
    }
}

#[test]
fn a_value_that_is_not_a_size_is_refused_with_its_place() {
    let range = "(write a whole number of bytes, or of kb, mb or gb, from 32mb to 64gb)";
    let cases = [
        ("lots", "is not a size"),
        ("-1", "is not a size"),
        ("1.5gb", "is not a size"),
        ("64m", "is not a size"),
        ("mb", "is not a size"),
        ("1e9", "is not a size"),
        ("0x100", "is not a size"),
        ("true", "is not a size"),
        ("''", "is not a size"),
        ("0", "is too small"),
        ("31mb", "is too small"),
        ("65gb", "is too large"),
        ("99999999999999999999", "is too large"),
        ("99999999999999999gb", "is too large"),
    ];
    for (text, problem) in cases {
        let shown = text.trim_matches('\'');
        assert_eq!(
            message(&format!("memory: {text}")),
            format!("p.yaml:8:22: resources.memory: \"{shown}\" {problem} {range}")
        );
    }
    assert!(message("memory: [1]").contains("resources.memory must be a single value"));
    assert!(message("batch_bytes: 1kb").ends_with("from 4kb to 256mb)"));
    assert!(message("batch_bytes: 257mb").contains("is too large"));
    assert!(message("max_record_bytes: 0").contains("is too small"));
}

#[test]
fn a_size_from_a_variable_is_not_shown() {
    assert_eq!(
        message("memory: \"${SIZE}\""),
        "p.yaml:8:22: resources.memory: the value of \"${SIZE}\" is not a size (write a whole \
         number of bytes, or of kb, mb or gb, from 32mb to 64gb)"
    );
}

#[test]
fn parallelism_is_a_number_from_1_to_64() {
    assert_eq!(resources("parallelism: 64, memory: 1gb").parallelism, 64);
    for bad in ["0", "65", "-1", "1.0", "many", "99999999999"] {
        assert_eq!(
            message(&format!("parallelism: {bad}")),
            format!(
                "p.yaml:8:27: resources.parallelism cannot be \"{bad}\" (write a whole number \
                 from 1 to 64)"
            )
        );
    }
}

#[test]
fn compression_is_one_of_three() {
    for known in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let read = resources(&format!("compression: {known}"));
        assert_eq!(read.compression, known);
    }
    assert_eq!(
        message("compression: gzip"),
        "p.yaml:8:27: resources.compression cannot be \"gzip\" (use one of: none, lz4, zstd)"
    );
    assert!(message("compression: lz5").ends_with("(did you mean \"lz4\"?)"));
}

#[test]
fn defaults_follow_from_memory_and_parallelism() {
    assert_eq!(resources("memory: 256mb"), Resources::default());
    let small = resources("memory: 32mb, parallelism: 2");
    assert_eq!(small.max_record_bytes, 16 * MIB / 8);
    assert_eq!(small.batch_bytes, MIB);
    let large = resources("memory: 64gb");
    assert_eq!(large.max_record_bytes, 64 * MIB);
    assert_eq!(large.batch_bytes, MIB);
    let half = resources("memory: 256mb, parallelism: 2");
    assert_eq!(half.max_record_bytes, 128 * MIB / 8);
}

#[test]
fn more_streams_than_the_memory_is_enough_for_are_refused() {
    assert_eq!(
        message("memory: 32mb, parallelism: 64"),
        "p.yaml:8:41: resources.parallelism is 64, but memory 32mb suffices for 2 streams at the \
         same time (set parallelism to 2 or less, or memory to 1gb or more: each stream needs \
         16mb)"
    );
    resources("memory: 1gb, parallelism: 64");
    // Whichever of the two is written first.
    assert!(message("parallelism: 64, memory: 32mb").contains("suffices for 2 streams"));
}

#[test]
fn a_record_limit_that_does_not_fit_says_which_numbers_would() {
    let at_most = resources("memory: 256mb, parallelism: 4, max_record_bytes: 16mb");
    assert_eq!(at_most.max_record_bytes, 16 * MIB);
    assert_eq!(
        message("max_record_bytes: 32mb, memory: 256mb, parallelism: 4"),
        "p.yaml:8:32: resources.max_record_bytes is 32mb, but memory 256mb with parallelism 4 \
         leaves at most 16mb (memory / parallelism / 4) (set max_record_bytes to 16mb or less, or \
         memory to 512mb or more, or parallelism to 2 or less)"
    );
    // The numbers of the hint do fit.
    resources("max_record_bytes: 16mb, memory: 256mb, parallelism: 4");
    resources("max_record_bytes: 32mb, memory: 512mb, parallelism: 4");
    resources("max_record_bytes: 32mb, memory: 256mb, parallelism: 2");
    assert_eq!(
        message("max_record_bytes: 32gb"),
        "p.yaml:8:32: resources.max_record_bytes is 32gb, but memory 256mb with parallelism 1 \
         leaves at most 64mb (memory / parallelism / 4) (set max_record_bytes to 64mb or less)"
    );
}

#[test]
fn a_batch_size_that_does_not_fit_says_which_numbers_would() {
    assert_eq!(
        message("memory: 32mb, batch_bytes: 5000000"),
        "p.yaml:8:41: resources.batch_bytes is 5000000, but memory 32mb with parallelism 1 \
         leaves at most 2mb (memory / parallelism / 16) (set batch_bytes to 2mb or less, or \
         memory to 77mb or more)"
    );
    resources("memory: 77mb, batch_bytes: 5000000");
}

#[test]
fn unknown_keys_of_resources_are_refused() {
    assert!(message("memroy: 64mb").ends_with("(did you mean \"memory\"?)"));
    assert!(message("channel_bytes: 64mb").contains("unknown key \"channel_bytes\""));
}
