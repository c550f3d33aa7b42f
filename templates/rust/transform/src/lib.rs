//! {{name}}: a transform that hides the text of a column. Replace it with your own step.

use std::sync::Arc;

use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::*;

/// The text in the place of each other text.
const HIDDEN: &str = "***";

/// The keys of `config:`. Doc comments become their descriptions.
#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The text column to hide.
    pub column: String,
}

/// The connector, opened with one configuration.
pub struct Mask {
    config: Config,
}

/// Transforms one stream.
pub struct Masking {
    /// The place of the column.
    index: usize,
    schema: SchemaRef,
    /// The batch of the last `put`, until `next` has returned it.
    batch: Option<RecordBatch>,
}

impl Transform for Mask {
    type Config = Config;
    type Transformer = Masking;
    const NAME: &str = "{{name}}";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Hides the text of a column";

    fn open(config: Config) -> Result<Self> {
        Ok(Self { config })
    }

    /// The columns, their types in the source and the key stay as they are. A transform that changes columns returns
    /// others: one source type for each column, and a key that consists of columns.
    fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        self.begin(input)?;
        Ok(TransformPlan {
            output: input.clone(),
            notes: Vec::new(),
        })
    }

    fn begin(&mut self, input: &Relation) -> Result<Masking> {
        let schema = input.arrow_schema()?;
        let column = &self.config.column;
        let is_text =
            |field: &Field| field.name() == column && *field.data_type() == DataType::Utf8;
        let index = schema.fields().iter().position(|field| is_text(field));
        let index = index.ok_or_else(|| {
            let text = format!("there is no text column {column}");
            let error = Error::schema("unknown_column", text).in_stream(&input.stream);
            error.hint("name a column of the type string")
        })?;
        Ok(Masking {
            index,
            schema: Arc::new(schema),
            batch: None,
        })
    }
}

impl Transformer for Masking {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn put(&mut self, batch: RecordBatch) -> Result<()> {
        self.batch = Some(batch);
        Ok(())
    }

    /// The rows must depend on the batch alone: the host gives the same batch again when it retries a stream.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.batch.take() else {
            return Ok(None);
        };
        let mut columns = batch.columns().to_vec();
        let texts = columns[self.index].as_string::<i32>();
        let hidden: StringArray = texts.iter().map(|text| text.map(|_| HIDDEN)).collect();
        columns[self.index] = Arc::new(hidden);
        Ok(Some(RecordBatch::try_new(self.schema(), columns)?))
    }
}

rapidbyte_sdk::export_transform!(Mask);
