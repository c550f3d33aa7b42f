//! A connector's file that changes while an engine has it.

use std::path::Path;

use rapidbyte::{CONNECTORS, Control, Engine, Environment, Pipeline};
use tempfile::TempDir;

fn put(name: &str, file: &Path) {
    let embedded = CONNECTORS.iter().find(|known| known.name == name);
    let embedded = embedded.expect("a bundled connector");
    let wasm = zstd::bulk::decompress(embedded.zstd, embedded.size).expect("its component");
    std::fs::write(file, wasm).expect("written");
}

#[test]
fn a_connector_is_loaded_again_when_its_file_has_changed() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("c.wasm");
    let text = "version: 1\npipeline: p\n\
                source: { use: ./c.wasm, config: { preset: narrow, rows: 1 }, streams: [\"*\"] }\n\
                destination: { use: dest-file, config: { path: \"{stream}.csv\" }, write_mode: replace }\n";
    let pipeline = Pipeline::from_str(text, folder.path(), &Environment::process());
    let pipeline = pipeline.expect("a pipeline");
    let cache = rapidbyte::user_cache().ok();
    let engine = Engine::builder().cache(cache).build().expect("an engine");
    let discover = || {
        let found = engine.discover(&pipeline, &Control::default());
        found
            .map(|found| found.streams.len())
            .map_err(|failure| failure.code)
    };
    put("source-generate", &file);
    assert_eq!((discover(), discover()), (Ok(1), Ok(1)));
    put("source-file", &file);
    assert_eq!(discover(), Err("unknown_key".to_owned()));
    put("source-generate", &file);
    assert_eq!(discover(), Ok(1));
}
