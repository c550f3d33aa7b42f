//! Runs connectors: a `.wasm` file becomes a typed, limited, sandboxed instance.
//!
//! [`Runtime::load`] checks that a file is a component of a world the host knows, compiles it
//! ahead of time into the [`cache`] and gives a [`Connector`]. [`Connector::source`],
//! [`Connector::transform`] and [`Connector::destination`] instantiate it with a [`Sandbox`]: its
//! grants, its limits of memory and time, its clock and the token that cancels it.
//!
//! The crate owns everything that names wasmtime. It does not know pipeline files or connectors, and
//! it does not read the values of a batch: it checks a batch's header and passes the bytes on.

mod bindings;
pub mod cache;
mod cancel;
mod checked;
mod clock;
mod cursors;
mod digested;
mod ended;
mod error;
pub mod fault;
mod functions;
mod grants;
mod host;
mod limits;
mod load;
mod native;
pub mod owner;
pub mod regular;
mod session;
mod state;
mod virtual_folder;
mod wasm;

pub use bindings::destination::{
    ColumnPlan, DeleteAction, Deletes, DroppedColumn, Fit, KeptReject, LoadRequest, NewColumn,
    Part, Plan, Presence, Progress, Receipt, Refused, Rejects, RenamedColumn, Repair,
    SchemaChanges, StreamCommit, Target, TypeChange, Worker,
};
pub use bindings::source::{Change, Event, Increment, LateRows, Position, ReadRequest, Selection};
pub use bindings::transform::{Plan as TransformPlan, Relation};
pub use bindings::types::{
    Batch, CheckItem, Error as ConnectorError, ErrorKind, Reject, RejectOrigin,
};
pub use bindings::types::{Bucket, Buckets, ChosenRows, DigestedRow, KeyedRows, RowLimit};
pub use bindings::types::{Run, Spec, Stream, SyncMode, WriteMode};
pub use cancel::{Cancel, Registration};
pub use checked::{Destination, Source, Standing, Transform};
pub use clock::{Clock, Phase};
pub use digested::Digested;
pub use error::Error;
pub use grants::permissions::{Limit, Permissions};
pub use grants::{Grants, ReadFiles, unmarked_tls};
pub use host::log::{Level, LogSink};
pub use limits::{Begun, Limits, Lookups, MemoryBudget, RunMemory, Said};
pub use load::{CONTRACT, Connector, Embedded, Kind, Loaded, Origin, Runtime};
pub use native::{
    NO_SETTINGS, Native, NativeConnector, NativeSession, broken, no_settings, record_too_large,
};
pub use session::{DestinationSession, Digests, Session, SourceSession, TransformSession};
pub use state::{Redact, Sandbox, no_secrets};
pub use virtual_folder::{VirtualFile, VirtualFolder};

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;
