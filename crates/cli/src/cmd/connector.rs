//! `rapidbyte connector list|inspect|test|compile|new|build`; the modules beside this file have
//! `test`, `new` and `build`.

mod authoring;
mod test;

use std::path::Path;

use rapidbyte_engine::lock::asks_for;
use rapidbyte_engine::plan::{sync_mode_name, write_mode_name};
use rapidbyte_engine::{Class, Failure, Host};
use rapidbyte_runtime::{Clock, Connector, Error, Kind, Origin, Permissions, Spec};
use serde_json::{Value, json};

use crate::args::{Common, ConnectorVerb};
use crate::keys::{self, Grant};
use crate::output::{Output, one_line, table};
use crate::setup;

pub fn run(verb: &ConnectorVerb, common: &Common, output: &Output) -> Result<(), Failure> {
    let host = || setup::host(output, None);
    match verb {
        ConnectorVerb::List => list(&host()?, output),
        ConnectorVerb::Inspect { name } => inspect(name, &host()?, output),
        ConnectorVerb::Test(asked) => test::run(asked, common, host()?, output),
        ConnectorVerb::Compile { names } => compile(names, &host()?, output),
        ConnectorVerb::New(new) => authoring::create(new, output),
        ConnectorVerb::Build { folder } => authoring::build(folder, output),
    }
}

pub(super) fn load(name: &str, host: &Host) -> Result<(Connector, Spec), Failure> {
    let (_, connector, spec) = load_from(name, Path::new("."), host)?;
    Ok((connector, spec))
}

/// The same with a path relative to `folder`, and where it was found.
pub(super) fn load_from(
    name: &str,
    folder: &Path,
    host: &Host,
) -> Result<(Origin, Connector, Spec), Failure> {
    let origin = host.find(name, folder)?;
    let connector = host.runtime.load(&origin).map_err(failed)?;
    let spec = host
        .describe(&connector, &Permissions::default(), &Clock::new())
        .map_err(failed)?;
    Ok((origin, connector, spec))
}

/// The JSON Schema of a connector's configuration.
pub(super) fn config_schema(spec: &Spec) -> Result<Value, Failure> {
    serde_json::from_str(&spec.config_schema)
        .map_err(|error| Failure::new(Class::Run, "contract_broken", error))
}

fn failed(error: Error) -> Failure {
    let class = if matches!(error, Error::Cancelled) {
        Class::Cancelled
    } else {
        Class::Config
    };
    let Some(inner) = error.failure() else {
        return Failure::cancelled();
    };
    let failure = Failure::new(class, &inner.code, &inner.message);
    match &inner.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn list(host: &Host, output: &Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for name in host.bundled() {
        let (connector, spec) = load(&name, host)?;
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

fn inspect(name: &str, host: &Host, output: &Output) -> Result<(), Failure> {
    let (connector, spec) = load(name, host)?;
    let schema = config_schema(&spec)?;
    let wishes = asks_for(&connector, &schema)?;
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

fn compile(names: &[String], host: &Host, output: &Output) -> Result<(), Failure> {
    let names = if names.is_empty() {
        host.bundled()
    } else {
        names.to_vec()
    };
    let mut done = Vec::new();
    for name in names {
        let origin = host.find(&name, Path::new("."))?;
        let loaded = host.runtime.load(&origin).map_err(failed)?.loaded();
        let how = if loaded.from_cache {
            "was compiled"
        } else {
            "compiled"
        };
        let secs = loaded.load.as_secs_f64();
        output.text(&format!("{name}: {how} ({:.1} ms)", secs * 1e3));
        done.push(json!({ "name": name, "from_cache": loaded.from_cache, "load_secs": secs }));
    }
    output.document(&json!({ "status": "ok", "connectors": done }));
    Ok(())
}
