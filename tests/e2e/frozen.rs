//! The contract 0.2.0 is frozen: it does not change, and components that were built for it run.

use std::path::{Path, PathBuf};

use serde_json::Value;
use wit_component::WitPrinter;
use wit_parser::Resolve;

use crate::support::Folder;

fn fixture(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("tests/fixtures/contract-0.2.0").join(name)
}

#[test]
fn the_contract_does_not_change() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root.join("wit")).expect("a package");
    let mut printer = WitPrinter::default();
    printer.emit_docs(false);
    printer.print(&resolve, package, &[]).expect("a text");
    let now = printer.output.to_string();
    let frozen = std::fs::read_to_string(fixture("rapidbyte.wit")).expect("a file");
    let differs = now
        .lines()
        .zip(frozen.lines())
        .find(|(now, frozen)| now != frozen);
    assert!(
        now == frozen,
        "the contract needs a new version: {differs:?}"
    );
}

/// The components of the fixture in a folder.
fn components() -> Folder {
    let folder = Folder::new();
    for kind in ["source", "transform", "destination"] {
        let packed = std::fs::read(fixture(&format!("{kind}.wasm.zst"))).expect("a file");
        let component = zstd::decode_all(packed.as_slice()).expect("a component");
        std::fs::write(folder.path().join(format!("{kind}.wasm")), component).expect("a file");
    }
    folder
}

#[test]
fn components_of_this_contract_run() {
    let folder = components();
    folder.write(
        "p.yaml",
        "version: 1\npipeline: p\nsource:\n  use: ./source.wasm\n  config: { rows: 3 }\n  streams:\n    - name: numbers\n      \
         transforms: [{ use: ./transform.wasm, config: { column: label } }]\ndestination:\n  use: ./destination.wasm\n  \
         config: { path: \"out/{stream}.jsonl\" }\n  write_mode: replace\n",
    );
    let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = |n: u32| format!("{{\"n\":{n},\"label\":\"***\"}}\n");
    assert_eq!(
        folder.read("out/numbers.jsonl"),
        [0, 1, 2].map(line).concat()
    );
}

#[test]
fn components_of_this_contract_keep_it() {
    let folder = components();
    for (kind, config) in [
        ("source", "{\"rows\": 1000}"),
        ("transform", "{\"column\": \"c_string\"}"),
        ("destination", "{\"path\": \"out/{stream}.jsonl\"}"),
    ] {
        let file = format!("./{kind}.wasm");
        let arguments = [
            "connector",
            "test",
            &file,
            "--config",
            config,
            "--output",
            "json",
        ];
        let ended = folder.rapidbyte(&arguments);
        assert_eq!(ended.code, Some(0), "{kind}: {ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(report["kind"], kind, "{report:#}");
    }
}
