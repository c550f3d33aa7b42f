//! {{name}}: a source that counts. Replace the numbers by the rows of your system.

use std::{sync::Arc, time::Duration};

use rapidbyte_sdk::prelude::*;

/// The only stream and its columns.
const STREAM: &str = "numbers";
/// A batch has at most this many rows.
const BATCH_ROWS: i64 = 10_000;

/// What stands under `config:`. Doc comments become the keys' descriptions.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many numbers there are.
    pub rows: u32,
}

/// The connector, opened with one configuration.
pub struct Numbers(Config);

/// One read of the stream.
pub struct Rows {
    schema: SchemaRef,
    next: i64,
    end: i64,
    /// Said after each batch of an incremental read; then the run can go on from there.
    checkpoints: bool,
    /// Rows were given since the last checkpoint.
    unsaid: bool,
}

impl Source for Numbers {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "{{name}}";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Counts";
    const SYNC_MODES: &[SyncMode] = &[SyncMode::FullRefresh, SyncMode::Incremental];

    fn open(config: Config) -> Result<Self> {
        Ok(Self(config))
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let mut stream = Stream::new(STREAM, &columns())?;
        stream.primary_key = vec!["n".into()];
        stream.cursor_fields = vec!["n".into()];
        stream.estimated_rows = Some(self.0.rows.into());
        Ok(vec![stream])
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        if request.stream != STREAM {
            let text = format!("there is no stream {:?}", request.stream);
            return Err(Error::schema("unknown_stream", text).hint("the only stream is `numbers`"));
        }
        Ok(Rows {
            schema: wanted(request.columns.as_deref())?,
            next: begin(request)?,
            end: self.0.rows.into(),
            checkpoints: request.increment.is_some(),
            unsaid: false,
        })
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next(&mut self, _wait: Duration) -> Result<Event> {
        if self.checkpoints && self.unsaid {
            self.unsaid = false;
            return Ok(Event::Checkpoint((self.next - 1).to_string()));
        }
        let rows = self.next..self.end.min(self.next + BATCH_ROWS);
        if rows.is_empty() {
            return Ok(Event::End);
        }
        let column = |field: &Arc<Field>| -> ArrayRef {
            match field.name().as_str() {
                "n" => Arc::new(Int64Array::from_iter_values(rows.clone())),
                _ => Arc::new(StringArray::from_iter_values(rows.clone().map(label))),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect();
        self.next = rows.end;
        self.unsaid = true;
        Ok(Event::Batch(RecordBatch::try_new(self.schema(), columns)?))
    }
}

/// All columns of the stream.
fn columns() -> Schema {
    Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("label", DataType::Utf8, true),
    ])
}

fn label(n: i64) -> String {
    format!("number {n}")
}

/// The asked columns, in the order asked.
fn wanted(asked: Option<&[String]>) -> Result<SchemaRef> {
    let all = columns();
    let Some(asked) = asked else {
        return Ok(Arc::new(all));
    };
    let field = |name: &String| match all.field_with_name(name) {
        Ok(field) => Ok(field.clone()),
        Err(_) => Err(
            Error::schema("unknown_column", format!("there is no column {name:?}"))
                .in_stream(STREAM)
                .in_column(name),
        ),
    };
    let fields: Vec<Field> = asked.iter().map(field).collect::<Result<_>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The first number of a read: behind the cursor, or at the start that the operator chose.
fn begin(request: &ReadRequest) -> Result<i64> {
    let Some(increment) = &request.increment else {
        return Ok(0);
    };
    if !matches!(increment.late_rows, LateRows::Lag(None)) || increment.cursor_fields != ["n"] {
        let text = "numbers are read behind a cursor of `n`, without lag and change_detection: xmin";
        return Err(Error::config("increment_not_possible", text).in_stream(STREAM));
    }
    let number = |text: &str| {
        let not_a_number = |_| Error::config("invalid_cursor", format!("{text:?} is no number"));
        text.parse::<i64>().map_err(not_a_number)
    };
    match (&request.cursor, &increment.initial) {
        (Some(cursor), _) => Ok(number(cursor)? + 1),
        (None, Some(initial)) => number(initial.first().map_or("", String::as_str)),
        (None, None) => Ok(0),
    }
}

rapidbyte_sdk::export_source!(Numbers);
