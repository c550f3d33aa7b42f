//! OP_MSG and OP_COMPRESSED as bytes (MongoDB manual, "MongoDB Wire Protocol").
//!
//! A message has a header of four 32-bit numbers in little endian: its length, its own number, the number of the message
//! that it answers, and its kind. OP_MSG continues with flags, a section of kind 0 (the command) and sections of kind 1
//! (a name and documents).

use std::ops::Range;

use rapidbyte_bson::Document;
use rapidbyte_sdk::Result;

use crate::compression::Compression;
use crate::error::protocol;
use crate::settings::Compressor;

/// The bytes of a header.
pub(crate) const HEADER_BYTES: usize = 16;
const OP_MSG: i32 = 2013;
const OP_COMPRESSED: i32 = 2012;
/// The answer ends with a checksum.
const CHECKSUM_PRESENT: u32 = 1;
/// Another answer follows without a request.
const MORE_TO_COME: u32 = 2;
/// A receiver must refuse flags among these that it does not know.
const REQUIRED_FLAGS: u32 = 0xffff;
const CHECKSUM_BYTES: usize = 4;
/// The original kind, the length before compression, and the compressor.
const COMPRESSED_HEADER_BYTES: usize = 9;

/// The documents of a section of kind 1, such as `documents` of an insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sequence<'a> {
    /// The name of the section.
    pub name: &'a str,
    /// Whole documents, one behind the other.
    pub documents: &'a [u8],
}

/// A message with this command, ready to be sent.
pub(crate) fn encode(
    request: i32,
    command: &[u8],
    sequence: Option<Sequence<'_>>,
    compression: Option<Compression>,
) -> Result<Vec<u8>> {
    let documents = sequence.map_or(0, |sequence| sequence.documents.len());
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 64 + command.len() + documents);
    bytes.extend_from_slice(&[0; HEADER_BYTES]);
    // No flags: the server answers each message once. Then the section of kind 0.
    bytes.extend_from_slice(&[0; 5]);
    bytes.extend_from_slice(command);
    if let Some(Sequence { name, documents }) = sequence {
        bytes.push(1);
        let len = 4 + name.len() + 1 + documents.len();
        bytes.extend_from_slice(&size(len)?.to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(documents);
    }
    let mut kind = OP_MSG;
    if let Some(compression) = compression {
        let body = &bytes[HEADER_BYTES..];
        let compressed = compression.compress(body)?;
        let mut message = Vec::with_capacity(HEADER_BYTES + 9 + compressed.len());
        message.extend_from_slice(&[0; HEADER_BYTES]);
        message.extend_from_slice(&OP_MSG.to_le_bytes());
        message.extend_from_slice(&size(body.len())?.to_le_bytes());
        message.push(compression.compressor.id());
        message.extend_from_slice(&compressed);
        (bytes, kind) = (message, OP_COMPRESSED);
    }
    let len = size(bytes.len())?;
    for (at, number) in [len, request, 0, kind].into_iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&number.to_le_bytes());
    }
    Ok(bytes)
}

fn size(len: usize) -> Result<i32> {
    i32::try_from(len).map_err(|_| rapidbyte_sdk::Error::internal("a message of more than 2 GiB"))
}

/// The header of a message that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The bytes that follow the header.
    pub body: usize,
    /// The request that it answers.
    pub answers: i32,
    kind: i32,
}

impl Header {
    /// Reads a header of a message with at most `max_bytes`.
    pub fn decode(bytes: [u8; HEADER_BYTES], max_bytes: usize) -> Result<Self> {
        let (numbers, _) = bytes.as_chunks::<4>();
        let [len, _, answers, kind] = [0, 1, 2, 3].map(|at| i32::from_le_bytes(numbers[at]));
        let total = usize::try_from(len).unwrap_or(0);
        if total < HEADER_BYTES || total > max_bytes {
            return Err(protocol(format!(
                "a message of {len} bytes, where {HEADER_BYTES} to {max_bytes} are allowed"
            )));
        }
        if kind != OP_MSG && kind != OP_COMPRESSED {
            return Err(protocol(format!("a message of the kind {kind}")));
        }
        let body = total - HEADER_BYTES;
        Ok(Self {
            body,
            answers,
            kind,
        })
    }

    /// The document of an answer, from the bytes behind its header. `offered` are the compressors that the server may
    /// use.
    pub fn document(
        &self,
        mut body: Vec<u8>,
        offered: &[Compressor],
        max_bytes: usize,
    ) -> Result<Answer> {
        if self.kind == OP_COMPRESSED {
            body = uncompressed(&body, offered, max_bytes)?;
        }
        let flags = body.first_chunk::<4>();
        let flags = u32::from_le_bytes(*flags.ok_or_else(|| protocol("a message without flags"))?);
        if flags & MORE_TO_COME != 0 {
            return Err(protocol("more than one answer to a request"));
        }
        if flags & REQUIRED_FLAGS & !CHECKSUM_PRESENT != 0 {
            return Err(protocol(format!("a message with the flags 0x{flags:x}")));
        }
        let end = match flags & CHECKSUM_PRESENT != 0 {
            true => body
                .len()
                .checked_sub(CHECKSUM_BYTES)
                .filter(|end| *end >= 4),
            false => Some(body.len()),
        };
        let end = end.ok_or_else(|| protocol("a message without its checksum"))?;
        let (mut at, mut found) = (4, None);
        // Each round moves `at`.
        while at < end {
            let section = &body[at + 1..end];
            let len = match body[at] {
                0 if found.is_none() => {
                    let (document, _) = Document::split(section).map_err(protocol)?;
                    let len = document.as_bytes().len();
                    found = Some(at + 1..at + 1 + len);
                    len
                }
                // Nothing that we ask for is answered with one.
                1 => {
                    let len = section.first_chunk().map(|len| i32::from_le_bytes(*len));
                    let len = len.and_then(|len| usize::try_from(len).ok());
                    let len = len.filter(|len| (4..=section.len()).contains(len));
                    len.ok_or_else(|| protocol("a section with a wrong length"))?
                }
                kind => return Err(protocol(format!("a section of the kind {kind}"))),
            };
            at += 1 + len;
        }
        let place = found.ok_or_else(|| protocol("a message without a document"))?;
        Ok(Answer { body, place })
    }
}

/// The document of an answer within its message.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    body: Vec<u8>,
    place: Range<usize>,
}

impl Answer {
    pub fn bytes(&self) -> &[u8] {
        &self.body[self.place.clone()]
    }
}

fn uncompressed(body: &[u8], offered: &[Compressor], max_bytes: usize) -> Result<Vec<u8>> {
    let Some((header, data)) = body.split_first_chunk::<COMPRESSED_HEADER_BYTES>() else {
        return Err(protocol("a compressed message without its header"));
    };
    let number = |at: usize| {
        i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let (kind, len, id) = (number(0), number(4), header[8]);
    if kind != OP_MSG {
        return Err(protocol(format!("a compressed message of the kind {kind}")));
    }
    let len = usize::try_from(len).ok().filter(|len| *len <= max_bytes);
    let len = len.ok_or_else(|| {
        let announced = number(4);
        protocol(format!(
            "a compressed message that announces {announced} bytes"
        ))
    })?;
    crate::compression::decompress(id, data, len, offered)
}

#[cfg(test)]
mod tests;
