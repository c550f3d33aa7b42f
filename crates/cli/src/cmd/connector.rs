//! `rapidbyte connector list|inspect|test|compile|new|build`; the modules beside this file have
//! `test`, `new` and `build`.

mod authoring;
mod test;

use std::path::Path;

use rapidbyte::{Failure, Kind, sync_mode_name, write_mode_name};
use serde_json::json;

use crate::args::{Common, ConnectorVerb};
use crate::keys::{self, Grant};
use crate::output::{Output, one_line, table};
use crate::setup::{self, Session};

pub fn run(verb: &ConnectorVerb, common: &Common, output: &Output) -> Result<(), Failure> {
    let session = || setup::session(output, None);
    match verb {
        ConnectorVerb::List => list(&session()?, output),
        ConnectorVerb::Inspect { name } => inspect(name, &session()?, output),
        ConnectorVerb::Test(asked) => test::run(asked, common, &session()?, output),
        ConnectorVerb::Compile { names } => compile(names, &session()?, output),
        ConnectorVerb::New(new) => authoring::create(new, output),
        ConnectorVerb::Build { folder } => authoring::build(folder, output),
    }
}

fn list(session: &Session, output: &Output) -> Result<(), Failure> {
    let Session { engine, control } = session;
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for name in engine.connectors() {
        let connector = engine.connector(&name, Path::new("."), control)?;
        let spec = connector.spec();
        rows.push(vec![
            name.clone(),
            spec.version.clone(),
            connector.kind().name().into(),
            spec.description.clone(),
        ]);
        found.push(json!({
            "name": name, "version": spec.version, "kind": connector.kind().name(),
            "description": spec.description,
        }));
    }
    output.document(&json!({ "status": "ok", "connectors": found }));
    output.text(&table(&rows, ""));
    Ok(())
}

fn inspect(name: &str, session: &Session, output: &Output) -> Result<(), Failure> {
    let Session { engine, control } = session;
    let connector = engine.connector(name, Path::new("."), control)?;
    let spec = connector.spec();
    let schema = connector.config_schema()?;
    let wishes = connector.asks_for()?;
    let sync: Vec<_> = spec
        .sync_modes
        .iter()
        .map(|mode| sync_mode_name(*mode))
        .collect();
    let write: Vec<_> = spec
        .write_modes
        .iter()
        .map(|mode| write_mode_name(*mode))
        .collect();
    output.document(&json!({
        "status": "ok", "name": spec.name, "version": spec.version, "kind": connector.kind().name(),
        "description": spec.description, "sync_modes": sync, "write_modes": write,
        "native_forms": spec.native_forms, "config_schema": schema,
        "asks_for": wishes,
    }));
    let modes = match connector.kind() {
        Kind::Source => format!("sync_mode: {}\n", sync.join(", ")),
        Kind::Transform => String::new(),
        Kind::Destination => format!("write_mode: {}\n", write.join(", ")),
    };
    let mut text = format!(
        "{} {}  {}\n{}\n{modes}asks for: {}",
        one_line(&spec.name),
        one_line(&spec.version),
        connector.kind().name(),
        one_line(&spec.description),
        one_line(&wishes.join(", "))
    );
    let keys = keys::of(&schema).into_iter().map(|key| {
        let needed = if key.required { "required" } else { "" };
        let grant = key.grant.map(|grant| match grant {
            Grant::Tls => "for TLS".to_owned(),
            Grant::Of(grant) => format!("grants {}", one_line(grant)),
        });
        let about = one_line(&key.first());
        vec![
            one_line(&key.path),
            needed.into(),
            grant.unwrap_or_default(),
            about,
        ]
    });
    let keys: Vec<_> = keys.collect();
    if !keys.is_empty() {
        text.push_str(&format!("\nconfig:\n{}", table(&keys, "  ")));
    }
    output.text(&text);
    Ok(())
}

fn compile(names: &[String], session: &Session, output: &Output) -> Result<(), Failure> {
    let Session { engine, control } = session;
    let names = if names.is_empty() {
        engine.connectors()
    } else {
        names.to_vec()
    };
    let mut done = Vec::new();
    for name in names {
        let compiled = engine.compile(&name, Path::new("."), control)?;
        let how = if compiled.from_cache {
            "was compiled"
        } else {
            "compiled"
        };
        let secs = compiled.load.as_secs_f64();
        output.text(&format!("{name}: {how} ({:.1} ms)", secs * 1e3));
        done.push(json!({ "name": name, "from_cache": compiled.from_cache, "load_secs": secs }));
    }
    output.document(&json!({ "status": "ok", "connectors": done }));
    Ok(())
}
