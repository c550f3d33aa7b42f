//! `transform-columns`: renames, drops, casts, computes, filters, hashes and masks columns between a source and a
//! destination.
//!
//! `steps` turns the configuration and the columns of a stream into a program, `expression` has the expressions. The
//! program depends on the configuration and on the columns alone, and what it makes of a row on that row alone.

mod columns;
mod config;
mod expression;
mod native;
mod rejects;
mod steps;

use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;

pub use config::{Config, Hash, Mask, Step};
use rejects::Rejects;
use steps::Program;

/// Steps of one transform.
const MAX_STEPS: usize = 256;

/// The transform, opened with its steps.
pub struct Columns(Config);

/// Transforms one stream.
pub struct Transforming {
    program: Program,
    stream: String,
    /// Rows of earlier batches.
    rows: u64,
    batch: Option<RecordBatch>,
    /// Rows that cannot be transformed, where they are kept.
    rejects: Option<Rejects>,
}

impl Transform for Columns {
    type Config = Config;
    type Transformer = Transforming;
    const NAME: &str = "transform-columns";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Renames, computes, filters and hides columns";
    const NATIVE_FORMS: &'static [&'static str] = &[rapidbyte_pg::NATIVE_FORM];
    const SUPPORTS_REJECTS: bool = true;

    fn open(config: Config) -> Result<Self> {
        if config.steps.is_empty() {
            let error = Error::config("no_steps", "there is no step");
            return Err(error
                .at("config.steps")
                .hint("write a step, or leave the transform out"));
        }
        if config.steps.len() > MAX_STEPS {
            let text = format!("{} steps, above {MAX_STEPS}", config.steps.len());
            return Err(Error::config("wrong_step", text).at("config.steps"));
        }
        Ok(Self(config))
    }

    fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        let program = Program::new(&self.0.steps, input)?;
        Ok(TransformPlan {
            output: Relation {
                stream: input.stream.clone(),
                schema: ipc::encode_schema(program.schema())?,
                source_types: program.source_types().to_vec(),
                primary_key: program.primary_key().to_vec(),
            },
            notes: program.note().cloned().into_iter().collect(),
        })
    }

    fn begin(&mut self, input: &Relation) -> Result<Transforming> {
        Ok(Transforming {
            program: Program::new(&self.0.steps, input)?,
            stream: input.stream.clone(),
            rows: 0,
            batch: None,
            rejects: None,
        })
    }
}

impl Transformer for Transforming {
    fn schema(&self) -> SchemaRef {
        self.program.schema().clone()
    }

    fn put(&mut self, batch: RecordBatch) -> Result<()> {
        let rows = batch.num_rows() as u64;
        let moved = match &mut self.rejects {
            Some(rejects) => rejects.sort(&self.program, batch, self.rows),
            None => self.program.run(batch),
        };
        let moved = moved.map_err(|fault| fault.into_error(&self.stream, self.rows))?;
        self.rows += rows;
        self.batch = Some(moved);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        Ok(self.batch.take())
    }

    fn keep_rejects(&mut self) {
        self.rejects = Some(Rejects::new());
    }

    fn rejects(&mut self) -> Vec<Reject> {
        let rejects = self.rejects.as_mut();
        rejects.map(Rejects::take).unwrap_or_default()
    }
}

rapidbyte_sdk::export_transform!(Columns);
