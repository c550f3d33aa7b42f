//! A transform for tests: rows pass through it as they are, unless its configuration says otherwise.
//!
//! With a [`Deed`] it breaks one clause of the contract, and that one alone: each deed proves that `rapidbyte connector
//! test` can fail the clause.

use std::sync::Arc;

use rapidbyte_sdk::prelude::*;

/// The keys under `config:`.
#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Leave out this column.
    pub drop: Option<String>,
    /// Refuse a stream that has this column.
    pub refuse: Option<String>,
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
    /// The one thing that is wrong.
    pub deed: Option<Deed>,
}

/// The one thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// `open`: fails with settings that are right.
    FailsToOpen,
    /// `plan`: one source type too few.
    MiscountsTypes,
    /// `plan`: a key column that does not exist.
    InventsKey,
    /// `plan`: gives the first column twice.
    DoublesColumn,
    /// `plan-again`: the second plan of a session has no key.
    ForgetsKey,
    /// `begin`: the columns in another order than planned.
    TurnsColumns,
    /// `batches`: gives the batch again and again.
    NeverEnds,
    /// `batches`: fails at the first row.
    FailsAtRows,
    /// `same-rows`: keeps the last row of a batch for the next one.
    KeepsARow,
    /// `same-rows`: numbers the first column, a 64-bit integer, from the first row of the stream on.
    NumbersRows,
    /// `empty`: fails at a batch without rows.
    FailsWithoutRows,
    /// `nulls`: fails at a last column of NULLs alone.
    FailsAtNulls,
    /// `end`: gives the batch again after its end.
    GoesOnBehindEnd,
    /// `session`: gives no row of a further stream.
    ForgetsFurtherStreams,
    /// `no-trap`: panics at the first batch.
    Panics,
    /// `errors`: refuses NULL by its column, with a code that has spaces.
    ShoutsItsCode,
}

fn once() -> usize {
    1
}

/// The transform, opened with one configuration.
pub struct Pass {
    config: Config,
    /// Plans and streams of the session so far.
    plans: usize,
    streams: usize,
}

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
    /// For deeds: rows to give before the batch, rows to give later, and the rows of the stream so far.
    before: Option<RecordBatch>,
    kept_back: Option<RecordBatch>,
    rows: i64,
}

impl Pass {
    fn kept(&self, input: &Relation) -> Result<(Vec<usize>, Schema)> {
        let schema = input.arrow_schema()?;
        let refused = self.config.refuse.as_deref();
        if let Some(name) = refused.filter(|name| schema.index_of(name).is_ok()) {
            let error = Error::schema("misbehave", "the column is refused");
            return Err(error.in_column(name));
        }
        let dropped = self.config.drop.as_deref();
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

impl Pass {
    /// Makes a plan wrong.
    fn spoil(&self, output: &mut Relation, kept: &[usize], schema: &Schema) -> Result<()> {
        match self.config.deed {
            Some(Deed::MiscountsTypes) => drop(output.source_types.pop()),
            Some(Deed::InventsKey) => output.primary_key.push("no_such_column".into()),
            Some(Deed::ForgetsKey) if self.plans > 0 => output.primary_key.clear(),
            Some(Deed::DoublesColumn) => {
                let twice: Vec<usize> = std::iter::once(0).chain(0..kept.len()).collect();
                output.schema = rapidbyte_sdk::ipc::encode_schema(&schema.project(&twice)?)?;
                output
                    .source_types
                    .insert(0, output.source_types[0].clone());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Passing {
    /// Makes a batch wrong.
    fn spoiled(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let (rows, last) = (batch.num_rows(), batch.num_columns() - 1);
        let has_nulls = rows > 0 && batch.column(last).null_count() == rows;
        match self.config.deed {
            Some(Deed::Panics) => panic!("a panic on purpose"),
            Some(Deed::FailsAtRows) if rows > 0 => return Err(Error::internal("rows")),
            Some(Deed::FailsWithoutRows) if rows == 0 => return Err(Error::internal("no rows")),
            Some(Deed::FailsAtNulls) if has_nulls => return Err(Error::internal("NULL")),
            Some(Deed::ShoutsItsCode) if has_nulls => {
                let error = Error::data("A Loud Code", "NULL");
                return Err(error.in_column(batch.schema().field(last).name()));
            }
            Some(Deed::KeepsARow) if rows > 0 => {
                self.before = self.kept_back.replace(batch.slice(rows - 1, 1));
                return Ok(batch.slice(0, rows - 1));
            }
            Some(Deed::NumbersRows) => {
                let numbers = self.rows..self.rows + rows as i64;
                self.rows = numbers.end;
                let mut columns = batch.columns().to_vec();
                columns[0] = Arc::new(Int64Array::from_iter_values(numbers));
                return Ok(RecordBatch::try_new(batch.schema(), columns)?);
            }
            Some(Deed::GoesOnBehindEnd) => self.kept_back = Some(batch.clone()),
            _ => {}
        }
        Ok(batch)
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
        if config.deed == Some(Deed::FailsToOpen) {
            return Err(Error::internal("open"));
        }
        Ok(Self {
            config,
            plans: 0,
            streams: 0,
        })
    }

    fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        let (kept, schema) = self.kept(input)?;
        let notes = match &self.config.secret {
            Some(secret) => vec![format!("warning: the secret is {secret}")],
            None => Vec::new(),
        };
        let source_types = kept.iter().map(|index| input.source_types[*index].clone());
        let key = &input.primary_key;
        let has_key = key.iter().all(|column| schema.index_of(column).is_ok());
        let mut output = Relation {
            stream: input.stream.clone(),
            schema: rapidbyte_sdk::ipc::encode_schema(&schema)?,
            source_types: source_types.collect(),
            primary_key: if has_key { key.clone() } else { Vec::new() },
        };
        self.spoil(&mut output, &kept, &schema)?;
        self.plans += 1;
        Ok(TransformPlan { output, notes })
    }

    fn begin(&mut self, input: &Relation) -> Result<Passing> {
        let (mut kept, mut schema) = self.kept(input)?;
        let mut config = self.config.clone();
        match config.deed {
            Some(Deed::TurnsColumns) => {
                kept.reverse();
                schema = input.arrow_schema()?.project(&kept)?;
            }
            Some(Deed::ForgetsFurtherStreams) if self.streams > 0 => config.times = 0,
            _ => {}
        }
        self.streams += 1;
        Ok(Passing {
            config,
            schema: Arc::new(schema),
            kept,
            batch: None,
            at: 0,
            times: 0,
            before: None,
            kept_back: None,
            rows: 0,
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
        let kept = match self.kept.iter().copied().eq(0..batch.num_columns()) {
            true => batch,
            false => batch.project(&self.kept)?,
        };
        let kept = self.spoiled(kept)?;
        (self.batch, self.at, self.times) = (Some(kept), 0, 0);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(before) = self.before.take() {
            return Ok(Some(before));
        }
        let Some(batch) = &self.batch else {
            return match self.config.deed {
                Some(Deed::GoesOnBehindEnd) => Ok(self.kept_back.take()),
                _ => Ok(None),
            };
        };
        if self.config.deed == Some(Deed::NeverEnds) {
            return Ok(Some(batch.clone()));
        }
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
