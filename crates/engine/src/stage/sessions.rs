//! Sessions that one stream leaves for the next: logging in, and a server that learns its catalog
//! anew, cost more than the rows of a small table.

use std::sync::{Mutex, PoisonError};

use rapidbyte_runtime::{Destination, Source};

/// The sessions of one worker, while no stream uses them.
#[derive(Default)]
pub(crate) struct Sessions {
    source: Mutex<Option<Source>>,
    destination: Mutex<Option<Destination>>,
}

impl Sessions {
    pub(crate) fn take_source(&self) -> Option<Source> {
        take(&self.source)
    }

    pub(crate) fn take_destination(&self) -> Option<Destination> {
        take(&self.destination)
    }

    /// Keeps a session whose stream was read to its end, if it can read another one.
    pub(crate) fn keep_source(&self, mut source: Source) {
        if source.finish() {
            put(&self.source, source);
        }
    }

    /// Keeps a session whose stream is committed, if it can write another one.
    pub(crate) fn keep_destination(&self, mut destination: Destination) {
        if destination.finish() {
            put(&self.destination, destination);
        }
    }

    /// Ends both in the connectors' own way, when no stream follows.
    pub(crate) fn close(&self) {
        if let Some(source) = self.take_source() {
            source.close();
        }
        if let Some(destination) = self.take_destination() {
            destination.close();
        }
    }

    /// Drops both: the stream that had them failed.
    pub(crate) fn end(&self) {
        drop((self.take_source(), self.take_destination()));
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn put<T>(place: &Mutex<Option<T>>, session: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
}
