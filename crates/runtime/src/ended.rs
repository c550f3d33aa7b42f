//! Why a guest ended: cancelled, out of memory or time, a panic with its message, or an error of its
//! own. Everything it says is cut to a length that a person reads.

use rustix::io::Errno;
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi::I32Exit;

use crate::Error;
use crate::bindings::destination::Plan;
use crate::bindings::transform::Plan as TransformPlan;
use crate::bindings::types::{CheckItem, Error as ConnectorError, ErrorKind, Reject, Stream};
use crate::state::{Busy, Cancelled, Redact, Stalled, State};

/// Bytes that one call may hand to the host beside a batch.
pub(crate) const COPY_OVERHEAD: usize = 32 << 20;
/// Bytes of a message or hint that are shown.
const MAX_MESSAGE: usize = 16 << 10;
/// Bytes of a code, or of the name of a stream, column or place.
const MAX_NAME: usize = 1 << 10;
/// Bytes of the notes of a stream, of a type and of a location.
const MAX_SHOWN: usize = 64 << 10;
/// Bytes of the statements of a plan: one that makes a table has a line for each column.
const MAX_STATEMENTS: usize = 1 << 20;
/// Notes of a stream, or statements of a plan: PostgreSQL has at most 1600 columns, and adding each takes a statement.
const MAX_TEXTS: usize = 2000;

/// Leaves the first bytes of a text without secrets, and says so: of a secret that is cut in two nobody would know the
/// first half. A text that is not cut stays as it is, because the host may look it up.
fn cut(text: &mut String, most: usize, redact: &Redact) {
    let len = text.len();
    if len > most {
        *text = first(text, most, redact);
        *text += &format!(" … ({len} bytes)");
    }
}

/// Bytes behind a cut that are searched for a secret that begins before it.
const BEHIND: usize = 64 << 10;

/// The first bytes of a text, without secrets.
pub(crate) fn first(text: &str, most: usize, redact: &Redact) -> String {
    let mut text = redact(&text[..text.floor_char_boundary(most + BEHIND)]);
    text.truncate(text.floor_char_boundary(most));
    text
}

/// The first bytes of a name or path that a guest made up.
pub(crate) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NAME)]
}

/// Leaves of what a guest says what a person reads.
pub(crate) fn shorten(error: &mut ConnectorError, redact: &Redact) {
    cut(&mut error.code, MAX_NAME, redact);
    cut(&mut error.message, MAX_MESSAGE, redact);
    let texts = [
        (&mut error.hint, MAX_MESSAGE),
        (&mut error.stream, MAX_NAME),
        (&mut error.column, MAX_NAME),
        (&mut error.location, MAX_NAME),
    ];
    for (text, most) in texts {
        if let Some(text) = text {
            cut(text, most, redact);
        }
    }
}

/// The same of what it looked at.
pub(crate) fn shorten_all(items: &mut [CheckItem], redact: &Redact) {
    for item in items {
        cut(&mut item.name, MAX_NAME, redact);
        cut(&mut item.detail, MAX_MESSAGE, redact);
        if let Some(problem) = &mut item.problem {
            shorten(problem, redact);
        }
    }
}

/// Shortens what rejects say, but not their records.
pub(crate) fn shorten_rejects(rejects: &mut [Reject], redact: &Redact) {
    for reject in rejects {
        cut(&mut reject.code, MAX_NAME, redact);
        cut(&mut reject.message, MAX_MESSAGE, redact);
        let places = [&mut reject.column, &mut reject.location];
        for text in places.into_iter().flatten() {
            cut(text, MAX_NAME, redact);
        }
    }
}

/// Shortens what a source shows of a stream.
pub(crate) fn shorten_stream(stream: &mut Stream, redact: &Redact) {
    stream
        .source_types
        .iter_mut()
        .for_each(|name| cut(name, MAX_SHOWN, redact));
    shorten_notes(&mut stream.notes, redact);
}

/// Shortens what a destination shows of its plan.
pub(crate) fn shorten_plan(plan: &mut Plan, redact: &Redact) {
    cut(&mut plan.location, MAX_SHOWN, redact);
    shorten_notes(&mut plan.notes, redact);
    if let Some(lost) = keep_first(&mut plan.statements, MAX_STATEMENTS, redact) {
        plan.statements
            .push(format!("-- … and {lost} more statements"));
    }
    for column in &mut plan.columns {
        cut(&mut column.target_type, MAX_SHOWN, redact);
        if let Some(note) = &mut column.note {
            cut(note, MAX_SHOWN, redact);
        }
    }
}

