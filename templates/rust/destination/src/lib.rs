//! {{name}}: a destination that writes each stream as a file of JSON Lines, complete or not at all.
//! Replace the file with your system.

use rapidbyte_sdk::files::{self, Output};
use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::arrow_array::types::{Float64Type, Int64Type};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use serde_json::{Map, Value};

/// Bytes for one call of the host.
const CHUNK_BYTES: usize = 256 << 10;

/// The keys of `config:`. Doc comments become their descriptions.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file of each stream; `{stream}` stands for the stream's name. The connector can write no other file.
    #[schemars(extend("x-grant" = "write"))]
    pub path: String,
}

/// The connector, opened with one configuration.
pub struct Lines {
    config: Config,
}

/// Writes one stream.
pub struct LineFile {
    path: String,
    /// From the first row to the commit. Dropping it removes the file.
    file: Option<Output>,
    buffer: Vec<u8>,
    /// Rows and bytes since the last part.
    rows: u64,
    bytes: u64,
}

impl Destination for Lines {
    type Config = Config;
    type Load = LineFile;
    const NAME: &str = "{{name}}";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes JSON Lines";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Replace];

    fn open(config: Config) -> Result<Self> {
        Ok(Self { config })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(vec![match files::probe(&self.path("check")) {
            Ok(()) => CheckItem::ok("write", "a file can be created"),
            Err(problem) => CheckItem::failed("write", problem),
        }])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let schema = target.arrow_schema()?;
        let column = |field: &std::sync::Arc<Field>| {
            let is_known = can_hold(field.data_type());
            ColumnPlan {
                column: field.name().clone(),
                target_type: type_name(field),
                fit: if is_known { Fit::Exact } else { Fit::Refused },
                note: (!is_known).then(|| "only bool, int64, float64 and string can be written".into()),
                stored_type: None,
            }
        };
        let location = self.path(&target.stream);
        Ok(Plan {
            columns: schema.fields().iter().map(column).collect(),
            statements: Vec::new(),
            notes: Vec::new(),
            // Ask your system each time: a stream with a cursor whose target is new is refused (`target_missing`).
            is_new: files::find(&location)?.is_empty(),
            new_columns: Vec::new(),
            location,
        })
    }

    /// This destination does not store cursors: each run writes each stream as a whole.
    fn begin(&mut self, target: &Target, run: &Run) -> Result<(LineFile, Progress)> {
        let load = LineFile {
            path: self.path(&target.stream),
            file: None,
            buffer: Vec::new(),
            rows: 0,
            bytes: 0,
        };
        Ok((load, Progress::unfenced(&run.id)))
    }
}

impl Lines {
    fn path(&self, stream: &str) -> String {
        self.config.path.replace("{stream}", stream)
    }
}

impl Load for LineFile {
    fn open_writer(&mut self, _: Option<&str>) -> Result<()> {
        self.file = Some(files::create(&self.path)?);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for at in 0..batch.num_rows() {
            let mut row = Map::new();
            for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                let value = value(array, at).map_err(|error| error.in_column(field.name()))?;
                row.insert(field.name().clone(), value);
            }
            self.buffer.extend(Value::Object(row).to_string().bytes());
            self.buffer.push(b'\n');
            if self.buffer.len() >= CHUNK_BYTES {
                self.hand_over()?;
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<Part> {
        self.hand_over()?;
        let (rows, bytes) = (
            std::mem::take(&mut self.rows),
            std::mem::take(&mut self.bytes),
        );
        Ok(Part {
            data: Vec::new(),
            rows,
            bytes,
        })
    }

    /// Called once, after the last row. Without it the host aborts or drops the load.
    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let Some(file) = self.file.take() else {
            return Err(Error::internal("a commit of a file that was not begun"));
        };
        file.sync()?;
        let bytes = file.bytes();
        file.commit()?;
        Ok(Receipt {
            rows: commit.rows(),
            bytes,
            location: self.path.clone(),
            deleted: 0,
        })
    }
}

impl LineFile {
    fn hand_over(&mut self) -> Result<()> {
        let file = self.file.as_mut();
        let file = file.ok_or_else(|| Error::internal("the file was not begun"))?;
        file.write(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Whether [`value`] can write this type unchanged.
fn can_hold(data_type: &DataType) -> bool {
    use DataType::{Boolean, Float64, Int64, Utf8};
    matches!(data_type, Boolean | Int64 | Float64 | Utf8)
}

/// One value as JSON. A value that JSON does not have is an error, never a silent null.
fn value(array: &ArrayRef, at: usize) -> Result<Value> {
    if array.is_null(at) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(at).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(at).into(),
        DataType::Utf8 => array.as_string::<i32>().value(at).into(),
        DataType::Float64 => {
            let number = array.as_primitive::<Float64Type>().value(at);
            let number = serde_json::Number::from_f64(number);
            number
                .ok_or_else(|| Error::data("not_finite", "JSON has neither NaN nor infinity"))?
                .into()
        }
        other => {
            return Err(Error::internal(format!(
                "a column of type {other} was not refused"
            )));
        }
    })
}

rapidbyte_sdk::export_destination!(Lines);
