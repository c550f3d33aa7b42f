//! What the host calls: sessions of sources and destinations, whatever they are made of.
//!
//! A session is an instance of a WebAssembly component ([`crate::wasm`]) or a native type ([`crate::native`]). The host
//! checks both alike ([`crate::checked`]). A session reads or writes one stream at a time, so its reader or writer is part
//! of it: an instance has one store, which a reader could not share with its session.

use crate::bindings::destination::{Part, Plan, Presence, Progress, Receipt, Target, Worker};
use crate::bindings::source::{Event, ReadRequest, Selection};
use crate::bindings::types::{Batch, CheckItem, Error as ConnectorError, Run, Spec, Stream};
use crate::{Error, Result, Sandbox};

/// What sessions of both kinds have.
pub trait Session: Send {
    /// What it may reach and use.
    fn sandbox(&self) -> &Sandbox;

    /// The session goes on in another sandbox of the same grants, under the clock, the limits and the
    /// share of memory that are given there; either cancel token stops it. False, and nothing
    /// changes, when the share is too small for what the session holds, or it has failed.
    fn hand_over(&mut self, sandbox: Sandbox) -> bool;

    /// Whether it can be called again; not after a trap, a limit or a broken contract.
    fn is_usable(&self) -> bool;

    /// Says where an error happened that the host found, such as a limit that it broke. The session is not called again.
    fn refuse(&mut self, export: &'static str, error: ConnectorError) -> Error;

    /// Says that nothing has moved for too long, and what it waits for.
    fn stalled(&self) -> ConnectorError;

    /// Ends the session so that it can take leave of its server. It is the last call, and has
    /// [`Limits::abort`](crate::Limits::abort) for it.
    fn close(self: Box<Self>);
}

/// A source, with one reader at most.
pub trait SourceSession: Session {
    /// What the connector is and takes.
    fn describe(&mut self) -> Result<Spec>;

    /// Takes a configuration object as JSON. The other calls come after it.
    fn open(&mut self, config: &str) -> Result<()>;

    /// Looks at everything a run would need.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// What can be read.
    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>>;

    /// Fixes one moment for all streams.
    fn snapshot(&mut self, streams: &[Selection]) -> Result<String>;

    /// Begins to read; gives the `Schema` message of the batches to come.
    fn read(&mut self, request: &ReadRequest) -> Result<Vec<u8>>;

    /// The next event of the read.
    fn next(&mut self, wait_ms: u32) -> Result<Event>;

    /// Ends a read whose end was given. True if the session can read another stream.
    fn finish(&mut self) -> bool;

    /// The destination holds everything up to the cursor.
    fn acknowledge(&mut self, stream: &str, cursor: &str) -> Result<()>;
}

/// A destination, with one writer at most.
pub trait DestinationSession: Session {
    /// What the connector is and takes.
    fn describe(&mut self) -> Result<Spec>;

    /// Takes a configuration object as JSON. The other calls come after it.
    fn open(&mut self, config: &str) -> Result<()>;

    /// Looks at everything a run would need.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// What a run would do.
    fn plan(&mut self, target: &Target) -> Result<Plan>;

    /// How far a stream is; none when no run was ever let in. Epoch 0: no run ever is, because the destination does not
    /// fence this target.
    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>>;

    /// The runs of the pipeline that are at work, as far as the destination knows.
    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>>;

    /// Records that a run is at work. True if that is to be done again every few seconds.
    fn beat(&mut self, presence: &Presence) -> Result<bool>;

    /// Lets the run in and shuts out older runs of the stream.
    fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress>;

    /// Begins to write rows that come behind `cursor`.
    fn open_writer(&mut self, target: &Target, epoch: u64, cursor: Option<&String>) -> Result<()>;

    /// Hands over one batch.
    fn write(&mut self, batch: &Batch) -> Result<()>;

    /// Ends a part.
    fn flush(&mut self) -> Result<Part>;

    /// Makes the parts visible and moves the cursor; `complete` goes with a run's last commit.
    fn commit(
        &mut self,
        stream: &str,
        parts: &[Part],
        seq: u64,
        cursor: Option<&String>,
        complete: bool,
    ) -> Result<Receipt>;

    /// Ends the writing of a stream that is committed as a whole. True if the session can write
    /// another stream.
    fn finish(&mut self) -> bool;

    /// Gives up everything that is not committed. It is the last call, and has
    /// [`Limits::abort`](crate::Limits::abort) for it.
    fn abort(&mut self, stream: &str) -> Result<()>;
}
