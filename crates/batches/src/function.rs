//! The transform: a function of the program that makes batches of batches.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use rapidbyte_runtime::{
    Batch, ConnectorError, ErrorKind, Native, NativeConnector, NativeSession, Phase, Relation,
    Result, Spec, TransformPlan, TransformSession, broken, no_settings,
};
use rapidbyte_wire::ipc::{self, Decoder, Encoder};
use rapidbyte_wire::size::front;

use crate::{columns, spec};

/// The most bytes of a batch that the transform gives, unless a row is larger.
const PIECE_BYTES: usize = 1 << 20;

/// Gives the columns after the transform of the stream with this name.
type Columns = dyn Fn(&str, &SchemaRef) -> Result<SchemaRef, ConnectorError> + Send + Sync;
/// Gives the rows that come of the rows of one batch, in the columns that were planned.
type Apply =
    dyn Fn(&str, RecordBatch, &SchemaRef) -> Result<Vec<RecordBatch>, ConnectorError> + Send + Sync;

/// A transform of the program, not yet part of an engine.
#[derive(Clone)]
pub struct Function(Arc<Inner>);

struct Inner {
    columns: Box<Columns>,
    apply: Box<Apply>,
}

impl Function {
    /// Calls `columns` with the name of a stream and its columns when the stream is planned and when its rows begin, and
    /// `apply` with each batch and the columns that `columns` gave, from the thread of the stage. Batches of other columns
    /// are refused as `other_columns`.
    pub fn new(
        columns: impl Fn(&str, &SchemaRef) -> Result<SchemaRef, ConnectorError> + Send + Sync + 'static,
        apply: impl Fn(&str, RecordBatch, &SchemaRef) -> Result<Vec<RecordBatch>, ConnectorError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            columns: Box::new(columns),
            apply: Box::new(apply),
        }))
    }

    /// A transform for `use: NAME`.
    pub fn transform(self, name: &str) -> NativeConnector {
        let of = name.to_owned();
        NativeConnector::transform(name, move |native| {
            Box::new(Applying {
                native,
                spec: spec(&of, "Calls a function of this program"),
                function: Arc::clone(&self.0),
                stream: None,
            })
        })
    }
}

/// A session of the transform.
struct Applying {
    native: Native,
    spec: Spec,
    function: Arc<Inner>,
    stream: Option<Stream>,
}

/// The transform of one stream.
struct Stream {
    name: String,
    decoder: Decoder,
    schema: SchemaRef,
    encoder: Encoder,
    /// Rows of the last `put`.
    made: VecDeque<RecordBatch>,
}

impl NativeSession for Applying {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl Inner {
    fn planned(&self, input: &Relation) -> Result<SchemaRef, ConnectorError> {
        let schema = Arc::new(ipc::decode_schema(&input.schema).map_err(broken)?);
        (self.columns)(&input.stream, &schema)
    }
}

fn begun(stream: &mut Option<Stream>) -> Result<&mut Stream, ConnectorError> {
    stream.as_mut().ok_or_else(|| broken("begin comes first"))
}

impl TransformSession for Applying {
    fn describe(&mut self) -> Result<Spec> {
        Ok(self.spec.clone())
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let native = &self.native;
        native.call("open", Phase::Other, || no_settings(config))
    }

    fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        let Self {
            native, function, ..
        } = self;
        native.call("session.plan", Phase::Query, || {
            let before = ipc::decode_schema(&input.schema).map_err(broken)?;
            let after = function.planned(input)?;
            // A column that the function left alone has its type in the source still.
            let source_type = |field: &Arc<Field>| {
                let at = before.index_of(field.name()).ok();
                let same = at.filter(|at| before.field(*at).data_type() == field.data_type());
                same.and_then(|at| input.source_types.get(at).cloned())
                    .unwrap_or_default()
            };
            let has = |name: &String| after.index_of(name).is_ok();
            let key = &input.primary_key;
            Ok(TransformPlan {
                output: Relation {
                    stream: input.stream.clone(),
                    schema: ipc::encode_schema(&after).map_err(broken)?,
                    source_types: after.fields().iter().map(source_type).collect(),
                    primary_key: match key.iter().all(has) {
                        true => key.clone(),
                        false => Vec::new(),
                    },
                },
                notes: Vec::new(),
            })
        })
    }

    fn begin(&mut self, input: &Relation, _keeps_rejects: bool) -> Result<Vec<u8>> {
        let Self {
            native,
            function,
            stream,
            ..
        } = self;
        native.call("session.begin", Phase::Query, || {
            let schema = function.planned(input)?;
            let encoder = Encoder::new(&schema).map_err(broken)?;
            let message = encoder.schema_message().to_vec();
            *stream = Some(Stream {
                name: input.stream.clone(),
                decoder: Decoder::new(&input.schema).map_err(broken)?,
                schema,
                encoder,
                made: VecDeque::new(),
            });
            Ok(message)
        })
    }

    fn put(&mut self, batch: &Batch) -> Result<()> {
        let Self {
            native,
            function,
            stream,
            ..
        } = self;
        native.call("transformer.put", Phase::Transform, || {
            let stream = begun(stream)?;
            let rows = stream.decoder.decode(batch.data.clone()).map_err(broken)?;
            for made in (function.apply)(&stream.name, rows, &stream.schema)? {
                if made.schema().fields() != stream.schema.fields() {
                    let text = format!(
                        "the function made the columns {}, and planned were {}",
                        columns(&made.schema()),
                        columns(&stream.schema)
                    );
                    return Err(
                        ConnectorError::new(ErrorKind::Schema, "other_columns", text)
                            .hint("make all batches of a stream with the same columns and types"),
                    );
                }
                stream.made.push_back(made);
            }
            Ok(())
        })
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let Self { native, stream, .. } = self;
        native.call("transformer.next", Phase::Encode, || {
            let stream = begun(stream)?;
            let has_rows = |batch: &RecordBatch| batch.num_rows() > 0;
            let made = std::iter::from_fn(|| stream.made.pop_front()).find(has_rows);
            let Some(made) = made else { return Ok(None) };
            let (first, rest) = front(&made, PIECE_BYTES, u64::MAX)
                .map_err(|bytes| broken(format!("a row of {bytes} bytes")))?;
            if let Some(rest) = rest {
                stream.made.push_front(rest);
            }
            let data = stream.encoder.encode(&first).map_err(broken)?;
            let rows = first.num_rows() as u64;
            Ok(Some(Batch { data, rows }))
        })
    }

    fn finish(&mut self) -> bool {
        self.stream = None;
        true
    }
}
