//! Generates rows of declared columns: for benchmarks, tests and first steps without a database.
//!
//! The value in row `i` of a column depends on the seed, the stream's name, the column's place in
//! the declaration and `i`, and on nothing else: reading in batches of another size, or only some
//! of the columns, gives the same values. No checkpoints are given.
//!
//! ```yaml
//! source:
//!   use: source-generate
//!   config:
//!     rows: 1000000
//!     columns:
//!       id: { type: int64, sequence: true }
//!       total: decimal(18, 4)
//!       note: { type: string, length: [20, 60], nullable: true }
//!       tags: list<string>
//! ```

pub mod column;
pub mod config;
pub mod hash;

use std::sync::Arc;
use std::time::Duration;

use rapidbyte_sdk::phase;
use rapidbyte_sdk::prelude::*;

use crate::column::Column;
use crate::config::Config;
use crate::hash::{key_of, mix};

/// A batch has at most this many rows, however small they are.
const MAX_BATCH_ROWS: u64 = 65_536;
/// A batch is planned for at most this many bytes, whatever is asked, so that 32-bit offsets hold.
pub const MAX_BATCH_BYTES: u32 = 64 << 20;

/// The connector, opened with one configuration.
pub struct Generate {
    config: Config,
    columns: Vec<config::Column>,
}

/// One read of a stream.
pub struct Rows {
    stream: String,
    schema: SchemaRef,
    columns: Vec<Column>,
    next: u64,
    /// One past the last row.
    end: u64,
    batch_rows: u64,
    /// Present when a row could exceed it.
    max_record_bytes: Option<u64>,
    /// The numbers of the rows of one batch, kept for its memory.
    counters: Vec<u64>,
}

impl Source for Generate {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-generate";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Generates deterministic rows of declared columns";

    fn open(config: Config) -> Result<Self> {
        let columns = config.columns()?;
        let opened = Self { config, columns };
        // A column that cannot be generated is refused here, not at the first row.
        opened.generators(&opened.config.streams[0], 0..opened.columns.len())?;
        Ok(opened)
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let all = 0..self.columns.len();
        let schema = self.schema(all.clone());
        let names = &self.config.streams;
        names
            .iter()
            .map(|name| {
                let mut stream = Stream::new(name, &schema)?;
                stream.estimated_rows = self.config.rows;
                let generators = self.generators(name, all.clone())?;
                let width: f64 = generators.iter().map(|c| c.width().mean).sum();
                stream.estimated_bytes = self.config.rows.map(|rows| (rows as f64 * width) as u64);
                stream.notes = vec![format!("generated from seed {}", self.config.seed)];
                if self.config.rows.is_none() {
                    stream
                        .notes
                        .push("endless: the run continues until it is stopped".into());
                }
                Ok(stream)
            })
            .collect()
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        let stream = &request.stream;
        if !self.config.streams.contains(stream) {
            let names = self.config.streams.iter().map(String::as_str);
            return Err(unknown("stream", stream, names).in_stream(stream));
        }
        if request.cursor.is_some() {
            return Err(Error::config(
                "cursor_not_supported",
                "generated rows have no cursor, so a stream cannot resume",
            )
            .hint("set `sync_mode: full_refresh`")
            .in_stream(stream));
        }
        let chosen = self
            .chosen(request)
            .map_err(|error| error.in_stream(stream))?;
        let columns = self.generators(stream, chosen.iter().copied())?;
        let widths: Vec<_> = columns.iter().map(Column::width).collect();
        let mean: f64 = widths.iter().map(|width| width.mean).sum();
        let max: u64 = widths.iter().map(|width| width.max).sum();
        let batch_bytes = f64::from(request.batch_bytes.min(MAX_BATCH_BYTES));
        Ok(Rows {
            stream: stream.clone(),
            schema: Arc::new(self.schema(chosen)),
            columns,
            next: 0,
            end: self.config.rows.unwrap_or(u64::MAX),
            // A width of 0 gives infinity, which the cast and the clamp bring to the maximum.
            batch_rows: ((batch_bytes / mean) as u64).clamp(1, MAX_BATCH_ROWS),
            max_record_bytes: Some(request.max_record_bytes).filter(|limit| max > *limit),
            counters: Vec::new(),
        })
    }
}

impl Generate {
    /// The declared places of the asked columns, in the order asked.
    fn chosen(&self, request: &ReadRequest) -> Result<Vec<usize>> {
        let Some(asked) = &request.columns else {
            return Ok((0..self.columns.len()).collect());
        };
        let mut chosen = Vec::with_capacity(asked.len());
        for name in asked {
            let Some(at) = self.columns.iter().position(|c| c.field.name() == name) else {
                let names = self.columns.iter().map(|c| c.field.name().as_str());
                return Err(unknown("column", name, names).in_column(name));
            };
            if chosen.contains(&at) {
                let message = format!("column {name:?} is selected twice");
                return Err(Error::schema("duplicate_column", message).in_column(name));
            }
            chosen.push(at);
        }
        Ok(chosen)
    }

    fn schema(&self, chosen: impl IntoIterator<Item = usize>) -> Schema {
        let fields = chosen.into_iter().map(|at| self.columns[at].field.clone());
        Schema::new(fields.collect::<Vec<_>>())
    }

    fn generators(
        &self,
        stream: &str,
        chosen: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<Column>> {
        let key = mix(self.config.seed, key_of(stream));
        let generator = |at: usize| {
            let column = &self.columns[at];
            let name = column.field.name();
            Column::new(column, mix(key, at as u64))
                .map_err(|error| error.in_column(name).at(format!("config.columns.{name}")))
        };
        chosen.into_iter().map(generator).collect()
    }
}

impl Rows {
    /// How many of the next rows come before a row that is too large. An error if the first one is too large.
    fn small_enough(&self, rows: u64, limit: u64) -> Result<u64> {
        for at in 0..rows {
            let row = self.next + at;
            let bytes: u64 = self.columns.iter().map(|c| c.width_at(row)).sum();
            if bytes <= limit {
                continue;
            }
            if at > 0 {
                return Ok(at);
            }
            return Err(Error::data(
                "record_too_large",
                format!("row {row} has {bytes} bytes, the limit is {limit}"),
            )
            .hint("declare shorter values with `length`, or raise `resources.max_record_bytes`")
            .in_stream(&self.stream)
            .at(format!("row {row}")));
        }
        Ok(rows)
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next(&mut self, _wait: Duration) -> Result<Event> {
        let _phase = phase::enter(phase::Kind::Decode);
        let mut rows = self.batch_rows.min(self.end - self.next);
        if rows == 0 {
            return Ok(Event::End);
        }
        if let Some(limit) = self.max_record_bytes {
            rows = self.small_enough(rows, limit)?;
        }
        self.counters.clear();
        self.counters.extend(self.next..self.next + rows);
        let arrays = self
            .columns
            .iter()
            .map(|column| column.array(&self.counters));
        let batch = RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            arrays.collect::<Result<_>>()?,
            // Without columns, nothing else would tell how many rows there are.
            &RecordBatchOptions::new().with_row_count(Some(rows as usize)),
        )?;
        self.next += rows;
        Ok(Event::Batch(batch))
    }
}

/// A name that does not exist, with the nearest that does.
fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::schema(
        &format!("unknown_{what}"),
        format!("the {what} {name:?} does not exist"),
    );
    match known.min_by_key(|known| strsim::damerau_levenshtein(known, name)) {
        Some(nearest) => error.hint(format!("did you mean {nearest:?}?")),
        None => error.hint(format!("no {what} is declared")),
    }
}

rapidbyte_sdk::export_source!(Generate);
