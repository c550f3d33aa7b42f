//! The destination: sessions that write tables.

use std::sync::Arc;

use arrow_array::RecordBatch;
use rapidbyte_runtime::{
    Batch, CheckItem, ColumnPlan, ConnectorError, DestinationSession, ErrorKind, Fit, KeptReject,
    LoadRequest, Native, NativeSession, Part, Phase, Plan, Presence, Progress, Receipt, Reject,
    RejectOrigin, Result, Spec, StreamCommit, Target, Worker, WriteMode, broken, no_settings,
};
use rapidbyte_wire::ipc::{self, Decoder};
use rapidbyte_wire::size::batch_bytes;
use rapidbyte_wire::types::type_name;

use crate::rejects::is_replay;
use crate::{Inner, Table, Tables, rejects, upsert};

/// A session of the destination.
pub(crate) struct Writing {
    native: Native,
    tables: Tables,
    spec: Spec,
    /// The streams of the load, by the numbers of their requests.
    load: Vec<Loading>,
}

/// One stream of a load.
struct Loading {
    request: LoadRequest,
    epoch: u64,
    writer: Option<Writer>,
}

struct Writer {
    decoder: Decoder,
    /// Batches that are written and not flushed.
    open: Vec<RecordBatch>,
    /// Parts that are flushed and not committed.
    parts: Vec<Vec<RecordBatch>>,
    /// Rejects that are not committed.
    rejects: Vec<(RejectOrigin, Reject)>,
    /// Whether the next commit replaces the rows of the table.
    replaces: bool,
}

impl Writing {
    pub(crate) fn new(native: Native, tables: Tables, spec: Spec) -> Self {
        Self {
            native,
            tables,
            spec: Spec {
                write_modes: vec![WriteMode::Append, WriteMode::Replace, WriteMode::Upsert],
                supports_checkpoints: true,
                supports_rejects: true,
                commits_together: true,
                names_targets: false,
                has_namespaces: false,
                digest_forms: Vec::new(),
                ..spec
            },
            load: Vec::new(),
        }
    }
}

