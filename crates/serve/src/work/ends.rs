//! Requests that wait for the end of their jobs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::agenda::Key;

/// Tells them when jobs of their stream have ended, and of no other stream: each of them then reads its job.
#[derive(Default)]
pub(super) struct Ends(Mutex<HashMap<Key, watch::Sender<()>>>);

impl Ends {
    fn of(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever jobs of this stream have ended.
    pub(super) fn subscribe(&self, key: Key) -> watch::Receiver<()> {
        let mut streams = self.of();
        if !streams.contains_key(&key) {
            // No more streams than requests that wait.
            streams.retain(|_, sender| sender.receiver_count() > 0);
        }
        streams.entry(key).or_default().subscribe()
    }

    /// Jobs of this stream are done, dead or cancelled.
    pub(super) fn tell(&self, key: &Key) {
        if let Some(sender) = self.of().get(key) {
            sender.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_hear_of_their_own_stream_and_are_forgotten_when_they_end() {
        let ends = Ends::default();
        let key = |stream: &str| ("p".to_owned(), stream.to_owned());
        let (a, b) = (ends.subscribe(key("a")), ends.subscribe(key("b")));
        let another = ends.subscribe(key("a"));
        ends.tell(&key("a"));
        ends.tell(&key("c"));
        let has_changed = [&a, &another, &b].map(|one| one.has_changed().expect("a sender"));
        assert_eq!(has_changed, [true, true, false]);
        drop((a, another));
        let _c = ends.subscribe(key("c"));
        let mut streams: Vec<Key> = ends.of().keys().cloned().collect();
        streams.sort();
        assert_eq!(streams, [key("b"), key("c")]);
    }
}
