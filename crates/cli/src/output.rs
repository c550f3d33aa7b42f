//! Rendering: text for people, JSON for programs, colours only where they are wanted.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use rapidbyte::{Class, EventSink, Failure, Level, Line, Pipeline};
use rapidbyte_page::clock::utc;
use rapidbyte_page::escape::{self, steers};
pub use rapidbyte_page::figures::{bytes, count, counted, rate, rows};
use serde_json::{Value, json};

use crate::args::{Common, Format};
use crate::screen::Screen;

/// Where and how to print. Results go to standard output, everything else to standard error.
#[derive(Clone)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
    verbose: bool,
    log_json: bool,
    color: bool,
    /// Standard error is a terminal that can be drawn on.
    pub live: bool,
    /// Columns of standard output: the width of its terminal within limits, else 80.
    pub width: usize,
    /// Standard output takes colours.
    results_color: bool,
    /// The first result that standard output did not take.
    unwritten: Arc<OnceLock<std::io::Error>>,
    /// As [`Output::committed`] says.
    committed: Arc<AtomicBool>,
    /// As [`Output::known`] says.
    known: Arc<Mutex<Value>>,
    /// Our lines on standard error, where it can be drawn on.
    screen: Arc<Screen>,
    /// The id of the run, once there is one.
    run_id: Arc<OnceLock<Arc<OnceLock<String>>>>,
}

