//! The binary COPY format, from a server that may send anything.

use arrow_array::RecordBatch;
use rapidbyte_pg::builtin::{self, Builtin, to_numeric_typmod};
use rapidbyte_pg::copy::{Decoder, Encoder};
use rapidbyte_pg::{Column, PgError};

const MAX_RECORD_BYTES: usize = 1 << 16;

/// The columns of a stream, by one byte of the input.
pub fn columns(choice: u8) -> Vec<Column> {
    let all = |types: &[Builtin]| types.iter().map(|ty| ty.column(ty.name)).collect();
    let array = |ty: &Builtin| Column::new("l", ty.array_ty(), format!("{}[]", ty.sql));
    match choice % 7 {
        0 => all(&[builtin::INT4, builtin::TEXT]),
        1 => all(&[
            builtin::BOOL,
            builtin::INT2,
            builtin::INT8,
            builtin::OID,
            builtin::FLOAT4,
            builtin::FLOAT8,
            builtin::DATE,
            builtin::TIME,
            builtin::TIMESTAMP,
            builtin::TIMESTAMPTZ,
            builtin::INTERVAL,
        ]),
        2 => all(&[
            builtin::UUID,
            builtin::JSON,
            builtin::JSONB,
            builtin::BYTEA,
            builtin::VARCHAR,
            builtin::INET,
            builtin::TIMETZ,
        ]),
        3 => vec![
            Column {
                typmod: to_numeric_typmod(18, 4),
                ..builtin::NUMERIC.column("a")
            },
            Column {
                typmod: to_numeric_typmod(60, -3),
                ..builtin::NUMERIC.column("b")
            },
        ],
        4 => vec![
            array(&builtin::INT4),
            array(&builtin::TEXT),
            array(&builtin::BOOL),
        ],
        5 => Vec::new(),
        _ => vec![builtin::NUMERIC.column("n"), array(&builtin::NUMERIC)],
    }
}

/// The whole stream, in pieces of `piece` bytes.
fn decode(
    columns: &[Column],
    native: bool,
    bytes: &[u8],
    piece: usize,
) -> Result<RecordBatch, PgError> {
    let mut decoder = Decoder::new(columns, native, MAX_RECORD_BYTES);
    for piece in bytes.chunks(piece) {
        decoder.push(piece)?;
    }
    decoder.finish()?;
    decoder.take_batch()
}

/// The same from the messages as they come.
fn decode_messages(columns: &[Column], native: bool, bytes: &[u8], piece: usize) {
    let mut decoder = Decoder::new(columns, native, MAX_RECORD_BYTES);
    let mut kept: Vec<u8> = Vec::new();
    for piece in bytes.chunks(piece) {
        kept.extend_from_slice(piece);
        let Ok(taken) = decoder.push_messages(&kept) else {
            assert!(
                decoder.push_messages(&kept).is_err(),
                "it goes on after an error"
            );
            return;
        };
        assert!(taken <= kept.len());
        kept.drain(..taken);
        // The rest is shorter than a message's head, or begins with a message that is not CopyData.
        assert!(kept.len() < 5 || kept[0] != b'd');
    }
    let _ = decoder.take_batch();
}

/// Wherever the stream is cut it says the same, and what was decoded is encoded and decoded as the
/// same rows.
pub fn run(data: &[u8]) {
    let mut data = data;
    let (choice, cut) = (crate::byte(&mut data), crate::piece(crate::byte(&mut data)));
    let native = choice & 0x80 != 0;
    let columns = columns(choice);
    if choice & 0x40 != 0 {
        return decode_messages(&columns, native, data, cut);
    }
    let whole = decode(&columns, native, data, usize::MAX);
    let pieces = decode(&columns, native, data, cut);
    let batch = match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            // By their bytes: no NaN is equal to another.
            assert_eq!(encode(&columns, &whole), encode(&columns, &pieces));
            whole
        }
        (Err(_), Err(_)) => return,
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    };
    let Some(bytes) = encode(&columns, &batch) else {
        return;
    };
    let again = decode(&columns, native, &bytes, cut).expect("our own stream");
    assert_eq!(again.num_rows(), batch.num_rows());
    assert_eq!(encode(&columns, &again), Some(bytes));
}

/// None where the columns cannot be loaded back in binary.
fn encode(columns: &[Column], batch: &RecordBatch) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(&batch.schema(), columns).ok()?;
    let mut out = Vec::new();
    encoder.header(&mut out);
    if let Err(error) = encoder.encode(batch, &mut out) {
        panic!("what was decoded cannot be encoded: {error:?}");
    }
    encoder.trailer(&mut out);
    Some(out)
}
