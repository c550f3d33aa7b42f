//! Compressed files, and folders of files, through the sandbox.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, copy};

/// A program's standard output for this standard input; `None` where it is not installed.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: {program} is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("a thread").expect("all of it is read");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
    Some(output.stdout)
}

/// The input, compressed or decompressed by Python's gzip module.
fn python_gzip(how: &str, input: &[u8]) -> Option<Vec<u8>> {
    let program =
        format!("import gzip,sys; sys.stdout.buffer.write(gzip.{how}(sys.stdin.buffer.read()))");
    piped("python3", &["-c", &program], input)
}

const TOOLS: [(&str, &str, &[&str]); 5] = [
    ("gz", "gzip", &[]),
    ("zst", "zstd", &["-q"]),
    ("zst", "zstd", &["-q", "-19", "--no-check"]),
    ("lz4", "lz4", &["-q"]),
    (
        "lz4",
        "lz4",
        &["-q", "-9", "-BD", "-B7", "-BX", "--content-size"],
    ),
];

/// Rows of some length, so that there are several blocks.
fn rows(count: u32) -> String {
    let row = |n: u32| {
        format!(
            "{n},\"line {n}\nof two\",{}\n",
            n.wrapping_mul(2_654_435_761)
        )
    };
    std::iter::once("id,text,number\n".to_owned())
        .chain((0..count).map(row))
        .collect()
}

fn decompressed(ending: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, program, _) = TOOLS.iter().find(|tool| tool.0 == ending)?;
    piped(program, &["-d", "-c"], bytes)
}

#[test]
fn files_of_the_compression_tools_are_read() {
    let text = rows(60_000);
    for (ending, program, arguments) in TOOLS {
        let arguments = [&["-c"], arguments].concat();
        let Some(file) = piped(program, &arguments, text.as_bytes()) else {
            continue;
        };
        let folder = Folder::new();
        // Two members or frames, the second without its header line.
        let more = piped(program, &arguments, b"60000,\"last\",1\n").expect("installed");
        folder.write(&format!("in.csv.{ending}"), [file, more].concat());
        let report = folder.report(&copy(&format!("csv.{ending}"), "csv"));
        assert_eq!(report["rows"], 60_001, "{program} {arguments:?}");
        assert_eq!(folder.files("out"), ["in.csv"], "the stream's name is `in`");
        let read = folder.read("out/in.csv");
        assert!(read == format!("{text}60000,last,1\n").replace("\"last\"", "last"));
    }
    let folder = Folder::new();
    if let Some(file) = python_gzip("compress", text.as_bytes()) {
        folder.write("in.csv.gz", file);
        folder.report(&copy("csv.gz", "csv"));
        assert!(folder.read("out/in.csv") == text);
    }
}

#[test]
fn compressed_files_are_read_by_the_tools_and_by_rapidbyte() {
    let text = rows(60_000);
    for ending in ["gz", "zst", "lz4"] {
        let folder = Folder::new();
        folder.write("in.csv", &text);
        let name = format!("out/in.csv.{ending}");
        let report = folder.report(&copy("csv", &format!("csv.{ending}")));
        let file = std::fs::read(folder.path().join(&name)).expect("a file");
        assert_eq!(report["streams"][0]["written_bytes"], file.len());
        assert!(file.len() < text.len() * 2 / 3);
        if let Some(read) = decompressed(ending, &file) {
            assert!(read == text.as_bytes(), "{ending}");
        }
        if ending == "gz"
            && let Some(read) = python_gzip("decompress", &file)
        {
            assert!(read == text.as_bytes());
        }
        // Into JSON Lines by the setting, without an ending, and back.
        let there = copy("csv", "txt")
            .replace("path: in.csv", &format!("path: {name}"))
            .replace(
                "path: out/{stream}.txt",
                "path: out/{stream}.txt\n    format: jsonl\n    compression: zstd",
            );
        folder.report(&there);
        let schema = "schema: { id: int64, text: string, number: int64 }";
        let back = copy("csv", "csv").replace(
            "path: in.csv",
            &format!("path: out/in.txt\n    format: jsonl\n    compression: zstd\n    {schema}"),
        );
        folder.report(&back);
        assert!(folder.read("out/in.csv") == text, "{ending}");
    }
}

