//! Values of all types of BSON.

use bson::{Bson, doc};

/// A value of each type that the `bson` crate can write, with its name; extremes among them.
pub fn every_value() -> Vec<(&'static str, Bson)> {
    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{Binary, DateTime, JavaScriptCodeWithScope, Regex, Timestamp};
    let binary = |subtype, bytes: &[u8]| {
        Bson::Binary(Binary {
            subtype,
            bytes: bytes.to_vec(),
        })
    };
    vec![
        ("double", Bson::Double(1.5)),
        ("double whole", Bson::Double(3.0)),
        ("double -0", Bson::Double(-0.0)),
        ("double nan", Bson::Double(f64::NAN)),
        ("double inf", Bson::Double(f64::INFINITY)),
        ("double -inf", Bson::Double(f64::NEG_INFINITY)),
        ("double least", Bson::Double(5e-324)),
        ("double most", Bson::Double(f64::MAX)),
        ("string", Bson::String("Grüße \"\\\u{1} 🦀\0 x".into())),
        (
            "document",
            Bson::Document(doc! {"b": 1, "a": {"c": [1, "x", null]}}),
        ),
        ("document empty", Bson::Document(doc! {})),
        ("dbref", Bson::Document(doc! {"$ref": "c", "$id": 1})),
        ("array", Bson::Array((0..12).map(Bson::Int32).collect())),
        ("binary", binary(BinarySubtype::Generic, b"\0\xff")),
        ("binary function", binary(BinarySubtype::Function, b"x")),
        ("binary old", binary(BinarySubtype::BinaryOld, b"old")),
        ("binary uuid old", binary(BinarySubtype::UuidOld, &[7; 16])),
        ("binary uuid", binary(BinarySubtype::Uuid, &[9; 16])),
        ("binary md5", binary(BinarySubtype::Md5, &[1; 16])),
        ("binary encrypted", binary(BinarySubtype::Encrypted, b"e")),
        (
            "binary vector",
            binary(BinarySubtype::Vector, &[0x27, 0, 0]),
        ),
        (
            "binary of a user",
            binary(BinarySubtype::UserDefined(0x80), b""),
        ),
        ("undefined", Bson::Undefined),
        (
            "objectId",
            Bson::ObjectId(ObjectId::from_bytes(*b"\x01\xfe34567890ab")),
        ),
        ("bool", Bson::Boolean(true)),
        ("bool false", Bson::Boolean(false)),
        (
            "date",
            Bson::DateTime(DateTime::from_millis(1_767_225_600_123)),
        ),
        ("date before", Bson::DateTime(DateTime::from_millis(-1))),
        (
            "date least",
            Bson::DateTime(DateTime::from_millis(i64::MIN)),
        ),
        ("date most", Bson::DateTime(DateTime::from_millis(i64::MAX))),
        ("null", Bson::Null),
        (
            "regex",
            Bson::RegularExpression(Regex {
                pattern: "^a/\"b".try_into().unwrap(),
                options: "im".try_into().unwrap(),
            }),
        ),
        ("javascript", Bson::JavaScriptCode("f(\"x\")".into())),
        ("symbol", Bson::Symbol("sym".into())),
        (
            "javascriptWithScope",
            Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
                code: "g()".into(),
                scope: doc! {"x": 1},
            }),
        ),
        ("int", Bson::Int32(i32::MIN)),
        (
            "timestamp",
            Bson::Timestamp(Timestamp {
                time: u32::MAX,
                increment: 7,
            }),
        ),
        ("long", Bson::Int64(i64::MAX)),
        ("long least", Bson::Int64(i64::MIN)),
        ("long small", Bson::Int64(5)),
        ("decimal", Bson::Decimal128("1.500".parse().unwrap())),
        ("decimal nan", Bson::Decimal128("NaN".parse().unwrap())),
        (
            "decimal -inf",
            Bson::Decimal128("-Infinity".parse().unwrap()),
        ),
        ("decimal -0", Bson::Decimal128("-0E+3".parse().unwrap())),
        (
            "decimal most",
            Bson::Decimal128("9.999999999999999999999999999999999E+6144".parse().unwrap()),
        ),
        (
            "decimal least",
            Bson::Decimal128("1E-6176".parse().unwrap()),
        ),
        ("maxKey", Bson::MaxKey),
        ("minKey", Bson::MinKey),
    ]
}

/// One document of all values, and a DBPointer, which the `bson` crate cannot make.
pub fn everything() -> Vec<u8> {
    let mut document = bson::Document::new();
    for (name, value) in every_value() {
        document.insert(name, value);
    }
    let mut bytes = document.to_vec().unwrap();
    bytes.pop();
    bytes.extend_from_slice(b"\x0cdbPointer\0\x05\0\0\0db.c\0abcdefghijkl");
    // A name that comes twice, and an empty one.
    bytes.extend_from_slice(b"\x10int\0\x01\0\0\0\x08\0\x01\0");
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}
