//! Reading tables.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use rapidbyte_runtime::{
    Batch, CheckItem, ConnectorError, ErrorKind, Event, Native, NativeSession, Phase, ReadRequest,
    Result, Selection, SourceSession, Spec, Stream, SyncMode,
};
use rapidbyte_wire::ipc::{self, Encoder};
use rapidbyte_wire::size::batch_bytes;
use rapidbyte_wire::types::type_name;

use crate::{Table, Tables, broken};

/// A session of the source.
pub(crate) struct Reading {
    native: Native,
    tables: Tables,
    spec: Spec,
    /// Dropped with the session.
    snapshot: Option<u64>,
    rows: Option<Rows>,
}

/// One read.
struct Rows {
    encoder: Encoder,
    left: VecDeque<RecordBatch>,
    batch_bytes: usize,
    max_record_bytes: u64,
}

impl Reading {
    pub(crate) fn new(native: Native, tables: Tables, spec: Spec) -> Self {
        let sync_modes = vec![SyncMode::FullRefresh];
        Self {
            native,
            tables,
            spec: Spec { sync_modes, ..spec },
            snapshot: None,
            rows: None,
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

    fn open(&mut self, _config: &str) -> Result<()> {
        Ok(())
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let tables = self.tables.lock().tables.len();
        Ok(vec![CheckItem {
            name: "tables".into(),
            problem: None,
            detail: rapidbyte_wire::counted(tables as u64, "table"),
        }])
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let Self { native, tables, .. } = self;
        native.call("session.discover", Phase::Query, || {
            let tables = tables.lock();
            let tables = tables.tables.iter();
            tables.map(|(name, table)| stream(name, table)).collect()
        })
    }

    fn snapshot(&mut self, _streams: &[Selection]) -> Result<String> {
        let mut tables = self.tables.lock();
        tables.last_snapshot += 1;
        let (id, now) = (tables.last_snapshot, tables.tables.clone());
        tables.snapshots.insert(id, now);
        if let Some(older) = self.snapshot.replace(id) {
            tables.snapshots.remove(&older);
        }
        Ok(id.to_string())
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Vec<u8>> {
        let Self { native, tables, .. } = self;
        let rows = native.call("session.read", Phase::Query, || {
            let tables = tables.lock();
            let snapshot = request.snapshot.parse().ok();
            let snapshot = snapshot.and_then(|id: u64| tables.snapshots.get(&id));
            let snapshot = snapshot.ok_or_else(|| broken("a snapshot that nobody holds"))?;
            let table = snapshot.get(&request.stream).ok_or_else(|| {
                let text = format!("no table {:?}", request.stream);
                ConnectorError::new(ErrorKind::Schema, "unknown_stream", text)
            })?;
            Rows::of(table, request)
        })?;
        let schema = rows.encoder.schema_message().to_vec();
        self.rows = Some(rows);
        Ok(schema)
    }

    fn next(&mut self, _wait_ms: u32) -> Result<Event> {
        let Self { native, rows, .. } = self;
        native.call("reader.next", Phase::ArrowEncode, || {
            let rows = rows.as_mut().ok_or_else(|| broken("read comes first"))?;
            let Some(batch) = rows.take()? else {
                return Ok(Event::End);
            };
            let data = rows.encoder.encode(&batch).map_err(broken)?;
            let rows = batch.num_rows() as u64;
            Ok(Event::Batch(Batch { data, rows }))
        })
    }

    fn finish(&mut self) -> bool {
        self.rows.take().is_some()
    }

    fn acknowledge(&mut self, _stream: &str, _cursor: &str) -> Result<()> {
        Ok(())
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
        cursor_fields: Vec::new(),
        estimated_rows: Some(rows as u64),
        estimated_bytes: None,
        notes: Vec::new(),
    })
}

impl Rows {
    fn of(table: &Table, request: &ReadRequest) -> Result<Self, ConnectorError> {
        let schema = &table.schema;
        let columns: Vec<usize> = match &request.columns {
            None => (0..schema.fields().len()).collect(),
            Some(names) => {
                let index = |name: &String| schema.index_of(name).map_err(broken);
                names.iter().map(index).collect::<Result<_, _>>()?
            }
        };
        let batches = table.batches.iter();
        let left = batches.map(|batch| batch.project(&columns).map_err(broken));
        Ok(Self {
            encoder: Encoder::new(&schema.project(&columns).map_err(broken)?).map_err(broken)?,
            left: left.collect::<Result<_, _>>()?,
            batch_bytes: request.batch_bytes as usize,
            max_record_bytes: request.max_record_bytes,
        })
    }

    /// The next rows, as many as are due in one batch.
    fn take(&mut self) -> Result<Option<RecordBatch>, ConnectorError> {
        while let Some(mut batch) = self.left.pop_front() {
            if batch.num_rows() == 0 {
                continue;
            }
            // Halves it until it fits: its rows may be of very different sizes.
            while batch_bytes(&batch) > self.batch_bytes && batch.num_rows() > 1 {
                let half = batch.num_rows() / 2;
                self.left
                    .push_front(batch.slice(half, batch.num_rows() - half));
                batch = batch.slice(0, half);
            }
            let bytes = batch_bytes(&batch);
            if batch.num_rows() == 1 && bytes as u64 > self.max_record_bytes {
                let text = format!("a row of {bytes} bytes, above {}", self.max_record_bytes);
                return Err(
                    ConnectorError::new(ErrorKind::Data, "record_too_large", text)
                        .hint("raise resources.max_record_bytes"),
                );
            }
            return Ok(Some(batch));
        }
        Ok(None)
    }
}
