//! Writes one stream: batches become columns for the script.

use std::cell::RefCell;
use std::rc::Rc;

use rapidbyte_rows::{Decoder, REPORT, Refusal};

use crate::part::bindings::rapidbyte::connector::phase::{self, Kind};
use crate::part::contract::{Batch, GuestWriter, Part, Refused, Reject, RejectOrigin};
use crate::part::script;
use crate::part::{Error, refused};

/// A stream that the script writes, and what came since the last part.
pub struct Begun {
    pub script: script::Writer,
    rows: u64,
    bytes: u64,
}

impl Begun {
    pub fn new(script: script::Writer) -> Self {
        Self {
            script,
            rows: 0,
            bytes: 0,
        }
    }

    fn write(&mut self, rows: u64, columns: &[Vec<u8>]) -> Result<(), Error> {
        self.script.write(rows, columns)?;
        self.rows += rows;
        self.bytes += columns.iter().map(|text| text.len() as u64).sum::<u64>();
        Ok(())
    }
}

/// Until it is committed or given up. The load commits what the writer wrote.
pub type Open = Rc<RefCell<Option<Begun>>>;

/// Writes one stream.
pub struct Writer {
    stream: String,
    open: Open,
    decoder: RefCell<Decoder>,
}

impl Writer {
    pub fn new(stream: String, open: Open, decoder: Decoder) -> Self {
        let decoder = RefCell::new(decoder);
        Self {
            stream,
            open,
            decoder,
        }
    }

    /// Does something to the stream, which was not given up.
    fn with<T>(&self, work: impl FnOnce(&mut Begun) -> Result<T, Error>) -> Result<T, Error> {
        match &mut *self.open.borrow_mut() {
            Some(begun) => work(begun),
            None => {
                let refusal = Refusal::internal("nothing_begun", "the stream was aborted");
                Err(refused(refusal.hint(REPORT), &self.stream))
            }
        }
    }
}

impl GuestWriter for Writer {
    fn write(&self, batch: Batch) -> Result<(), Error> {
        let refused = |refusal| refused(refusal, &self.stream);
        let mut decoder = self.decoder.borrow_mut();
        phase::enter(Kind::ArrowDecode);
        let pieces = decoder.pieces(batch.data, batch.rows).map_err(refused)?;
        self.with(|begun| {
            for piece in pieces {
                phase::enter(Kind::ArrowDecode);
                let columns = decoder.columns(&piece).map_err(refused)?;
                phase::enter(Kind::Encode);
                begun.write(piece.rows(), &columns)?;
            }
            Ok(())
        })
    }

    /// The host does not ask: the connector does not support rejects.
    fn reject(&self, _: RejectOrigin, _: Vec<Reject>) -> Result<(), Error> {
        Ok(())
    }

    fn refused(&self) -> Refused {
        Refused {
            rows: 0,
            first: Vec::new(),
        }
    }

    fn flush(&self) -> Result<Part, Error> {
        self.with(|begun| {
            Ok(Part {
                data: Vec::new(),
                rows: std::mem::take(&mut begun.rows),
                bytes: std::mem::take(&mut begun.bytes),
            })
        })
    }
}
