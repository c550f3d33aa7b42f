//! `log`: messages for the operator, limited in number and length, of one instance and of all
//! instances of a stage together.

use std::sync::Arc;

pub use crate::bindings::log::Level;
use crate::bindings::log::{Error, Host};
use crate::bindings::types::ErrorKind;
use crate::ended;
use crate::fault;
use crate::limits::{ALL_MAY_SAY, Room};
use crate::state::State;

/// Takes `(connector, stream, level, message)`.
pub type LogSink = Arc<dyn Fn(&str, Option<&str>, Level, &str) + Send + Sync>;

/// Bytes of one message; the rest is cut off.
const MAX_MESSAGE: usize = 8 << 10;

impl Host for State {
    fn log(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        let (lines, bytes) = (self.sandbox.limits.log_lines, self.sandbox.limits.log_bytes);
        if self.log_lines > lines {
            return Ok(());
        }
        let message = ended::first(&message, MAX_MESSAGE, &self.sandbox.redact);
        let len = message.len() as u64;
        let (all_lines, all_bytes) = (u64::from(lines) * ALL_MAY_SAY, bytes as u64 * ALL_MAY_SAY);
        let stream = self.sandbox.stream.as_deref();
        match self.sandbox.limits.said.add(len, all_lines, all_bytes) {
            Room::Enough => {}
            Room::Full => return Ok(()),
            Room::JustFull => {
                let text = format!(
                    "more than {all_lines} messages or {all_bytes} bytes of all streams \
                         together: the rest is dropped"
                );
                (self.sandbox.log)(&self.connector, stream, Level::Warn, &text);
                return Ok(());
            }
        }
        self.log_lines += 1;
        self.log_bytes += message.len();
        if self.log_lines > lines || self.log_bytes > bytes {
            let text = match self.log_lines > lines {
                true => format!("more than {lines} messages: the rest is dropped"),
                false => format!("more than {bytes} bytes of messages: the rest is dropped"),
            };
            self.log_lines = lines.saturating_add(1);
            (self.sandbox.log)(&self.connector, stream, Level::Warn, &text);
        } else {
            (self.sandbox.log)(&self.connector, stream, level, &message);
        }
        Ok(())
    }

    fn failpoint(&mut self, name: String) -> wasmtime::Result<Result<(), Error>> {
        let injected = fault::point(&name);
        // A guest that waited here may have been given up meanwhile.
        self.check_cancelled()?;
        Ok(injected.map_err(|injected| {
            Error::new(ErrorKind::Transient, "fault_injected", injected.to_string())
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::{Room, Said};

    #[test]
    fn messages_of_clones_are_counted_together_and_reported_once() {
        let said = Said::default();
        let other = said.clone();
        assert_eq!(said.add(5, 3, 100), Room::Enough);
        assert_eq!(other.add(5, 3, 100), Room::Enough);
        assert_eq!(said.add(5, 3, 100), Room::Enough);
        assert_eq!(other.add(5, 3, 100), Room::JustFull);
        assert_eq!(said.add(5, 3, 100), Room::Full);
        let bytes = Said::default();
        assert_eq!(bytes.add(90, 3, 100), Room::Enough);
        assert_eq!(bytes.add(11, 3, 100), Room::JustFull);
        assert_eq!(bytes.add(0, 3, 100), Room::Full);
    }
}
