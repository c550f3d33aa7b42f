//! How a call is watched and cancelled.

use std::sync::Arc;

use rapidbyte_engine::{Event, EventSink};
use rapidbyte_runtime::Cancel;

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
