//! A destination that does one wrong thing, for tests of the host ([`How`] lists them).
//!
//! Apart from that it counts rows and keeps nothing, as `dest-null` does. It logs `opened` when it
//! is, and `aborted` with the stream's name when it is told to give up, for tests to see.

use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;

/// What stands under `config:`.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The one wrong thing.
    pub how: How,
    /// How many batches are written well before a wrong `write`, and how many parts are flushed
    /// well before a wrong `flush`.
    #[serde(default)]
    pub at_batch: u64,
}

/// Each does one wrong thing.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Nothing.
    Nothing,
    /// `open` gives an error.
    ErrorOnOpen,
    /// `plan` gives an error, of kind schema.
    ErrorOnPlan,
    /// `fence` gives an error.
    ErrorOnFence,
    /// `open-writer` gives an error.
    ErrorOnOpenWriter,
    /// `write` panics.
    PanicOnWrite,
    /// `write` gives an error.
    ErrorOnWrite,
    /// `write` gives an error of kind transient.
    TransientOnWrite,
    /// `write` computes for ever.
    LoopOnWrite,
    /// `write` sleeps for an hour.
    SleepOnWrite,
    /// `flush` panics.
    PanicOnFlush,
    /// `flush` gives an error.
    ErrorOnFlush,
    /// `flush` gives a part of one row too many.
    LieOnFlush,
    /// `commit` panics.
    PanicOnCommit,
    /// `commit` gives an error.
    ErrorOnCommit,
    /// `commit` computes for ever.
    LoopOnCommit,
    /// `commit` gives a receipt of one row too few.
    LieOnCommit,
    /// `write` gives an error, and `abort`, which must follow, gives another (`abort_failed`).
    ErrorOnAbort,
    /// `write` gives an error, and `abort`, which must follow, panics.
    PanicOnAbort,
}

/// The connector, opened with one configuration.
pub struct Misbehave(Config);

/// Counts one stream until it goes wrong.
pub struct Misbehaving {
    config: Config,
    written: u64,
    flushed: u64,
    rows: u64,
    bytes: u64,
}

fn error(call: &str) -> Error {
    Error::data("misbehave", format!("an error on purpose in {call}")).hint("expect it")
}

fn spin() -> ! {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

impl Misbehave {
    fn unless(&self, how: How, call: &str) -> Result<()> {
        if self.0.how == how {
            return Err(error(call));
        }
        Ok(())
    }
}

impl Destination for Misbehave {
    type Config = Config;
    type Writer = Misbehaving;
    const NAME: &str = "dest-misbehave";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Does one wrong thing, for tests of the host";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace];

    fn open(config: Config) -> Result<Self> {
        let opened = Self(config);
        opened.unless(How::ErrorOnOpen, "open")?;
        log::debug("opened");
        Ok(opened)
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(vec![CheckItem::ok(
            "misbehave",
            format!("{:?}", self.0.how),
        )])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        if self.0.how == How::ErrorOnPlan {
            return Err(Error::schema("misbehave", "an error on purpose in plan"));
        }
        let schema = target.arrow_schema()?;
        let columns = schema.fields().iter().map(|field| ColumnPlan {
            column: field.name().clone(),
            target_type: type_name(field),
            fit: Fit::Exact,
            note: None,
        });
        Ok(Plan {
            location: "misbehave:".into(),
            columns: columns.collect(),
            statements: Vec::new(),
            notes: Vec::new(),
            is_new: false,
        })
    }

    fn fence(&mut self, _target: &Target, run: &Run) -> Result<Progress> {
        self.unless(How::ErrorOnFence, "fence")?;
        Ok(Progress {
            epoch: 1,
            seq: 0,
            cursor: None,
            run_id: run.id.clone(),
            complete: false,
        })
    }

    fn open_writer(
        &mut self,
        _target: &Target,
        _epoch: u64,
        _cursor: Option<&str>,
    ) -> Result<Misbehaving> {
        self.unless(How::ErrorOnOpenWriter, "open_writer")?;
        Ok(Misbehaving {
            config: self.0,
            written: 0,
            flushed: 0,
            rows: 0,
            bytes: 0,
        })
    }

    fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt> {
        let rows = commit.rows();
        let rows = match self.0.how {
            How::PanicOnCommit => panic!("misbehave: a panic on purpose in commit"),
            How::ErrorOnCommit => return Err(error("commit")),
            How::LoopOnCommit => spin(),
            How::LieOnCommit => rows.saturating_sub(1),
            _ => rows,
        };
        Ok(Receipt {
            rows,
            bytes: commit.parts.iter().map(|part| part.bytes).sum(),
            location: "misbehave:".into(),
        })
    }

    fn abort(&mut self, stream: &str) -> Result<()> {
        log::info(format_args!("aborted {stream}"));
        match self.0.how {
            How::ErrorOnAbort => {
                Err(Error::internal("an error on purpose in abort")).map_err(|error| Error {
                    code: "abort_failed".into(),
                    ..error
                })
            }
            How::PanicOnAbort => panic!("misbehave: a panic on purpose in abort"),
            _ => Ok(()),
        }
    }
}

impl Writer for Misbehaving {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.written >= self.config.at_batch {
            match self.config.how {
                How::PanicOnWrite => panic!("misbehave: a panic on purpose in write"),
                How::ErrorOnWrite | How::ErrorOnAbort | How::PanicOnAbort => {
                    return Err(error("write"));
                }
                How::TransientOnWrite => {
                    let kind = ErrorKind::Transient;
                    return Err(Error::new(
                        kind,
                        "misbehave",
                        "an error on purpose in write",
                    ));
                }
                How::LoopOnWrite => spin(),
                How::SleepOnWrite => std::thread::sleep(std::time::Duration::from_secs(3600)),
                _ => {}
            }
        }
        self.written += 1;
        self.rows += batch.num_rows() as u64;
        for column in batch.columns() {
            self.bytes += column.to_data().get_slice_memory_size()? as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Part> {
        if self.flushed >= self.config.at_batch {
            match self.config.how {
                How::PanicOnFlush => panic!("misbehave: a panic on purpose in flush"),
                How::ErrorOnFlush => return Err(error("flush")),
                How::LieOnFlush => self.rows += 1,
                _ => {}
            }
        }
        self.flushed += 1;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut self.rows),
            bytes: std::mem::take(&mut self.bytes),
        })
    }
}

