//! `rapidbyte-bench`, which the commands of `cargo xtask` build and start.

use std::process::ExitCode;

fn main() -> ExitCode {
    rapidbyte_bench::main()
}
