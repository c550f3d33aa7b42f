//! Checks a batch message's header without building arrays.
//!
//! The host calls this for every batch that a connector hands over. The bytes are hostile until
//! their lengths were compared with the stream's schema and the row count that came with them.
//! Of the values inside it checks lengths, the digits of decimals and times of day. A component
//! decodes the batch and checks the rest.

use arrow_schema::{DataType, Schema, TimeUnit};

use crate::WireError;

#[path = "verify/numbers.rs"]
mod numbers;
#[path = "verify/offsets.rs"]
mod offsets;

/// The field nodes and buffers that a batch of a schema has, in order of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Nodes below and including each top-level column.
    column_nodes: Vec<usize>,
    /// How many values a node has for each row, where that is the same for all rows: it is not
    /// below a list.
    per_row: Vec<Option<u64>>,
    buffers: Vec<Slot>,
    /// Names of the top-level columns.
    columns: Vec<String>,
}

/// A value that its column or a limit does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// A string or binary of this many bytes.
    Long(u64),
    /// A decimal with more digits than its type declares, or a time outside of a day.
    Value {
        /// The top-level column that has it, perhaps nested.
        column: String,
        /// The value, of a time with its unit.
        value: String,
        /// The declared type, such as `decimal(5, 2)`, or `time`.
        data_type: String,
    },
}

/// A buffer's place: the node that it belongs to, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    node: usize,
    content: Content,
}

/// The content of a buffer, for a node of `n` values ("Columnar Format", Buffer Listing for Each
/// Layout, in the Arrow documentation).
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// A bit for each value, or nothing where none is null.
    Validity,
    /// A bit for each value.
    Bits,
    /// This many bytes for each value.
    Values(u64),
    /// A decimal of `width` bytes for each value.
    Decimal {
        width: u64,
        precision: u8,
        scale: i8,
    },
    /// A time of day of `width` bytes for each value.
    Time { width: u64, unit: TimeUnit },
    /// `n + 1` numbers of this many bytes, or nothing without values.
    Offsets(u64),
    /// As many bytes as the offsets say.
    Bytes,
}

impl Content {
    /// True if `bytes` can hold it for `values` values, with `nulls` NULLs among them.
    fn fits(&self, bytes: u64, values: u64, nulls: u64) -> bool {
        match self {
            Self::Validity if nulls == 0 && bytes == 0 => true,
            Self::Validity | Self::Bits => bytes >= values.div_ceil(8),
            Self::Values(width) | Self::Decimal { width, .. } | Self::Time { width, .. } => {
                bytes >= values.saturating_mul(*width)
            }
            Self::Offsets(width) => {
                let empty = values == 0 && bytes == 0;
                let needed = values.saturating_add(1).saturating_mul(*width);
                bytes.is_multiple_of(*width) && (empty || bytes >= needed)
            }
            Self::Bytes => true,
        }
    }
}

/// Flatbuffer headers above this size are refused: 64 MiB describes over a million columns.
const MAX_HEADER_BYTES: usize = 64 << 20;

impl Layout {
    /// The layout of every batch of `schema`.
    pub fn of(schema: &Schema) -> Result<Self, WireError> {
        crate::types::check_portable(schema)?;
        let mut buffers = Vec::new();
        let mut per_row = Vec::new();
        let column_nodes = schema
            .fields()
            .iter()
            .map(|field| {
                let before = per_row.len();
                list(field.data_type(), Some(1), &mut per_row, &mut buffers);
                per_row.len() - before
            })
            .collect();
        Ok(Self {
            column_nodes,
            per_row,
            buffers,
            columns: schema.fields().iter().map(|f| f.name().clone()).collect(),
        })
    }

    /// Checks one `RecordBatch` message that must hold `rows` rows.
    pub fn verify(&self, whole: &[u8], rows: u64) -> Result<(), WireError> {
        let (message, body_at) = split(whole)?;
        self.verify_parts(&message, whole.len() - body_at, Some(rows))?;
        Ok(())
    }

