//! The archive that people download: one program, which carries its connectors inside.

use std::fs;

use crate::build;
use crate::step::{Failure, Steps, capture};
use crate::workspace::Workspace;

/// Leaves `target/dist/rapidbyte-<version>-<machine>.tar.gz` and its SHA-256 beside it.
pub fn dist(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    build::build(workspace, steps)?;
    steps.step("archive", || {
        let mut version = workspace.command(workspace.binary());
        version.arg("--version");
        let version = capture(version)?;
        let version = version.split_whitespace().last().unwrap_or("unknown");
        let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        let name = format!("rapidbyte-{version}-{machine}");
        let dist = workspace.dist();
        let folder = dist.join(&name);
        let failed =
            |error: std::io::Error| Failure::new(format!("{}: {error}", workspace.shown(&folder)));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        let program = workspace.binary();
        let file = program.file_name().unwrap_or_default();
        fs::copy(&program, folder.join(file)).map_err(failed)?;
        for text in ["README.md", "LICENSE", "CHANGELOG.md"] {
            fs::copy(workspace.path(text), folder.join(text)).map_err(failed)?;
        }
        let mut tar = workspace.command("tar");
        let archive = format!("{name}.tar.gz");
        tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--file"])
            .arg(&archive)
            .arg(&name)
            .current_dir(&dist);
        capture(tar)?;
        let mut sum = workspace.command("sha256sum");
        sum.arg(&archive).current_dir(&dist);
        let sum = capture(sum)?;
        fs::write(dist.join(format!("{archive}.sha256")), &sum).map_err(failed)?;
        eprintln!("    {}", workspace.shown(&dist.join(&archive)));
        Ok(())
    })
}