#[test]
fn a_file_that_is_not_whole_is_refused_by_name_and_the_old_one_stays() {
    for ending in ["gz", "zst", "lz4"] {
        let folder = Folder::new();
        folder.write("in.csv", rows(100_000));
        folder.report(&copy("csv", &format!("csv.{ending}")));
        let file = std::fs::read(folder.path().join(format!("out/in.csv.{ending}")));
        let file = file.expect("a file");
        let mut changed = file.clone();
        let middle = file.len() / 2;
        // Within the checksum: a changed byte before it may be met as a wrong value first.
        changed[file.len() - 2] ^= 0x40;
        for (bytes, code, part) in [
            (
                &file[..middle],
                "compressed_truncated",
                format!("at byte {middle} "),
            ),
            (&changed[..], "compressed_damaged", "damaged".to_owned()),
            (
                &[&file[..], b"trailer\n"].concat(),
                "compressed_trailing_bytes",
                format!("from byte {}", file.len()),
            ),
            (
                &b"id,text\n1,a\n"[..],
                "compressed_damaged",
                "the file is not ".to_owned(),
            ),
        ] {
            let folder = Folder::new();
            let name = format!("in.csv.{ending}");
            folder.write(&name, bytes).write("out/in.csv", "old\n");
            let pipeline = copy(&format!("csv.{ending}"), "csv").replace(
                "  streams: [in]",
                "    schema: { id: int64, text: string, number: int64 }\n  streams: [in]",
            );
            folder.refuses(&pipeline, code, 4, &[&name, &part]);
            assert_eq!(folder.files("out"), ["in.csv"]);
            assert_eq!(folder.read("out/in.csv"), "old\n");
        }
    }
}

#[test]
fn errors_name_the_line_of_the_text() {
    let folder = Folder::new();
    let text = rows(60_000) + "1,2,3,4\n";
    let Some(file) = python_gzip("compress", text.as_bytes()) else {
        return;
    };
    folder.write("in.csv.gz", file);
    let parts = ["in.csv.gz:120002", "in quotes", "`gzip -t`"];
    folder.refuses(&copy("csv.gz", "csv"), "csv_ragged_row", 4, &parts);
}

#[test]
fn a_large_window_is_refused_before_memory_is() {
    let arguments = ["-q", "--long=27", "-c"];
    let Some(file) = piped("zstd", &arguments, rows(1_000).as_bytes()) else {
        return;
    };
    let folder = Folder::new();
    folder.write("in.csv.zst", file);
    let small = copy("csv.zst", "csv").replace(
        "  streams: [in]",
        "    schema: { id: int64, text: string, number: int64 }\n  streams: [in]",
    );
    // The frame is small, yet its header asks for 128 MiB.
    folder.refuses(
        &small,
        "zstd_window_too_large",
        2,
        &["in.csv.zst", "resources.max_record_bytes"],
    );
    folder.report(&format!(
        "{small}resources: {{ memory: 1gb, max_record_bytes: 128mb }}\n"
    ));
}

/// From the generator's rows to a folder of files.
fn parted(rows: u64, config: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-generate, config: {{ rows: {rows}, preset: narrow }}, streams: [rows] }}\n\
         destination: {{ use: dest-file, config: {{ {config} }}, write_mode: replace }}\n"
    )
}

