//! Where the batches of an Arrow IPC file are, and what each says of itself.

use arrow_ipc::{
    Endianness, Message, MessageHeader, MetadataVersion, root_as_footer, root_as_message,
};
use arrow_schema::Schema;

use super::{MAGIC, malformed, wrong};
use crate::read_at::{fetch, find};
use crate::{ColumnarError, ReadAt};

/// Length and magic at the end of a file.
const TAIL_BYTES: u64 = 10;
/// 64 MiB name some millions of batches.
const MAX_FOOTER_BYTES: u64 = 64 << 20;
/// A batch's header has 40 bytes for each column.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// The end of a file with the start of another file behind it.
const SEAM: &[u8] = b"ARROW1ARROW1";
/// Before each message.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// A message with its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub offset: u64,
    /// With the mark and the length before it.
    pub header_bytes: u64,
    pub body_bytes: u64,
    /// Values of a dictionary instead of rows.
    pub is_dictionary: bool,
    /// 0 for a dictionary.
    pub rows: u64,
    /// The body's size without compression is not known here.
    pub is_compressed: bool,
}

/// The contents of a file, in the order of the file.
#[derive(Debug)]
pub(crate) struct Contents {
    pub schema: Schema,
    pub version: MetadataVersion,
    pub blocks: Vec<Block>,
}

/// Reads the footer, or a stream's headers, and checks them against the file.
pub(crate) fn scan<R: ReadAt>(source: &R) -> Result<Contents, ColumnarError> {
    let size = source.size();
    let head = fetch(source, 0, size.min(8) as usize)?;
    if head.starts_with(&MAGIC) {
        scan_file(source, size)
    } else if head.starts_with(&CONTINUATION) {
        scan_stream(source, size)
    } else if head.starts_with(b"FEA1") {
        let text = "the file is in version 1 of Feather, which is not Arrow IPC";
        Err(ColumnarError::new("arrow_feather_v1", text)
            .hint("write it again as Feather version 2, or as Parquet"))
    } else {
        Err(wrong("the file does not start like an Arrow file"))
    }
}

fn scan_file<R: ReadAt>(source: &R, size: u64) -> Result<Contents, ColumnarError> {
    if size < 8 + TAIL_BYTES {
        return Err(wrong(format!(
            "a file of {size} bytes is not an Arrow file"
        )));
    }
    let tail = fetch(source, size - TAIL_BYTES, TAIL_BYTES as usize)?;
    let (length, magic) = tail.split_at(4);
    if magic != MAGIC {
        return Err(wrong("the file does not end like an Arrow file"));
    }
    let length = little_endian(length);
    if length + TAIL_BYTES + 8 > size || length > MAX_FOOTER_BYTES {
        return Err(wrong(format!(
            "a footer of {length} bytes in a file of {size}"
        )));
    }
    // At most `MAX_FOOTER_BYTES`.
    let bytes = fetch(source, size - TAIL_BYTES - length, length as usize)?;
    let footer = root_as_footer(&bytes).map_err(|_| wrong("its footer cannot be read"))?;
    let schema = footer
        .schema()
        .ok_or_else(|| wrong("a footer without a schema"))?;
    let mut contents = Contents {
        schema: read_schema(schema)?,
        version: footer.version(),
        blocks: Vec::new(),
    };
    let end = size - TAIL_BYTES - length;
    for (blocks, is_dictionary) in [
        (footer.dictionaries(), true),
        (footer.recordBatches(), false),
    ] {
        for block in blocks.iter().flatten() {
            let numbers = (
                u64::try_from(block.offset()),
                u64::try_from(block.metaDataLength()),
                u64::try_from(block.bodyLength()),
            );
            let (Ok(offset), Ok(header_bytes), Ok(body_bytes)) = numbers else {
                return Err(wrong("a batch of negative size"));
            };
            let found = read_block(source, offset, Some(header_bytes), end)?;
            if found.is_dictionary != is_dictionary || found.body_bytes != body_bytes {
                let text = format!("the batch at {offset} differs from the footer");
                return Err(wrong(text));
            }
            contents.blocks.push(found);
        }
    }
    let ends = contents.blocks.iter();
    let ends = ends.map(|block| block.offset + block.header_bytes + block.body_bytes);
    // The footer of the last file has positions that lie in the first one.
    if let Some(at) = find(source, SEAM, ends.max().unwrap_or(0), end)? {
        let text = format!(
            "another Arrow file follows at byte {}",
            at + MAGIC.len() as u64
        );
        return Err(several(text));
    }
    Ok(contents)
}

fn several(text: String) -> ColumnarError {
    wrong(text).hint("write each of them to a file of its own: an Arrow file or stream ends once")
}

