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
    Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, DroppedColumn, Error, KeptReject,
    NewColumn, Part, Plan, Presence, Progress, Receipt, Refused, Reject, RejectOrigin,
    RenamedColumn, Result, RowLimit, Run, SchemaChanges, Spec, Target, TypeChange, Worker,
    WriteMode, config,
};

#[doc(hidden)]
pub use export::DestinationExport;
pub use session::{Loading, Session};

/// The field of the spec that allows several streams in a load.
const TOGETHER: &str = "commits-together";
const NO_DIGESTS: &str = "the destination does not digest rows";
const NO_KEYS: &str = "the destination does not compare keys";

/// Where rows go.
///
/// A run calls `plan` and [`Destination::begin`] for each stream. The [`Load`] that `begin` returns owns
/// everything that belongs to the stream. A [`Session`] drives the destination, as the host does. A [`Loading`]
/// drives the load: it counts rows and commits, and rejects calls in the wrong order.
pub trait Destination: Sized + 'static {
    /// As for a source; a key that names a file to write carries `"x-grant" = "write"`. With `"x-plans-again"`, a session
    /// can plan and begin again after a load that is complete, and looks at the target again when it plans or begins. A
    /// connection that broke meanwhile is an error of `plan`, or `begin` opens another one.
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
    /// Whether it keeps rows that it cannot store in a place of their own, see `Target::rejects`.
    const SUPPORTS_REJECTS: bool = false;
    /// Whether it deletes or marks rows whose keys the source does not have, see `Target::deletes` and
    /// [`Load::open_keys`].
    const COMPARES_KEYS: bool = false;
    /// Whether [`Target::name`] is understood: the name that the operator chose for the target.
    const NAMES_TARGETS: bool = false;
    /// Whether [`Target::namespace`] is understood: the schema that the operator chose for the target.
    const HAS_NAMESPACES: bool = false;
    /// The forms of digests that it computes: see [`Destination::digest`].
    const DIGEST_FORMS: &'static [&'static str] = &[];

    /// Checks the configuration. Connects to nothing yet.
    fn open(config: Self::Config) -> Result<Self>;

    /// Checks everything a run would need and changes nothing.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// Plans a run. Changes nothing.
    fn plan(&mut self, target: &Target) -> Result<Plan>;

    /// How far a stream is. `None` if no run has fenced yet. Changes nothing. Only a destination with
    /// [`Destination::SUPPORTS_CHECKPOINTS`] has an answer. For a target whose older runs it does not fence, the
    /// answer is epoch 0, see [`Progress::unfenced`].
    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let _ = (target, pipeline);
        Ok(None)
    }

    /// How the rows of the target are digested, in one of `forms`: a text that only connectors with that form read.
    /// Refuse a target whose columns a run would change. Called only with [`Destination::DIGEST_FORMS`].
    fn digest_recipe(&mut self, target: &Target, forms: &[String]) -> Result<String> {
        let _ = (target, forms);
        Err(Error::internal(NO_DIGESTS))
    }

    /// Digests the rows of the target as they are now, and returns the sums of their buckets. Called only with
    /// [`Destination::DIGEST_FORMS`].
    fn digest(
        &mut self,
        target: &Target,
        recipe: &str,
        limits: &[RowLimit],
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let _ = (target, recipe, limits, within, bits);
        Err(Error::internal(NO_DIGESTS))
    }

    /// Digests rows one by one: at most `max` of them. Called only with [`Destination::DIGEST_FORMS`].
    fn digest_rows(
        &mut self,
        target: &Target,
        recipe: &str,
        limits: &[RowLimit],
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let _ = (target, recipe, limits, rows, max);
        Err(Error::internal(NO_DIGESTS))
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

    /// The rejects of the pipeline that are kept in the place `to`, after the reject with the id `after`: a page of at
    /// most 1,000 and about one MiB. Empty: no more are kept. Changes nothing. Only a destination with
    /// [`Destination::SUPPORTS_REJECTS`] has an answer.
    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&str>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let _ = (to, pipeline, after, with_data);
        Ok(Vec::new())
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

    /// Takes one batch of the target's schema. Where `Target::rejects` is set, a row that cannot be stored is kept there
    /// and counted in [`Load::refused`].
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Keeps rejects of the stages before in the place that `Target::rejects` names. Only a destination with
    /// [`Destination::SUPPORTS_REJECTS`] is asked.
    fn reject(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        let _ = (origin, rejects);
        Err(Error::internal("the destination does not keep rejects"))
    }

    /// The rows that were refused since the last call.
    fn refused(&mut self) -> Refused {
        Refused::default()
    }

    /// Ends a part: what was written so far can be committed.
    fn flush(&mut self) -> Result<Part>;

    /// Prepares for the keys of all rows that the source has. Called once for a target with `deletes`, after the last
    /// [`Load::flush`] and before the last commit, which deletes or marks the rows whose keys did not come.
    fn open_keys(&mut self) -> Result<()> {
        Err(Error::internal(NO_KEYS))
    }

    /// Takes one batch of keys: the columns of `Target::primary_key`, see [`Target::key_schema`].
    fn write_keys(&mut self, batch: &RecordBatch) -> Result<()> {
        let _ = batch;
        Err(Error::internal(NO_KEYS))
    }

    /// Ends the keys. The part says how many came.
    fn flush_keys(&mut self) -> Result<Part> {
        Err(Error::internal(NO_KEYS))
    }

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

impl RejectOrigin {
    /// The stage as places of rejects write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Transform => "transform",
            Self::Destination => "destination",
        }
    }
}

impl Refused {
    /// Reports at most this many rejects; the others are counted.
    pub const MAX_FIRST: usize = 10;

    /// Counts a row that was refused, and keeps the reason if it is one of the first.
    pub fn add(&mut self, reject: &Reject) {
        self.rows += 1;
        if self.first.len() < Self::MAX_FIRST {
            self.first.push(Reject {
                data: Vec::new(),
                ..reject.clone()
            });
        }
    }
}

impl Default for Refused {
    /// No row.
    fn default() -> Self {
        Self {
            rows: 0,
            first: Vec::new(),
        }
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

    /// The schema of the batches of keys to come: the columns of the key, in its order.
    pub fn key_schema(&self) -> Result<SchemaRef> {
        let schema = self.arrow_schema()?;
        let places = self.primary_key.iter().map(|name| schema.index_of(name));
        let places = places.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Arc::new(schema.project(&places)?))
    }
}

/// The specification of a [`Destination`], from its constants.
pub fn spec<D: Destination>() -> Spec {
    Spec {
        write_modes: D::WRITE_MODES.to_vec(),
        native_forms: D::NATIVE_FORMS.iter().map(|s| (*s).into()).collect(),
        supports_checkpoints: D::SUPPORTS_CHECKPOINTS,
        deduplicates_appends: D::DEDUPLICATES_APPENDS,
        supports_rejects: D::SUPPORTS_REJECTS,
        compares_keys: D::COMPARES_KEYS,
        names_targets: D::NAMES_TARGETS,
        has_namespaces: D::HAS_NAMESPACES,
        digest_forms: D::DIGEST_FORMS.iter().map(|s| (*s).into()).collect(),
        ..Spec::plain(
            D::NAME,
            D::VERSION,
            D::DESCRIPTION,
            config::schema::<D::Config>(),
        )
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
