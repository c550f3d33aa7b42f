//! The destination: hands batches to the program as they arrive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never, select_biased};
use rapidbyte_runtime::{
    Batch, Cancel, CheckItem, ColumnPlan, ConnectorError, DestinationSession, ErrorKind, Fit,
    LoadRequest, Native, NativeConnector, NativeSession, Part, Phase, Plan, Presence, Progress,
    Receipt, Result, Spec, StreamCommit, Target, Worker, WriteMode, broken, no_settings,
};
use rapidbyte_wire::ipc::{self, Decoder};
use rapidbyte_wire::sampled::unsampled;
use rapidbyte_wire::size::batch_bytes;
use rapidbyte_wire::types::{is_json_strings, is_program_value, type_name, unmarked};

use crate::spec;

/// A destination hands over one of these at a time.
#[derive(Debug, Clone)]
pub enum Taken {
    /// A stream begins. Its batches have this schema. If an attempt fails before its first rows, the stream begins again.
    Begun(SchemaRef),
    /// Rows.
    Rows(RecordBatch),
    /// The stream is complete. Without this, the rows are only the first ones.
    Complete,
}

/// Takes what arrives of the stream with this name.
type Take = dyn Fn(&str, Taken) -> Result<(), ConnectorError> + Send + Sync;

/// A destination of the program, not yet part of an engine.
#[derive(Clone)]
pub struct Output(Arc<Inner>);

struct Inner {
    to: To,
    /// The streams that have begun, and whether rows of them were handed over.
    begun: Mutex<BTreeMap<String, bool>>,
}

enum To {
    Function(Box<Take>),
    Channel(Sender<Taken>),
}

/// The batches of the one stream that an [`Output::channel`] gets, in order.
pub struct Received {
    from: Receiver<Taken>,
    schema: Option<SchemaRef>,
    is_complete: bool,
}

impl Output {
    /// Calls `take` with all that arrives, from the thread of the stream's destination, which waits until it returns. The
    /// streams of a run move at the same time if `parallelism` says so.
    pub fn to(
        take: impl Fn(&str, Taken) -> Result<(), ConnectorError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(To::Function(Box::new(take)))
    }

    /// Sends the batches of one stream to another thread. One batch waits while that thread works on the batch before
    /// it. A run with several streams is refused as `several_streams`.
    pub fn channel() -> (Self, Received) {
        let (to, from) = bounded(1);
        let received = Received {
            from,
            schema: None,
            is_complete: false,
        };
        (Self::new(To::Channel(to)), received)
    }

    fn new(to: To) -> Self {
        let begun = Mutex::default();
        Self(Arc::new(Inner { to, begun }))
    }

    /// A destination for `use: NAME`. It appends rows, and each of its streams can be moved once: a second attempt after
    /// rows were handed over is refused as `rows_handed_over`.
    pub fn destination(self, name: &str) -> NativeConnector {
        let of = name.to_owned();
        NativeConnector::destination(name, move |native| {
            Box::new(Writing {
                native,
                spec: Spec {
                    write_modes: vec![WriteMode::Append],
                    ..spec(&of, "Gives batches to this program")
                },
                output: Arc::clone(&self.0),
                load: None,
            })
        })
    }
}

impl Inner {
    fn begun(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, cancel: &Cancel, stream: &str, one: Taken) -> Result<(), ConnectorError> {
        let to = match &self.to {
            To::Function(take) => return take(stream, one),
            To::Channel(to) => to,
        };
        let (stop, stopped) = bounded::<()>(1);
        let _woken = cancel.on_cancel(move || {
            // The channel is full if it was cancelled before, and one message is enough.
            let _ = stop.try_send(());
        });
        let gone = || {
            let text = "nobody reads the rows any more";
            ConnectorError::new(ErrorKind::Data, "reader_gone", text)
                .hint("read to the end, or cancel the run")
        };
        select_biased! {
            send(to, one) -> sent => sent.map_err(|_| gone()),
            // The host sees the cancelled run.
            recv(stopped) -> _ => Err(gone()),
        }
    }
}

impl Received {
    /// The schema of the batches, once the run has begun to write. `None` if it ended before.
    pub fn schema(&mut self) -> Option<SchemaRef> {
        self.schema_within(Duration::MAX).ok()
    }