    /// The same, and checks values: that offsets of texts, binaries and lists rise and stay inside,
    /// that no text or binary is longer than `value_bytes`, and that no decimal has more digits than
    /// its type declares, and that times lie within a day. Gives the first value that breaks one of
    /// the last three rules.
    pub fn verify_values(
        &self,
        whole: &[u8],
        rows: u64,
        value_bytes: u64,
    ) -> Result<Option<Unfit>, WireError> {
        let (message, body_at) = split(whole)?;
        let body = &whole[body_at..];
        let batch = self.verify_parts(&message, body.len(), Some(rows))?;
        let widest = offsets::widest(&self.buffers, &batch, body)?;
        if widest > value_bytes {
            return Ok(Some(Unfit::Long(widest)));
        }
        numbers::unfit(self, &batch, body)
    }

    /// The top-level column that a node belongs to.
    fn column_of(&self, node: usize) -> &str {
        let mut end = 0;
        let ends = self.column_nodes.iter().map(|nodes| {
            end += nodes;
            end
        });
        let column = ends.take_while(|end| *end <= node).count();
        self.columns.get(column).map_or("", String::as_str)
    }

    /// Leaves the first `rows` rows of a message that [`Layout::verify`] has taken. Nothing is
    /// moved: the header counts fewer values, and its buffers are longer than they need be, which
    /// the format allows. More rows than there are change nothing.
    pub fn truncate(&self, whole: &mut [u8], rows: u64) -> Result<(), WireError> {
        let edits = self.edits(whole, rows)?;
        for (at, number) in edits {
            let place = at.checked_add(8).and_then(|end| whole.get_mut(at..end));
            let Some(place) = place else {
                return Err(WireError::Batch("a header that leads out of itself".into()));
            };
            place.copy_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }

    /// The numbers of the header that change, with their places in the message.
    fn edits(&self, whole: &[u8], rows: u64) -> Result<Vec<(usize, i64)>, WireError> {
        let bad = |what: &str| WireError::Batch(what.into());
        let (message, body_at) = split(whole)?;
        let body = &whole[body_at..];
        let batch = self.verify_parts(&message, body.len(), None)?;
        if rows >= batch.length().unsigned_abs() {
            return Ok(Vec::new());
        }
        let length_at = batch._tab.vtable().get(arrow_ipc::RecordBatch::VT_LENGTH);
        let table_at = HEADER_AT + batch._tab.loc();
        let mut edits = vec![(table_at + usize::from(length_at), rows as i64)];
        let Some(nodes) = batch.nodes() else {
            return Ok(edits);
        };
        // The vector's bytes are a part of the message: where they begin there is a difference of
        // addresses.
        let nodes_at = nodes.bytes().as_ptr().addr() - whole.as_ptr().addr();
        let validity = |node: usize| {
            let mut slots = self
                .buffers
                .iter()
                .zip(batch.buffers().into_iter().flatten());
            slots.find(|(slot, _)| slot.node == node && slot.content == Content::Validity)
        };
        for (index, (node, per_row)) in nodes.iter().zip(&self.per_row).enumerate() {
            let Some(per_row) = per_row else { continue };
            let values = rows.saturating_mul(*per_row);
            if values > node.length().unsigned_abs() {
                return Err(bad("a field of fewer values than its parent needs"));
            }
            let nulls = match validity(index) {
                // A column of type `null` does not have a bitmap.
                None => values.min(node.null_count().unsigned_abs()),
                Some((_, buffer)) if buffer.length() > 0 && node.null_count() > 0 => {
                    let bitmap = body.get(buffer.offset() as usize..);
                    zeros(bitmap.unwrap_or_default(), values)
                }
                Some(_) => 0,
            };
            // A `FieldNode` is two numbers of eight bytes: length, then null count.
            edits.push((nodes_at + index * 16, values as i64));
            edits.push((nodes_at + index * 16 + 8, nulls as i64));
        }
        Ok(edits)
    }

    /// Checks a message with a body of `body` bytes and gives its batch. Without a number of
    /// rows beside it, the header's own counts.
    pub(crate) fn verify_parts<'a>(
        &self,
        message: &arrow_ipc::Message<'a>,
        body: usize,
        rows: Option<u64>,
    ) -> Result<arrow_ipc::RecordBatch<'a>, WireError> {
        let bad = |what: String| Err(WireError::Batch(what));
        let Some(batch) = message.header_as_record_batch() else {
            return bad(format!(
                "a {:?} message where a batch was due",
                message.header_type()
            ));
        };
        if message.bodyLength() != body as i64 {
            return bad(format!(
                "body of {body} bytes said to be {}",
                message.bodyLength()
            ));
        }
        let rows = rows.unwrap_or(batch.length().unsigned_abs());
        if batch.compression().is_some() {
            return bad("compressed buffers are not part of the contract".into());
        }
        if u64::try_from(batch.length()) != Ok(rows) {
            return bad(format!(
                "{} rows in the header, {rows} beside it",
                batch.length()
            ));
        }
        let nodes = self.verify_nodes(&batch, rows)?;
        self.verify_buffers(&batch, &nodes, body as u64)?;
        Ok(batch)
    }

    fn verify_buffers(
        &self,
        batch: &arrow_ipc::RecordBatch<'_>,
        nodes: &[Node],
        body: u64,
    ) -> Result<(), WireError> {
        let bad = |what: String| Err(WireError::Batch(what));
        let count = batch.buffers().map_or(0, |buffers| buffers.len());
        if count != self.buffers.len() {
            return bad(format!(
                "{count} buffers, the schema asks for {}",
                self.buffers.len()
            ));
        }
        for (buffer, slot) in batch.buffers().iter().flatten().zip(&self.buffers) {
            let (offset, length) = (buffer.offset(), buffer.length());
            let place = u64::try_from(offset).ok().zip(u64::try_from(length).ok());
            let inside = place.is_some_and(|(offset, length)| {
                offset.checked_add(length).is_some_and(|end| end <= body)
            });
            if !inside {
                return bad(format!(
                    "buffer at {offset} of {length} bytes in a body of {body}"
                ));
            }
            let node = &nodes[slot.node];
            if !slot
                .content
                .fits(length.unsigned_abs(), node.values, node.nulls)
            {
                return bad(format!(
                    "{:?} of {length} bytes for {} values",
                    slot.content, node.values
                ));
            }
        }
        Ok(())
    }

    fn verify_nodes(
        &self,
        batch: &arrow_ipc::RecordBatch<'_>,
        rows: u64,
    ) -> Result<Vec<Node>, WireError> {
        let bad = |what: String| Err(WireError::Batch(what));
        let count = batch.nodes().map_or(0, |nodes| nodes.len());
        let expected: usize = self.column_nodes.iter().sum();
        if count != expected {
            return bad(format!(
                "{count} field nodes, the schema asks for {expected}"
            ));
        }
        let mut nodes = Vec::with_capacity(count);
        for node in batch.nodes().iter().flatten() {
            if node.length() < 0 || !(0..=node.length()).contains(&node.null_count()) {
                return bad(format!(
                    "a field of {} values with {} nulls",
                    node.length(),
                    node.null_count()
                ));
            }
            nodes.push(Node {
                values: node.length().unsigned_abs(),
                nulls: node.null_count().unsigned_abs(),
            });
        }
        let mut at = 0;
        for column in &self.column_nodes {
            if nodes[at].values != rows {
                return bad(format!(
                    "a column of {} values in a batch of {rows} rows",
                    nodes[at].values
                ));
            }
            at += column;
        }
        Ok(nodes)
    }
}