impl Output {
    pub fn new(common: &Common) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stderr().is_terminal() && !dumb;
        let log_json = common.log_format == Format::Json;
        let plain = no_color || common.no_color;
        Self {
            json: common.output == Format::Json,
            quiet: common.quiet,
            verbose: common.verbose,
            log_json,
            color: terminal && !plain,
            live: terminal && !log_json && !common.quiet,
            width: width(),
            results_color: std::io::stdout().is_terminal() && !dumb && !plain,
            unwritten: Arc::default(),
            committed: Arc::default(),
            known: Arc::default(),
            screen: Arc::default(),
            run_id: Arc::default(),
        }
    }

    /// Lines of a JSON log carry the id of the run from the moment it has one.
    pub fn follow(&self, run_id: Arc<OnceLock<String>>) {
        // A command has one run.
        let _ = self.run_id.set(run_id);
    }

    /// A line of a JSON log: what every line carries, then what this one says.
    fn log_line(&self, level: &str, message: &str, fields: Value) -> String {
        let mut line = json!({
            "timestamp": utc(SystemTime::now()), "level": level, "message": message,
            "run_id": self.run_id.get().and_then(|id| id.get()),
            "stream": null,
        });
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields);
        }
        escape::json(&line.to_string())
    }

    /// Whether details are wanted.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// The same, without warnings and without what connectors say.
    pub fn silent(&self) -> Self {
        Self {
            quiet: true,
            verbose: false,
            ..self.clone()
        }
    }

    /// A result for people; nothing in JSON mode or when quiet.
    pub fn text(&self, text: &str) {
        if !self.json && !self.quiet {
            self.result(&coloured(text, self.color || self.results_color));
        }
    }

    /// A result for people that is also printed when quiet.
    pub fn always(&self, text: &str) {
        self.result(text);
    }

    /// A result for programs; nothing in text mode.
    pub fn document(&self, document: &Value) {
        if self.json {
            self.result(&escape::json(&format!("{document:#}")));
        }
    }

    /// Whether the result is one JSON document.
    pub fn has_documents(&self) -> bool {
        self.json
    }

    /// A line of a result that a program reads, in any mode.
    pub fn line(&self, document: &Value) {
        self.result(&escape::json(&document.to_string()));
    }

    /// If the command fails, the document of the failure also has these members, so that there is
    /// one document either way.
    pub fn known(&self, members: Value) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// A reader that went away, as in `rapidbyte plan | head`, is not an error; a full disk is.
    fn result(&self, text: &str) {
        let mut stdout = std::io::stdout();
        let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                // Keeps only the first error.
                let _ = self.unwritten.set(error);
            }
            _ => {}
        }
    }

    /// The command committed rows. From here on, a result that standard output refuses is only a
    /// warning: a scheduler that sees an error runs again and appends the same rows twice.
    pub fn committed(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// Fails if standard output refused a result; warns instead once the command has committed.
    pub fn delivered(&self) -> Result<(), Failure> {
        let Some(error) = self.unwritten.get() else {
            return Ok(());
        };
        if self.committed.load(Ordering::Relaxed) {
            let text = format!(
                "the run succeeded and its rows are committed, but its result could not be \
                     written to standard output: {error}; do not repeat the run for this"
            );
            self.missed(&Failure::new(Class::Run, "output_failed", text));
            return Ok(());
        }
        let text = format!("the result could not be written to standard output: {error}");
        Err(Failure::new(Class::Run, "output_failed", text)
            .hint("free space, or send the output elsewhere; the command itself succeeded"))
    }

    /// Something the operator should look at.
    pub fn warn(&self, message: &str) {
        self.warn_of(message, json!({}));
    }

    /// The same with facts for programs.
    pub fn warn_of(&self, message: &str, facts: Value) {
        if !self.quiet {
            self.message("warn", &self.paint("33", "warning"), message, facts);
        }
    }

    /// Something that was asked for and is missing, although the command itself is done: told even
    /// when quiet.
    pub fn missed(&self, failure: &Failure) {
        let head = format!("{}[{}]", self.paint("33", "warning"), failure.code);
        let fields = json!({ "warning": failure });
        self.message("warn", &head, &failure.message, fields);
    }

    /// A line about the run's progress where nothing can be drawn.
    pub fn info(&self, message: &str, fields: Value) {
        if !self.quiet {
            self.message("info", "", message, fields);
        }
    }

    /// The end of a command that did not succeed.
    pub fn failure(&self, failure: &Failure) {
        let mut document = json!({ "status": "error", "error": failure });
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(document), Some(known)) = (document.as_object_mut(), known.as_object()) {
            for (key, value) in known {
                document.entry(key).or_insert_with(|| value.clone());
            }
        }
        self.document(&document);
        if self.log_json {
            let fields = json!({ "stream": failure.stream, "error": failure });
            let line = self.log_line("error", &failure.message, fields);
            self.say(&line);
        } else {
            let text = escape::text(&failure.to_string());
            let (head, rest) = text.split_at("error".len());
            let text = format!("{}{rest}", self.paint("1;31", head));
            self.say(&text);
            // A person may want to read more; a log has the code already.
            if self.live && crate::catalog::find(&failure.code).is_some() {
                let more = format!("  more: rapidbyte explain {}", failure.code);
                self.say(&self.paint("2", &more));
            }
        }
    }

    /// Where connectors' messages go, without the secrets of the pipeline they work for.
    pub fn event_sink(&self, pipeline: Option<&Pipeline>) -> EventSink {
        let output = self.clone();
        let pipeline = pipeline.cloned();
        Arc::new(move |event| {
            let Some(mut line) = event.line() else { return };
            if !output.shows(line.level) {
                return;
            }
            if let Some(pipeline) = &pipeline {
                line.message = pipeline.redact(&line.message);
            }
            output.connector_line(&line);
        })
    }

    /// A message of a connector: with `-v` all of them, otherwise those that the operator should look at.
    pub fn connector_line(&self, line: &Line) {
        let Line {
            from: connector,
            stream,
            level,
            message,
        } = line;
        let (name, color) = match level {
            Level::Error => ("error", "31"),
            Level::Warn => ("warn", "33"),
            Level::Info => ("info", ""),
            Level::Debug => ("debug", "2"),
        };
        if self.shows(*level) {
            let from = match stream {
                Some(stream) => format!("{connector} {stream}"),
                None => connector.clone(),
            };
            // The source made up the stream's name.
            let from = one_line(&from);
            let head = self.paint(color, &format!("{name} [{from}]"));
            let fields = json!({ "connector": connector, "stream": stream });
            self.message(name, &head, message, fields);
        }
    }

    fn shows(&self, level: Level) -> bool {
        match level {
            Level::Error | Level::Warn => !self.quiet,
            Level::Info | Level::Debug => self.verbose,
        }
    }

    fn message(&self, level: &str, head: &str, message: &str, fields: Value) {
        let line = if self.log_json {
            self.log_line(level, message, fields)
        } else if head.is_empty() {
            escape::text(message)
        } else {
            // A line of its own could be taken for a message of somebody else.
            format!("{head}: {}", escape::text(message).replace('\n', "\n  "))
        };
        self.say(&line);
    }

    /// Messages go to standard error.
    fn say(&self, text: &str) {
        self.screen.say(&mut std::io::stderr(), text);
    }

    /// Shows how far the command is, in lines that are drawn over.
    pub fn draw(&self, lines: Vec<String>) {
        self.screen.draw(&mut std::io::stderr(), lines);
    }

    /// `text` of a result in bold, where standard output takes it.
    pub fn bold(&self, text: &str) -> String {
        if self.results_color {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// `text` of a result in a colour, where standard output takes it.
    pub fn paint_result(&self, color: &str, text: &str) -> String {
        if self.results_color {
            format!("\x1b[{color}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// `text` in a colour, where colours are wanted.
    pub fn paint(&self, color: &str, text: &str) -> String {
        if self.color && !color.is_empty() {
            format!("\x1b[{color}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Escapes text from a connector: it must not draw on the operator's terminal, and must stay on one
/// line.
pub fn one_line(name: &str) -> String {
    escape::text(name).replace('\n', "\\n").replace('\t', "\\t")
}

/// The same for a result, in which colours of our own may be.
fn coloured(text: &str, has_colours: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let own = COLOURS
            .iter()
            .find(|own| has_colours && rest.starts_with(*own));
        let len = own.map_or(c.len_utf8(), |own| own.len());
        match own {
            None if steers(c) && c != '\n' && c != '\t' => shown.extend(c.escape_unicode()),
            _ => shown.push_str(&rest[..len]),
        }
        rest = &rest[len..];
    }
    shown
}

/// The sequences that [`Output::paint`] and similar functions write.
const COLOURS: [&str; 8] = [
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[1;31m",
    "\x1b[1;32m",
];

/// The narrowest and the widest output; longer lines are hard to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=100;

/// The columns of standard output.
fn width() -> usize {
    let size = console::Term::stdout().size_checked();
    let columns = size.map(|(_, columns)| usize::from(columns));
    columns
        .filter(|columns| *columns > 0)
        .map_or(80, |columns| columns.clamp(*WIDTHS.start(), *WIDTHS.end()))
}

/// `text` in lines of at most `width` characters, broken at spaces: the first behind `head`, the
/// others behind `below`. A longer word has a line of its own.
pub fn wrapped(text: &str, width: usize, head: &str, below: &str) -> String {
    let mut lines = vec![head.to_owned()];
    let mut used = head.chars().count();
    let mut begun = false;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if begun && used + 1 + len > width {
            lines.push(below.to_owned());
            used = below.chars().count();
            begun = false;
        }
        if let Some(line) = lines.last_mut() {
            if begun {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
        }
        used += len;
        begun = true;
    }
    lines.join("\n")
}

/// Not more than the first characters of a long text, and how long it is.
pub fn short(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// Columns padded to their widest cell; numbers that begin with a digit stay on the left too.
pub fn table(rows: &[Vec<String>], indent: &str) -> String {
    let in_one_line = |cell: &String| cell.replace('\n', "\\n");
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(in_one_line).collect())
        .collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter()
            .filter_map(|r| r.get(i))
            .map(|c| console::measure_text_width(c).min(MOST_BLANKS))
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|i| width(i).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let blanks = width.saturating_sub(console::measure_text_width(cell));
            format!("{cell}{}", " ".repeat(blanks))
        });
        format!("{indent}{}", cells.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A cell is not made wider than this: one long name would make as much of every row.
const MOST_BLANKS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_padded_in_one_line_each_and_a_long_one_widens_no_other() {
        let long = "é".repeat(70_000);
        let rows = [vec![long.clone(), "b".into()], vec!["a".into(), "c".into()]];
        let text = table(&rows, "");
        let lines: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lines, [70_003, MOST_BLANKS + 3]);
        let rows = [
            vec!["a\nb".into(), "c".into()],
            vec!["d".into(), "e".into()],
        ];
        assert_eq!(table(&rows, ""), "a\\nb  c\nd     e");
        assert!(short(&long).len() < 500 && short(&long).ends_with("(140000 bytes)"));
        assert_eq!(short("a"), "a");
    }

    #[test]
    fn a_colour_takes_no_room_in_a_table() {
        let rows = [
            vec!["\x1b[1;31mfailed\x1b[0m".into(), "1".into()],
            vec!["unfinished".into(), "2".into()],
        ];
        let text = table(&rows, "");
        assert_eq!(text, "\x1b[1;31mfailed\x1b[0m      1\nunfinished  2");
    }

    #[test]
    fn a_line_of_a_json_log_says_when_and_of_which_run_and_stream() {
        let arguments = ["rapidbyte", "version", "--log-format", "json"];
        let arguments = <crate::args::Arguments as clap::Parser>::parse_from(arguments);
        let output = Output::new(&arguments.common);
        let id = Arc::new(OnceLock::new());
        output.follow(Arc::clone(&id));
        let line = |fields| {
            let line = output.log_line("info", "moved", fields);
            serde_json::from_str::<Value>(&line).unwrap()
        };
        let before = line(json!({}));
        assert!(before["run_id"].is_null() && before["stream"].is_null());
        assert_eq!(before["timestamp"].as_str().map(str::len), Some(24));
        id.set("20260131-1".to_owned()).unwrap();
        let after = line(json!({ "stream": "orders" }));
        assert_eq!(
            (&after["run_id"], &after["stream"]),
            (&json!("20260131-1"), &json!("orders"))
        );
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_written() {
        let hostile = "a\u{1b}[2J\r\u{7}\u{9b}1m\u{202e}b\u{2028}c\n\t";
        let shown = r"a\u{1b}[2J\u{d}\u{7}\u{9b}1m\u{202e}b\u{2028}c";
        assert_eq!(escape::text(hostile), format!("{shown}\n\t"));
        assert_eq!(coloured(hostile, true), format!("{shown}\n\t"));
        assert_eq!(coloured("\x1b[1ma\x1b[0m", true), "\x1b[1ma\x1b[0m");
        assert_eq!(coloured("\x1b[1ma", false), r"\u{1b}[1ma");
        let json = json!({ "text": hostile, "name\u{202e}": 1 });
        let plain = escape::json(&format!("{json:#}"));
        assert!(!plain.chars().any(|c| steers(c) && c != '\n'), "{plain}");
        assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), json);
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_stay_whole() {
        assert_eq!(
            wrapped("aa bb cccccccccc d", 8, "- ", "  "),
            "- aa bb\n  cccccccccc\n  d"
        );
        assert_eq!(wrapped("", 8, "- ", "  "), "- ");
        assert_eq!(wrapped("é é é", 5, "", ""), "é é é");
    }
}