    /// The same, which waits so long at most.
    ///
    /// # Errors
    /// It is not known yet, or the run ended before.
    pub fn schema_within(&mut self, time: Duration) -> Result<SchemaRef, RecvTimeoutError> {
        if let Some(schema) = &self.schema {
            return Ok(Arc::clone(schema));
        }
        match self.receive(time)? {
            Taken::Begun(schema) => {
                self.schema = Some(Arc::clone(&schema));
                Ok(schema)
            }
            // A stream begins with its schema.
            Taken::Rows(_) | Taken::Complete => Err(RecvTimeoutError::Disconnected),
        }
    }

    /// The next batch, if it comes within this time. `None` after the last one.
    ///
    /// # Errors
    /// None has come yet, or the run ended before the stream was complete.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<RecordBatch>, RecvTimeoutError> {
        while !self.is_complete {
            match self.receive(time)? {
                Taken::Begun(schema) => self.schema = Some(schema),
                Taken::Rows(batch) => return Ok(Some(batch)),
                Taken::Complete => self.is_complete = true,
            }
        }
        Ok(None)
    }

    fn receive(&self, time: Duration) -> Result<Taken, RecvTimeoutError> {
        match time {
            Duration::MAX => Ok(self.from.recv()?),
            time => self.from.recv_timeout(time),
        }
    }

    /// Whether all rows of the stream came. If not, the run says why.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes no more batches: the run ends as `reader_gone` unless it has written all.
    pub fn close(&mut self) {
        self.from = never();
    }
}

impl Iterator for Received {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        self.next_within(Duration::MAX).ok()?
    }
}

/// A session of the destination.
struct Writing {
    native: Native,
    spec: Spec,
    output: Arc<Inner>,
    load: Option<Load>,
}

/// The load of one stream.
struct Load {
    stream: String,
    schema: Vec<u8>,
    decoder: Option<Decoder>,
    /// Handed over and not flushed.
    open: (u64, u64),
    /// Flushed and not committed.
    flushed: (u64, u64),
    seq: u64,
}

impl NativeSession for Writing {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

fn begun(load: &mut Option<Load>) -> Result<&mut Load, ConnectorError> {
    load.as_mut().ok_or_else(|| broken("begin comes first"))
}

/// The columns without the marks of samples, and of values that [`Input`](crate::Input) gives them.
fn as_given(schema: &Schema) -> Schema {
    let plain = unmarked(schema);
    let fields = schema.fields().iter().zip(plain.fields());
    let fields =
        fields.map(
            |(field, plain)| match is_program_value(field) && !is_json_strings(field) {
                true => Arc::clone(plain),
                false => Arc::new(unsampled(field)),
            },
        );
    let fields: Vec<Arc<Field>> = fields.collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
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
        Ok(Vec::new())
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        self.native.call("session.plan", Phase::Query, || {
            let schema = ipc::decode_schema(&target.schema).map_err(broken)?;
            let column = |field: &Arc<Field>| ColumnPlan {
                column: field.name().clone(),
                target_type: type_name(field),
                fit: Fit::Exact,
                note: None,
                stored_type: None,
            };
            Ok(Plan {
                location: target.stream.clone(),
                columns: schema.fields().iter().map(column).collect(),
                statements: Vec::new(),
                notes: Vec::new(),
                is_new: true,
                new_columns: Vec::new(),
            })
        })
    }

    fn progress(&mut self, _target: &Target, _pipeline: &str) -> Result<Option<Progress>> {
        Ok(None)
    }

    fn working(&mut self, _pipeline: &str) -> Result<Vec<Worker>> {
        Ok(Vec::new())
    }

    fn beat(&mut self, _presence: &Presence) -> Result<bool> {
        Ok(false)
    }

