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
        let limit = self.sandbox.limits.log_lines;
        if self.log_lines > limit {
            return Ok(());
        }
        self.log_lines += 1;
        let stream = self.sandbox.stream.as_deref();
        if self.log_lines > limit {
            let text = format!("more than {limit} messages: the rest is dropped");
            (self.sandbox.log)(&self.connector, stream, Level::Warn, &text);
        } else {
            let end = message.floor_char_boundary(MAX_MESSAGE);
            (self.sandbox.log)(&self.connector, stream, level, &message[..end]);
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
