//! `log`: messages for the operator, limited in number and length.

use std::sync::Arc;

pub use crate::bindings::log::Level;
use crate::bindings::log::{Error, Host};
use crate::bindings::types::ErrorKind;
use crate::fault;
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
        let message = &message[..message.floor_char_boundary(MAX_MESSAGE)];
        self.log_lines += 1;
        self.log_bytes += message.len();
        let stream = self.sandbox.stream.as_deref();
        if self.log_lines > lines || self.log_bytes > bytes {
            let text = match self.log_lines > lines {
                true => format!("more than {lines} messages: the rest is dropped"),
                false => format!("messages of more than {bytes} bytes: the rest is dropped"),
            };
            self.log_lines = lines.saturating_add(1);
            (self.sandbox.log)(&self.connector, stream, Level::Warn, &text);
        } else {
            (self.sandbox.log)(&self.connector, stream, level, message);
        }
        Ok(())
    }

    fn point(&mut self, name: String) -> wasmtime::Result<Result<(), Error>> {
        let injected = fault::point(&name);
        // A guest that waited here may have been given up meanwhile.
        self.check_cancelled()?;
        Ok(injected.map_err(|injected| {
            Error::new(ErrorKind::Transient, "fault_injected", injected.to_string())
        }))
    }
}