/// The length and the NULL count of one field in a batch.
struct Node {
    values: u64,
    nulls: u64,
}

/// Bits that are not set among the first `bits`.
fn zeros(bitmap: &[u8], bits: u64) -> u64 {
    let whole = (bits / 8) as usize;
    let full: u64 = bitmap
        .iter()
        .take(whole)
        .map(|b| u64::from(b.count_zeros()))
        .sum();
    let rest = (bits % 8) as u32;
    let last = bitmap.get(whole).copied().unwrap_or_default();
    let kept = last & ((1u16 << rest) - 1) as u8;
    full + u64::from(rest - kept.count_ones())
}

/// Where the flatbuffer of a message's header begins.
const HEADER_AT: usize = 8;

/// The parsed header of an encapsulated message, and where its body begins.
pub(crate) fn split(whole: &[u8]) -> Result<(arrow_ipc::Message<'_>, usize), WireError> {
    let bad = |what: String| Err(WireError::Batch(what));
    let Some((prefix, rest)) = whole.split_first_chunk::<8>() else {
        return bad(format!("{} bytes are too short for a message", whole.len()));
    };
    let [c0, c1, c2, c3, l0, l1, l2, l3] = *prefix;
    if [c0, c1, c2, c3] != [0xff; 4] {
        return bad("no continuation marker at the start".into());
    }
    let header_len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if header_len > rest.len() || header_len > MAX_HEADER_BYTES {
        return bad(format!(
            "header of {header_len} bytes in {} bytes",
            rest.len()
        ));
    }
    let message = arrow_ipc::root_as_message(&rest[..header_len])
        .map_err(|error| WireError::Batch(format!("header: {error}")))?;
    Ok((message, prefix.len() + header_len))
}

