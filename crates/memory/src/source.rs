//! The source: sessions that read tables.

use std::collections::{BTreeMap, VecDeque};

use arrow_array::RecordBatch;
use rapidbyte_runtime::{
    Batch, CheckItem, ConnectorError, ErrorKind, Event, Native, NativeSession, Phase, Position,
    ReadRequest, Result, Selection, SourceSession, Spec, Stream, SyncMode, broken, no_settings,
    record_too_large,
};
use rapidbyte_wire::ipc::{self, Encoder};
use rapidbyte_wire::size::front;
use rapidbyte_wire::types::type_name;

use crate::order::{self, Order, Step};
use crate::{Table, Tables};

/// A session of the source.
pub(crate) struct Reading {
    native: Native,
    tables: Tables,
    spec: Spec,
    /// The snapshot that this session took. It ends with the session.
    snapshot: Option<u64>,
    /// The streams of the read, by the numbers of their requests. They take turns, and the next stream comes first.
    rows: VecDeque<(u32, Rows)>,
}

/// One stream of a read.
struct Rows {
    encoder: Encoder,
    left: VecDeque<Step>,
    batch_bytes: usize,
    max_record_bytes: u64,
}

impl Reading {
    pub(crate) fn new(native: Native, tables: Tables, spec: Spec) -> Self {
        let sync_modes = vec![SyncMode::FullRefresh, SyncMode::Incremental];
        Self {
            native,
            tables,
            spec: Spec {
                sync_modes,
                repeatable_reads: true,
                ..spec
            },
            snapshot: None,
            rows: VecDeque::new(),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot {
            self.tables.lock().snapshots.remove(&snapshot);
        }
    }
}

impl NativeSession for Reading {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl SourceSession for Reading {
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

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let Self { native, tables, .. } = self;
        native.call("session.discover", Phase::Query, || {
            let tables = tables.lock();
            let tables = tables.tables.iter();
            tables.map(|(name, table)| stream(name, table)).collect()
        })
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let Self { native, tables, .. } = self;
        let mut tables = tables.lock();
        native.call("session.snapshot", Phase::Query, || {
            streams.iter().try_for_each(|one| {
                let table = known(&tables.tables, &one.stream)?;
                projection(table, one.columns.as_deref())?;
                let increment = one.increment.as_ref();
                increment.map_or(Ok(()), |increment| {
                    Order::of(table, increment, one.cursor.as_deref()).map(drop)
                })
            })
        })?;
        tables.last_snapshot += 1;
        let (id, now) = (tables.last_snapshot, tables.tables.clone());
        tables.snapshots.insert(id, now);
        if let Some(older) = self.snapshot.replace(id) {
            tables.snapshots.remove(&older);
        }
        Ok(id.to_string())
    }

    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        let Self { native, tables, .. } = self;
        let rows: Vec<Rows> = native.call("session.read", Phase::Query, || {
            let tables = tables.lock();
            let rows = |request: &ReadRequest| {
                let snapshot = request.snapshot.parse().ok();
                let snapshot = snapshot.and_then(|id: u64| tables.snapshots.get(&id));
                let snapshot = snapshot.ok_or_else(|| broken("a snapshot that nobody holds"))?;
                Rows::of(known(snapshot, &request.stream)?, request)
            };
            requests.iter().map(rows).collect()
        })?;
        let schema = |rows: &Rows| rows.encoder.schema_message().to_vec();
        let schemas = rows.iter().map(schema).collect();
        self.rows = (0..).zip(rows).collect();
        Ok(schemas)
    }

    fn next(&mut self, _wait_ms: u32) -> Result<Event> {
        let Self { native, rows, .. } = self;
        native.call("reader.next", Phase::ArrowEncode, || {
            while let Some((number, mut one)) = rows.pop_front() {
                if let Some(event) = one.event(number)? {
                    rows.push_back((number, one));
                    return Ok(event);
                }
            }
            Ok(Event::End)
        })
    }

    fn acknowledge(&mut self, _positions: &[Position]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> bool {
        self.rows.clear();
        true
    }
}

fn stream(name: &str, table: &Table) -> Result<Stream, ConnectorError> {
    let fields = table.schema.fields().iter();
    let rows = table
        .batches
        .iter()
        .map(RecordBatch::num_rows)
        .sum::<usize>();
    Ok(Stream {
        name: name.to_owned(),
        schema: ipc::encode_schema(&table.schema).map_err(broken)?,
        source_types: fields.map(|field| type_name(field)).collect(),
        primary_key: table.key.clone(),
        cursor_fields: order::fields(table),
        estimated_rows: Some(rows as u64),
        estimated_bytes: None,
        inferred: Vec::new(),
        notes: Vec::new(),
    })
}

impl Rows {
    fn of(table: &Table, request: &ReadRequest) -> Result<Self, ConnectorError> {
        let columns = projection(table, request.columns.as_deref())?;
        let steps = match &request.increment {
            None => table.batches.iter().cloned().map(Step::Rows).collect(),
            Some(increment) => {
                Order::of(table, increment, request.cursor.as_deref())?.steps(table)?
            }
        };
        let project = |step| match step {
            Step::Rows(batch) => batch.project(&columns).map(Step::Rows).map_err(broken),
            checkpoint => Ok(checkpoint),
        };
        let schema = table.schema.project(&columns).map_err(broken)?;
        Ok(Self {
            encoder: Encoder::new(&schema).map_err(broken)?,
            left: steps.into_iter().map(project).collect::<Result<_, _>>()?,
            batch_bytes: request.batch_bytes as usize,
            max_record_bytes: request.max_record_bytes,
        })
    }

    /// The next event of the stream with this number. `None` at its end.
    fn event(&mut self, stream: u32) -> Result<Option<Event>, ConnectorError> {
        let batch = match self.take()? {
            None => return Ok(None),
            Some(Step::Checkpoint(cursor)) => {
                return Ok(Some(Event::Checkpoint(Position { stream, cursor })));
            }
            Some(Step::Rows(batch)) => batch,
        };
        let data = self.encoder.encode(&batch).map_err(broken)?;
        let rows = batch.num_rows() as u64;
        Ok(Some(Event::Batch((stream, Batch { data, rows }))))
    }

    /// The next step, with at most `batch_bytes` of rows unless a single row is larger.
    fn take(&mut self) -> Result<Option<Step>, ConnectorError> {
        while let Some(step) = self.left.pop_front() {
            let (batch, rest) = match step {
                Step::Rows(batch) if batch.num_rows() == 0 => continue,
                Step::Rows(batch) => front(&batch, self.batch_bytes, self.max_record_bytes)
                    .map_err(|bytes| record_too_large(bytes, self.max_record_bytes))?,
                checkpoint => return Ok(Some(checkpoint)),
            };
            if let Some(rest) = rest {
                self.left.push_front(Step::Rows(rest));
            }
            return Ok(Some(Step::Rows(batch)));
        }
        Ok(None)
    }
}

fn known<'t>(
    tables: &'t BTreeMap<String, Table>,
    stream: &str,
) -> Result<&'t Table, ConnectorError> {
    tables.get(stream).ok_or_else(|| {
        let text = format!("no table {stream:?}");
        ConnectorError::new(ErrorKind::Schema, "unknown_stream", text)
    })
}

/// The indexes of the wanted columns.
fn projection(table: &Table, wanted: Option<&[String]>) -> Result<Vec<usize>, ConnectorError> {
    match wanted {
        None => Ok((0..table.schema.fields().len()).collect()),
        Some(names) => names
            .iter()
            .map(|name| order::index_of(&table.schema, name))
            .collect(),
    }
}
