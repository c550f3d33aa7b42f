//! Lines at the bottom of a terminal that are drawn over and over, and messages above them.
//!
//! A redraw is one write that overwrites the lines in place and clears nothing before it is written
//! over, so that nothing flickers; lines that did not change are not written at all.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Our lines on a terminal.
#[derive(Debug, Default)]
pub struct Screen {
    /// The lines above the cursor, which is at the start of the line below them.
    shown: Mutex<Vec<String>>,
}

impl Screen {
    /// Shows these lines in the place of those before. No line may be wider than the terminal, and
    /// there must be fewer than it has.
    pub fn draw(&self, to: &mut dyn Write, lines: Vec<String>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown == lines {
            return;
        }
        let mut text = up(shown.len());
        for line in &lines {
            // To the end of the line: what was there may have been longer.
            text.push_str(&format!("{line}\x1b[K\n"));
        }
        if shown.len() > lines.len() {
            text.push_str("\x1b[J");
        }
        put(to, &text);
        *shown = lines;
    }

    /// Writes a message for good; the lines are drawn again below it.
    pub fn say(&self, to: &mut dyn Write, message: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = up(shown.len());
        if !shown.is_empty() {
            text.push_str("\x1b[J");
        }
        put(to, &format!("{text}{message}\n"));
        shown.clear();
    }
}

/// Up to the first line.
fn up(lines: usize) -> String {
    match lines {
        0 => String::new(),
        lines => format!("\r\x1b[{lines}A"),
    }
}

/// One write. Where standard error is closed, nobody looks.
fn put(to: &mut dyn Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(screen: &Screen, lines: &[&str]) -> String {
        let mut text = Vec::new();
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        screen.draw(&mut text, lines);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_written_over_and_never_cleared_first() {
        let screen = Screen::default();
        assert_eq!(drawn(&screen, &["a", "b"]), "a\x1b[K\nb\x1b[K\n");
        assert_eq!(drawn(&screen, &["a", "b"]), "", "nothing has changed");
        assert_eq!(drawn(&screen, &["a", "c"]), "\r\x1b[2Aa\x1b[K\nc\x1b[K\n");
        assert_eq!(drawn(&screen, &["c"]), "\r\x1b[2Ac\x1b[K\n\x1b[J");
        assert_eq!(drawn(&screen, &[]), "\r\x1b[1A\x1b[J");
        assert_eq!(drawn(&screen, &[]), "");
    }

    #[test]
    fn a_message_takes_the_place_of_the_lines_which_come_back_below_it() {
        let screen = Screen::default();
        drawn(&screen, &["a", "b"]);
        let mut text = Vec::new();
        screen.say(&mut text, "warning: x");
        assert_eq!(text, b"\r\x1b[2A\x1b[Jwarning: x\n");
        assert_eq!(drawn(&screen, &["a"]), "a\x1b[K\n");
        let mut text = Vec::new();
        Screen::default().say(&mut text, "x");
        assert_eq!(text, b"x\n");
    }
}