/// Identifies a schema: two streams with equal fingerprints have equal schema messages.
pub fn fingerprint(schema_message: &[u8]) -> u64 {
    // FNV-1a, 64 bit: an identity check between honest parts, not a defence.
    schema_message
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Adds the nodes and buffers of a column of `data_type`, which has `per_row` values for each row.
fn list(
    data_type: &DataType,
    per_row: Option<u64>,
    nodes: &mut Vec<Option<u64>>,
    buffers: &mut Vec<Slot>,
) {
    let node = nodes.len();
    nodes.push(per_row);
    let mut add = |content| buffers.push(Slot { node, content });
    match data_type {
        // No buffers at all: not even a validity.
        DataType::Null => return,
        _ => add(Content::Validity),
    }
    match data_type {
        DataType::Utf8 | DataType::Binary => {
            add(Content::Offsets(4));
            add(Content::Bytes);
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            add(Content::Offsets(8));
            add(Content::Bytes);
        }
        DataType::List(item) | DataType::Map(item, _) => {
            add(Content::Offsets(4));
            list(item.data_type(), None, nodes, buffers);
        }
        DataType::LargeList(item) => {
            add(Content::Offsets(8));
            list(item.data_type(), None, nodes, buffers);
        }
        DataType::FixedSizeList(item, size) => {
            let size = u64::from(size.unsigned_abs());
            let per_row = per_row.and_then(|values| values.checked_mul(size));
            list(item.data_type(), per_row, nodes, buffers);
        }
        DataType::Struct(fields) => fields
            .iter()
            .for_each(|field| list(field.data_type(), per_row, nodes, buffers)),
        DataType::Boolean => add(Content::Bits),
        DataType::FixedSizeBinary(width) => add(Content::Values(u64::from(width.unsigned_abs()))),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            add(Content::Decimal {
                width: data_type.primitive_width().unwrap_or_default() as u64,
                precision: *precision,
                scale: *scale,
            });
        }
        DataType::Time32(unit) | DataType::Time64(unit) => add(Content::Time {
            width: data_type.primitive_width().unwrap_or_default() as u64,
            unit: *unit,
        }),
        // The other types have a width; `check_portable` refused any type without one.
        other => add(Content::Values(
            other.primitive_width().unwrap_or_default() as u64
        )),
    }
}
