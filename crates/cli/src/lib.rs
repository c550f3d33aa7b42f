//! The `rapidbyte` command: arguments in, rendering out. Only this crate prints or exits.
//!
//! The program is [`main`] alone. The Python package calls it too, and gives results in the form of [`documents`].

mod args;
mod catalog;
mod cmd;
mod cursor;
mod keys;
mod output;
mod page;
mod samples;
mod screen;
mod server;
mod setup;
mod watch;

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;
use rapidbyte::Failure;

use args::{Arguments, Verb};
use output::Output;

/// Results as JSON documents, as `--output json` prints them.
pub mod documents {
    pub use crate::cmd::check::documents as checks;
    pub use crate::cmd::discover::document as discovered;
    pub use crate::cmd::plan::document as plan;
    pub use crate::cmd::verify::document as verified;
}

/// Runs the command with these arguments, the program's name first, and returns its exit code.
///
/// It ends the process only at a second signal, which means that the first one took too long.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let code = match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => run(&parsed),
        Err(error) => args::refuse(&error, &arguments),
    };
    // Only a Rust program flushes it at its end. Results report their own errors.
    let _ = std::io::stdout().flush();
    code
}

fn run(arguments: &Arguments) -> u8 {
    setup::survive_large_files();
    let output = Output::new(&arguments.common);
    match dispatch(arguments, &output).and_then(|()| output.delivered()) {
        Ok(()) => 0,
        Err(failure) => {
            output.failure(&failure);
            // A signal has its own exit code, whatever errors the stopped stages returned.
            setup::signalled().unwrap_or(failure.exit_code())
        }
    }
}

fn dispatch(arguments: &Arguments, output: &Output) -> Result<(), Failure> {
    rapidbyte::check_faults()?;
    match &arguments.verb {
        Verb::Run(run) => cmd::run::run(run, &arguments.common, output),
        Verb::Runs(runs) => cmd::runs::run(runs, &arguments.common, output),
        Verb::State(verb) => cmd::state::run(verb, &arguments.common, output),
        Verb::Rejects(verb) => cmd::rejects::run(verb, &arguments.common, output),
        Verb::Serve(serve) => cmd::serve::run(serve, &arguments.common, output),
        Verb::Check(pipeline) => cmd::check::run(pipeline, &arguments.common, output),
        Verb::Discover(pipeline) => cmd::discover::run(pipeline, &arguments.common, output),
        Verb::Plan(plan) => cmd::plan::run(plan, &arguments.common, output),
        Verb::Verify(verify) => cmd::verify::run(verify, &arguments.common, output),
        Verb::Init(init) => cmd::init::run(init, output),
        Verb::Lock(lock) => cmd::lock::run(lock, &arguments.common, output),
        Verb::Doctor(doctor) => cmd::doctor::run(doctor, &arguments.common, output),
        Verb::Reference => cmd::reference::run(output),
        Verb::Schema => cmd::schema::run(output),
        Verb::Explain(explain) => cmd::explain::run(explain, output),
        Verb::Completions { shell } => cmd::completions::run(*shell, output),
        Verb::Connector(verb) => cmd::connector::run(verb, &arguments.common, output),
        Verb::Version => cmd::version::run(output),
    }
}
