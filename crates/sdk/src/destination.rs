//! The destination side: the traits an author implements, what drives them, and their export.

mod export;
mod session;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_wire::ipc;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    CheckItem, DroppedColumn, Error, NewColumn, Part, Plan, Presence, Progress, Receipt,
    RenamedColumn, Result, Run, SchemaChanges, Spec, Target, TypeChange, Worker, WriteMode, config,
};

#[doc(hidden)]
pub use export::DestinationExport;
pub use session::{Loading, Session};

/// The field of the spec that allows several streams in a load.
const TOGETHER: &str = "commits-together";

/// Where rows go.
///
/// A run calls `plan` and [`Destination::begin`] for each stream. The [`Load`] that `begin` returns owns
/// everything that belongs to the stream. A [`Session`] drives the destination, as the host does. A [`Loading`]
/// drives the load: it counts rows and commits, and rejects calls in the wrong order.
pub trait Destination: Sized + 'static {
    /// As for a source; a key that names a file to write carries `"x-grant" = "write"`.
    type Config: DeserializeOwned + JsonSchema;
    /// Writes one stream.
    type Load: Load;
    /// `dest-` and the system's name.
    const NAME: &'static str;
    /// Usually `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;
    /// One sentence.
    const DESCRIPTION: &'static str;
    /// How rows can be written.
    const WRITE_MODES: &'static [WriteMode];
    /// Systems whose native value forms it takes.
    const NATIVE_FORMS: &'static [&'static str] = &[];
    /// Whether it commits a cursor together with the rows, so that a stream can be resumed. Without it a stream has one
    /// commit, without a cursor, behind its last row.
    const SUPPORTS_CHECKPOINTS: bool = false;
    /// Whether it appends rows that come again once only, see `Target::dedup_fields`.
    const DEDUPLICATES_APPENDS: bool = false;
    /// Whether [`Target::name`] is understood: the name that the operator chose for the target.
    const NAMES_TARGETS: bool = false;
    /// Whether [`Target::namespace`] is understood: the schema that the operator chose for the target.
    const HAS_NAMESPACES: bool = false;

    /// Checks the configuration. Connects to nothing yet.
    fn open(config: Self::Config) -> Result<Self>;

    /// Checks everything a run would need and changes nothing.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// Plans a run. Changes nothing.
    fn plan(&mut self, target: &Target) -> Result<Plan>;

    /// How far a stream is; none if no run has fenced yet. Changes nothing. Only a destination with
    /// [`Destination::SUPPORTS_CHECKPOINTS`] has an answer. For a target whose older runs it does not fence, the
    /// answer is epoch 0, see [`Progress::unfenced`].
    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let _ = (target, pipeline);
        Ok(None)
    }

    /// The runs of the pipeline that are at work. Changes nothing. Only a destination that can tell a
    /// living run from a dead one has an answer.
    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let _ = pipeline;
        Ok(Vec::new())
    }

    /// Records that a run is at work, for [`Destination::working`] of other runs. True: the host calls it
    /// again every few seconds, from a session of its own, until the run ends. Only a destination that
    /// cannot see a living run otherwise needs it.
    fn beat(&mut self, presence: &Presence) -> Result<bool> {
        let _ = presence;
        Ok(false)
    }

    /// Begins the load of a stream. With [`Destination::SUPPORTS_CHECKPOINTS`] this fences older runs, and the progress
    /// says how far the stream is; otherwise it is [`Progress::unfenced`].
    fn begin(&mut self, target: &Target, run: &Run) -> Result<(Self::Load, Progress)>;
}

/// One stream of a run, until the run has committed everything. Nothing is visible before [`Load::commit`].
///
/// After an error only [`Load::abort`] is called.
pub trait Load: Sized + 'static {
    /// Prepares for rows behind `cursor`. Called once, before the first row. Not called for a commit that only moves
    /// the cursor.
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        let _ = cursor;
        Ok(())
    }

    /// The statements that changed the columns of the target since the load began, for the report. Called after
    /// [`Load::open_writer`].
    fn schema_changes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes one batch of the target's schema.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Ends a part: what was written so far can be committed.
    fn flush(&mut self) -> Result<Part>;

    /// Makes the parts visible and moves the cursor, both or neither. The parts have all rows since the last commit,
    /// and `seq` is the number of the next one. The load is dropped after a commit that is `complete`.
    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt>;

    /// Gives up everything that is not committed. By default dropping the load does that.
    fn abort(self) -> Result<()> {
        Ok(())
    }
}

