//! Decodes and counts rows and keeps nothing: the other end of a measurement.
//!
//! With `hash: true` the receipt's location is `null:` and sixteen hexadecimal digits, equal for
//! equal sets of rows ([`hash`]); else it is `null:`.

pub mod hash;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;

/// The keys under `config:`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Whether to hash the values, so that two runs can be compared.
    #[serde(default)]
    pub hash: bool,
}

/// The connector, opened with one configuration.
pub struct Null(Config);

/// Counts one stream.
pub struct Counter {
    hashed: bool,
    part: Counts,
}

/// The contents of a part. [`Part::data`] carries the hash as eight little-endian bytes.
#[derive(Default)]
struct Counts {
    rows: u64,
    bytes: u64,
    hash: u64,
}

impl Destination for Null {
    type Config = Config;
    type Load = Counter;
    const NAME: &str = "dest-null";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Counts rows and keeps nothing";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace];

    fn open(config: Config) -> Result<Self> {
        Ok(Self(config))
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(vec![CheckItem::ok("open", "nothing is needed")])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let schema = target.arrow_schema()?;
        let column = |field: &std::sync::Arc<Field>| ColumnPlan {
            column: field.name().clone(),
            target_type: type_name(field),
            fit: Fit::Exact,
            note: None,
            stored_type: None,
        };
        Ok(Plan {
            location: "null:".into(),
            columns: schema.fields().iter().map(column).collect(),
            statements: Vec::new(),
            notes: vec!["rows are counted and dropped".into()],
            is_new: false,
            new_columns: Vec::new(),
        })
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(Counter, Progress)> {
        if matches!(target.write_mode, WriteMode::Upsert) {
            let error = Error::config(
                "unsupported_write_mode",
                "rows that are not kept have no key",
            );
            return Err(error
                .hint("use `write_mode: append` or `replace`")
                .in_stream(&target.stream));
        }
        let counter = Counter {
            hashed: self.0.hash,
            part: Counts::default(),
        };
        Ok((counter, Progress::unfenced(&run.id)))
    }
}

impl Load for Counter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.part.rows += batch.num_rows() as u64;
        for column in batch.columns() {
            self.part.bytes += column.to_data().get_slice_memory_size()? as u64;
        }
        if self.hashed {
            self.part.hash = self.part.hash.wrapping_add(hash::rows(batch)?);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Part> {
        let part = std::mem::take(&mut self.part);
        Ok(Part {
            data: part.hash.to_le_bytes().into(),
            rows: part.rows,
            bytes: part.bytes,
        })
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let mut total = Counts::default();
        for part in &commit.parts {
            let hash = <[u8; 8]>::try_from(&part.data[..])
                .map_err(|_| Error::internal("a part that this connector did not make"))?;
            total.rows += part.rows;
            total.bytes += part.bytes;
            total.hash = total.hash.wrapping_add(u64::from_le_bytes(hash));
        }
        let hash = self.hashed.then(|| format!("{:016x}", total.hash));
        Ok(Receipt {
            rows: total.rows,
            bytes: total.bytes,
            location: format!("null:{}", hash.unwrap_or_default()),
            deleted: 0,
        })
    }
}

rapidbyte_sdk::export_destination!(Null);