fn scan_stream<R: ReadAt>(source: &R, size: u64) -> Result<Contents, ColumnarError> {
    let (header, mut at) = read_header(source, 0, None, size)?;
    let message = parse(&header)?;
    let schema = message
        .header_as_schema()
        .ok_or_else(|| wrong("an Arrow stream that does not start with its schema"))?;
    let mut contents = Contents {
        schema: read_schema(schema)?,
        version: message.version(),
        blocks: Vec::new(),
    };
    loop {
        if at >= size {
            return Err(wrong("an Arrow stream without its end marker"));
        }
        let mark = fetch(source, at, (size - at).min(8) as usize)?;
        if mark.len() == 8 && mark[..4] == CONTINUATION && little_endian(&mark[4..]) == 0 {
            let rest = size - at - 8;
            if rest > 0 {
                let text =
                    format!("{rest} bytes follow the end marker of the Arrow stream at byte {at}");
                return Err(several(text));
            }
            return Ok(contents);
        }
        let block = read_block(source, at, None, size)?;
        // Inside the file.
        at += block.header_bytes + block.body_bytes;
        contents.blocks.push(block);
    }
}

/// Reads the header of the message at `offset`; everything must end before `end`.
fn read_block<R: ReadAt>(
    source: &R,
    offset: u64,
    header_bytes: Option<u64>,
    end: u64,
) -> Result<Block, ColumnarError> {
    let (header, body_at) = read_header(source, offset, header_bytes, end)?;
    let message = parse(&header)?;
    let body_bytes = u64::try_from(message.bodyLength()).ok();
    let body_bytes =
        body_bytes.filter(|bytes| body_at.checked_add(*bytes).is_some_and(|at| at <= end));
    let Some(body_bytes) = body_bytes else {
        let text = format!("the batch at {offset} goes beyond the end of the file");
        return Err(wrong(text));
    };
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().and_then(|d| d.data())
        }
        _ => None,
    };
    let batch = batch.ok_or_else(|| wrong(format!("no batch at {offset}")))?;
    let is_dictionary = message.header_type() == MessageHeader::DictionaryBatch;
    let rows = u64::try_from(batch.length())
        .ok()
        .filter(|rows| usize::try_from(*rows).is_ok())
        .ok_or_else(|| wrong(format!("a batch of {} rows at {offset}", batch.length())))?;
    Ok(Block {
        offset,
        header_bytes: body_at - offset,
        body_bytes,
        is_dictionary,
        rows: if is_dictionary { 0 } else { rows },
        is_compressed: batch.compression().is_some(),
    })
}

/// The flatbuffer of the message at `offset`, and where its body begins.
fn read_header<R: ReadAt>(
    source: &R,
    offset: u64,
    header_bytes: Option<u64>,
    end: u64,
) -> Result<(Vec<u8>, u64), ColumnarError> {
    let beyond = || {
        wrong(format!(
            "the message at {offset} goes beyond the end of the file"
        ))
    };
    if offset.checked_add(8).is_none_or(|at| at > end) {
        return Err(beyond());
    }
    let mark = fetch(source, offset, 8)?;
    // Before Arrow 0.15 the length did not have a mark before it.
    let (prefix, length) = match mark[..4] == CONTINUATION {
        true => (8, little_endian(&mark[4..])),
        false => (4, little_endian(&mark[..4])),
    };
    let body_at = offset
        .checked_add(prefix + length)
        .filter(|at| *at <= end)
        .ok_or_else(beyond)?;
    if length > MAX_HEADER_BYTES {
        return Err(wrong(format!("a header of {length} bytes at {offset}")));
    }
    // The footer counts the padding; a stream has it in the length.
    let body_at = match header_bytes {
        None => body_at,
        Some(bytes) if bytes >= prefix + length && bytes <= prefix + length + 64 => offset
            .checked_add(bytes)
            .filter(|at| *at <= end)
            .ok_or_else(beyond)?,
        Some(bytes) => {
            let text = format!(
                "a header of {bytes} bytes by the footer at {offset}, of {length} by itself"
            );
            return Err(wrong(text));
        }
    };
    // At most `MAX_HEADER_BYTES`.
    let bytes = fetch(source, offset + prefix, length as usize)?;
    Ok((bytes.into(), body_at))
}

fn parse(header: &[u8]) -> Result<Message<'_>, ColumnarError> {
    root_as_message(header).map_err(|_| wrong("a header cannot be read"))
}

fn read_schema(schema: arrow_ipc::Schema<'_>) -> Result<Schema, ColumnarError> {
    if schema.endianness() != Endianness::Little {
        return Err(wrong("a big-endian file"));
    }
    arrow_ipc::convert::try_fb_to_schema(schema).map_err(|error| malformed(&error))
}

/// Four bytes as a length; a negative one is larger than any limit.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
