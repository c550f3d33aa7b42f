//! How a call is watched and cancelled.

use std::sync::Arc;

use rapidbyte_engine::{Event, EventSink};
use rapidbyte_runtime::Cancel;

/// Who is told what happens in a call, and what cancels it. The default tells nobody.
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
    /// Tells `sink` what happens. It is called from many threads, and holds them up while it works.
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
