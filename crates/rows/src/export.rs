//! The component: `rapidbyte:rows/encode` by [`crate::Encoder`].
#![allow(missing_docs)]

use std::cell::RefCell;

use rapidbyte_formats::Owner;

use crate::Refusal;

wit_bindgen::generate!({
    path: ["../../wit", "wit"],
    world: "rapidbyte:rows/rows",
    generate_all,
});

use exports::rapidbyte::rows::encode::{Batch, Encoder, Error, Guest, GuestEncoder};
use rapidbyte::connector::types::ErrorKind;

struct Component;

/// One read of a stream.
pub struct Reading(RefCell<crate::Encoder>);

impl Guest for Component {
    type Encoder = Reading;
}

impl GuestEncoder for Reading {
    fn open(
        columns: String,
        wanted: Option<Vec<String>>,
        max_record_bytes: u64,
    ) -> Result<Encoder, Error> {
        let encoder = crate::Encoder::new(&columns, wanted.as_deref(), max_record_bytes)?;
        Ok(Encoder::new(Self(RefCell::new(encoder))))
    }

    fn schema(&self) -> Vec<u8> {
        self.0.borrow().schema_message().to_vec()
    }

    fn types(&self) -> Vec<String> {
        self.0.borrow().types()
    }

    fn rows(&self, lines: Vec<u8>) -> Result<Batch, Error> {
        self.batch(|encoder| encoder.rows(&lines))
    }

    fn columns(&self, columns: Vec<Vec<u8>>) -> Result<Batch, Error> {
        self.batch(|encoder| encoder.columns(&columns))
    }

    fn rows_text(&self, lines: String) -> Result<Batch, Error> {
        self.batch(|encoder| encoder.rows(lines.as_bytes()))
    }

    fn columns_text(&self, columns: Vec<String>) -> Result<Batch, Error> {
        self.batch(|encoder| encoder.columns(&columns))
    }
}

impl Reading {
    fn batch(
        &self,
        encode: impl FnOnce(&mut crate::Encoder) -> Result<crate::Encoded, Refusal>,
    ) -> Result<Batch, Error> {
        let crate::Encoded { data, rows } = encode(&mut self.0.borrow_mut())?;
        Ok(Batch { data, rows })
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.owner {
            Owner::Config => ErrorKind::Config,
            Owner::Schema => ErrorKind::Schema,
            Owner::Data => ErrorKind::Data,
            Owner::Internal => ErrorKind::Internal,
        };
        Self {
            kind,
            code: refusal.code.into(),
            message: refusal.message,
            hint: refusal.hint,
            stream: None,
            column: refusal.column,
            location: refusal.row.map(|row| format!("row {row}")),
        }
    }
}

export!(Component);
