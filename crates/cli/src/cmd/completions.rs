//! `rapidbyte completions SHELL`

use clap::CommandFactory;
use clap_complete::{generate, shells};
use rapidbyte::Failure;
use serde_json::json;

use crate::args::{Arguments, Shell};
use crate::output::Output;

/// Prints the script; in JSON mode as the member `script`.
pub fn run(shell: Shell, output: &Output) -> Result<(), Failure> {
    let mut command = Arguments::command();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, "rapidbyte", &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut command, "rapidbyte", &mut script),
        Shell::Fish => generate(shells::Fish, &mut command, "rapidbyte", &mut script),
        Shell::Powershell => {
            generate(shells::PowerShell, &mut command, "rapidbyte", &mut script);
        }
    }
    let script = String::from_utf8_lossy(&script);
    output.document(&json!({ "status": "ok", "script": script }));
    output.text(script.trim_end());
    Ok(())
}
