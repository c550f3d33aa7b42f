//! The `rapidbyte` program: arguments in, rendering out. Only this crate prints or exits.

mod args;
mod catalog;
mod clock;
mod cmd;
mod cursor;
mod escape;
mod keys;
mod output;
mod page;
mod samples;
mod screen;
mod setup;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Verb};
use output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return args::refuse(&error),
    };
    setup::survive_large_files();
    let output = Output::new(&arguments.common);
    let result = rapidbyte::check_faults().and_then(|()| match &arguments.verb {
        Verb::Run(run) => cmd::run::run(run, &arguments.common, &output),
        Verb::Runs(runs) => cmd::runs::run(runs, &arguments.common, &output),
        Verb::State(verb) => cmd::state::run(verb, &arguments.common, &output),
        Verb::Rejects(verb) => cmd::rejects::run(verb, &arguments.common, &output),
        Verb::Check(pipeline) => cmd::check::run(pipeline, &arguments.common, &output),
        Verb::Discover(pipeline) => cmd::discover::run(pipeline, &arguments.common, &output),
        Verb::Plan(plan) => cmd::plan::run(plan, &arguments.common, &output),
        Verb::Verify(verify) => cmd::verify::run(verify, &arguments.common, &output),
        Verb::Init(init) => cmd::init::run(init, &output),
        Verb::Lock(lock) => cmd::lock::run(lock, &arguments.common, &output),
        Verb::Doctor(doctor) => cmd::doctor::run(doctor, &arguments.common, &output),
        Verb::Reference => cmd::reference::run(&output),
        Verb::Schema => cmd::schema::run(&output),
        Verb::Explain(explain) => cmd::explain::run(explain, &output),
        Verb::Completions { shell } => cmd::completions::run(*shell, &output),
        Verb::Connector(verb) => cmd::connector::run(verb, &arguments.common, &output),
        Verb::Version => cmd::version::run(&output),
    });
    match result.and_then(|()| output.delivered()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            // A signal has its own exit code, whatever the stages said when they were stopped.
            ExitCode::from(setup::signalled().unwrap_or(failure.exit_code()))
        }
    }
}
