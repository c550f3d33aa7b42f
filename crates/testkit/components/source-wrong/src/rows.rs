//! One read.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_sdk::bindings::exports_source::{Batch, Event, Position};
use rapidbyte_sdk::ipc::Encoder;
use rapidbyte_sdk::prelude::{
    Array, ArrayRef, Error, Field, Increment, LateRows, ReadRequest, RecordBatch, Result, Schema,
    SchemaRef, StringArray,
};

use crate::values::{self, Making};
use crate::{Config, Deed, Memory, STREAMS};

/// Where its log begins.
const LOG_BEGIN: u64 = 7_000_000;
/// About what a row has, in bytes.
const ROW_BYTES: u32 = 180;

/// The rows that are left.
pub struct Rows {
    config: Config,
    making: Making,
    memory: Memory,
    stream: String,
    /// Of the batches to come.
    pub schema: SchemaRef,
    encoder: Encoder,
    /// Places of rows: how many are before the next one, and where the read ends.
    next: u64,
    end: u64,
    batch_rows: u64,
    max_record_bytes: u64,
    increments: bool,
    /// A checkpoint is due before the next batch.
    is_due: bool,
    gave_checkpoint: bool,
    ended: bool,
    hoard: Vec<Vec<u8>>,
}

/// The columns that are read.
fn chosen(deed: Deed, request: &ReadRequest) -> Result<Schema> {
    let all = values::schema(deed, true);
    let Some(names) = &request.columns else {
        return Ok(all);
    };
    let mut fields: Vec<Field> = Vec::new();
    for name in names {
        match all.field_with_name(name) {
            Ok(field) => fields.push(field.clone()),
            Err(_) if deed == Deed::TakesAnyColumn => {}
            Err(error) => return Err(Error::schema("unknown_column", error)),
        }
    }
    let has_n = fields.iter().any(|field| field.name() == "n");
    let adds_n = match deed {
        Deed::AddsItsKey => true,
        Deed::AddsCursorField => request.increment.is_some(),
        _ => false,
    };
    if adds_n && !has_n {
        fields.push(all.field(0).clone());
    }
    if deed == Deed::SortsColumns {
        fields.sort_by_key(|field| all.index_of(field.name()).unwrap_or_default());
    }
    Ok(match deed {
        Deed::IgnoresColumns => all,
        _ => Schema::new(fields),
    })
}

impl Rows {
    /// Begins to read; the stream is known.
    pub fn new(config: Config, request: &ReadRequest, memory: Memory) -> Result<Self> {
        let deed = config.deed;
        let mut schema = chosen(deed, request)?;
        if deed == Deed::KeepsColumnsInSession {
            let mut kept = memory.columns.borrow_mut();
            let names = || schema.fields().iter().map(|f| f.name().clone()).collect();
            let columns = Some(kept.get_or_insert_with(names).clone());
            schema = chosen(
                deed,
                &ReadRequest {
                    columns,
                    ..request.clone()
                },
            )?;
        }
        let schema = Arc::new(schema);
        let batch_rows = match deed {
            Deed::GivesOneBatch => u64::MAX,
            Deed::IgnoresBatchBytes => 500,
            _ => u64::from(request.batch_bytes / ROW_BYTES).max(1),
        };
        let range = range(&config, request)?;
        let mut rows = Self {
            making: Making {
                deed,
                is_incremental: request.increment.is_some(),
                chooses_columns: request.columns.is_some(),
                shift: 0,
                cut: usize::try_from(request.max_record_bytes / 2).unwrap_or(usize::MAX),
            },
            stream: request.stream.clone(),
            encoder: Encoder::new(&schema)?,
            schema,
            next: range.start,
            end: range.end,
            batch_rows,
            max_record_bytes: request.max_record_bytes,
            increments: request.increment.is_some(),
            is_due: request.increment.is_some(),
            gave_checkpoint: false,
            ended: false,
            hoard: Vec::new(),
            config,
            memory,
        };
        if deed == Deed::GoesOnInSession {
            rows.next = rows.next.max(rows.memory.at.get()).min(rows.end);
        }
        Ok(rows)
    }

    /// The next event.
    pub fn next(&mut self) -> Result<Event> {
        let event = self.step();
        if event.is_err() && self.config.deed == Deed::LeavesALock {
            self.config.remove_state()?;
        }
        event
    }

