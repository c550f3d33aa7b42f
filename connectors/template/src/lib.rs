//! The smallest source: copy this folder, rename it, and replace the numbers by your system's rows.

use std::{sync::Arc, time::Duration};

use rapidbyte_sdk::prelude::*;

/// What stands under `config:`. Doc comments become the key's description.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many numbers to give.
    pub rows: i64,
}

/// The connector, opened with one configuration.
pub struct Numbers(Config);

/// One read of the stream.
pub struct Rows {
    left: std::ops::Range<i64>,
    batch_rows: usize,
}

impl Source for Numbers {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-template";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Counts: a template for your own source";

    fn open(config: Config) -> Result<Self> {
        Ok(Self(config))
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        Ok(vec![Stream::new("numbers", &schema())?])
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        let stream = &request.stream;
        if stream != "numbers" {
            let error = Error::schema(
                "unknown_stream",
                format!(
                    "the stream {stream} does not \
                 exist"
                ),
            );
            return Err(error.hint("use the only stream, numbers").in_stream(stream));
        }
        if request
            .columns
            .as_ref()
            .is_some_and(|columns| columns != &["n"])
        {
            let error = Error::schema("unknown_column", "use the only column, n");
            return Err(error.in_stream(stream));
        }
        Ok(Rows {
            left: 0..self.0.rows,
            batch_rows: (request.batch_bytes as usize / size_of::<i64>()).max(1),
        })
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn next(&mut self, _wait: Duration) -> Result<Event> {
        let numbers = Int64Array::from_iter_values(self.left.by_ref().take(self.batch_rows));
        if numbers.is_empty() {
            return Ok(Event::End);
        }
        Ok(Event::Batch(RecordBatch::try_new(
            self.schema(),
            vec![Arc::new(numbers)],
        )?))
    }
}

rapidbyte_sdk::export_source!(Numbers);
