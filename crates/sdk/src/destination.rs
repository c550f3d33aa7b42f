//! The destination side: the traits an author implements, and their export.

use std::cell::RefCell;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_wire::ipc;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::bindings::exports_destination as wit;
use crate::phase::{self, Kind};
use crate::{
    CheckItem, Error, Part, Plan, Presence, Progress, Receipt, Result, Run, Spec, Target, Worker,
    WriteMode, config,
};

/// Where rows go.
///
/// The host calls, for each stream: `plan`, `fence`, `open_writer`, then `write` and `flush` on
/// the writer, then `commit` with the parts, and so on until a commit is the last one; or `abort`,
/// after which nothing may be left that is not committed.
pub trait Destination: Sized + 'static {
    /// As for a source; a key that names a file to write carries `"x-grant" = "write"`.
    type Config: DeserializeOwned + JsonSchema;
    /// Writes one stream.
    type Writer: Writer;
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
    /// Whether it commits a cursor together with the rows, so that a stream can be gone on with.
    const SUPPORTS_CHECKPOINTS: bool = false;
    /// Whether it appends rows that come again once only, see `Target::dedup_fields`.
    const DEDUPLICATES_APPENDS: bool = false;

    /// Checks the configuration. Connects to nothing yet.
    fn open(config: Self::Config) -> Result<Self>;

    /// Looks at everything a run would need and changes nothing.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// What a run would do. Changes nothing.
    fn plan(&mut self, target: &Target) -> Result<Plan>;

    /// How far a stream is; none when no run was ever let in. Changes nothing. Only a destination
    /// that says [`Destination::SUPPORTS_CHECKPOINTS`] has an answer. For a target of which it does not fence older runs, the
    /// answer is epoch 0, as from [`Destination::fence`].
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

    /// Lets a run in, shuts out older ones and says how far the stream is.
    fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress> {
        let _ = target;
        Ok(Progress {
            epoch: 0,
            seq: 0,
            cursor: None,
            run_id: run.id.clone(),
            complete: false,
            lost_rows: None,
        })
    }

    /// Begins to write rows that come behind `cursor`. Nothing becomes visible before
    /// [`Destination::commit`].
    fn open_writer(
        &mut self,
        target: &Target,
        epoch: u64,
        cursor: Option<&str>,
    ) -> Result<Self::Writer>;

    /// Makes the parts visible and moves the cursor, both or neither.
    fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt>;

    /// Gives up everything that is not committed.
    fn abort(&mut self, stream: &str) -> Result<()>;
}

/// What is to become visible in one step.
#[derive(Debug)]
pub struct Commit<'a> {
    /// Of this stream.
    pub stream: &'a str,
    /// Everything that was flushed since the last commit. None, without a writer: the cursor
    /// alone is moved.
    pub parts: Vec<Part>,
    /// Commits of the stream so far; another number means that another run has committed.
    pub seq: u64,
    /// Where to go on from afterwards.
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

/// Writes one stream.
pub trait Writer: 'static {
    /// Takes one batch of the target's schema.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Ends a part: what was written so far can be committed.
    fn flush(&mut self) -> Result<Part>;
}

impl Target {
    /// The schema of the batches to come.
    pub fn arrow_schema(&self) -> Result<SchemaRef> {
        Ok(Arc::new(ipc::decode_schema(&self.schema)?))
    }
}

/// What a [`Destination`] says of itself.
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
        supports_checkpoints: D::SUPPORTS_CHECKPOINTS,
        deduplicates_appends: D::DEDUPLICATES_APPENDS,
    }
}

/// Opens a destination from its configuration as JSON, as the host does.
pub fn open<D: Destination>(config: &str) -> Result<D> {
    D::open(config::parse(config)?)
}

/// The exported form of a [`Destination`].
#[doc(hidden)]
pub struct DestinationExport<D>(std::marker::PhantomData<D>);
#[doc(hidden)]
pub struct SessionExport<D>(RefCell<D>);
#[doc(hidden)]
pub struct WriterExport<W>(RefCell<(W, ipc::Decoder)>);

impl<D: Destination> wit::Guest for DestinationExport<D> {
    type Session = SessionExport<D>;
    type Writer = WriterExport<D::Writer>;

    fn describe() -> Spec {
        spec::<D>()
    }

    fn open(config: String) -> Result<wit::Session> {
        let destination = D::open(config::parse(&config)?)?;
        Ok(wit::Session::new(SessionExport(RefCell::new(destination))))
    }
}

impl<D: Destination> wit::GuestSession for SessionExport<D> {
    fn check(&self) -> Result<Vec<CheckItem>> {
        self.0.borrow_mut().check()
    }

    fn plan(&self, target: Target) -> Result<Plan> {
        self.0.borrow_mut().plan(&target)
    }

    fn progress(&self, target: Target, pipeline: String) -> Result<Option<Progress>> {
        self.0.borrow_mut().progress(&target, &pipeline)
    }

    fn working(&self, pipeline: String) -> Result<Vec<Worker>> {
        self.0.borrow_mut().working(&pipeline)
    }

    fn beat(&self, presence: Presence) -> Result<bool> {
        self.0.borrow_mut().beat(&presence)
    }

    fn fence(&self, target: Target, run: Run) -> Result<Progress> {
        self.0.borrow_mut().fence(&target, &run)
    }

    fn open_writer(
        &self,
        target: Target,
        epoch: u64,
        cursor: Option<String>,
    ) -> Result<wit::Writer> {
        let decoder = ipc::Decoder::new(&target.schema)?;
        let mut session = self.0.borrow_mut();
        let writer = session.open_writer(&target, epoch, cursor.as_deref())?;
        Ok(wit::Writer::new(WriterExport(RefCell::new((
            writer, decoder,
        )))))
    }

    fn commit(
        &self,
        stream: String,
        parts: Vec<Part>,
        seq: u64,
        cursor: Option<String>,
        complete: bool,
    ) -> Result<Receipt> {
        self.0.borrow_mut().commit(Commit {
            stream: &stream,
            parts,
            seq,
            cursor: cursor.as_deref(),
            complete,
        })
    }

    fn abort(&self, stream: String) -> Result<()> {
        self.0.borrow_mut().abort(&stream)
    }
}

impl<W: Writer> wit::GuestWriter for WriterExport<W> {
    fn write(&self, batch: wit::Batch) -> Result<()> {
        let (writer, decoder) = &mut *self.0.borrow_mut();
        let decoded = {
            let _phase = phase::enter(Kind::ArrowDecode);
            decoder.decode(batch.data)?
        };
        if decoded.num_rows() as u64 != batch.rows {
            return Err(Error::internal(
                "the batch has another number of rows than announced",
            ));
        }
        writer.write(&decoded)
    }

    fn flush(&self) -> Result<Part> {
        self.0.borrow_mut().0.flush()
    }
}

/// Exports a [`Destination`] as this crate's connector. Natively it expands to nothing that runs.
#[macro_export]
macro_rules! export_destination {
    ($destination:ty) => {
        // The exported names are no symbols that a native linker takes.
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Export = $crate::destination::DestinationExport<$destination>;
            $crate::bindings::destination_world::export_destination_world!(
                Export with_types_in $crate::bindings::destination_world
            );
        };
    };
}