/// Shortens what a transform shows of its plan.
pub(crate) fn shorten_transform(plan: &mut TransformPlan, redact: &Redact) {
    shorten_notes(&mut plan.notes, redact);
    for name in &mut plan.output.source_types {
        cut(name, MAX_SHOWN, redact);
    }
}

/// Shortens the location that a commit names.
pub(crate) fn shorten_location(location: &mut String, redact: &Redact) {
    cut(location, MAX_SHOWN, redact);
}

/// Keeps the first notes and says how many it left out.
pub(crate) fn shorten_notes(notes: &mut Vec<String>, redact: &Redact) {
    if let Some(lost) = keep_first(notes, MAX_SHOWN, redact) {
        notes.push(format!("… and {lost} more messages"));
    }
}

/// Keeps the first texts, `most` bytes of them together, and counts those that it left out. None if it kept all.
fn keep_first(texts: &mut Vec<String>, most: usize, redact: &Redact) -> Option<usize> {
    let mut left = most;
    let mut kept = 0;
    for text in texts.iter_mut().take(MAX_TEXTS) {
        if text.len() > left && kept > 0 {
            break;
        }
        cut(text, left, redact);
        left = left.saturating_sub(text.len());
        kept += 1;
    }
    let lost = texts.len() - kept;
    texts.truncate(kept);
    (lost > 0).then_some(lost)
}

/// Says where it happened, in texts of a bounded length.
pub(crate) fn failed(state: &State, export: &'static str, mut error: ConnectorError) -> Error {
    shorten(&mut error, &state.sandbox.redact);
    if error.stream.is_none() {
        error.stream.clone_from(&state.sandbox.stream);
    }
    Error::Failed {
        connector: state.connector.clone(),
        export,
        phase: state.sandbox.clock.guest(),
        error: Box::new(error),
    }
}

/// Hints round `resources.memory` up to a multiple of this.
const MEMORY_STEP: usize = 16 << 20;

/// The `resources.memory` that the hint names where a budget, which is a share of it, was too small. It is enough for
/// twice the budget, because a connector seldom stops at the first request that was refused.
fn enough_memory(setting: usize, budget: usize, wanted: usize) -> usize {
    let enough = budget.saturating_mul(2).max(wanted) as u128;
    let setting = enough * setting as u128 / budget.max(1) as u128;
    usize::try_from(setting)
        .ok()
        .and_then(|setting| setting.checked_next_multiple_of(MEMORY_STEP))
        .unwrap_or(usize::MAX)
}

/// Says why the guest ended: cancelled, out of memory or time, a panic with its message.
pub(crate) fn trapped(state: &State, export: &'static str, trap: &wasmtime::Error) -> Error {
    if trap.is::<Cancelled>() || state.sandbox.cancel.is_cancelled() {
        return Error::Cancelled;
    }
    let internal = |code, message: String| ConnectorError::new(ErrorKind::Internal, code, message);
    let said = state.stderr.text();
    let error = if state.memory_refused() {
        let mib = state.memory.budget_bytes() >> 20;
        let (setting, budget) = (state.memory.setting_bytes(), state.memory.budget_bytes());
        let memory = enough_memory(setting, budget, state.memory.wanted_bytes()) >> 20;
        internal(
            "memory_limit",
            format!("needs more memory than its share of {mib} MiB"),
        )
        .hint(format!(
            "set resources.memory: {memory}mb, or lower resources.parallelism or batch_bytes; a record takes several \
             times its size, so lower max_record_bytes to have large ones refused by name"
        ))
    } else if trap.is::<Busy>() {
        let seconds = state.sandbox.limits.busy.as_secs();
        internal(
            "no_progress",
            format!("computed for {seconds} s without reading or writing"),
        )
        .hint(RAISE_LIMITS)
    } else if trap.is::<Stalled>() {
        stalled(state)
    } else if is_full(trap) {
        let limit = state.sandbox.limits.handles;
        internal(
            "too_many_handles",
            format!("holds more than {limit} handles at the same time"),
        )
        .hint(RAISE_LIMITS)
    } else if format!("{trap:#}").contains(TOO_MUCH_COPIED) {
        let mib = (state.sandbox.limits.batch_bytes + COPY_OVERHEAD) >> 20;
        internal(
            "too_large",
            format!("returned more than {mib} MiB in one call"),
        )
        .hint(
            "raise resources.max_record_bytes if one record is that large; otherwise \
                 report it to the connector's author",
        )
    } else if trap.downcast_ref::<Trap>() == Some(&Trap::StackOverflow) {
        internal("stack_overflow", "ran out of stack".into())
    } else if trap.is::<I32Exit>() {
        let text = "exited like a program instead of returning an error";
        internal("trapped", text.into()).hint(
            "report it to the connector's author: the \
             connector has a bug",
        )
    } else if let Some(error) = last_words(&said).filter(|_| trap.is::<Trap>()) {
        error
    } else if let Some(message) = panic_message(&said, &state.sandbox.redact) {
        internal("panicked", format!("panicked: {message}"))
    } else if !trap.is::<Trap>() && !trap.is::<std::io::Error>() && !trap.is::<Errno>() {
        // The host could not read the value that the guest handed over.
        let cause = trap.root_cause();
        internal("contract_broken", format!("broke the contract: {cause}"))
            .hint("report it to the connector's author: the connector has a bug")
    } else {
        let tail = said.lines().last().unwrap_or_default();
        let cause = trap.root_cause();
        let said = if tail.is_empty() {
            String::new()
        } else {
            format!("; its message: {tail}")
        };
        // Recursion runs over the end of the guest's own stack before wasmtime's.
        let known = match trap.downcast_ref::<Trap>() {
            Some(Trap::MemoryOutOfBounds) => " (a deep recursion can cause this)",
            _ => "",
        };
        internal("trapped", format!("stopped: {cause}{known}{said}"))
            .hint("report it to the connector's author: the connector has a bug")
    };
    failed(state, export, error)
}

