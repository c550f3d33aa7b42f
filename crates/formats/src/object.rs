//! A row as a JSON object for a person, who may repair it: every row has one.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Field;

use crate::cells::{Cells, Form};
use crate::json;
use crate::rows::{Rejected, first_bytes};

/// A row of a batch as a compact JSON object, or its first [`Rejected::MAX_BYTES`] and true. Each value is as in JSON
/// Lines, except that a document that is `null`, a string, or not on one line, and a float that is not finite become the
/// string of their text. [`Decoder::of_objects`](crate::Decoder::of_objects) reads every value back exactly. A value of a type that
/// these files do not have is its bytes, or left out.
pub fn object(batch: &RecordBatch, row: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    write_object(batch, row, &mut out);
    let kept = first_bytes(&out, Rejected::MAX_BYTES).len();
    let is_cut = kept < out.len();
    if is_cut {
        out.truncate(kept);
        out.shrink_to_fit();
    }
    (out, is_cut)
}

fn write_object(batch: &RecordBatch, row: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    let begun = out.len();
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        // Without metadata a native value is its bytes.
        let plain = || Field::new(field.name(), array.data_type().clone(), true);
        let cells = Cells::new(field, array).or_else(|_| Cells::new(&Arc::new(plain()), array));
        let Ok(cells) = cells else {
            continue;
        };
        if out.len() > begun {
            out.push(b',');
        }
        json::write_string(field.name(), out);
        out.push(b':');
        write_value(&cells, row, out);
    }
    out.push(b'}');
}

fn write_value(cells: &Cells, row: usize, out: &mut Vec<u8>) {
    let start = out.len();
    if cells.write_json(row, Form::Object, out).is_ok() {
        return;
    }
    out.truncate(start);
    let mut text = Vec::new();
    match cells.write_text(row, &mut text) {
        Ok(()) => json::write_string(&String::from_utf8_lossy(&text), out),
        // The value is out of the range of its own type.
        Err(misfit) => json::write_string(&misfit.reason, out),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, BinaryArray, Float64Array, Int64Array, ListArray, StringArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{DataType, Schema};

    use crate::{Decoder, Format, Limits};

    use super::*;

    #[test]
    fn every_value_comes_back_exactly() {
        let json =
            Field::new("j", DataType::Utf8, true).with_metadata(std::collections::HashMap::from([
                ("ARROW:extension:name".to_owned(), "arrow.json".to_owned()),
            ]));
        let item = Arc::new(json.clone().with_name("item"));
        let list = Field::new("l", DataType::List(item.clone()), true);
        let floats = Field::new("f", DataType::Float64, true);
        let schema = Arc::new(Schema::new(vec![json, list, floats]));
        let documents = [
            Some("null"),
            Some("\"null\""),
            Some("\"x\""),
            Some("\"x\"\n"),
            Some(" null"),
            Some("[1,\n2]"),
            Some("{\"a\":1\n}"),
            Some("1.50\n"),
            Some("1.50"),
            Some("{\"a\": 1, \"a\": \"\\u00e9\"}"),
            None,
        ];
        let floats = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            1.5,
            0.0,
            1.0,
            2.0,
            3.0,
            4.0,
            5.0,
        ];
        let all = StringArray::from(documents.to_vec());
        let offsets = OffsetBuffer::from_lengths([1; 11]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(all.clone()),
            Arc::new(ListArray::new(item, offsets, Arc::new(all), None)),
            Arc::new(Float64Array::from(floats.to_vec())),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let decoder = || {
            Decoder::new(&Format::Jsonl, schema.clone(), None, Limits::default())
                .unwrap()
                .of_objects()
        };
        let mut read = decoder();
        read.begin_file();
        for row in 0..batch.num_rows() {
            let (record, is_cut) = object(&batch, row);
            assert!(!is_cut);
            read.push_record(&record).unwrap();
        }
        let found = read.take_batch().unwrap().unwrap();
        // NaN differs from itself.
        for (mine, theirs) in batch.columns().iter().zip(found.columns()) {
            assert_eq!(format!("{mine:?}"), format!("{theirs:?}"));
        }
        let mut read = decoder();
        read.begin_file();
        let error = read.push_record(br#"{"j":1,"l":null}"#).unwrap_err();
        assert_eq!(
            (error.code, error.column.as_deref()),
            ("jsonl_missing_key", Some("f"))
        );
    }

    #[test]
    fn every_row_has_an_object() {
        let columns: [(&str, ArrayRef); 4] = [
            ("id", Arc::new(Int64Array::from(vec![Some(1), None]))),
            ("x", Arc::new(Float64Array::from(vec![f64::NAN, 1.5]))),
            ("s", Arc::new(StringArray::from(vec!["a\"b", "ä"]))),
            ("b", Arc::new(BinaryArray::from(vec![&b"\x01"[..], b""]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let object = |row| {
            let mut out = Vec::new();
            write_object(&batch, row, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(object(0), r#"{"id":1,"x":"NaN","s":"a\"b","b":"\\x01"}"#);
        assert_eq!(object(1), r#"{"id":null,"x":1.5,"s":"ä","b":"\\x"}"#);
        for most in 0..40 {
            let whole = object(1);
            let cut = first_bytes(whole.as_bytes(), most);
            let is_cut = cut.len() < whole.len();
            assert_eq!(is_cut, most < whole.len());
            assert!(whole.starts_with(std::str::from_utf8(cut).unwrap()));
            assert!(cut.len() <= most && (cut.len() + 1 >= most || !is_cut));
        }
    }
}
