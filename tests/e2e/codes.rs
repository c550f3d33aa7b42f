//! Every error code of the sources has an entry in `docs/errors.md`, and every entry a code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files that the program and the bundled connectors are made of, without their tests.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![
        root().join("crates"),
        root().join("connectors"),
        root().join("python/src"),
    ];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if path.is_dir() {
                if !matches!(
                    &*name,
                    "tests" | "testkit" | "bench" | "examples" | "target"
                ) {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                let end = text.find("\n#[cfg(test)]").unwrap_or(text.len());
                found.push((path, text[..end].to_owned()));
            }
        }
    }
    assert!(found.len() > 100, "the sources were not found");
    found
}

/// The parts of projects in other languages that make errors.
const TEMPLATES: [&str; 10] = [
    "python/common/rapidbyte/files.py",
    "python/common/rapidbyte/host.py",
    "python/common/rapidbyte/http.py",
    "python/source/rapidbyte/glue/source.py",
    "python/transform/rapidbyte/glue/transform.py",
    "javascript/common/rapidbyte/files.js",
    "javascript/common/rapidbyte/host.js",
    "javascript/common/rapidbyte/http.js",
    "javascript/source/rapidbyte/glue.js",
    "javascript/transform/rapidbyte/glue.js",
];

/// The files of the Python package that make errors.
const PACKAGE: [&str; 3] = [
    "python/rapidbyte/__init__.py",
    "python/rapidbyte/_places.py",
    "python/rapidbyte/_schema.py",
];

/// Each text in quotes that could be a code, and the text before it on one line.
fn literals(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut parts = source.split('"');
    let mut before = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_code = part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_code {
            let line: Vec<&str> = before.split_whitespace().collect();
            found.push((part.to_owned(), line.join(" ")));
        }
        before = part.to_owned();
    }
    found
}

/// Whether the text before it creates an error: a function that takes its code first,
/// or who acts and then the code.
fn makes_an_error(before: &str) -> bool {
    const TAKES_A_CODE: [&str; 18] = [
        "::config(",
        "::data(",
        "::schema(",
        "::internal(",
        "(internal(",
        " code:",
        " config(",
        " auth(",
        " internal(",
        ".internal(",
        " connection(",
        " refused(",
        " refuse(",
        " error(",
        ".coded(",
        "FormatError::new(",
        "ColumnarError::new(",
        "Misfit::new(",
    ];
    let spaced = format!(" {before}");
    if TAKES_A_CODE.iter().any(|end| spaced.ends_with(end)) {
        return true;
    }
    let Some(arguments) = before.strip_suffix(',') else {
        return false;
    };
    let last = arguments.rsplit(['(', ' ']).next().unwrap_or_default();
    ["Kind::", "Owner::", "Class::"]
        .iter()
        .any(|kind| last.contains(kind))
        || arguments.contains("at_key(")
            && !arguments[arguments.rfind("at_key(").unwrap_or_default()..].contains(')')
}

/// Codes in the sources, with the first file that has each.
fn codes() -> BTreeMap<String, PathBuf> {
    let mut codes = BTreeMap::new();
    for (path, text) in sources() {
        for (literal, before) in literals(&text) {
            let is_constant = path.ends_with("document/error.rs") && before.contains("pub const ");
            if is_constant || makes_an_error(&before) {
                codes.entry(literal).or_insert_with(|| path.clone());
            }
        }
    }
    codes
}

fn scripts() -> impl Iterator<Item = (PathBuf, String)> {
    let templates = TEMPLATES.map(|file| root().join("templates").join(file));
    let package = PACKAGE.map(|file| root().join(file));
    templates.into_iter().chain(package).map(|path| {
        let text = std::fs::read_to_string(&path).expect("a script");
        (path, text)
    })
}

/// Codes in the scripts of templates: the string after the kind in each `Error(…)`.
fn codes_of_scripts() -> BTreeMap<String, PathBuf> {
    let mut codes = BTreeMap::new();
    for (path, text) in scripts() {
        for pair in literals(&text).windows(2) {
            let [(_, before), (code, between)] = pair else {
                continue;
            };
            if before.ends_with("Error(") && between == "," {
                codes.insert(code.clone(), path.clone());
            }
        }
        let named = literals(&text).into_iter();
        let named = named.filter(|(_, before)| before.ends_with("code="));
        codes.extend(named.map(|(code, _)| (code, path.clone())));
    }
    assert!(codes.contains_key("no_table"), "{codes:?}");
    assert!(codes.contains_key("not_a_batch"), "{codes:?}");
    codes
}

fn entries() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/errors.md")).expect("docs/errors.md");
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    headings
        .map(|code| code.trim_matches('`').to_owned())
        .collect()
}

#[test]
fn every_code_has_an_entry() {
    let (mut codes, entries) = (codes(), entries());
    assert!(codes.len() > 140, "only {} codes were found", codes.len());
    codes.extend(codes_of_scripts());
    let missing: Vec<_> = codes
        .iter()
        .filter(|(code, _)| !entries.contains(*code))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/errors.md has no entry for {missing:#?}"
    );
}

/// Codes that the parts around connectors in scripting languages make, one of each way to make one.
const OF_THE_PARTS: [&str; 11] = [
    "arrow",
    "invalid_batch",
    "commit_not_possible",
    "cursor_not_kept",
    "increment_not_possible",
    "invalid_schema",
    "jsonl_bad_utf8",
    "not_latin1",
    "nothing_begun",
    "unknown_stream",
    "write_mode_not_possible",
];

#[test]
fn the_codes_of_the_parts_are_found_and_explained() {
    let (codes, folder) = (codes(), crate::support::Folder::new());
    for code in OF_THE_PARTS {
        assert!(codes.contains_key(code), "{code} was not found");
    }
    let parts = [
        "crates/rows/",
        "crates/part-source/",
        "crates/part-transform/",
        "crates/part-destination/",
        "crates/part-sink/",
    ];
    let is_part = |path: &Path| {
        parts
            .iter()
            .any(|part| path.to_string_lossy().contains(part))
    };
    let of_parts = codes
        .iter()
        .filter(|(_, path)| is_part(path))
        .map(|(code, _)| code.as_str());
    for code in of_parts.chain(OF_THE_PARTS) {
        let explained = folder.rapidbyte(&["explain", code]);
        assert_eq!(explained.code, Some(0), "{code}: {}", explained.stderr);
    }
}

#[test]
fn every_entry_has_a_code() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for text in sources().into_iter().chain(scripts()).map(|(_, text)| text) {
        known.extend(literals(&text).into_iter().map(|(code, _)| code));
    }
    let mut stale: Vec<String> = entries().into_iter().collect();
    // Codes of a server are its own: those of PostgreSQL, and the numbers of MongoDB.
    let is_number = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let is_of_a_server =
        |code: &str| code.starts_with("pg_") || code.strip_prefix("mongo_").is_some_and(is_number);
    stale.retain(|code| !known.contains(code) && !is_of_a_server(code));
    assert!(stale.is_empty(), "no source has the code {stale:?}");
}
