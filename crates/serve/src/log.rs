//! What the server tells its operator.

use std::sync::Arc;

use rapidbyte::Level;
use serde_json::Value;

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    /// How much it matters.
    pub level: Level,
    /// What happened, in one line.
    pub text: String,
    /// Facts of it: the pipeline, the stream, the job, the code of an error.
    pub facts: Value,
}

/// The receiver of messages. Many threads call it, and each waits until it returns. Clones are the same receiver.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&Message) + Send + Sync>);

impl Default for Log {
    /// Nobody receives them.
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl Log {
    /// Gives each message to `tell`.
    pub fn new(tell: impl Fn(&Message) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells it.
    pub fn tell(&self, level: Level, text: impl Into<String>, facts: Value) {
        let text = text.into();
        (self.0)(&Message { level, text, facts });
    }

    /// Something that is as it should be.
    pub fn info(&self, text: impl Into<String>, facts: Value) {
        self.tell(Level::Info, text, facts);
    }

    /// Something that the operator should look at.
    pub fn warn(&self, text: impl Into<String>, facts: Value) {
        self.tell(Level::Warn, text, facts);
    }
}
