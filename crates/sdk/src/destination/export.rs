//! A destination as the contract's interface.

use std::cell::RefCell;
use std::rc::Rc;

use rapidbyte_wire::{ipc, one};

use super::{Commit, Destination, Loading, Session, TOGETHER, spec};
use crate::bindings::exports_destination::{self as wit, StreamCommit};
use crate::{
    Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, Error, KeptReject, LoadRequest, Part,
    Plan, Presence, Progress, Receipt, Refused, Reject, RejectOrigin, Result, RowLimit, Spec,
    Target, Worker, messages,
};

/// The exported form of a [`Destination`].
#[doc(hidden)]
pub struct DestinationExport<D>(std::marker::PhantomData<D>);
#[doc(hidden)]
pub struct SessionExport<D>(RefCell<Session<D>>);
#[doc(hidden)]
pub struct LoadExport<D: Destination> {
    loading: Shared<D>,
    target: Target,
}
#[doc(hidden)]
pub struct WriterExport<D: Destination> {
    loading: Shared<D>,
    decoder: ipc::Decoder,
    /// It takes the keys of the source, not rows.
    takes_keys: bool,
}

/// The writer is an object of its own in the contract.
type Shared<D> = Rc<RefCell<Loading<D>>>;

impl<D: Destination> wit::Guest for DestinationExport<D> {
    type Session = SessionExport<D>;
    type Load = LoadExport<D>;
    type Writer = WriterExport<D>;

    fn describe() -> Spec {
        spec::<D>()
    }

    fn open(config: String) -> Result<wit::Session> {
        let session = super::open::<D>(&config)?;
        Ok(wit::Session::new(SessionExport(RefCell::new(session))))
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

    fn digest_recipe(&self, target: Target, forms: Vec<String>) -> Result<String> {
        self.0.borrow_mut().digest_recipe(&target, &forms)
    }

    fn digest(
        &self,
        target: Target,
        recipe: String,
        limits: Vec<RowLimit>,
        within: Option<Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let mut session = self.0.borrow_mut();
        session.digest(&target, &recipe, &limits, within.as_ref(), bits)
    }

    fn digest_rows(
        &self,
        target: Target,
        recipe: String,
        limits: Vec<RowLimit>,
        rows: ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let mut session = self.0.borrow_mut();
        session.digest_rows(&target, &recipe, &limits, &rows, max)
    }

    fn working(&self, pipeline: String) -> Result<Vec<Worker>> {
        self.0.borrow_mut().working(&pipeline)
    }

    fn beat(&self, presence: Presence) -> Result<bool> {
        self.0.borrow_mut().beat(&presence)
    }

    fn rejects(
        &self,
        to: String,
        pipeline: String,
        after: Option<String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let mut session = self.0.borrow_mut();
        session.rejects(&to, &pipeline, after.as_deref(), with_data)
    }

    fn begin(&self, requests: Vec<LoadRequest>) -> Result<wit::Load> {
        let loading = self.0.borrow_mut().begin(&requests)?;
        let LoadRequest { target, .. } = one::only(requests, TOGETHER).map_err(Error::internal)?;
        Ok(wit::Load::new(LoadExport {
            loading: Rc::new(RefCell::new(loading)),
            target,
        }))
    }
}

impl<D: Destination> LoadExport<D> {
    fn writer(&self, decoder: ipc::Decoder, takes_keys: bool) -> wit::Writer {
        wit::Writer::new(WriterExport {
            loading: Rc::clone(&self.loading),
            decoder,
            takes_keys,
        })
    }
}

impl<D: Destination> wit::GuestLoad for LoadExport<D> {
    fn progress(&self) -> Vec<Progress> {
        vec![self.loading.borrow().progress().clone()]
    }

    fn open_writer(&self, stream: u32, cursor: Option<String>) -> Result<wit::Writer> {
        one::ensure_only(stream, TOGETHER).map_err(Error::internal)?;
        let decoder = ipc::Decoder::new(&self.target.schema)?;
        self.loading.borrow_mut().open_writer(cursor.as_deref())?;
        Ok(self.writer(decoder, false))
    }

    fn open_keys(&self, stream: u32) -> Result<wit::Writer> {
        one::ensure_only(stream, TOGETHER).map_err(Error::internal)?;
        let schema = self.target.key_schema()?;
        let decoder = ipc::Decoder::new(&ipc::encode_schema(&schema)?)?;
        self.loading.borrow_mut().open_keys()?;
        Ok(self.writer(decoder, true))
    }

    fn commit(&self, commits: Vec<StreamCommit>) -> Result<Vec<Receipt>> {
        let StreamCommit {
            stream,
            parts,
            seq,
            cursor,
            complete,
        } = one::only(commits, TOGETHER).map_err(Error::internal)?;
        one::ensure_only(stream, TOGETHER).map_err(Error::internal)?;
        let mut loading = self.loading.borrow_mut();
        let stream = loading.stream().to_owned();
        let receipt = loading.commit(Commit {
            stream: &stream,
            parts,
            seq,
            cursor: cursor.as_deref(),
            complete,
        })?;
        Ok(vec![receipt])
    }

    fn schema_changes(&self, _: u32) -> Vec<String> {
        self.loading.borrow().schema_changes()
    }

    fn abort(&self) -> Result<()> {
        self.loading.borrow_mut().abort()
    }
}

impl<D: Destination> wit::GuestWriter for WriterExport<D> {
    fn write(&self, batch: wit::Batch) -> Result<()> {
        let batch = messages::decode(&self.decoder, batch)?;
        let mut loading = self.loading.borrow_mut();
        match self.takes_keys {
            true => loading.write_keys(&batch),
            false => loading.write(&batch),
        }
    }

    fn reject(&self, origin: RejectOrigin, rejects: Vec<Reject>) -> Result<()> {
        self.loading.borrow_mut().reject(origin, &rejects)
    }

    fn refused(&self) -> Refused {
        self.loading.borrow_mut().refused()
    }

    fn flush(&self) -> Result<Part> {
        let mut loading = self.loading.borrow_mut();
        match self.takes_keys {
            true => loading.flush_keys(),
            false => loading.flush(),
        }
    }
}
