//! `run --report`.

use serde_json::Value;

use crate::support::{Ended, Folder, copy, testkit};

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let folder = Folder::new();
    folder
        .write("in.csv", "id,<b>\"&\n1,x\n")
        .write("p.yaml", copy("csv", "jsonl"));
    let ended = folder.rapidbyte(&["run", "p.yaml", "--report", "run.html"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let page = folder.read("run.html");
    // Nothing is loaded, nothing is run, and names are text.
    for word in [
        "http:", "https:", "<script", "src=", "url(", "@import", "<b>",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    for word in [
        "<td>&lt;b&gt;&quot;&amp;</td>",
        ">1</dd>",
        "Where the time went",
        "Memory of the process",
        "read in.csv",
        "p.yaml, run 20",
        ", attempt 1</p>",
        "NaN",
    ] {
        assert_eq!(page.contains(word), word != "NaN", "{word}: {page}");
    }
    assert_eq!(
        folder.files("."),
        [".rapidbyte", "in.csv", "out", "p.yaml", "run.html"]
    );

    // A run that fails has a page too, which says why.
    folder.write("in.csv", "id\n1\n").write(
        "p.yaml",
        copy("csv", "jsonl").replace("path: in.csv", "path: in.csv\n    schema: { id: int8 }"),
    );
    folder.write("in.csv", "id\n300\n");
    let ended = folder.rapidbyte(&["run", "p.yaml", "--report", "run.html"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let page = folder.read("run.html");
    assert!(
        page.contains("in.csv:2") && page.contains(">failed</span>"),
        "{page}"
    );
    assert!(page.contains("did not finish</span>"), "{page}");
}

#[test]
fn every_run_leaves_a_page_in_a_directory_and_the_newest_are_kept() {
    let folder = Folder::new();
    let pipeline = copy("csv", "jsonl") + "\nreport: { directory: pages/of, keep: 2 }\n";
    folder.write("in.csv", "id\n1\n").write("p.yaml", &pipeline);
    folder.write("pages/of/notes.html", "mine");
    for _ in 0..3 {
        let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert!(document["page"]["problem"].is_null(), "{document:#}");
    }
    let pages = folder.files("pages/of");
    assert_eq!(pages.len(), 3, "{pages:?}");
    assert!(pages.iter().any(|page| page == "notes.html"), "{pages:?}");
    let ended = folder.rapidbyte(&["runs", "p.yaml", "--page", "pages/index.html"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("run "), "{}", ended.stdout);
    let index = folder.read("pages/index.html");
    assert_eq!(index.matches("<a href=\"./of/").count(), 2, "{index}");
    // A page where the run writes itself is refused before anything moves.
    folder.write("p.yaml", pipeline.replace("pages/of", "in.csv"));
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("report.directory"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let folder = Folder::new();
    folder
        .write("in.csv", "id\n1\n")
        .write("p.yaml", copy("csv", "jsonl"));
    for report in ["missing/run.html", "."] {
        let ended = folder.rapidbyte(&["run", "p.yaml", "--report", report]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("report_not_written"),
            "{}",
            ended.stderr
        );
    }
    assert_eq!(folder.files("."), ["in.csv", "p.yaml"]);
    // A report does not replace a file that is not a report.
    for report in ["in.csv", "p.yaml"] {
        let before = folder.read(report);
        let ended = folder.rapidbyte(&["run", "p.yaml", "--report", report]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("is not a report"), "{}", ended.stderr);
        assert_eq!(folder.read(report), before);
    }
    for _ in 0..2 {
        let ended = folder.rapidbyte(&["run", "p.yaml", "--report", "run.html"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

/// A folder with a stream of three rows, and a pipeline that writes a file for each of them.
fn set() -> Folder {
    let folder = Folder::new();
    let to_set = copy("csv", "csv").replace(
        "path: out/{stream}.csv",
        "path: out/{stream}/{part}.csv\n    split: { rows: 1 }",
    );
    assert!(to_set.contains("split"), "{to_set}");
    folder
        .write("in.csv", "id\n1\n2\n3\n")
        .write("p.yaml", to_set);
    folder
}

#[track_caller]
fn refused(folder: &Folder, report: &str) {
    let ended = folder.rapidbyte(&["run", "p.yaml", "--report", report]);
    assert_eq!(ended.code, Some(2), "{report}: {}", ended.stderr);
    for part in [
        "report_not_written",
        "--report",
        "another directory",
        "stream in",
    ] {
        assert!(ended.stderr.contains(part), "{report}: {}", ended.stderr);
    }
}

#[test]
fn a_report_in_the_place_of_a_target_is_told_before_anything_moves() {
    let folder = Folder::new();
    folder
        .write("in.csv", "id\n1\n")
        .write("out/old", "")
        .write("p.yaml", copy("csv", "jsonl"));
    let real = folder.path().join("out").canonicalize().expect("a folder");
    let absolute = real.join("in.jsonl");
    for report in ["out/in.jsonl", absolute.to_str().expect("UTF-8")] {
        refused(&folder, report);
        assert_eq!(folder.files("out"), ["old"]);
    }

    // In a folder that the run exchanges, a report would be lost or in the way of the stream's files.
    let folder = set();
    folder.write("out/in/00000.csv", "id\n0\n");
    std::os::unix::fs::symlink("out/in", folder.path().join("link")).expect("a link");
    for report in ["out/in/run.html", "out/in/00007.csv", "link/run.html"] {
        refused(&folder, report);
        assert_eq!(folder.files("out/in"), ["00000.csv"]);
    }
    let ended = folder.rapidbyte(&["run", "p.yaml", "--report", "out/run.html"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(folder.files("out"), ["in", "run.html"]);
    assert_eq!(folder.files("out/in").len(), 3);
}

#[test]
fn a_run_that_cannot_be_planned_has_a_page_too() {
    let folder = Folder::new();
    let planned = copy("csv", "jsonl");
    for (pipeline, code, name) in [
        (
            planned.replace("in.csv", "<i>.csv"),
            "no_file_matches",
            "source-file",
        ),
        (planned.replace("version", "verison"), "unknown_key", "p"),
    ] {
        folder.write("p.yaml", pipeline);
        let arguments = ["run", "p.yaml", "--report", "run.html", "--output", "json"];
        let ended = folder.rapidbyte(&arguments);
        assert_ne!(ended.code, Some(0), "{}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(document["error"]["code"], code, "{document:#}");
        assert_eq!(document["report"]["file"], "run.html");
        assert!(document["report"]["problem"].is_null(), "{document:#}");
        let page = folder.read("run.html");
        for part in [">failed</span>", code, name] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<i>") && !page.contains("Grants"), "{page}");
        assert_eq!(folder.files("."), ["p.yaml", "run.html"]);
    }
}

#[test]
fn rows_that_are_committed_are_a_success_even_without_their_page() {
    let folder = Folder::new();
    // The folder of the report goes away while the run waits for what is written into it.
    folder.write("p.yaml", format!(
        "version: 1\npipeline: t\n\
         source: {{ use: {}, config: {{ how: read, host: 127.0.0.1, port: PORT }}, streams: [rows] }}\n\
         destination: {{ use: {} }}\n",
        testkit("source-misbehave"),
        testkit("dest-null")
    ));
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = server.local_addr().expect("an address").port().to_string();
    folder.write("p.yaml", folder.read("p.yaml").replace("PORT", &port));
    folder.write("reports/old", "");
    let arguments = [
        "run",
        "p.yaml",
        "--quiet",
        "--output",
        "json",
        "--report",
        "reports/r.html",
    ];
    let mut command = folder.command(&arguments);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let running = command.spawn().expect("the program starts");
    let (connection, _) = server.accept().expect("the run reads");
    std::fs::remove_dir_all(folder.path().join("reports")).expect("a folder");
    drop(connection);
    let ended: Ended = running.wait_with_output().expect("it ends").into();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("warning[report_not_written]"),
        "{}",
        ended.stderr
    );
    let document: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(document["status"], "ok");
    assert_eq!(document["report"]["problem"]["code"], "report_not_written");
}

#[test]
fn a_run_that_cannot_be_planned_is_in_the_history_with_its_page() {
    let folder = Folder::new();
    let pipeline = copy("csv", "jsonl") + "\nreport: { directory: pages }\n";
    folder.write("p.yaml", &pipeline);
    // Neither is there a server at this port.
    let away = pipeline.replace("use: source-file", "use: source-postgres");
    let start = away.find("  config:").expect("a config");
    let end = away.find("  streams:").expect("streams");
    let config = "  config: { url: \"postgres://me@127.0.0.1:1/none\" }\n";
    let away =
        format!("{}{config}{}", &away[..start], &away[end..]) + "retry: { max_attempts: 1 }\n";
    let (error, exit) = folder.error(&away);
    assert_eq!(exit, 3, "{error:#}");
    folder.write("in.csv", "id\n1\n").write("p.yaml", &pipeline);
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // A mistake in the file is recorded where there is a history.
    let (_, exit) = folder.error(&pipeline.replace("streams: [in]", "streams: [out]"));
    assert_eq!(exit, 2);
    let listed = folder
        .rapidbyte(&["runs", "p.yaml", "--output", "json", "--page", "runs.html"])
        .stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let attempts = listed["attempts"].as_array().expect("attempts").iter();
    let told: Vec<_> = attempts
        .map(|attempt| (attempt["status"].as_str(), attempt["error"].as_str()))
        .collect();
    let first = error["code"].as_str();
    let expected = [
        (Some("failed"), Some("unknown_stream")),
        (Some("ok"), None),
        (Some("failed"), first),
    ];
    assert_eq!(told, expected, "{listed:#}");
    let index = folder.read("runs.html");
    assert_eq!(index.matches("<a href=\"./pages/").count(), 3, "{index}");
}

#[test]
fn past_runs_are_listed_without_the_variables_of_the_pipeline() {
    let folder = Folder::new();
    folder.write("in.csv", "n\n1\n");
    let pipeline = copy("csv", "csv").replace("in.csv", "${DATA}");
    folder
        .write("p.yaml", pipeline)
        .write(".env", "DATA=in.csv\n");
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    std::fs::remove_file(folder.path().join(".env")).expect("it is there");
    assert_eq!(folder.rapidbyte(&["plan", "p.yaml"]).code, Some(2));
    let listed = folder.rapidbyte(&["runs", "p.yaml", "--output", "json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(listed["pipeline"], "t", "{listed:#}");
    assert_eq!(listed["runs"][0]["status"], "ok", "{listed:#}");
}