/// wasmtime's words for one handle too many; the error's type is its own.
const NO_HANDLE: &str = "store handle limit exceeded";

fn is_full(trap: &wasmtime::Error) -> bool {
    let full = trap.downcast_ref::<ResourceTableError>();
    matches!(full, Some(ResourceTableError::Full)) || format!("{trap:#}").contains(NO_HANDLE)
}

/// The hint for an operator about a limit.
const RAISE_LIMITS: &str = "if this is normal here, raise the limit under permissions: { limits: … }; otherwise report \
         it to the connector's author";

/// Nothing has moved for too long.
pub(crate) fn stalled(state: &State) -> ConnectorError {
    let seconds = state.sandbox.limits.stall.as_secs();
    let what = match &state.waits_for {
        Some(what) => format!("nothing has moved for {seconds} s, waiting for {what}"),
        None => format!("nothing has moved for {seconds} s"),
    };
    ConnectorError::new(ErrorKind::Internal, "stalled", what).hint(RAISE_LIMITS)
}

/// wasmtime's words when a guest's lists exceed the store's limit; the error's type is private.
const TOO_MUCH_COPIED: &str = "too much data is being copied";

/// The error that a guest has prepared for a library that panics: the last line on standard error, with
/// the SDK's mark before it. Such an error is one of the data, whatever it says.
fn last_words(stderr: &str) -> Option<ConnectorError> {
    let (_, line) = stderr.trim_end().rsplit_once("\nrapidbyte-error: ")?;
    let said: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| said[key].as_str().map(str::to_owned);
    Some(ConnectorError {
        hint: text("hint"),
        stream: text("stream"),
        column: text("column"),
        location: text("location"),
        ..ConnectorError::new(ErrorKind::Data, &text("code")?, text("message")?)
    })
}

/// Bytes of a panic's message that are shown.
const MAX_PANIC: usize = 4 << 10;

/// The last words of a guest on standard error, on one line: the first line after the frames of a Python traceback, or
/// the message of the last Rust panic with its place. Secrets of several lines are removed before the lines are joined.
fn panic_message(stderr: &str, redact: &Redact) -> Option<String> {
    const TRACEBACK: &str = "Traceback (most recent call last)";
    const PANIC: &str = "panicked at ";
    if let Some(at) = stderr.rfind(TRACEBACK) {
        let frames = stderr[at..]
            .lines()
            .skip(1)
            .skip_while(|line| line.starts_with(' '));
        return frames
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(Into::into);
    }
    let at = stderr.rfind(PANIC)?;
    let text = &stderr[at + PANIC.len()..];
    let text = text.split("\nnote:").next().unwrap_or(text);
    let (place, message) = text.split_once(":\n").unwrap_or(("", text));
    let message = first(message.trim(), MAX_PANIC, redact).replace('\n', " ");
    Some(if place.is_empty() {
        message
    } else {
        format!("{message} (at {place})")
    })
}

#[cfg(test)]
mod tests {
    use super::{
        ErrorKind, MAX_NAME, MAX_SHOWN, MAX_STATEMENTS, MAX_TEXTS, Plan, cut, last_words,
        panic_message, shorten_notes, shorten_plan,
    };
    use crate::{Redact, no_secrets};

