//! Decodes or encodes the same rows each time it is asked, inside the sandbox: what `cargo xtask
//! bench-parts` measures natively, measured where connectors run. It reads nothing and gives no rows.

use rapidbyte_pg::copy::{Decoder, Encoder};
use rapidbyte_pg::{Column, PgError};
use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

/// A record of the bench is small.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// The keys under `config:`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A file of a whole `COPY … TO STDOUT (FORMAT binary)`.
    #[schemars(extend("x-grant" = "read"))]
    pub path: String,
    /// Its columns: a JSON list of [`Column`].
    pub columns: String,
    /// Whether values are taken in PostgreSQL's own form.
    pub native: bool,
    /// The work that each `check` does with all rows.
    pub work: Work,
}

/// The measured work.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Bytes to a batch.
    Decode,
    /// A batch to bytes.
    Encode,
}

/// The connector, opened with one configuration.
pub struct Codec {
    columns: Vec<Column>,
    native: bool,
    work: Work,
    bytes: Vec<u8>,
    batch: RecordBatch,
    encoder: Encoder,
    out: Vec<u8>,
}

/// There is nothing to read.
pub struct Nothing;

impl Source for Codec {
    type Config = Config;
    type Reader = Nothing;
    const NAME: &str = "source-codec";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Decodes and encodes the same rows again and again";

    fn open(config: Config) -> Result<Self> {
        let columns: Vec<Column> =
            serde_json::from_str(&config.columns).map_err(Error::internal)?;
        let file = files::open(&config.path)?;
        let length = u32::try_from(file.size()).map_err(Error::internal)?;
        let bytes = file.read(0, length)?;
        let batch = decoded(&columns, config.native, &bytes)?;
        let encoder = Encoder::new(&batch.schema(), &columns).map_err(failed)?;
        Ok(Self {
            native: config.native,
            work: config.work,
            out: Vec::with_capacity(bytes.len()),
            columns,
            bytes,
            batch,
            encoder,
        })
    }

    /// Does the work once.
    fn check(&mut self) -> Result<Vec<CheckItem>> {
        match self.work {
            Work::Decode => drop(decoded(&self.columns, self.native, &self.bytes)?),
            Work::Encode => {
                self.out.clear();
                let encoded = self.encoder.encode(&self.batch, &mut self.out);
                encoded.map_err(failed)?;
            }
        }
        Ok(Vec::new())
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        Ok(Vec::new())
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Nothing> {
        let text = "there is nothing to read";
        Err(Error::config("unknown_stream", text).in_stream(&request.stream))
    }
}

impl Reader for Nothing {
    fn schema(&self) -> SchemaRef {
        SchemaRef::new(Schema::empty())
    }

    fn next(&mut self, _wait: std::time::Duration) -> Result<Event> {
        Ok(Event::End)
    }
}

fn decoded(columns: &[Column], native: bool, bytes: &[u8]) -> Result<RecordBatch> {
    let mut decoder = Decoder::new(columns, native, MAX_RECORD_BYTES);
    let taken = decoder.push_messages(bytes).map_err(failed)?;
    if taken < bytes.len() {
        return Err(Error::internal("more than is decoded at once"));
    }
    decoder.finish().map_err(failed)?;
    decoder.take_batch().map_err(failed)
}

fn failed(error: PgError) -> Error {
    Error::internal(error.message)
}

rapidbyte_sdk::export_source!(Codec);