rapidbyte_sdk::export_destination!(Misbehave);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn open(how: &str, at_batch: u64) -> Result<Misbehave> {
        let config = format!(r#"{{"how": "{how}", "at_batch": {at_batch}}}"#);
        rapidbyte_sdk::destination::open(&config)
    }

    fn target() -> Target {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        Target {
            stream: "rows".into(),
            schema: rapidbyte_sdk::ipc::encode_schema(&schema).unwrap(),
            write_mode: WriteMode::Append,
            primary_key: Vec::new(),
            deleted_field: None,
            version_fields: Vec::new(),
            keeps_cursor: false,
        }
    }

    /// Runs all calls with three batches: the receipt's rows, or which error came.
    fn run(how: &str, at_batch: u64) -> Result<u64> {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("n", n)])?;
        let mut destination = open(how, at_batch)?;
        destination.plan(&target())?;
        let run = Run {
            pipeline: "p".into(),
            id: "1".into(),
        };
        destination.fence(&target(), &run)?;
        let mut writer = destination.open_writer(&target(), 1, None)?;
        let mut parts = Vec::new();
        for _ in 0..3 {
            writer.write(&batch)?;
            parts.push(writer.flush()?);
        }
        Ok(destination.commit(Commit::whole("rows", parts))?.rows)
    }

    #[test]
    fn each_way_fails_in_its_call_and_not_before_its_batch() {
        assert_eq!(run("nothing", 0).unwrap(), 6);
        for (how, call) in [
            ("error_on_open", "open"),
            ("error_on_plan", "plan"),
            ("error_on_fence", "fence"),
            ("error_on_open_writer", "open_writer"),
            ("error_on_write", "write"),
            ("transient_on_write", "write"),
            ("error_on_flush", "flush"),
            ("error_on_commit", "commit"),
        ] {
            let message = run(how, 2).unwrap_err().message;
            assert_eq!(message, format!("an error on purpose in {call}"), "{how}");
        }
        assert_eq!(run("error_on_write", 3).unwrap(), 6);
        assert_eq!(run("lie_on_flush", 2).unwrap(), 7);
        assert_eq!(run("lie_on_commit", 0).unwrap(), 5);
        let error = open("error_on_abort", 0)
            .unwrap()
            .abort("rows")
            .unwrap_err();
        assert_eq!(error.code, "abort_failed");
    }

    #[test]
    #[should_panic = "a panic on purpose in write"]
    fn panics_on_write() {
        let _ = run("panic_on_write", 1);
    }
}
