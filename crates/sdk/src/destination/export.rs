//! A destination as the contract's interface.

use std::cell::RefCell;

use rapidbyte_wire::ipc;

use super::{Commit, Destination, Session, Writer, spec};
use crate::bindings::exports_destination as wit;
use crate::{
    CheckItem, Part, Plan, Presence, Progress, Receipt, Result, Run, Spec, Target, Worker, messages,
};

/// The exported form of a [`Destination`].
#[doc(hidden)]
pub struct DestinationExport<D>(std::marker::PhantomData<D>);
#[doc(hidden)]
pub struct SessionExport<D: Destination>(RefCell<Session<D>>);
#[doc(hidden)]
pub struct WriterExport<D: Destination>(RefCell<(Writer<D>, ipc::Decoder)>);

impl<D: Destination> wit::Guest for DestinationExport<D> {
    type Session = SessionExport<D>;
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

impl<D: Destination> wit::GuestWriter for WriterExport<D> {
    fn write(&self, batch: wit::Batch) -> Result<()> {
        let (writer, decoder) = &mut *self.0.borrow_mut();
        writer.write(&messages::decode(decoder, batch)?)
    }

    fn flush(&self) -> Result<Part> {
        self.0.borrow_mut().0.flush()
    }
}