    fn begin(&mut self, requests: &[LoadRequest]) -> Result<Vec<Progress>> {
        let Self {
            native,
            output,
            load,
            ..
        } = self;
        native.call("session.begin", Phase::Query, || {
            let [request] = requests else {
                return Err(broken("one stream is loaded at a time"));
            };
            let stream = &request.target.stream;
            let mut begun = output.begun();
            if begun.get(stream) == Some(&true) {
                let text = format!("rows of {stream:?} were handed over before, and stay so");
                return Err(
                    ConnectorError::new(ErrorKind::Data, "rows_handed_over", text)
                        .hint("run again, and take the rows from the beginning"),
                );
            }
            let is_other = begun.keys().any(|known| known != stream);
            if matches!(output.to, To::Channel(_)) && is_other {
                let text = format!("{stream:?} is a second stream, and the program reads one");
                return Err(
                    ConnectorError::new(ErrorKind::Config, "several_streams", text)
                        .hint("select one stream"),
                );
            }
            begun.insert(stream.clone(), false);
            *load = Some(Load {
                stream: stream.clone(),
                schema: request.target.schema.clone(),
                decoder: None,
                open: (0, 0),
                flushed: (0, 0),
                seq: 0,
            });
            // An epoch of 0: runs of this program do not fence each other.
            Ok(vec![Progress {
                epoch: 0,
                seq: 0,
                cursor: None,
                run_id: request.run.id.clone(),
                complete: false,
                lost_rows: None,
            }])
        })
    }

    fn open_writer(&mut self, _stream: u32, _cursor: Option<&String>) -> Result<()> {
        let Self {
            native,
            output,
            load,
            ..
        } = self;
        native.call("load.open-writer", Phase::Query, || {
            let load = begun(load)?;
            let schema = ipc::decode_schema(&load.schema).map_err(broken)?;
            let schema = ipc::encode_schema(&as_given(&schema)).map_err(broken)?;
            let decoder = Decoder::new(&schema).map_err(broken)?;
            let schema = Arc::clone(decoder.schema());
            load.decoder = Some(decoder);
            let cancel = &native.sandbox().cancel;
            output.hand_over(cancel, &load.stream, Taken::Begun(schema))
        })
    }

    fn write(&mut self, _stream: u32, batch: &Batch) -> Result<()> {
        let Self {
            native,
            output,
            load,
            ..
        } = self;
        native.call("writer.write", Phase::Flush, || {
            let load = begun(load)?;
            let decoder = load.decoder.as_mut();
            let decoder = decoder.ok_or_else(|| broken("open-writer comes first"))?;
            let decoded = decoder.decode(batch.data.clone()).map_err(broken)?;
            if decoded.num_rows() as u64 != batch.rows {
                let text = format!("{} rows in a batch of {}", decoded.num_rows(), batch.rows);
                return Err(broken(text));
            }
            load.open.0 += batch.rows;
            load.open.1 += batch_bytes(&decoded) as u64;
            output.begun().insert(load.stream.clone(), true);
            let cancel = &native.sandbox().cancel;
            output.hand_over(cancel, &load.stream, Taken::Rows(decoded))
        })
    }

    fn flush(&mut self, _stream: u32) -> Result<Part> {
        let Self { native, load, .. } = self;
        native.call("writer.flush", Phase::Flush, || {
            let load = begun(load)?;
            let (rows, bytes) = std::mem::take(&mut load.open);
            load.flushed.0 += rows;
            load.flushed.1 += bytes;
            Ok(Part {
                data: Vec::new(),
                rows,
                bytes,
            })
        })
    }

    fn commit(&mut self, commits: &[StreamCommit]) -> Result<Vec<Receipt>> {
        let Self {
            native,
            output,
            load,
            ..
        } = self;
        native.call("load.commit", Phase::Commit, || {
            let load = begun(load)?;
            let [commit] = commits else {
                return Err(broken("one stream is committed at a time"));
            };
            if commit.seq != load.seq {
                return Err(broken(format!(
                    "commit {}, expected {}",
                    commit.seq, load.seq
                )));
            }
            load.seq += 1;
            if commit.complete {
                let cancel = &native.sandbox().cancel;
                output.hand_over(cancel, &load.stream, Taken::Complete)?;
            }
            let (rows, bytes) = std::mem::take(&mut load.flushed);
            Ok(vec![Receipt {
                rows,
                bytes,
                location: load.stream.clone(),
                deleted: 0,
            }])
        })
    }

    fn finish(&mut self) -> bool {
        self.load = None;
        true
    }

    fn abort(&mut self) -> Result<()> {
        self.load = None;
        Ok(())
    }
}
