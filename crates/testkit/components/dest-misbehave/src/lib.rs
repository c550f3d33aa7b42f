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
    /// The call in which what never comes back or dies happens.
    #[serde(default)]
    pub at: Call,
}

/// A call of the contract.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Call {
    Open,
    Plan,
    Fence,
    OpenWriter,
    #[default]
    Write,
    Flush,
    Commit,
}

/// Each does one wrong thing.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Nothing.
    Nothing,
    /// Computes for ever in the call `at`, as the next ones go wrong there.
    Loop,
    /// Sleeps for an hour.
    Sleep,
    /// Panics with a message of 100 MB.
    HugePanic,
    /// Panics.
    Panic,
    /// Runs into an `unreachable` instruction without a message.
    Trap,
    /// Allocates and touches memory until there is none.
    Memory,
    /// Calls itself until the stack is used up.
    Stack,
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

#[cfg(target_family = "wasm")]
fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_family = "wasm"))]
fn trap() -> ! {
    std::process::abort()
}

fn hoard() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(std::hint::black_box(vec![1u8; 1 << 20]));
    }
}

/// Never ends: the depth is hidden from the compiler, and the sum keeps it from becoming a loop.
fn descend(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    if std::hint::black_box(false) {
        return depth;
    }
    descend(depth + 1) + frame[31]
}

impl Config {
    /// Goes wrong if it is due in this call.
    fn act_at(&self, call: Call) {
        if self.at != call {
            return;
        }
        match self.how {
            How::Loop => spin(),
            How::Sleep => std::thread::sleep(std::time::Duration::from_secs(3600)),
            How::HugePanic => panic!("{}", "p".repeat(100_000_000)),
            How::Panic => panic!("misbehave: a panic on purpose"),
            How::Trap => trap(),
            How::Memory => hoard(),
            How::Stack => {
                std::hint::black_box(descend(0));
            }
            _ => {}
        }
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
        config.act_at(Call::Open);
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
        self.0.act_at(Call::Plan);
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
        self.0.act_at(Call::Fence);
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
        self.0.act_at(Call::OpenWriter);
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
        self.0.act_at(Call::Commit);
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
            self.config.act_at(Call::Write);
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
            self.config.act_at(Call::Flush);
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
