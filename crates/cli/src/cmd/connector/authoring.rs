//! `rapidbyte connector new` and `build`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rapidbyte::Failure;
use rapidbyte_authoring::{Adapters, Built, Project};
use serde_json::json;

use crate::args::NewConnector;
use crate::output::Output;
use crate::setup::{self, Session};

/// Makes a project and says what to do in it.
pub fn create(new: &NewConnector, output: &Output) -> Result<(), Failure> {
    let mut project = Project::new(&new.name, new.kind, new.lang)?;
    if new.http {
        project = project.with_http()?;
    }
    let created = rapidbyte_authoring::create(&project, &new.dir)?;
    let shown = created.folder.display().to_string();
    let count = created.files;
    output.document(&json!({ "status": "ok", "folder": shown, "files": count }));
    let mut text = format!("created {shown}: {count} files, described in README.md\n");
    let begin = [Some(format!("cd {shown}")), created.install.map(Into::into)];
    let rest = ["rapidbyte connector build", "rapidbyte run pipeline.yaml"].map(Into::into);
    for (number, step) in begin.into_iter().flatten().chain(rest).enumerate() {
        text += &format!("\n{}. {step}", number + 1);
    }
    output.text(&text);
    Ok(())
}

/// Builds a project, and loads what was built as a run would.
pub fn build(folder: &Path, output: &Output) -> Result<(), Failure> {
    let begun = Instant::now();
    let adapters = Adapters {
        folders: rapidbyte::connector_dirs(),
        carried: rapidbyte::ADAPTERS,
    };
    let built = rapidbyte_authoring::build(folder, &adapters, output.is_verbose())?;
    let Built {
        project,
        component,
        bytes,
    } = built;
    let Session { engine, control } = setup::session(output, None)?;
    let file = project.component(Path::new("."));
    let connector = engine.connector(&file.display().to_string(), folder, &control)?;
    project.expects(connector.kind())?;
    let kind = project.kind.name();
    let shown = shown(&component);
    let secs = begun.elapsed().as_secs_f64();
    output.document(&json!({
        "status": "ok", "component": shown, "kind": kind, "bytes": bytes, "secs": secs,
    }));
    let folder = shown.parent().map(Path::to_path_buf).unwrap_or_default();
    let mib = bytes as f64 / f64::from(1 << 20);
    output.text(&format!(
        "built {component}: a {kind}, {mib:.1} MiB, {secs:.1} s\n\n\
         1. rapidbyte connector inspect {component}\n2. rapidbyte run {}\n3. rapidbyte help connector test",
        folder.join("pipeline.yaml").display(),
        component = shown.display(),
    ));
    Ok(())
}

/// A path without a `./` in front.
fn shown(path: &Path) -> PathBuf {
    path.strip_prefix(".").unwrap_or(path).to_path_buf()
}
