//! `rapidbyte lock PIPELINE`

use rapidbyte_engine::lock::{LOCK_FILE, Lock, Pin, key};
use rapidbyte_engine::{Class, Document, Failure, Host};
use serde_json::json;

use super::connector::load_from;
use crate::args::{Common, Lock as Arguments};
use crate::output::{Output, table};
use crate::setup;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    let document = setup::document(&arguments.pipeline, common)?;
    let host = setup::host(output, Some(&document))?;
    let before = Lock::read(&document.base_dir)?;
    let mut lock = before.clone().unwrap_or_default();
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for used in document.connectors() {
        let origin = host.find(used, &document.base_dir)?;
        let Some(key) = key(used, &origin) else {
            continue;
        };
        let pin = pin(used, &document, &host)?;
        let change = match lock.connectors.get(&key) {
            None => "locked",
            Some(known) if *known == pin => "unchanged",
            Some(known) if !arguments.update => return Err(changed(used, known, &pin)),
            Some(_) => "updated",
        };
        rows.push(vec![key.clone(), change.into(), pin.asks_for.join(", ")]);
        found.push(json!({
            "connector": key, "change": change, "sha256": pin.sha256, "asks_for": pin.asks_for,
        }));
        lock.connectors.insert(key, pin);
    }
    if !rows.is_empty() && before.as_ref() != Some(&lock) {
        lock.write(&document.base_dir)?;
    }
    output.document(&json!({ "status": "ok", "file": LOCK_FILE, "connectors": found }));
    output.text(&match rows.as_slice() {
        [] => "all connectors are inside the program: nothing to lock".into(),
        rows => table(rows, ""),
    });
    Ok(())
}

fn pin(used: &str, document: &Document, host: &Host) -> Result<Pin, Failure> {
    let (origin, connector, spec) = load_from(used, &document.base_dir, host)?;
    Pin::of(used, &origin, &connector, &spec)
}

fn changed(used: &str, known: &Pin, found: &Pin) -> Failure {
    let more = found
        .asks_for
        .iter()
        .filter(|wish| !known.asks_for.contains(wish));
    let more: Vec<&str> = more.map(String::as_str).collect();
    let wishes = match more.as_slice() {
        [] => "and asks for no further grants".to_owned(),
        more => format!("and asks for further grants: {}", more.join(", ")),
    };
    let text = format!("{used} differs from the file in {LOCK_FILE}, {wishes}");
    Failure::new(Class::Config, "connector_changed", text)
        .hint("if you trust the new file, run the same command with --update")
}
