//! A destination that does one wrong thing, for tests of the host ([`How`] lists them).
//!
//! Otherwise it counts rows and keeps nothing, as `dest-null` does. For tests to see, it logs `opened`
//! when the host opens it, and `aborted` with the stream's name when the host aborts the load.

use misdeeds::Deed;
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;

/// The keys under `config:`.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The one wrong thing.
    pub how: How,
    /// How many batches are written well before a wrong `write`, and how many parts are flushed
    /// well before a wrong `flush`.
    #[serde(default)]
    pub at_batch: u64,
    /// The call that never returns or dies.
    #[serde(default)]
    pub at: Call,
}

/// A call of the contract.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Call {
    Open,
    Check,
    Plan,
    /// Of a run that retries: `write` fails with a transient error.
    Progress,
    Working,
    /// The first one; the host is not asked to come again.
    Beat,
    /// The last beat, which says that the run is over. It has a session of its own.
    LastBeat,
    Begin,
    OpenWriter,
    #[default]
    Write,
    Flush,
    Commit,
    /// The source has to fail for that.
    Abort,
    /// The host never does that: it drops the whole instance.
    Drop,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Check => "check",
            Self::Plan => "plan",
            Self::Progress => "progress",
            Self::Working => "working",
            Self::Beat => "beat",
            Self::LastBeat => "last_beat",
            Self::Begin => "begin",
            Self::OpenWriter => "open_writer",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Commit => "commit",
            Self::Abort => "abort",
            Self::Drop => "drop",
        }
    }
}

/// Each does one wrong thing.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Nothing.
    Nothing,
    /// An error of kind data, in the call `at`.
    Error,
    /// The same of kind transient.
    Transient,
    /// `flush` gives a part of one row too many.
    LieOnFlush,
    /// `commit` gives a receipt of one row too few.
    LieOnCommit,
    /// `plan` says that it needs a million columns.
    LieOnPlan,
    /// `working` names 100,000 runs.
    ManyWorkers,
    /// `working` names a run in 2 MB.
    LongWorker,
    /// `working` names a run in 100 MB.
    HugeWorker,
    /// `abort` gives an error of its own (`abort_failed`).
    ErrorOnAbort,
    /// Never comes back or dies, in the call `at`.
    #[serde(untagged)]
    Deed(Deed),
}

/// The connector, opened with one configuration.
pub struct Misbehave(Config);

impl Drop for Misbehave {
    fn drop(&mut self) {
        // Nobody hears of an error here.
        let _ = self.0.act_at(Call::Drop);
    }
}

/// Counts one stream until it goes wrong.
pub struct Misbehaving {
    config: Config,
    stream: String,
    written: u64,
    flushed: u64,
    rows: u64,
    bytes: u64,
}

impl Config {
    /// Goes wrong if it is due in this call.
    fn act_at(&self, call: Call) -> Result<()> {
        if self.at != call {
            return Ok(());
        }
        let text = format!("an error on purpose in {}", call.name());
        match self.how {
            How::Deed(deed) => deed.act(),
            How::Error => return Err(Error::data("misbehave", text).hint("expect it")),
            How::Transient => return Err(Error::new(ErrorKind::Transient, "misbehave", text)),
            _ => {}
        }
        Ok(())
    }
}

impl Destination for Misbehave {
    type Config = Config;
    type Load = Misbehaving;
    const NAME: &str = "dest-misbehave";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Does one wrong thing, for tests of the host";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace];

    fn open(config: Config) -> Result<Self> {
        config.act_at(Call::Open)?;
        log::debug("opened");
        Ok(Self(config))
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        self.0.act_at(Call::Check)?;
        Ok(vec![CheckItem::ok(
            "misbehave",
            format!("{:?}", self.0.how),
        )])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        self.0.act_at(Call::Plan)?;
        let schema = target.arrow_schema()?;
        let columns = schema.fields().iter().map(|field| ColumnPlan {
            column: field.name().clone(),
            target_type: type_name(field),
            fit: Fit::Exact,
            note: None,
            stored_type: None,
        });
        let mut columns: Vec<ColumnPlan> = columns.collect();
        if let (How::LieOnPlan, Some(first)) = (self.0.how, columns.first().cloned()) {
            columns.resize(1_000_000, first);
        }
        Ok(Plan {
            location: "misbehave:".into(),
            columns,
            statements: Vec::new(),
            notes: Vec::new(),
            is_new: false,
            new_columns: Vec::new(),
        })
    }

    fn progress(&mut self, _target: &Target, _pipeline: &str) -> Result<Option<Progress>> {
        self.0.act_at(Call::Progress)?;
        Ok(None)
    }

    fn working(&mut self, _pipeline: &str) -> Result<Vec<Worker>> {
        self.0.act_at(Call::Working)?;
        let worker = |run_id: String| Worker {
            run_id,
            place: "nowhere".into(),
            seconds: 1,
            process: None,
        };
        Ok(match self.0.how {
            How::ManyWorkers => vec![worker("r".into()); 100_000],
            How::LongWorker => vec![worker("r".repeat(2_000_000))],
            How::HugeWorker => vec![worker("r".repeat(misdeeds::HUNDRED_MB))],
            _ => Vec::new(),
        })
    }

