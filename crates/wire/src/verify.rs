//! Checks a batch message's header without building arrays.
//!
//! The host calls this for every batch that a connector hands over: the bytes are hostile until
//! their lengths have been compared with the stream's schema and the row count given beside them.
//! The values inside are checked by whoever decodes them, which is a component again.

use arrow_schema::{DataType, Schema};

use crate::WireError;

/// How many field nodes and buffers a batch of a schema has, in order of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Nodes below and including each top-level column.
    column_nodes: Vec<usize>,
    buffers: usize,
}

/// Flatbuffer headers above this size are refused: 64 MiB describes over a million columns.
const MAX_HEADER_BYTES: usize = 64 << 20;

impl Layout {
    /// The layout of every batch of `schema`.
    pub fn of(schema: &Schema) -> Result<Self, WireError> {
        crate::types::check_portable(schema)?;
        let mut buffers = 0;
        let column_nodes = schema
            .fields()
            .iter()
            .map(|field| {
                let mut nodes = 0;
                count(field.data_type(), &mut nodes, &mut buffers);
                nodes
            })
            .collect();
        Ok(Self {
            column_nodes,
            buffers,
        })
    }

    /// Checks one `RecordBatch` message that is said to hold `rows` rows.
    pub fn verify(&self, whole: &[u8], rows: u64) -> Result<(), WireError> {
        let bad = |what: String| Err(WireError::Batch(what));
        let (message, body_at) = split(whole)?;
        let body = &whole[body_at..];
        let Some(batch) = message.header_as_record_batch() else {
            return bad(format!(
                "a {:?} message where a batch was due",
                message.header_type()
            ));
        };
        if message.bodyLength() != body.len() as i64 {
            return bad(format!(
                "body of {} bytes said to be {}",
                body.len(),
                message.bodyLength()
            ));
        }
        if batch.compression().is_some() {
            return bad("compressed buffers are not part of the contract".into());
        }
        if u64::try_from(batch.length()) != Ok(rows) {
            return bad(format!(
                "{} rows in the header, {rows} beside it",
                batch.length()
            ));
        }
        self.verify_nodes(&batch, rows)?;
        let buffers = batch
            .buffers()
            .map(|b| b.iter().collect::<Vec<_>>())
            .unwrap_or_default();
        if buffers.len() != self.buffers {
            return bad(format!(
                "{} buffers, the schema asks for {}",
                buffers.len(),
                self.buffers
            ));
        }
        for buffer in buffers {
            let end = buffer.offset().checked_add(buffer.length());
            let inside = buffer.offset() >= 0
                && buffer.length() >= 0
                && end.is_some_and(|end| end <= body.len() as i64);
            if !inside {
                return bad(format!(
                    "buffer at {} of {} bytes in a body of {}",
                    buffer.offset(),
                    buffer.length(),
                    body.len()
                ));
            }
        }
        Ok(())
    }

    fn verify_nodes(&self, batch: &arrow_ipc::RecordBatch<'_>, rows: u64) -> Result<(), WireError> {
        let nodes = batch
            .nodes()
            .map(|n| n.iter().collect::<Vec<_>>())
            .unwrap_or_default();
        let expected: usize = self.column_nodes.iter().sum();
        if nodes.len() != expected {
            return Err(WireError::Batch(format!(
                "{} field nodes, the schema asks for {expected}",
                nodes.len()
            )));
        }
        for node in &nodes {
            if node.length() < 0 || !(0..=node.length()).contains(&node.null_count()) {
                return Err(WireError::Batch(format!(
                    "a field of {} values with {} nulls",
                    node.length(),
                    node.null_count()
                )));
            }
        }
        let mut at = 0;
        for column in &self.column_nodes {
            if u64::try_from(nodes[at].length()) != Ok(rows) {
                return Err(WireError::Batch(format!(
                    "a column of {} values in a batch of {rows} rows",
                    nodes[at].length()
                )));
            }
            at += column;
        }
        Ok(())
    }
}

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

/// Adds the nodes and buffers of a column of `data_type`.
fn count(data_type: &DataType, nodes: &mut usize, buffers: &mut usize) {
    *nodes += 1;
    match data_type {
        DataType::Null => {}
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            *buffers += 3;
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            *buffers += 2;
            count(item.data_type(), nodes, buffers);
        }
        DataType::FixedSizeList(item, _) => {
            *buffers += 1;
            count(item.data_type(), nodes, buffers);
        }
        DataType::Struct(fields) => {
            *buffers += 1;
            fields
                .iter()
                .for_each(|field| count(field.data_type(), nodes, buffers));
        }
        _ => *buffers += 2,
    }
}