impl NativeSession for Writing {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl DestinationSession for Writing {
    fn describe(&mut self) -> Result<Spec> {
        Ok(self.spec.clone())
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let native = &self.native;
        native.call("open", Phase::Other, || no_settings(config))
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(vec![self.tables.looked_at()])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let Self { native, tables, .. } = self;
        native.call("session.plan", Phase::Query, || {
            let schema = ipc::decode_schema(&target.schema).map_err(broken)?;
            let tables = tables.lock();
            let table = tables.tables.get(&target.stream);
            let there = table.filter(|_| target.write_mode != WriteMode::Replace);
            let column = |field: &Arc<arrow_schema::Field>| {
                let has_it = |table: &Table| table.schema.fields().iter().any(|one| one == field);
                let is_same = there.is_none_or(has_it);
                ColumnPlan {
                    column: field.name().clone(),
                    target_type: type_name(field),
                    fit: if is_same { Fit::Exact } else { Fit::Refused },
                    note: (!is_same).then(|| "the table does not have this column".to_owned()),
                    stored_type: None,
                }
            };
            let mut columns: Vec<ColumnPlan> = schema.fields().iter().map(column).collect();
            if let Some(table) = there
                && table.schema.fields() != schema.fields()
                && let Some(column) = columns.first_mut()
            {
                column.fit = Fit::Refused;
                column.note = Some("the table has other columns".into());
            }
            Ok(Plan {
                location: target.stream.clone(),
                columns,
                statements: Vec::new(),
                notes: Vec::new(),
                is_new: table.is_none(),
                new_columns: Vec::new(),
            })
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let tables = self.tables.lock();
        let found = tables.progress.get(&key(pipeline, target)).cloned();
        Ok(found)
    }

    fn working(&mut self, _pipeline: &str) -> Result<Vec<Worker>> {
        Ok(Vec::new())
    }

    fn beat(&mut self, _presence: &Presence) -> Result<bool> {
        Ok(false)
    }

    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let tables = self.tables.lock();
        Ok(tables.rejects.page(to, pipeline, after, with_data))
    }

    fn begin(&mut self, requests: &[LoadRequest]) -> Result<Vec<Progress>> {
        let mut tables = self.tables.lock();
        self.load.clear();
        let mut begun = Vec::new();
        for request in requests {
            let LoadRequest { target, run } = request;
            let found = tables.progress.get(&key(&run.pipeline, target));
            let progress = match found {
                None => Progress {
                    epoch: 1,
                    seq: 0,
                    cursor: None,
                    run_id: run.id.clone(),
                    complete: false,
                    lost_rows: None,
                },
                Some(before) if is_replay(target) => before.clone(),
                Some(before) => Progress {
                    epoch: before.epoch + 1,
                    complete: before.complete && before.run_id == run.id,
                    run_id: run.id.clone(),
                    ..before.clone()
                },
            };
            if !is_replay(target) {
                let key = key(&run.pipeline, target);
                tables.progress.insert(key, progress.clone());
            }
            self.load.push(Loading {
                request: request.clone(),
                epoch: progress.epoch,
                writer: None,
            });
            begun.push(progress);
        }
        Ok(begun)
    }

    fn open_writer(&mut self, stream: u32, cursor: Option<&String>) -> Result<()> {
        let Self { native, load, .. } = self;
        native.call("load.open-writer", Phase::Query, || {
            let loading = loading(load, stream)?;
            let target = &loading.request.target;
            loading.writer = Some(Writer {
                decoder: Decoder::new(&target.schema).map_err(broken)?,
                open: Vec::new(),
                parts: Vec::new(),
                rejects: Vec::new(),
                replaces: target.write_mode == WriteMode::Replace && cursor.is_none(),
            });
            Ok(())
        })
    }

    fn write(&mut self, stream: u32, batch: &Batch) -> Result<()> {
        let Self { native, load, .. } = self;
        native.call("writer.write", Phase::ArrowDecode, || {
            let writer = loading(load, stream)?.writer.as_mut();
            let writer = writer.ok_or_else(|| broken(NO_WRITER))?;
            let decoded = writer.decoder.decode(batch.data.clone()).map_err(broken)?;
            if decoded.num_rows() as u64 != batch.rows {
                let text = format!("{} rows in a batch of {}", decoded.num_rows(), batch.rows);
                return Err(broken(text));
            }
            writer.open.push(decoded);
            Ok(())
        })
    }

    fn reject(&mut self, stream: u32, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        let Self { native, load, .. } = self;
        native.call("writer.reject", Phase::Other, || {
            let writer = loading(load, stream)?.writer.as_mut();
            let writer = writer.ok_or_else(|| broken(NO_WRITER))?;
            let rejects = rejects.iter().map(|reject| (origin, reject.clone()));
            writer.rejects.extend(rejects);
            Ok(())
        })
    }

    fn flush(&mut self, stream: u32) -> Result<Part> {
        let Self { native, load, .. } = self;
        native.call("writer.flush", Phase::Flush, || {
            let writer = loading(load, stream)?.writer.as_mut();
            let writer = writer.ok_or_else(|| broken(NO_WRITER))?;
            let part = std::mem::take(&mut writer.open);
            let (rows, bytes) = size(&part);
            writer.parts.push(part);
            let data = (writer.parts.len() as u64 - 1).to_le_bytes().to_vec();
            Ok(Part { data, rows, bytes })
        })
    }

    fn commit(&mut self, commits: &[StreamCommit]) -> Result<Vec<Receipt>> {
        let Self {
            native,
            tables,
            load,
            ..
        } = self;
        native.call("load.commit", Phase::Commit, || {
            let mut tables = tables.lock();
            let mut changes = Vec::new();
            for commit in commits {
                changes.push(loading(load, commit.stream)?.change(commit, &tables)?);
            }
            // Nothing fails from here on: all streams change, or none.
            Ok(changes
                .into_iter()
                .map(|change| change.apply(&mut tables))
                .collect())
        })
    }

    fn finish(&mut self) -> bool {
        self.load.clear();
        true
    }

    fn abort(&mut self) -> Result<()> {
        self.load.clear();
        Ok(())
    }
}

/// The change that a commit makes to one stream.
struct Change {
    key: (String, String),
    /// `None` for a replay, which moves no cursor.
    progress: Option<Progress>,
    rejects: Option<rejects::Change>,
    /// The table as it will be, if rows were written.
    table: Option<Table>,
    receipt: Receipt,
}

impl Loading {
    fn change(&mut self, commit: &StreamCommit, inner: &Inner) -> Result<Change, ConnectorError> {
        let LoadRequest { target, run } = &self.request;
        let key = key(&run.pipeline, target);
        let is_now = |one: &&Progress| (one.epoch, one.seq) == (self.epoch, commit.seq);
        let progress = inner.progress.get(&key).filter(is_now);
        if progress.is_none() && !is_replay(target) {
            let text = "a newer run was let in, or this commit was made before";
            return Err(ConnectorError::new(
                ErrorKind::Superseded,
                "run_superseded",
                text,
            ));
        }
        let progress = progress.filter(|_| !is_replay(target));
        let progress = progress.map(|before| Progress {
            seq: before.seq + 1,
            complete: commit.complete,
            cursor: commit.cursor.clone(),
            ..before.clone()
        });
        let (mut rows, mut table, mut rejects) = (Vec::new(), None, Vec::new());
        if let Some(writer) = &mut self.writer {
            let staged = std::mem::take(&mut writer.parts);
            if staged.len() != commit.parts.len() {
                return Err(broken("a part that was not flushed by this writer"));
            }
            rejects = std::mem::take(&mut writer.rejects);
            rows = staged.into_iter().flatten().collect();
            table = Some(writer.table(target, inner.tables.get(&target.stream), &rows)?);
        }
        let (count, bytes) = size(&rows);
        Ok(Change {
            key,
            progress,
            rejects: inner.rejects.change(&self.request, rejects)?,
            table,
            receipt: Receipt {
                rows: count,
                bytes,
                location: target.stream.clone(),
                deleted: 0,
            },
        })
    }
}

impl Writer {
    /// The table with the rows.
    fn table(
        &mut self,
        target: &Target,
        before: Option<&Table>,
        rows: &[RecordBatch],
    ) -> Result<Table, ConnectorError> {
        let mut table = before.cloned().unwrap_or_else(|| Table {
            schema: Arc::clone(self.decoder.schema()),
            key: target.primary_key.clone(),
            batches: Vec::new(),
        });
        if std::mem::take(&mut self.replaces) {
            table.batches.clear();
            table.schema = Arc::clone(self.decoder.schema());
        }
        match target.write_mode {
            WriteMode::Upsert => {
                table.batches = upsert::merged(&table.schema, target, &table.batches, rows)?;
            }
            _ => table.batches.extend(rows.iter().cloned()),
        }
        Ok(table)
    }
}

impl Change {
    fn apply(self, inner: &mut Inner) -> Receipt {
        if let Some(table) = self.table {
            inner.tables.insert(self.key.1.clone(), table);
        }
        if let Some(rejects) = self.rejects {
            inner.rejects.apply(rejects);
        }
        if let Some(progress) = self.progress {
            inner.progress.insert(self.key, progress);
        }
        self.receipt
    }
}

/// The stream with this number.
fn loading(load: &mut [Loading], stream: u32) -> Result<&mut Loading, ConnectorError> {
    let loading = load.get_mut(stream as usize);
    loading.ok_or_else(|| broken("begin comes first"))
}

const NO_WRITER: &str = "open-writer comes first";

fn key(pipeline: &str, target: &Target) -> (String, String) {
    (pipeline.to_owned(), target.stream.clone())
}

/// The number of rows, and of bytes of Arrow data.
fn size(batches: &[RecordBatch]) -> (u64, u64) {
    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let bytes = batches.iter().map(batch_bytes).sum::<usize>();
    (rows as u64, bytes as u64)
}
