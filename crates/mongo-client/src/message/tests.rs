#![allow(clippy::unwrap_used)]

use rapidbyte_bson::Builder;
use rapidbyte_sdk::Error;

use super::*;

const MAX: usize = 1 << 20;
const ALL: [Compressor; 3] = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn command() -> Vec<u8> {
    let mut builder = Builder::new();
    builder
        .string("insert", "c")
        .string("$db", &"d".repeat(500));
    builder.finish().unwrap()
}

/// The answer that a server would give with these bytes behind its header.
fn answered(kind: i32, body: &[u8]) -> Result<Answer> {
    let len = i32::try_from(HEADER_BYTES + body.len()).unwrap();
    let mut header = Vec::new();
    for number in [len, 9, 1, kind] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    let header = Header::decode(header.try_into().unwrap(), MAX)?;
    assert_eq!((header.body, header.answers), (body.len(), 1));
    header.document(body.to_vec(), &ALL, MAX)
}

fn read(message: &[u8], offered: &[Compressor]) -> Result<Answer> {
    let (header, body) = message.split_first_chunk::<HEADER_BYTES>().unwrap();
    Header::decode(*header, MAX)?.document(body.to_vec(), offered, MAX)
}

#[test]
fn a_message_has_the_form_of_the_manual() {
    let mut builder = Builder::new();
    builder.int32("a", 1);
    let document = builder.finish().unwrap();
    let sequence = Sequence {
        name: "documents",
        documents: &document,
    };
    let message = encode(7, &document, Some(sequence), None).unwrap();
    let expected = [
        // Length, number, no answer, OP_MSG; flags.
        &b"\x3c\0\0\0\x07\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0"[..],
        b"\0\x0c\0\0\0\x10a\0\x01\0\0\0\0",
        b"\x01\x1a\0\0\0documents\0",
        b"\x0c\0\0\0\x10a\0\x01\0\0\0\0",
    ]
    .concat();
    assert_eq!(message, expected);
    // The section of kind 1 is passed over, wherever it is.
    assert_eq!(read(&message, &[]).unwrap().bytes(), document);
}

#[test]
fn a_compressed_message_has_what_was_compressed() {
    let command = command();
    for compressor in ALL {
        let compression = Compression {
            compressor,
            zlib_level: 6,
        };
        let message = encode(1, &command, None, Some(compression)).unwrap();
        assert!(message.len() < command.len(), "{compressor:?}");
        assert_eq!(&message[12..16], &2012_i32.to_le_bytes());
        assert_eq!(read(&message, &ALL).unwrap().bytes(), command);
        let error = read(&message, &[]).unwrap_err();
        assert!(error.message.contains("was not offered"), "{error:?}");
    }
}

fn code(answer: Result<Answer>) -> String {
    answer
        .map(|_| ())
        .map_err(|error: Error| error.code)
        .unwrap_err()
}

#[test]
fn a_server_that_lies_is_an_error() {
    let command = command();
    let section = [&[0], command.as_slice()].concat();
    let message = |flags: u32, sections: &[&[u8]]| {
        [&flags.to_le_bytes(), sections.concat().as_slice()].concat()
    };
    answered(OP_MSG, &message(0, &[&section])).unwrap();
    // An optional flag, and a checksum.
    answered(OP_MSG, &message(1 << 16, &[&section])).unwrap();
    answered(OP_MSG, &message(1, &[&section, &[0; 4]])).unwrap();
    for (kind, body) in [
        (1, message(0, &[&section])),
        (OP_MSG, vec![]),
        (OP_MSG, vec![0; 3]),
        (OP_MSG, message(0, &[])),
        (OP_MSG, message(1, &[])),
        (OP_MSG, message(2, &[&section])),
        (OP_MSG, message(4, &[&section])),
        (OP_MSG, message(0, &[&section, &section])),
        (OP_MSG, message(0, &[&section, &[2]])),
        (OP_MSG, message(0, &[&section, &[1]])),
        (OP_MSG, message(0, &[&section, b"\x01\x03\0\0\0"])),
        (OP_MSG, message(0, &[&section, b"\x01\xff\xff\xff\xff"])),
        (OP_MSG, message(0, &[&section, b"\x01\xff\xff\xff\x7f"])),
        (OP_MSG, message(0, &[&section[..section.len() - 1]])),
        (OP_MSG, message(0, &[b"\0\xff\xff\xff\x7f\0"])),
        (OP_MSG, message(0, &[b"\0\0\0\0\0\0"])),
        // The checksum would be a part of the document.
        (OP_MSG, message(1, &[&section])),
    ] {
        assert_eq!(
            code(answered(kind, &body)),
            "protocol_violation",
            "{body:?}"
        );
    }
}

#[test]
fn a_length_outside_its_limits_is_an_error() {
    let header = |len: i32| {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[12..].copy_from_slice(&OP_MSG.to_le_bytes());
        Header::decode(bytes, MAX)
    };
    for len in [i32::MIN, -1, 0, 15, (1 << 20) + 1, i32::MAX] {
        assert_eq!(header(len).unwrap_err().code, "protocol_violation", "{len}");
    }
    assert_eq!(header(16).unwrap().body, 0);
    assert_eq!(header(1 << 20).unwrap().body, MAX - HEADER_BYTES);
}

#[test]
fn compressed_data_that_lies_is_an_error() {
    let section = [&[0; 5], command().as_slice()].concat();
    let wrapped = |kind: i32, len: i32, id: u8, data: &[u8]| {
        let header = [kind.to_le_bytes(), len.to_le_bytes()].concat();
        [&header, &[id][..], data].concat()
    };
    let len = i32::try_from(section.len()).unwrap();
    answered(OP_COMPRESSED, &wrapped(OP_MSG, len, 0, &section)).unwrap();
    let mut lies = vec![
        vec![],
        wrapped(OP_COMPRESSED, len, 0, &section),
        wrapped(OP_MSG, -1, 0, &section),
        wrapped(OP_MSG, i32::MAX, 0, &section),
        wrapped(OP_MSG, len - 1, 0, &section),
        wrapped(OP_MSG, len, 4, &section),
    ];
    for compressor in ALL {
        let compression = Compression {
            compressor,
            zlib_level: 6,
        };
        let (id, data) = (compressor.id(), compression.compress(&section).unwrap());
        answered(OP_COMPRESSED, &wrapped(OP_MSG, len, id, &data)).unwrap();
        lies.extend([
            wrapped(OP_MSG, len, id, b""),
            wrapped(OP_MSG, len, id, b"random bytes"),
            wrapped(OP_MSG, len - 1, id, &data),
            wrapped(OP_MSG, len + 1, id, &data),
            wrapped(OP_MSG, len, id, &data[..data.len() / 2]),
        ]);
    }
    for body in lies {
        let answer = answered(OP_COMPRESSED, &body);
        assert_eq!(code(answer), "protocol_violation", "{body:?}");
    }
}

#[test]
fn random_answers_never_panic() {
    let mut numbers = rapidbyte_testkit::numbers::Numbers::new(7);
    let command = command();
    let mut body = [&[0; 5], command.as_slice()].concat();
    for _ in 0..20_000 {
        let at = numbers.below(body.len());
        let before = body[at];
        body[at] = u8::try_from(numbers.below(256)).unwrap();
        for kind in [OP_MSG, OP_COMPRESSED] {
            let _ = answered(kind, &body).map(|answer| Document::parse(answer.bytes()).is_ok());
        }
        body[at] = before;
    }
}
