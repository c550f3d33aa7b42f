//! One read.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_sdk::bindings::exports_source::{Batch, Event};
use rapidbyte_sdk::ipc::Encoder;
use rapidbyte_sdk::prelude::{
    ArrayRef, DataType, Error, Field, Int64Array, ReadRequest, RecordBatch, Result, Schema,
    SchemaRef, StringArray,
};

use crate::{Config, Deed};

/// About what a row has, in bytes.
const ROW_BYTES: u32 = 120;

/// The rows that are left.
pub struct Rows {
    config: Config,
    /// Of the batches to come.
    pub schema: SchemaRef,
    encoder: Encoder,
    next: u64,
    batch_rows: u64,
    increments: bool,
    /// A checkpoint is due before the next batch.
    is_due: bool,
    gave_checkpoint: bool,
    ended: bool,
    hoard: Vec<Vec<u8>>,
}

/// The columns, as they are discovered or read.
pub fn schema(deed: Deed, is_read: bool) -> Schema {
    let null = deed == Deed::ReadsOtherSchema && is_read;
    Schema::new(vec![
        Field::new("n", DataType::Int64, null),
        Field::new("t", DataType::Utf8, false),
    ])
}

impl Rows {
    /// Begins to read; the stream is known.
    pub fn new(config: Config, request: &ReadRequest) -> Result<Self> {
        let deed = config.deed;
        let all = schema(deed, true);
        let mut fields = Vec::new();
        for name in request.columns.iter().flatten() {
            match all.field_with_name(name) {
                Ok(field) => fields.push(field.clone()),
                Err(_) if deed == Deed::TakesAnyColumn || deed == Deed::IgnoresColumns => {}
                Err(error) => return Err(Error::schema("unknown_column", error)),
            }
        }
        if deed == Deed::IgnoresColumns && !fields.is_empty() {
            fields = all
                .fields()
                .iter()
                .map(|field| field.as_ref().clone())
                .collect();
        } else if deed == Deed::IgnoresColumns && request.columns.is_some() {
            return Err(Error::schema("unknown_column", "no such column"));
        }
        let schema = match request.columns {
            Some(_) => Arc::new(Schema::new(fields)),
            None => Arc::new(all),
        };
        let batch_rows = match deed {
            Deed::GivesOneBatch => u64::MAX,
            _ => u64::from(request.batch_bytes / ROW_BYTES).max(1),
        };
        Ok(Self {
            next: begin(&config, request)?,
            encoder: Encoder::new(&schema)?,
            schema,
            batch_rows,
            increments: request.increment.is_some(),
            is_due: request.increment.is_some(),
            gave_checkpoint: false,
            ended: false,
            hoard: Vec::new(),
            config,
        })
    }

    /// The next event.
    pub fn next(&mut self) -> Result<Event> {
        let deed = self.config.deed;
        match deed {
            Deed::Panics => panic!("wrong: a panic on purpose"),
            Deed::Spins => return Ok(Event::Idle),
            Deed::Hoards => loop {
                self.hoard.push(std::hint::black_box(vec![1; 1 << 20]));
            },
            Deed::FailsInTheMiddle if self.next > 0 => {
                return Err(Error::data("bad_row", format!("row {} is bad", self.next)));
            }
            _ => {}
        }
        let is_last = self.next >= self.config.rows;
        let forgets = deed == Deed::ForgetsLastCheckpoint && is_last;
        let unasked = deed == Deed::GivesCheckpoint && is_last && !self.gave_checkpoint;
        if (self.is_due && !forgets) || unasked {
            self.is_due = false;
            self.gave_checkpoint = true;
            return Ok(Event::Checkpoint(format!("{{\"n\":{}}}", self.next)));
        }
        if is_last {
            return self.end();
        }
        self.is_due = self.increments;
        let until = self
            .next
            .saturating_add(self.batch_rows)
            .min(self.config.rows);
        let batch = self.batch(self.next..until)?;
        self.next = until;
        Ok(Event::Batch(batch))
    }

    fn end(&mut self) -> Result<Event> {
        if self.config.deed == Deed::LeavesALock {
            self.config.remove_state()?;
        }
        if self.config.deed == Deed::GoesOnBehindEnd && self.ended {
            return Ok(Event::Batch(self.batch(0..1)?));
        }
        self.ended = true;
        Ok(Event::End)
    }

    fn batch(&mut self, rows: std::ops::Range<u64>) -> Result<Batch> {
        let deed = self.config.deed;
        let shift = match deed {
            Deed::MakesUpValues => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                now.map_or(0, |since| since.as_nanos() as u64 % 1_000_000_007)
            }
            _ => 0,
        };
        let last = self.config.rows.saturating_sub(1);
        let numbers = rows.clone().map(|n| match deed {
            Deed::CountsBackwards => (last - n) as i64,
            _ => (n + shift) as i64,
        });
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let texts = rows
            .clone()
            .map(|n| format!("row number {:>80}", n + shift));
        let t: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let fields = self.schema.fields().iter();
        let arrays: Vec<ArrayRef> = fields
            .map(|field| {
                if field.name() == "n" {
                    n.clone()
                } else {
                    t.clone()
                }
            })
            .collect();
        let count = rows.end - rows.start;
        if deed == Deed::GivesNulls {
            return self.with_null(&n, &t, count);
        }
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        Ok(Batch {
            data: self.encoder.encode(&batch)?,
            rows: count + u64::from(deed == Deed::MiscountsRows),
        })
    }

    /// A batch with a NULL in `n`, encoded under a schema that allows it.
    fn with_null(&self, n: &ArrayRef, t: &ArrayRef, rows: u64) -> Result<Batch> {
        let nulls = (0..n.len() as i64).map(|at| (at > 0).then_some(at));
        let n: ArrayRef = Arc::new(nulls.collect::<Int64Array>());
        let columns = [("n", n, true), ("t", t.clone(), false)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
        let data = Encoder::new(&batch.schema())?.encode(&batch)?;
        Ok(Batch { data, rows })
    }
}

/// The first row.
fn begin(config: &Config, request: &ReadRequest) -> Result<u64> {
    let Some(cursor) = &request.cursor else {
        return Ok(0);
    };
    let parsed: Option<serde_json::Value> = serde_json::from_str(cursor).ok();
    let at = parsed.and_then(|cursor| cursor["n"].as_u64());
    match (at, config.deed) {
        (Some(at), Deed::RepeatsARow) => Ok(at.saturating_sub(1)),
        (Some(at), _) => Ok(at),
        (None, Deed::TakesAnyCursor) => Ok(0),
        (None, _) => Err(Error::config(
            "cursor_unreadable",
            "it is no cursor of this source",
        )),
    }
}