/// A commit: rows and a cursor that become visible in one step.
#[derive(Debug)]
pub struct Commit<'a> {
    /// Of this stream.
    pub stream: &'a str,
    /// Everything that was flushed since the last commit. Empty for a load without a writer: the commit
    /// moves the cursor alone.
    pub parts: Vec<Part>,
    /// Commits of the stream so far.
    pub seq: u64,
    /// Where to resume afterwards.
    pub cursor: Option<&'a str>,
    /// The run's last commit of the stream.
    pub complete: bool,
}

impl<'a> Commit<'a> {
    /// The one commit of a stream that is written as a whole.
    pub fn whole(stream: &'a str, parts: Vec<Part>) -> Self {
        Self {
            stream,
            parts,
            seq: 0,
            cursor: None,
            complete: true,
        }
    }

    /// Rows of the parts.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }
}

impl Default for SchemaChanges {
    /// New columns are added, renamed ones are renamed, others stay, and types are widened where no stored row changes.
    fn default() -> Self {
        Self {
            new_column: NewColumn::Add,
            dropped_column: DroppedColumn::Keep,
            type_change: TypeChange::Widen,
            renamed: RenamedColumn::Detect,
        }
    }
}

impl Progress {
    /// The progress of a target that the destination replaces or appends to as a whole: it fences no run, and stores no
    /// cursor.
    pub fn unfenced(run_id: impl Into<String>) -> Self {
        Self {
            epoch: 0,
            seq: 0,
            cursor: None,
            run_id: run_id.into(),
            complete: false,
            lost_rows: None,
        }
    }
}

/// The streams that own the places of a session, such as tables: two streams in one place would overwrite each other.
#[derive(Debug, Default)]
pub struct Owners(RefCell<BTreeMap<String, String>>);

impl Owners {
    /// Gives a place to the stream. Errors: `shared_target` if another stream owns it; `shown` is the place in the
    /// message.
    pub fn take(&self, place: String, stream: &str, shown: impl fmt::Display) -> Result<()> {
        let mut owners = self.0.borrow_mut();
        let owner = owners.entry(place).or_insert_with(|| stream.to_owned());
        if owner == stream {
            return Ok(());
        }
        let text = format!("{owner} and {stream} would both be written to {shown}");
        Err(Error::config("shared_target", text).in_stream(stream))
    }
}

impl Target {
    /// The schema of the batches to come.
    pub fn arrow_schema(&self) -> Result<SchemaRef> {
        Ok(Arc::new(ipc::decode_schema(&self.schema)?))
    }
}

/// The specification of a [`Destination`], from its constants.
pub fn spec<D: Destination>() -> Spec {
    Spec {
        name: D::NAME.into(),
        version: D::VERSION.into(),
        description: D::DESCRIPTION.into(),
        config_schema: config::schema::<D::Config>(),
        sync_modes: Vec::new(),
        write_modes: D::WRITE_MODES.to_vec(),
        native_forms: D::NATIVE_FORMS.iter().map(|s| (*s).into()).collect(),
        supports_filter: false,
        supports_queries: false,
        supports_checkpoints: D::SUPPORTS_CHECKPOINTS,
        deduplicates_appends: D::DEDUPLICATES_APPENDS,
        reads_together: false,
        commits_together: false,
        names_targets: D::NAMES_TARGETS,
        has_namespaces: D::HAS_NAMESPACES,
    }
}

/// Opens a destination from its configuration as JSON, as the host does.
pub fn open<D: Destination>(config: &str) -> Result<Session<D>> {
    Ok(Session::new(D::open(config::parse(config)?)?))
}

/// Exports a [`Destination`] as this crate's connector. Natively it expands to nothing that runs.
#[macro_export]
macro_rules! export_destination {
    ($destination:ty) => {
        // A native linker does not take the exported names as symbols.
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Export = $crate::destination::DestinationExport<$destination>;
            $crate::bindings::destination_world::export_destination_world!(
                Export with_types_in $crate::bindings::destination_world
            );
        };
    };
}