    fn beat(&mut self, presence: &Presence) -> Result<bool> {
        self.0.act_at(Call::Beat)?;
        if presence.is_over {
            self.0.act_at(Call::LastBeat)?;
        }
        Ok(self.0.at == Call::LastBeat)
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(Misbehaving, Progress)> {
        self.0.act_at(Call::Begin)?;
        let load = Misbehaving {
            config: self.0,
            stream: target.stream.clone(),
            written: 0,
            flushed: 0,
            rows: 0,
            bytes: 0,
        };
        let progress = Progress {
            epoch: 1,
            ..Progress::unfenced(&run.id)
        };
        Ok((load, progress))
    }
}

impl Load for Misbehaving {
    fn open_writer(&mut self, _cursor: Option<&str>) -> Result<()> {
        self.config.act_at(Call::OpenWriter)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.written >= self.config.at_batch {
            self.config.act_at(Call::Write)?;
            if self.config.at == Call::Progress {
                // It is asked only by a run that tries again.
                let kind = ErrorKind::Transient;
                return Err(Error::new(
                    kind,
                    "misbehave",
                    "an error on purpose in write",
                ));
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
            self.config.act_at(Call::Flush)?;
            if self.config.how == How::LieOnFlush {
                self.rows += 1;
            }
        }
        self.flushed += 1;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut self.rows),
            bytes: std::mem::take(&mut self.bytes),
        })
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let rows = commit.rows();
        self.config.act_at(Call::Commit)?;
        let rows = match self.config.how {
            How::LieOnCommit => rows.saturating_sub(1),
            _ => rows,
        };
        Ok(Receipt {
            rows,
            bytes: commit.parts.iter().map(|part| part.bytes).sum(),
            location: "misbehave:".into(),
            deleted: 0,
        })
    }

    fn abort(self) -> Result<()> {
        log::info(format_args!("aborted {}", self.stream));
        self.config.act_at(Call::Abort)?;
        let text = "an error on purpose in abort";
        match self.config.how {
            How::ErrorOnAbort => Err(Error::new(ErrorKind::Internal, "abort_failed", text)),
            _ => Ok(()),
        }
    }
}

rapidbyte_sdk::export_destination!(Misbehave);

#[cfg(test)]
mod tests {
    use super::*;
    use rapidbyte_sdk::destination::Session;
    use std::sync::Arc;

    fn open(how: &str, at: &str, at_batch: u64) -> Result<Session<Misbehave>> {
        let config = format!(r#"{{"how": "{how}", "at": "{at}", "at_batch": {at_batch}}}"#);
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
            dedup_fields: Vec::new(),
            name: None,
            namespace: None,
            is_incremental: false,
            schema_changes: SchemaChanges::default(),
            rejects: None,
            deletes: None,
            repairs: None,
            stages: false,
        }
    }

    fn request() -> LoadRequest {
        LoadRequest {
            target: target(),
            run: Run {
                pipeline: "p".into(),
                id: "1".into(),
            },
        }
    }

    /// Runs all calls with three batches: the receipt's rows, or which error came.
    fn run(how: &str, at: &str, at_batch: u64) -> Result<u64> {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("n", n)])?;
        let mut destination = open(how, at, at_batch)?;
        destination.plan(&target())?;
        let mut load = destination.begin(&[request()])?;
        load.open_writer(None)?;
        let mut parts = Vec::new();
        for _ in 0..3 {
            load.write(&batch)?;
            parts.push(load.flush()?);
        }
        Ok(load.commit(Commit::whole("rows", parts))?.rows)
    }

    #[test]
    fn each_way_fails_in_its_call_and_not_before_its_batch() {
        assert_eq!(run("nothing", "write", 0).unwrap(), 6);
        for call in [
            "open",
            "plan",
            "begin",
            "open_writer",
            "write",
            "flush",
            "commit",
        ] {
            for how in ["error", "transient"] {
                let message = run(how, call, 2).unwrap_err().message;
                assert_eq!(message, format!("an error on purpose in {call}"), "{how}");
            }
        }
        assert_eq!(run("error", "write", 3).unwrap(), 6);
        assert_eq!(run("lie_on_flush", "write", 2).unwrap(), 7);
        assert_eq!(run("lie_on_commit", "write", 0).unwrap(), 5);
        let again = run("loop", "progress", 1).unwrap_err();
        assert!(matches!(again.kind, ErrorKind::Transient));
        let mut fenced = open("error_on_abort", "write", 0).unwrap();
        let mut load = fenced.begin(&[request()]).unwrap();
        let error = load.abort().unwrap_err();
        assert_eq!(error.code, "abort_failed");
    }

    #[test]
    #[should_panic = "a panic on purpose"]
    fn panics_on_write() {
        let _ = run("panic", "write", 1);
    }
}
