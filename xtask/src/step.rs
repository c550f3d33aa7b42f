//! Steps: announced, timed, and the first that fails ends the command.

use std::io::Write;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Why a command stopped.
#[derive(Debug)]
pub struct Failure {
    /// The failure and the next action, for the person who typed the command.
    pub message: String,
    /// The exit code of `cargo xtask`.
    pub code: u8,
}

impl Failure {
    /// A failure with exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 1,
        }
    }

    /// The command line is wrong: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: format!(
                "{}; `cargo xtask --help` lists the commands",
                message.into()
            ),
            code: 2,
        }
    }
}

/// Counts and times the steps of one command.
pub struct Steps {
    command: String,
    begun: Instant,
    count: usize,
}

impl Steps {
    /// Begins the clock of `command`.
    pub fn begin(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            begun: Instant::now(),
            count: 0,
        }
    }

    /// The steps of another thread of the same command.
    pub fn beside(&self) -> Self {
        Self::begin(&self.command)
    }

    /// Counts the steps of another thread.
    pub fn add(&mut self, beside: &Self) {
        self.count += beside.count;
    }

    /// Announces one step, does it, and prints how long it took.
    pub fn step<T>(
        &mut self,
        title: &str,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.count += 1;
        eprintln!("==> {title}");
        let begun = Instant::now();
        let result = work();
        let taken = seconds(begun.elapsed());
        match &result {
            Ok(_) => eprintln!("    {title}: {taken}"),
            Err(_) => eprintln!("    {title}: failed after {taken}"),
        }
        result
    }

    /// A step that is one program.
    pub fn program(&mut self, title: &str, program: Command) -> Result<(), Failure> {
        self.step(title, || run(program))
    }

    /// Prints something between steps.
    pub fn note(&self, text: &str) {
        eprintln!("    {text}");
    }

    /// Prints the total and gives the exit code.
    pub fn finish(self, result: Result<(), Failure>) -> ExitCode {
        let (command, count) = (&self.command, self.count);
        let total = seconds(self.begun.elapsed());
        match result {
            Ok(()) => {
                eprintln!("xtask {command}: {count} steps in {total}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!(
                    "xtask {command}: stopped after {total}: {}",
                    failure.message
                );
                ExitCode::from(failure.code)
            }
        }
    }
}

/// Runs a program with our standard streams; a bad exit code is a failure with that code.
pub fn run(mut program: Command) -> Result<(), Failure> {
    let line = command_line(&program);
    let status = program
        .status()
        .map_err(|error| not_started(&line, &error))?;
    ended(&line, status)
}

fn ended(line: &str, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    // No code: ended by a signal.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure {
        message: format!("`{line}` failed ({status})"),
        code: code.filter(|code| *code != 0).unwrap_or(1),
    })
}

/// A program that runs at the same time as the next steps. The caller that needs its result runs it once more as a
/// step, and the step reports the failure; this type does not.
pub struct Beside(Option<Child>);

