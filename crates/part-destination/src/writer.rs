//! Writes one stream: batches become columns for the script.

use std::cell::RefCell;

use rapidbyte_rows::{Decoder, Refusal};

use crate::bindings::rapidbyte::connector::phase::{self, Kind};
use crate::contract::{Batch, GuestWriter, Part};
use crate::script;
use crate::session::Open;
use crate::{Error, refused};

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
}

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
        match self.open.borrow_mut().get_mut(&self.stream) {
            Some(begun) => work(begun),
            None => {
                let refusal = Refusal::internal("nothing_begun", "the stream was given up");
                Err(refused(refusal, &self.stream))
            }
        }
    }
}

impl GuestWriter for Writer {
    fn write(&self, batch: Batch) -> Result<(), Error> {
        phase::enter(Kind::ArrowDecode);
        let columns = self.decoder.borrow_mut().columns(batch.data, batch.rows);
        let columns = columns.map_err(|refusal| refused(refusal, &self.stream))?;
        if batch.rows == 0 {
            return Ok(());
        }
        phase::enter(Kind::Encode);
        self.with(|begun| {
            begun.script.write(batch.rows, &columns)?;
            begun.rows += batch.rows;
            begun.bytes += columns
                .iter()
                .map(|column| column.len() as u64)
                .sum::<u64>();
            Ok(())
        })
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