#[test]
fn a_folder_of_parts_is_replaced_as_a_whole() {
    let folder = Folder::new();
    let config = "path: \"out/{stream}/p-{part}.csv.gz\", split: { rows: 1000 }";
    let report = folder.report(&parted(4_500, config));
    assert_eq!(report["streams"][0]["location"], "out/rows/p-*.csv.gz");
    assert_eq!(folder.files("out/rows").len(), 5);
    folder.report(&parted(1_001, config));
    assert_eq!(
        folder.files("out/rows"),
        ["p-00000.csv.gz", "p-00001.csv.gz"]
    );
    assert_eq!(folder.files("out"), ["rows"], "nothing hidden is left");
    let back =
        copy("csv", "csv").replace("path: in.csv", "path: out/rows/p-*.csv.gz\n    stream: in");
    assert_eq!(folder.report(&back)["rows"], 1_001);

    folder.write("out/rows/notes.txt", "mine");
    let pipeline = parted(3, config);
    folder.refuses(
        &pipeline,
        "foreign_file",
        2,
        &["notes.txt", "directory that only this stream uses"],
    );
    assert_eq!(folder.files("out/rows").len(), 3);
}

#[test]
fn partitions_lie_within_the_grant_that_the_plan_shows() {
    let folder = Folder::new();
    folder.write(
        "in.csv",
        "id,day,who\n1,2026-11-21,../../x\n2,2026-11-22,a b\n3,2026-11-21,\n4,2026-11-21,\"\"\n",
    );
    let pipeline = copy("csv", "csv").replace(
        "path: out/{stream}.csv",
        "path: out/{stream}/a.csv\n    partition_by: [day, who]",
    );
    folder.write("p.yaml", &pipeline);
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    let grant = "may write out/*/day=*/who=*/a.csv";
    assert!(plan.stdout.contains(grant), "{}", plan.stdout);
    folder.report(&pipeline);
    assert_eq!(folder.files("out/in"), ["day=2026-11-21", "day=2026-11-22"]);
    assert_eq!(
        folder.files("out/in/day=2026-11-21"),
        ["who=", "who=..%2F..%2Fx", "who=__HIVE_DEFAULT_PARTITION__"]
    );
    assert_eq!(
        folder.read("out/in/day=2026-11-21/who=..%2F..%2Fx/a.csv"),
        "id\n1\n"
    );
    let back = copy("csv", "csv").replace(
        "path: in.csv",
        "path: out/in/day=*/who=*/a.csv\n    stream: in\n    partitions: { day: date, who: string }",
    );
    let back = back.replace("path: out/{stream}.csv", "path: back.csv");
    folder.report(&back.replace("[in]", "[{ name: in, columns: [who, id, day] }]"));
    assert_eq!(
        folder.read("back.csv"),
        "who,id,day\n../../x,1,2026-11-21\n\"\",4,2026-11-21\n,3,2026-11-21\na b,2,2026-11-22\n"
    );
    // A set does not take the place of what is read for it.
    let itself = back.replace(
        "path: back.csv",
        "path: out/{stream}/a.csv\n    partition_by: [day, who]",
    );
    folder.refuses(&itself, "target_is_source", 2, &["out/in"]);
}

/// Killed while it writes, at a moment when parts of the new set are complete.
#[test]
fn a_killed_run_leaves_the_older_set_and_nothing_after_the_next_one() {
    let folder = Folder::new();
    let config = "path: \"out/{stream}/p-{part}.csv\", split: { rows: 1000 }";
    folder.report(&parted(2_500, config));
    let before = folder.read("out/rows/p-00002.csv");
    folder.write("p.yaml", parted(2_000_000_000, config));
    let mut command = folder.command(&["run", "p.yaml", "--quiet"]);
    let mut child = command.spawn().expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let names = folder.files("out");
        let hidden = names.iter().find(|name| name.starts_with('.'));
        let parts = hidden.map_or(0, |name| folder.files(&format!("out/{name}")).len());
        if parts > 3 {
            break;
        }
        assert!(Instant::now() < deadline, "no part was written: {names:?}");
        std::thread::yield_now();
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(
        folder.files("out").len(),
        2,
        "what the killed run left, and the set"
    );
    let old = ["p-00000.csv", "p-00001.csv", "p-00002.csv"];
    assert_eq!(folder.files("out/rows"), old);
    assert_eq!(folder.read("out/rows/p-00002.csv"), before);
    folder.report(&parted(1, config));
    assert_eq!(folder.files("out"), ["rows"]);
    assert_eq!(folder.files("out/rows"), ["p-00000.csv"]);
}