impl Beside {
    /// Starts a program without output.
    pub fn start(mut program: Command) -> Self {
        program
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(program.spawn().ok())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// A program that works beside other steps. Its output is kept until [`Aside::end`]. It is killed if nobody waits for it.
pub struct Aside {
    line: String,
    child: Child,
    reading: Option<JoinHandle<()>>,
    output: Output,
}

impl Aside {
    /// Starts a program with a lower priority than the step has.
    pub fn start(program: &Command) -> Result<Self, Failure> {
        let line = command_line(program);
        let failed = |error: std::io::Error| not_started(&line, &error);
        let (mut reader, writer) = std::io::pipe().map_err(failed)?;
        let mut niced = niced(program);
        niced
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(failed)?)
            .stderr(writer);
        let child = niced.spawn().map_err(failed)?;
        // The program has the last end that can be written.
        drop(niced);
        let output = Output::default();
        let mut ours = output.clone();
        let reading = std::thread::spawn(move || {
            let _ = std::io::copy(&mut reader, &mut ours);
        });
        Ok(Self {
            line,
            child,
            reading: Some(reading),
            output,
        })
    }

    /// Prints the output so far and what comes until the end of the program.
    pub fn end(mut self) -> Result<(), Failure> {
        self.output.print();
        let status = self.child.wait();
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
        let status = status.map_err(|error| not_started(&self.line, &error))?;
        ended(&self.line, status)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Nobody waits for it any more, or it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of a program: kept until it may be printed, and then printed at once.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    is_printed: bool,
}

impl Output {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints what was kept, and from now on what comes.
    fn print(&self) {
        let mut kept = self.kept();
        kept.is_printed = true;
        let _ = std::io::stderr().write_all(&std::mem::take(&mut kept.bytes));
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut kept = self.kept();
        if kept.is_printed {
            return std::io::stderr().write(bytes);
        }
        kept.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The same command with a lower priority.
fn niced(program: &Command) -> Command {
    let mut niced = Command::new("nice");
    niced.args(["-n", "5"]).arg(program.get_program());
    niced.args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => niced.env(name, value),
            None => niced.env_remove(name),
        };
    }
    if let Some(folder) = program.get_current_dir() {
        niced.current_dir(folder);
    }
    niced
}

/// Runs a program for what it prints on standard output; standard error is passed on.
pub fn capture(mut program: Command) -> Result<String, Failure> {
    let line = command_line(&program);
    let output = program
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| not_started(&line, &error))?;
    if !output.status.success() {
        return Err(Failure::new(format!("`{line}` failed ({})", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Answers whether a program is there and answers to `--version`.
pub fn is_installed(program: &str, subcommand: &[&str]) -> bool {
    Command::new(program)
        .args(subcommand)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn not_started(line: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{line}` did not start: {error}"))
}

/// The line as a person would type it: programs by their last name, no folders of this machine.
fn command_line(program: &Command) -> String {
    let short = |text: &std::ffi::OsStr| {
        let path = std::path::Path::new(text);
        let shown = if path.is_absolute() {
            path.file_name()
        } else {
            None
        };
        shown.unwrap_or(text).to_string_lossy().into_owned()
    };
    std::iter::once(program.get_program())
        .chain(program.get_args())
        .map(short)
        .collect::<Vec<_>>()
        .join(" ")
}

/// `0.4 s`, `12.3 s` or `3 min 05 s`.
fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    if whole < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_gives_its_exit_code() {
        let mut program = Command::new("sh");
        program.args(["-c", "exit 7"]);
        let failure = run(program).unwrap_err();
        assert_eq!(failure.code, 7);
        assert!(
            failure.message.contains("sh -c exit 7"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn a_program_beside_a_step_gives_its_exit_code_or_is_killed() {
        let mut program = Command::new("sh");
        program.args(["-c", "exit 7"]);
        assert_eq!(Aside::start(&program).unwrap().end().unwrap_err().code, 7);
        let mut program = Command::new("sleep");
        program.arg("100000");
        // This waits for its end.
        drop(Aside::start(&program).unwrap());
    }

    #[test]
    fn output_is_kept_until_it_may_be_printed() {
        let mut output = Output::default();
        output.write_all(b"early").unwrap();
        assert_eq!(output.kept().bytes, b"early");
        output.print();
        output.write_all(b"late").unwrap();
        assert_eq!(output.kept().bytes, b"");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let failure = run(Command::new("no-such-program-7f3a")).unwrap_err();
        assert_eq!(failure.code, 1);
        assert!(
            failure
                .message
                .contains("`no-such-program-7f3a` did not start")
        );
    }

    #[test]
    fn command_lines_show_no_folder_of_the_machine() {
        let mut program = Command::new("/opt/tools/cargo");
        program.args(["build", "/somewhere/else/file"]);
        assert_eq!(command_line(&program), "cargo build file");
    }

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