    fn step(&mut self) -> Result<Event> {
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
        let until = self.next.saturating_add(self.batch_rows).min(self.end);
        let is_full = until - self.next == self.batch_rows;
        let is_last = match deed {
            Deed::DropsLastFullBatch => until == self.end && is_full,
            Deed::DropsLastPartialBatch => until == self.end && !is_full,
            _ => false,
        };
        if is_last {
            self.next = self.end;
        }
        let is_last = self.next >= self.end;
        let forgets = deed == Deed::ForgetsLastCheckpoint && is_last;
        let unasked = deed == Deed::GivesCheckpoint && is_last && !self.gave_checkpoint;
        if (self.is_due && !forgets) || unasked {
            self.is_due = false;
            self.gave_checkpoint = true;
            let place = match deed {
                Deed::ChecksInTooEarly => until,
                _ => self.next,
            };
            let cursor = match deed {
                Deed::ReadsALog => {
                    serde_json::json!({ "stream": self.stream, "log": LOG_BEGIN + place })
                }
                _ => serde_json::json!({ "stream": self.stream, "n": place }),
            };
            let cursor = cursor.to_string();
            return Ok(Event::Checkpoint(Position { stream: 0, cursor }));
        }
        if is_last {
            return self.end();
        }
        self.is_due = self.increments;
        let last = match deed {
            Deed::DropsRowAtBorder if is_full => until - 1,
            _ => until,
        };
        let batch = self.batch(self.next..last)?;
        self.next = match deed {
            Deed::DoublesRowAtBorder if is_full && until < self.end && self.batch_rows > 1 => {
                until - 1
            }
            _ => until,
        };
        self.memory.at.set(self.next);
        Ok(Event::Batch((0, batch)))
    }

    fn end(&mut self) -> Result<Event> {
        if self.config.deed == Deed::LeavesALock {
            self.config.remove_state()?;
        }
        if self.config.deed == Deed::GoesOnBehindEnd && self.ended {
            return Ok(Event::Batch((0, self.batch(0..1)?)));
        }
        self.ended = true;
        Ok(Event::End)
    }

    fn batch(&mut self, places: std::ops::Range<u64>) -> Result<Batch> {
        let deed = self.config.deed;
        if deed == Deed::MakesUpValues {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            self.making.shift = now.map_or(0, |since| since.as_micros() as u64);
        }
        let mut numbers: Vec<u64> = places
            .map(|place| number(&self.config, &self.stream, place))
            .collect();
        let is_long = |n: &u64| values::bytes(*n) as u64 > self.max_record_bytes;
        match deed {
            Deed::SkipsLongRecords => numbers.retain(|n| !is_long(n)),
            Deed::CutsLongRecords => {}
            _ => {
                if let Some(n) = numbers.iter().find(|n| is_long(n)) {
                    let text = format!("row {n} is larger than {} bytes", self.max_record_bytes);
                    return Err(Error::data("record_too_large", text));
                }
            }
        }
        let arrays = self.arrays(&numbers);
        let rows = numbers.len() as u64;
        if deed == Deed::GivesNulls {
            return self.with_null(arrays, rows);
        }
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        Ok(Batch {
            data: self.encoder.encode(&batch)?,
            rows: rows + u64::from(deed == Deed::MiscountsRows),
        })
    }

    fn arrays(&self, numbers: &[u64]) -> Vec<ArrayRef> {
        let all = values::schema(self.config.deed, true);
        let fields = self.schema.fields();
        let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        if self.config.deed == Deed::MixesUpColumns {
            let is_text = |name: &str| name == "t" || name == "note";
            let mut texts: Vec<&str> = names.iter().copied().filter(|n| is_text(n)).collect();
            texts.sort_by_key(|name| all.index_of(name).unwrap_or_default());
            let mut texts = texts.into_iter();
            for name in names.iter_mut().filter(|name| is_text(name)) {
                *name = texts.next().unwrap_or(name);
            }
        }
        let columns = names.iter().map(|name| self.making.column(name, numbers));
        let columns = columns.zip(fields.iter()).map(|(column, field)| {
            match column.null_count() > 0 && !field.is_nullable() {
                true => without_nulls(&column),
                false => column,
            }
        });
        columns.collect()
    }

    /// A batch with a NULL in its first column, encoded under a schema that allows it.
    fn with_null(&self, mut arrays: Vec<ArrayRef>, rows: u64) -> Result<Batch> {
        let fields = self.schema.fields().iter();
        let fields: Vec<Field> = fields
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        let data = arrays[0].to_data().into_builder();
        let mut nulls = vec![0xff_u8; arrays[0].len().div_ceil(8)];
        if let Some(first) = nulls.first_mut() {
            *first = 0xfe;
        }
        let data = data.null_bit_buffer(Some(nulls.into())).build()?;
        arrays[0] = rapidbyte_sdk::prelude::make_array(data);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        let data = Encoder::new(&batch.schema())?.encode(&batch)?;
        Ok(Batch { data, rows })
    }
}

fn without_nulls(column: &ArrayRef) -> ArrayRef {
    match column.as_any().downcast_ref::<StringArray>() {
        Some(texts) => Arc::new(StringArray::from_iter_values(
            texts.iter().map(Option::unwrap_or_default),
        )),
        None => column.clone(),
    }
}

/// How many rows a stream has.
fn count(config: &Config, stream: &str) -> u64 {
    match stream == STREAMS[1] {
        true => config.rows / 10,
        false => config.rows,
    }
}

