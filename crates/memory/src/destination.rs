//! The destination: sessions that write tables.

use std::sync::Arc;

use arrow_array::RecordBatch;
use rapidbyte_runtime::{
    Batch, CheckItem, ColumnPlan, ConnectorError, DestinationSession, ErrorKind, Fit, Native,
    NativeSession, Part, Phase, Plan, Presence, Progress, Receipt, Result, Run, Spec, Target,
    Worker, WriteMode,
};
use rapidbyte_wire::ipc::{self, Decoder};
use rapidbyte_wire::size::batch_bytes;
use rapidbyte_wire::types::type_name;

use crate::upsert;
use crate::{Inner, Table, Tables, broken, no_settings};

/// A session of the destination.
pub(crate) struct Writing {
    native: Native,
    tables: Tables,
    spec: Spec,
    /// The run that fenced last in this session.
    fenced: Option<Fenced>,
    writer: Option<Writer>,
}

struct Fenced {
    run: Run,
    target: Target,
    epoch: u64,
}

struct Writer {
    decoder: Decoder,
    /// Batches that are written and not flushed.
    open: Vec<RecordBatch>,
    /// Parts that are flushed and not committed.
    parts: Vec<Vec<RecordBatch>>,
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
                ..spec
            },
            fenced: None,
            writer: None,
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

    fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress> {
        let mut tables = self.tables.lock();
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
            Some(before) => Progress {
                epoch: before.epoch + 1,
                complete: before.complete && before.run_id == run.id,
                run_id: run.id.clone(),
                ..before.clone()
            },
        };
        tables
            .progress
            .insert(key(&run.pipeline, target), progress.clone());
        self.fenced = Some(Fenced {
            run: run.clone(),
            target: target.clone(),
            epoch: progress.epoch,
        });
        Ok(progress)
    }

    fn open_writer(&mut self, target: &Target, _epoch: u64, cursor: Option<&String>) -> Result<()> {
        let decoder = self.native.call("session.open-writer", Phase::Query, || {
            Decoder::new(&target.schema).map_err(broken)
        })?;
        self.writer = Some(Writer {
            decoder,
            open: Vec::new(),
            parts: Vec::new(),
            replaces: target.write_mode == WriteMode::Replace && cursor.is_none(),
        });
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        let Self { native, writer, .. } = self;
        native.call("writer.write", Phase::ArrowDecode, || {
            let writer = writer.as_mut().ok_or_else(|| broken(NO_WRITER))?;
            let decoded = writer.decoder.decode(batch.data.clone()).map_err(broken)?;
            if decoded.num_rows() as u64 != batch.rows {
                let text = format!("{} rows in a batch of {}", decoded.num_rows(), batch.rows);
                return Err(broken(text));
            }
            writer.open.push(decoded);
            Ok(())
        })
    }

    fn flush(&mut self) -> Result<Part> {
        let Self { native, writer, .. } = self;
        native.call("writer.flush", Phase::Flush, || {
            let writer = writer.as_mut().ok_or_else(|| broken(NO_WRITER))?;
            let part = std::mem::take(&mut writer.open);
            let (rows, bytes) = size(&part);
            writer.parts.push(part);
            let data = (writer.parts.len() as u64 - 1).to_le_bytes().to_vec();
            Ok(Part { data, rows, bytes })
        })
    }

    fn commit(
        &mut self,
        _stream: &str,
        parts: &[Part],
        seq: u64,
        cursor: Option<&String>,
        complete: bool,
    ) -> Result<Receipt> {
        let Self {
            native,
            tables,
            fenced,
            writer,
            ..
        } = self;
        native.call("session.commit", Phase::Commit, || {
            let fenced = fenced.as_ref().ok_or_else(|| broken("fence comes first"))?;
            let key = key(&fenced.run.pipeline, &fenced.target);
            let mut tables = tables.lock();
            let Inner {
                tables, progress, ..
            } = &mut *tables;
            let progress = progress
                .get_mut(&key)
                .filter(|progress| (progress.epoch, progress.seq) == (fenced.epoch, seq));
            let progress = progress.ok_or_else(|| {
                let text = "a newer run was let in, or this commit was made before";
                ConnectorError::new(ErrorKind::Superseded, "run_superseded", text)
            })?;
            let mut rows = Vec::new();
            if let Some(writer) = writer {
                let staged = std::mem::take(&mut writer.parts);
                if staged.len() != parts.len() {
                    return Err(broken("a part that was not flushed by this writer"));
                }
                rows = staged.into_iter().flatten().collect();
                let table = tables
                    .entry(fenced.target.stream.clone())
                    .or_insert_with(|| Table {
                        schema: Arc::clone(writer.decoder.schema()),
                        key: fenced.target.primary_key.clone(),
                        batches: Vec::new(),
                    });
                if std::mem::take(&mut writer.replaces) {
                    table.batches.clear();
                    table.schema = Arc::clone(writer.decoder.schema());
                }
                match fenced.target.write_mode {
                    WriteMode::Upsert => {
                        let (schema, there) = (&table.schema, &table.batches);
                        table.batches = upsert::merged(schema, &fenced.target, there, &rows)?;
                    }
                    _ => table.batches.extend(rows.iter().cloned()),
                }
            }
            progress.seq += 1;
            progress.complete = complete;
            progress.cursor = cursor.cloned();
            let (rows, bytes) = size(&rows);
            Ok(Receipt {
                rows,
                bytes,
                location: fenced.target.stream.clone(),
            })
        })
    }

    fn finish(&mut self) -> bool {
        self.writer.take().is_some()
    }

    fn abort(&mut self, _stream: &str) -> Result<()> {
        self.writer = None;
        Ok(())
    }
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
