//! The host rejects answers of a transform that break the contract.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte::memory::Tables;
use rapidbyte::{Control, Engine, Environment, Failure, NativeConnector, Pipeline, RunOptions};
use rapidbyte_runtime::{
    Batch, Native, NativeSession, Relation, Result as Called, Spec, TransformPlan, TransformSession,
};
use rapidbyte_wire::ipc;

/// The mistake of a transform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    /// A batch without rows.
    Empty,
    /// More rows in the message than in the batch.
    Rows,
    /// Not the columns of the plan.
    Schema,
    /// A plan of another stream.
    Stream,
    /// A plan with a key that is not a column.
    Key,
    /// A plan with one source type too many.
    Types,
    /// A config schema that grants a file.
    Grant,
}

struct Broken {
    native: Native,
    wrong: Wrong,
    batch: Option<Batch>,
}

impl NativeSession for Broken {
    fn native(&self) -> &Native {
        &self.native
    }
    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

fn table(name: &str) -> RecordBatch {
    let schema = Schema::new(vec![Field::new(name, DataType::Int64, false)]);
    let values = Arc::new(Int64Array::from(vec![1, 2, 3]));
    RecordBatch::try_new(Arc::new(schema), vec![values]).expect("a batch")
}

impl TransformSession for Broken {
    fn describe(&mut self) -> Called<Spec> {
        let schema = match self.wrong {
            Wrong::Grant => {
                r#"{"properties":{"path":{"type":"string","x-grant":"write"}},"type":"object"}"#
            }
            _ => r#"{"type":"object"}"#,
        };
        Ok(Spec::plain(
            "broken",
            "1.0.0",
            "Does one thing wrong",
            schema,
        ))
    }
    fn open(&mut self, _: &str) -> Called<()> {
        Ok(())
    }
    fn plan(&mut self, input: &Relation) -> Called<TransformPlan> {
        let mut output = input.clone();
        match self.wrong {
            Wrong::Stream => output.stream.push('2'),
            Wrong::Key => output.primary_key = vec!["nosuch".into()],
            Wrong::Types => output.source_types.push("int".into()),
            _ => {}
        }
        let notes = Vec::new();
        Ok(TransformPlan { output, notes })
    }
    fn begin(&mut self, input: &Relation, _: bool) -> Called<Vec<u8>> {
        Ok(match self.wrong {
            Wrong::Schema => ipc::encode_schema(&table("other").schema()).expect("a schema"),
            _ => input.schema.clone(),
        })
    }
    fn put(&mut self, batch: &Batch) -> Called<()> {
        self.batch = Some(batch.clone());
        Ok(())
    }
    fn next(&mut self) -> Called<Option<Batch>> {
        let Some(batch) = self.batch.take() else {
            return Ok(None);
        };
        Ok(Some(match self.wrong {
            Wrong::Rows => Batch {
                rows: batch.rows + 1,
                ..batch
            },
            Wrong::Empty => {
                let none = table("id").slice(0, 0);
                let mut encoder = ipc::Encoder::new(&none.schema()).expect("an encoder");
                let data = encoder.encode(&none).expect("a message");
                Batch { data, rows: 0 }
            }
            _ => batch,
        }))
    }
    fn finish(&mut self) -> bool {
        true
    }
}

fn run(wrong: Wrong) -> Failure {
    run_streams(wrong, &["t"])
}

/// The streams fall under one entry of the pipeline.
fn run_streams(wrong: Wrong, names: &[&str]) -> Failure {
    let (from, to) = (Tables::new(), Tables::new());
    for name in names {
        from.set(name, table("id").schema(), &["id"], vec![table("id")]);
    }
    let broken = NativeConnector::transform("broken", move |native| {
        Box::new(Broken {
            native,
            wrong,
            batch: None,
        })
    });
    let engine = Engine::builder()
        .without_bundled()
        .connector(from.source("source-memory"))
        .connector(broken)
        .connector(to.destination("dest-memory"))
        .build()
        .expect("an engine");
    let text = "version: 1\npipeline: t\nsource:\n  use: source-memory\n  \
                streams: [{ name: \"*\", transforms: [{ use: broken }] }]\n\
                destination:\n  use: dest-memory\n  write_mode: append\n";
    let folder = tempfile::tempdir().expect("a folder");
    let pipeline = Pipeline::from_str(text, folder.path(), &Environment::process());
    let pipeline = pipeline.expect("a pipeline");
    let ended = engine.run(&pipeline, &RunOptions::default(), &Control::default());
    for name in names {
        let written = to.get(name).map_or(0, |batches| batches.len());
        assert_eq!(written, 0, "{wrong:?}");
    }
    ended.expect_err("it is refused")
}

#[test]
fn a_transform_that_breaks_the_contract_is_refused_by_name() {
    for (wrong, code, part) in [
        (Wrong::Empty, "contract_broken", "a batch without rows"),
        (Wrong::Rows, "contract_broken", "rows"),
        (
            Wrong::Schema,
            "contract_broken",
            "other columns than the plan",
        ),
        (Wrong::Stream, "contract_broken", "another stream"),
        (Wrong::Key, "contract_broken", "nosuch"),
        (
            Wrong::Types,
            "contract_broken",
            "2 source types for 1 columns",
        ),
        (
            Wrong::Grant,
            "contract_broken",
            "a transform is granted nothing",
        ),
    ] {
        let failure = run(wrong);
        assert_eq!(failure.code, code, "{wrong:?}: {failure:?}");
        assert!(failure.message.contains(part), "{wrong:?}: {failure:?}");
    }
}

/// A session that has failed plans no other stream, and the errors name the line of the transform.
#[test]
fn each_stream_has_the_error_of_its_own_plan() {
    let ended = run_streams(Wrong::Stream, &["t", "u", "v"]);
    let failures = &ended.streams.failures;
    assert_eq!(failures.len(), 3, "{ended:?}");
    for failure in failures {
        assert_eq!(failure.code, "contract_broken", "{failure:?}");
        assert_eq!(
            failure.location.as_deref(),
            Some("pipeline:5:39"),
            "{failure:?}"
        );
    }
}