/// The value of `n` in the row at a place.
fn number(config: &Config, stream: &str, place: u64) -> u64 {
    match (config.deed, stream == STREAMS[1]) {
        (Deed::CountsBackwards, false) => config.rows.saturating_sub(1) - place,
        (_, false) => place,
        (_, true) => 2 * place,
    }
}

/// The places of rows that count `least` and more.
fn from(config: &Config, stream: &str, least: u64) -> std::ops::Range<u64> {
    let count = count(config, stream);
    match (config.deed, stream == STREAMS[1]) {
        (Deed::CountsBackwards, false) => 0..count.saturating_sub(least),
        (_, false) => least.min(count)..count,
        (_, true) => least.div_ceil(2).min(count)..count,
    }
}

/// The places of the rows that are asked for.
fn range(config: &Config, request: &ReadRequest) -> Result<std::ops::Range<u64>> {
    let deed = config.deed;
    let stream = request.stream.as_str();
    let mut range = 0..count(config, stream);
    if let Some(filter) = &request.filter {
        let least = filter.trim().strip_prefix("n >=");
        let least = least.and_then(|text| text.trim().parse::<u64>().ok());
        range = match (least, deed) {
            (_, Deed::IgnoresFilter) => range,
            (Some(least), Deed::FiltersOffByOne) => from(config, stream, least + 1),
            (Some(least), _) => from(config, stream, least),
            (None, _) => {
                let text = format!("{filter:?} is not `n >=` and a number");
                return Err(Error::config("invalid_filter", text));
            }
        };
    }
    let Some(increment) = &request.increment else {
        return Ok(range);
    };
    let initial = initial(config, increment)?;
    if let Some(least) =
        initial.filter(|_| request.cursor.is_none() || deed == Deed::PrefersInitial)
    {
        range = from(config, stream, least);
    } else if let Some(cursor) = &request.cursor {
        range.start = resume(deed, stream, cursor)?
            .max(range.start)
            .min(range.end);
    }
    if deed == Deed::LeavesOutLastRow {
        range.end = range.end.saturating_sub(1).max(range.start);
    }
    Ok(range)
}

/// Where an increment begins; refuses one that cannot be read.
fn initial(config: &Config, increment: &Increment) -> Result<Option<u64>> {
    let deed = config.deed;
    if increment.cursor_fields != ["n"] && deed != Deed::TakesAnyCursorField {
        let text = format!(
            "rows are not ordered by {}",
            increment.cursor_fields.join(", ")
        );
        return Err(Error::config("unknown_cursor_field", text));
    }
    let is_refused = match &increment.late_rows {
        LateRows::Lag(None) => false,
        LateRows::Lag(Some(_)) => deed != Deed::IgnoresLag,
        LateRows::Exact => !matches!(deed, Deed::IgnoresExact | Deed::ReadsALog),
    };
    if is_refused {
        let text = "rows are read from the cursor on: neither a lag nor change_detection: xmin";
        return Err(Error::config("no_late_rows", text));
    }
    let Some(text) = increment.initial.iter().flatten().next() else {
        return Ok(None);
    };
    match (text.parse::<u64>(), deed) {
        (_, Deed::IgnoresInitial) => Ok(None),
        (Ok(least), Deed::BeginsBehindInitial) => Ok(Some(least + 1)),
        (Ok(least), _) => Ok(Some(least)),
        (Err(_), Deed::TakesAnyInitial) => Ok(Some(0)),
        (Err(error), _) => Err(Error::config(
            "invalid_initial",
            format!("{text:?}: {error}"),
        )),
    }
}

/// The place of the first row behind a cursor.
fn resume(deed: Deed, stream: &str, cursor: &str) -> Result<u64> {
    let parsed: Option<serde_json::Value> = serde_json::from_str(cursor).ok();
    let at = parsed.as_ref().and_then(|cursor| match deed {
        Deed::ReadsALog => cursor["log"].as_u64()?.checked_sub(LOG_BEGIN),
        _ => cursor["n"].as_u64(),
    });
    let of = parsed.as_ref().and_then(|cursor| cursor["stream"].as_str());
    match (at, deed) {
        (Some(_), Deed::TakesOthersCursor) if of != Some(stream) => Ok(0),
        (Some(at), Deed::MixesUpCursors) if of != Some(stream) => Ok(at),
        (Some(_), _) if of != Some(stream) => {
            let text = format!("it is a cursor of {}", of.unwrap_or("no stream"));
            Err(Error::config("cursor_of_another_stream", text))
        }
        (Some(at), Deed::RepeatsARow) => Ok(at.saturating_sub(1)),
        (Some(at), Deed::LosesARow) => Ok(at + 1),
        (Some(at), _) => Ok(at),
        (None, Deed::TakesAnyCursor) => Ok(0),
        (None, _) => Err(Error::config(
            "cursor_unreadable",
            "it is no cursor of this source",
        )),
    }
}