    #[test]
    fn notes_of_a_stream_are_bounded_together_and_say_what_is_left_out() {
        let mut honest = vec!["a".repeat(100); 3];
        shorten_notes(&mut honest, &no_secrets());
        assert_eq!(honest, vec!["a".repeat(100); 3]);
        for mut notes in [
            vec!["a".repeat(MAX_SHOWN * 3)],
            vec!["a".repeat(MAX_SHOWN / 2); 1000],
            vec!["a".to_owned(); 1_000_000],
            vec![String::new(); 1_000_000],
        ] {
            shorten_notes(&mut notes, &no_secrets());
            assert!(notes.len() <= MAX_TEXTS + 1, "{}", notes.len());
            let bytes: usize = notes.iter().map(String::len).sum();
            assert!(bytes <= MAX_SHOWN + 100, "{bytes}");
            let last = notes.last().expect("a note");
            assert!(
                last.contains(" bytes)") || last.contains("more messages"),
                "{}",
                last.len()
            );
        }
    }

    #[test]
    fn statements_of_a_plan_are_bounded_together_and_say_what_is_left_out() {
        let shortened = |statements: Vec<String>| {
            let mut plan = Plan {
                location: String::new(),
                columns: Vec::new(),
                statements,
                notes: Vec::new(),
                is_new: true,
                new_columns: Vec::new(),
            };
            shorten_plan(&mut plan, &no_secrets());
            plan.statements
        };
        let honest = vec!["ALTER TABLE t ADD COLUMN c text".to_owned(); 1600];
        assert_eq!(shortened(honest.clone()), honest);
        let short = shortened(vec!["SELECT 1".to_owned(); 400_000]);
        let left_out = format!("-- … and {} more statements", 400_000 - MAX_TEXTS);
        assert_eq!(
            (short.len(), short.last()),
            (MAX_TEXTS + 1, Some(&left_out))
        );
        for statements in [
            vec!["a".repeat(MAX_STATEMENTS * 2)],
            vec!["a".repeat(MAX_STATEMENTS / 2); 1000],
        ] {
            let kept = shortened(statements);
            let bytes: usize = kept.iter().map(String::len).sum();
            assert!(bytes <= MAX_STATEMENTS + 100, "{bytes}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_two_letters() {
        let mut text = "é".repeat(600);
        cut(&mut text, MAX_NAME + 1, &no_secrets());
        assert!(text.ends_with("é … (1200 bytes)"), "{text}");
        assert_eq!(text.matches('é').count(), 512);
        let mut short = "a".to_owned();
        cut(&mut short, 1, &no_secrets());
        assert_eq!(short, "a");
    }

    #[test]
    fn a_secret_is_taken_out_before_a_text_is_cut_or_its_lines_are_joined() {
        let redact: Redact = std::sync::Arc::new(|text| text.replace("first\nsecond", "***"));
        let mut text = "a".repeat(MAX_NAME - 4) + "first\nsecond" + &"b".repeat(MAX_NAME);
        cut(&mut text, MAX_NAME, &redact);
        assert!(text.contains("a***b …"), "{text}");
        let panic = "panicked at a.rs:1:1:\nno first\nsecond key\nnote: run";
        let said = panic_message(panic, &redact);
        assert_eq!(said.as_deref(), Some("no *** key (at a.rs:1:1)"));
    }

    #[test]
    fn a_prepared_error_is_reported_where_it_is_the_last_line() {
        let panic = "thread 'x' panicked at a.rs:1:1:\nindex out of bounds\nnote: run\n";
        let line = r#"rapidbyte-error: {"code":"c","message":"m","location":"f: group 3"}"#;
        let error = last_words(&format!("{panic}{line}\n")).expect("an error");
        assert_eq!((error.code.as_str(), error.message.as_str()), ("c", "m"));
        assert_eq!(error.location.as_deref(), Some("f: group 3"));
        assert!(matches!(error.kind, ErrorKind::Data) && error.hint.is_none());
        for other in [
            panic.to_owned(),
            format!("{panic}{line}\n{panic}"),
            format!("{panic}rapidbyte-error: {{\n"),
            format!("{panic}rapidbyte-error: {{\"code\":1,\"message\":\"m\"}}\n"),
        ] {
            assert!(last_words(&other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_last_words_of_a_guest() {
        let rust =
            "\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\non purpose\nnote: run with";
        assert_eq!(
            panic_message(rust, &no_secrets()).unwrap(),
            "on purpose (at src/lib.rs:3:5)"
        );
        let python = "Traceback (most recent call last):\n  File \"a.py\", line 1\n    f()\nKeyError: 'x'\n\
                      thread 'main' panicked at a.rs:1:1:\nPython function threw an unexpected exception\n";
        assert_eq!(
            panic_message(python, &no_secrets()).unwrap(),
            "KeyError: 'x'"
        );
        assert_eq!(panic_message("nothing of note", &no_secrets()), None);
    }
}
