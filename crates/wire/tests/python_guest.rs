//! A guest without an Arrow library ships messages as constants: they are what this crate writes
//! and reads, so a change of the encoding is seen here and not in the guest.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte_wire::ipc::{Decoder, Encoder};
use rapidbyte_wire::verify::Layout;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../testkit/components-python/source-python/messages.py"
);

/// Values that stand out in the message, so that their place can be found.
const MARKS: [i64; 4] = [0x0102_0304_0506_0708, -1, i64::MIN, i64::MAX];

fn numbers(values: [i64; 4]) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let column = Int64Array::from_iter_values(values);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).unwrap()
}

fn little_endian(values: [i64; 4]) -> Vec<u8> {
    values.into_iter().flat_map(i64::to_le_bytes).collect()
}

/// The schema message, a batch message of zeros, and where its values begin.
fn template() -> (Vec<u8>, Vec<u8>, usize) {
    let mut encoder = Encoder::new(&numbers([0; 4]).schema()).unwrap();
    let marked = encoder.encode(&numbers(MARKS)).unwrap();
    let values_at = marked
        .windows(32)
        .position(|window| window == little_endian(MARKS))
        .expect("an int64 column travels as its values");
    let zeros = encoder.encode(&numbers([0; 4])).unwrap();
    (encoder.schema_message().to_vec(), zeros, values_at)
}

fn constant(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("{name} = bytes.fromhex(\n");
    for line in bytes.chunks(32) {
        let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "    \"{hex}\"").unwrap();
    }
    text + ")\n"
}

#[test]
fn the_python_guest_ships_what_this_crate_writes() {
    let (schema, batch, values_at) = template();
    let expected = format!(
        "\"\"\"Arrow IPC messages of one column `n`, int64, no nulls.\n\n\
         Written by crates/wire/tests/python_guest.rs, which also checks them.\n\"\"\"\n\n\
         # A `RecordBatch` message holds this many rows; their values, little-endian, begin here.\n\
         ROWS = 4\nVALUES_AT = {values_at}\n\n{}\n{}",
        constant("SCHEMA", &schema),
        constant("BATCH", &batch)
    );
    if std::env::var_os("RAPIDBYTE_WRITE_MESSAGES").is_some() {
        std::fs::write(FILE, &expected).unwrap();
    }
    let found = std::fs::read_to_string(FILE).unwrap();
    assert!(
        found == expected,
        "messages.py is out of date: RAPIDBYTE_WRITE_MESSAGES=1 cargo test -p rapidbyte-wire \
         --test python_guest"
    );
}

#[test]
fn a_template_with_its_values_replaced_is_a_batch() {
    let (schema, mut batch, values_at) = template();
    let values = [8, 9, 10, 11];
    batch[values_at..values_at + 32].copy_from_slice(&little_endian(values));
    let decoder = Decoder::new(&schema).unwrap();
    let layout = Layout::of(decoder.schema()).unwrap();
    layout.verify(&batch, 4).unwrap();
    assert_eq!(decoder.decode(batch).unwrap(), numbers(values));
}
