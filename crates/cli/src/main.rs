//! The `rapidbyte` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(rapidbyte_cli::main(std::env::args_os()))
}
