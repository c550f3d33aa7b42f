//! How a call is watched and cancelled.

use std::sync::Arc;

use rapidbyte_engine::{Class, Event, EventSink, Failure};
use rapidbyte_runtime::{Cancel, fault};

/// The receiver of a call's events, and the handle that cancels the call. By default nobody receives them.
#[derive(Clone)]
pub struct Control {
    pub(crate) events: EventSink,
    pub(crate) cancel: Cancel,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            events: Arc::new(|_| ()),
            cancel: Cancel::new(),
        }
    }
}

impl Control {
    /// Sends the events to `sink`. Many threads call it, and each waits until it returns.
    #[must_use]
    pub fn on_event(self, sink: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.events(Arc::new(sink))
    }

    /// The same for a sink that is shared already.
    #[must_use]
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = sink;
        self
    }

    /// Ends the call when `cancel` is cancelled. Rows that are not committed by then are not visible.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }
}

/// Checks the variable that lets tests kill a program at a failpoint, if the operator has set it.
///
/// # Errors
/// `invalid_faults`: its value is none that SECURITY.md describes.
pub fn check_faults() -> Result<(), Failure> {
    let wrong = |text| {
        Failure::new(Class::Config, "invalid_faults", text)
            .hint("this variable is for tests of Rapidbyte: remove it, or see SECURITY.md")
    };
    fault::check().map_err(wrong)
}
