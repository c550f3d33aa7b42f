#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// One element of each type, written by hand from the specification.
fn all_kinds() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |kind: u8, name: &str, value: &[u8]| {
        bytes.push(kind);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value);
    };
    put(0x01, "double", &1.5_f64.to_le_bytes());
    put(0x02, "string", b"\x04\0\0\0a\0b\0");
    put(0x03, "document", b"\x05\0\0\0\0");
    put(0x04, "array", b"\x0c\0\0\0\x100\0\x07\0\0\0\0");
    put(0x05, "binary", b"\x02\0\0\0\x04\xff\x00");
    put(0x06, "undefined", b"");
    put(0x07, "id", b"123456789012");
    put(0x08, "boolean", b"\x01");
    put(0x09, "date", &(-1_i64).to_le_bytes());
    put(0x0a, "null", b"");
    put(0x0b, "regex", b"^a\0im\0");
    put(0x0c, "pointer", b"\x02\0\0\0c\x00123456789012");
    put(0x0d, "code", b"\x02\0\0\0f\0");
    put(0x0e, "symbol", b"\x02\0\0\0s\0");
    put(0x0f, "scoped", b"\x0f\0\0\0\x02\0\0\0f\0\x05\0\0\0\0");
    put(0x10, "int32", &(-2_i32).to_le_bytes());
    put(0x11, "timestamp", &7_u64.to_le_bytes());
    put(0x12, "int64", &i64::MIN.to_le_bytes());
    put(0x13, "decimal", &[9; 16]);
    put(0x7f, "max", b"");
    put(0xff, "min", b"");
    // A name may repeat, and may be empty.
    put(0x0a, "null", b"");
    put(0x0a, "", b"");
    let len = i32::try_from(bytes.len() + 5).unwrap();
    [&len.to_le_bytes(), bytes.as_slice(), &[0]].concat()
}

fn rebuilt(document: Document<'_>) -> Vec<u8> {
    let mut builder = Builder::new();
    for element in document.elements() {
        let (name, value) = element.unwrap();
        builder.value(name, &value);
    }
    builder.finish().unwrap()
}

#[test]
fn every_type_is_read_and_written_as_the_specification_has_it() {
    let bytes = all_kinds();
    let document = Document::parse(&bytes).unwrap();
    document.check().unwrap();
    let kinds: Vec<u8> = document
        .elements()
        .map(|element| element.unwrap().1.kind().byte())
        .collect();
    assert_eq!(kinds.len(), 23);
    assert_eq!(document.get("string").unwrap(), Some(Value::String("a\0b")));
    assert_eq!(document.get("int64").unwrap(), Some(Value::Int64(i64::MIN)));
    assert_eq!(document.get("date").unwrap(), Some(Value::DateTime(-1)));
    assert_eq!(document.get("nothing").unwrap(), None);
    assert_eq!(rebuilt(document), bytes);
}

#[test]
fn each_prefix_and_each_changed_byte_is_an_error_or_a_document_and_no_panic() {
    let bytes = all_kinds();
    for end in 0..bytes.len() {
        assert!(Document::parse(&bytes[..end]).is_err(), "{end}");
    }
    for at in 0..bytes.len() {
        for change in 1..=255 {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            if let Ok(document) = Document::parse(&changed)
                && document.check().is_ok()
            {
                assert_eq!(rebuilt(document), changed);
            }
        }
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let element = |kind: u8, value: &[u8]| {
        let len = i32::try_from(value.len() + 8).unwrap();
        [&len.to_le_bytes(), &[kind, b'x', 0][..], value, &[0]].concat()
    };
    for (kind, value) in [
        (0x02, &b"\0\0\0\0"[..]),
        (0x02, b"\xff\xff\xff\xff"),
        (0x02, b"\xff\xff\xff\x7f"),
        (0x02, b"\x01\0\0\0a"),
        (0x02, b"\x03\0\0\0\xff\xff\0"),
        (0x03, b"\x04\0\0\0"),
        (0x03, b"\xff\xff\xff\x7f\0"),
        (0x05, b"\xff\xff\xff\xff\0"),
        (0x05, b"\x09\0\0\0\0"),
        (0x08, b"\x02"),
        (0x0b, b"abc"),
        (0x0f, b"\x0e\0\0\0\x02\0\0\0f\0\x05\0\0\0\0"),
        (0x14, b""),
        (0x12, b"1234567"),
    ] {
        let bytes = element(kind, value);
        let document = Document::parse(&bytes).unwrap();
        assert!(document.check().is_err(), "{kind:x} {value:?}");
        // The error comes once, and then the end.
        assert_eq!(document.elements().count(), 1, "{kind:x} {value:?}");
    }
}

#[test]
fn documents_are_followed_to_a_limit() {
    let nested = |levels: usize| {
        let mut builder = Builder::new();
        (1..levels).for_each(|_| {
            builder.open_document("a");
        });
        (1..levels).for_each(|_| {
            builder.close();
        });
        builder.finish().unwrap()
    };
    let bytes = nested(crate::MAX_DEPTH);
    Document::parse(&bytes).unwrap().check().unwrap();
    let bytes = nested(crate::MAX_DEPTH + 1);
    let error = Document::parse(&bytes).unwrap().check().unwrap_err();
    assert_eq!(error, BsonError::TooDeep);
}

#[test]
fn a_document_that_cannot_be_written_is_an_error() {
    let mut builder = Builder::new();
    builder.int32("a\0b", 1);
    assert_eq!(builder.finish(), Err(BsonError::NulByte("a\0b".to_owned())));
    let mut builder = Builder::new();
    builder.open_array("a");
    assert_eq!(builder.finish(), Err(BsonError::Unclosed));
    let mut builder = Builder::new();
    builder.close();
    assert_eq!(builder.finish(), Err(BsonError::Unclosed));
}

#[test]
fn a_builder_writes_behind_what_is_there() {
    let mut builder = Builder::onto(b"before".to_vec());
    builder.open_array("a").int32("0", 1).close();
    let bytes = builder.finish().unwrap();
    let document = Document::parse(bytes.strip_prefix(b"before").unwrap()).unwrap();
    let mut copy = Builder::new();
    copy.elements_of(document);
    assert_eq!(copy.finish().unwrap(), document.as_bytes());
}

#[test]
fn whole_numbers_of_every_type_are_understood() {
    for (value, expected) in [
        (Value::Int32(-1), Some(-1)),
        (Value::Int64(i64::MAX), Some(i64::MAX)),
        (Value::Double(3.0), Some(3)),
        (Value::Double(3.5), None),
        (Value::Double(9.3e18), None),
        (Value::Double(f64::NAN), None),
        (Value::String("1"), None),
    ] {
        assert_eq!(value.as_whole(), expected, "{value:?}");
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let len = i32::try_from(bytes.len() + 5).unwrap();
        let framed = [&len.to_le_bytes(), bytes.as_slice(), &[0]].concat();
        let _ = Document::parse(&bytes).map(|document| document.check());
        let document = Document::parse(&framed).unwrap();
        if document.check().is_ok() {
            prop_assert_eq!(rebuilt(document), framed);
        }
    }
}
