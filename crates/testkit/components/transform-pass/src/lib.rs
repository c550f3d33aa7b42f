//! A transform for tests: rows pass through it as they are, unless its configuration says otherwise.

use rapidbyte_sdk::prelude::*;
use std::sync::Arc;

/// What stands under `config:`.
#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Leave out this column.
    pub drop: Option<String>,
    /// Deliver each batch in pieces of this many rows.
    pub piece_rows: Option<usize>,
    /// Deliver each batch this many times: 0 for none of its rows.
    #[serde(default = "once")]
    pub times: usize,
    /// Fail at the first batch with this value in its first row of the first column, a 64-bit integer.
    pub fail_at: Option<i64>,
    /// A text that must not be shown.
    #[schemars(extend("x-secret" = true))]
    pub secret: Option<String>,
}

fn once() -> usize {
    1
}

/// The transform, opened with one configuration.
pub struct Pass(Config);

/// Passes one stream through.
pub struct Passing {
    config: Config,
    schema: SchemaRef,
    /// The columns that stay.
    kept: Vec<usize>,
    batch: Option<RecordBatch>,
    /// The first row of the next piece.
    at: usize,
    /// How often the batch was delivered.
    times: usize,
}

impl Pass {
    fn kept(&self, input: &Relation) -> Result<(Vec<usize>, Schema)> {
        let schema = input.arrow_schema()?;
        let dropped = self.0.drop.as_deref();
        if let Some(name) = dropped.filter(|name| schema.index_of(name).is_err()) {
            let error = Error::schema("unknown_column", format!("no column {name}"));
            return Err(error.in_stream(&input.stream));
        }
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let kept = names.enumerate().filter(|(_, name)| Some(*name) != dropped);
        let kept: Vec<usize> = kept.map(|(index, _)| index).collect();
        let schema = schema.project(&kept)?;
        Ok((kept, schema))
    }
}

impl Transform for Pass {
    type Config = Config;
    type Transformer = Passing;
    const NAME: &str = "transform-pass";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Passes rows through, for tests";
    const NATIVE_FORMS: &'static [&'static str] = &["postgresql"];

    fn open(config: Config) -> Result<Self> {
        Ok(Self(config))
    }

    fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        let (kept, schema) = self.kept(input)?;
        let notes = match &self.0.secret {
            Some(secret) => vec![format!("warning: the secret is {secret}")],
            None => Vec::new(),
        };
        let source_types = kept.iter().map(|index| input.source_types[*index].clone());
        let key = &input.primary_key;
        let has_key = key.iter().all(|column| schema.index_of(column).is_ok());
        Ok(TransformPlan {
            output: Relation {
                stream: input.stream.clone(),
                schema: rapidbyte_sdk::ipc::encode_schema(&schema)?,
                source_types: source_types.collect(),
                primary_key: if has_key { key.clone() } else { Vec::new() },
            },
            notes,
        })
    }

    fn begin(&mut self, input: &Relation) -> Result<Passing> {
        let (kept, schema) = self.kept(input)?;
        Ok(Passing {
            config: self.0.clone(),
            schema: Arc::new(schema),
            kept,
            batch: None,
            at: 0,
            times: 0,
        })
    }
}

impl Transformer for Passing {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn put(&mut self, batch: RecordBatch) -> Result<()> {
        if let Some(value) = self.config.fail_at {
            let first = batch.column(0).as_any().downcast_ref::<Int64Array>();
            if first.is_some_and(|column| column.value(0) == value) {
                let error = Error::data("misbehave", format!("the value is {value}"));
                return Err(error.in_column(batch.schema().field(0).name()));
            }
        }
        let kept = match self.kept.len() == batch.num_columns() {
            true => batch,
            false => batch.project(&self.kept)?,
        };
        (self.batch, self.at, self.times) = (Some(kept), 0, 0);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = &self.batch else {
            return Ok(None);
        };
        if self.times == self.config.times {
            self.batch = None;
            return Ok(None);
        }
        let left = batch.num_rows() - self.at;
        let rows = self.config.piece_rows.unwrap_or(left).clamp(1, left.max(1));
        let rows = rows.min(left);
        let piece = batch.slice(self.at, rows);
        self.at += rows;
        if self.at == batch.num_rows() {
            (self.at, self.times) = (0, self.times + 1);
        }
        Ok(Some(piece))
    }
}

rapidbyte_sdk::export_transform!(Pass);

/// The example of the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../../docs/authors/transforms.md")]
struct Guide;
