//! A server of MongoDB that may say anything at any time.

use std::sync::LazyLock;

use rapidbyte_bson::Builder;
use rapidbyte_mongo_client::{Client, Cursor, Settings};
use rapidbyte_sdk::connection::answer_with;
use rapidbyte_sdk::{Error, Result};

/// More than any input can make.
const MAX_STEPS: usize = 1 << 16;
const OP_MSG: i32 = 2013;
const OP_COMPRESSED: i32 = 2012;

/// Adds the bytes of a message: those that the input has, behind a header and a section that are as they should be, or
/// as the input has them.
const DOCUMENT: u8 = 0;
const SECTIONS: u8 = 1;
const COMPRESSED: u8 = 2;

static SETTINGS: LazyLock<[Settings; 2]> = LazyLock::new(|| {
    ["", "u:p@"].map(|user| {
        let url = format!("mongodb://{user}localhost/d?compressors=snappy,zlib,zstd");
        Settings::from_url(&url).expect("a good URL")
    })
});

/// The input: a byte that chooses what the client does, one that says how its bytes are cut, and the messages of the
/// server. Every error has a code of known letters.
pub fn run(data: &[u8]) {
    let Err(error) = talk(data) else { return };
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    let is_code = !error.code.is_empty() && error.code.chars().all(is_known);
    assert!(is_code, "{error:?}");
    assert!(error.message.len() < 64 << 10, "{}", error.message.len());
}

/// The conversation of an input.
///
/// # Errors
/// The client's first.
pub fn talk(data: &[u8]) -> Result<()> {
    let mut data = data;
    let (choice, cut) = (crate::byte(&mut data), crate::piece(crate::byte(&mut data)));
    let mut bytes = Vec::new();
    if choice & 0x40 != 0 {
        bytes.extend(message(1, OP_MSG, &section(&greeting())));
    }
    match choice & 0x80 {
        0 => bytes.extend_from_slice(data),
        _ => framed(data, i32::from(choice & 0x40 != 0), &mut bytes),
    }
    answer_with(bytes, cut);
    speak(choice)
}

/// A greeting of a server that would do.
fn greeting() -> Vec<u8> {
    let mut hello = Builder::new();
    hello
        .int32("ok", 1)
        .boolean("isWritablePrimary", true)
        .int32("maxWireVersion", 21);
    hello.finish().expect("a document")
}

fn section(document: &[u8]) -> Vec<u8> {
    [&[0; 5][..], document].concat()
}

/// A message that answers this question.
fn message(question: i32, kind: i32, body: &[u8]) -> Vec<u8> {
    let len = i32::try_from(body.len() + 16).expect("a short message");
    [
        &[len, 7, question, kind].map(i32::to_le_bytes).concat(),
        body,
    ]
    .concat()
}

/// Messages of the input: what is right about each, two bytes of its length, and its bytes. The client counts its
/// questions from 1.
fn framed(data: &[u8], asked: i32, out: &mut Vec<u8>) {
    let (mut data, mut question) = (data, asked);
    while !data.is_empty() {
        question += 1;
        let kind = crate::byte(&mut data);
        let len = u16::from_le_bytes([crate::byte(&mut data), crate::byte(&mut data)]);
        let (body, rest) = data.split_at(usize::from(len).min(data.len()));
        data = rest;
        out.extend(match kind & 3 {
            DOCUMENT => message(question, OP_MSG, &section(body)),
            SECTIONS => message(question, OP_MSG, body),
            COMPRESSED => message(question, OP_COMPRESSED, body),
            _ => body.to_vec(),
        });
    }
}

fn speak(choice: u8) -> Result<()> {
    let mut client = Client::connect(&SETTINGS[usize::from(choice & 7 == 3)])?;
    let hello = client.hello();
    assert!(hello.max_bson_bytes <= 16 << 20 && hello.max_message_bytes <= 48_000_000);
    assert!((1..=100_000).contains(&hello.max_writes));
    match choice & 7 {
        0 => read(&mut client, |cursor| cursor, 0)?,
        1 => read(&mut client, |cursor| cursor.at_most(100), 10)?,
        2 => write(&mut client, "insert", "documents")?,
        4 => write(&mut client, "update", "updates")?,
        _ => {}
    }
    client
        .command("d", command("ping"))?
        .document()?
        .check()
        .map_err(Error::internal)
}

fn command(name: &str) -> Builder {
    let mut command = Builder::new();
    command.string(name, "c");
    command
}

fn read(client: &mut Client, limit: fn(Cursor) -> Cursor, ahead: u32) -> Result<()> {
    let mut cursor = limit(client.find("d", command("find"))?);
    for _ in 0..MAX_STEPS {
        let Some(batch) = cursor.next(client, 10)? else {
            return Ok(());
        };
        if ahead > 0 {
            cursor.ask(client, ahead)?;
        }
        for document in batch.documents()? {
            let _ = document?.check();
        }
        let _ = (batch.bytes()?, batch.is_empty()?);
    }
    panic!("a cursor without an end");
}

fn write(client: &mut Client, name: &str, field: &str) -> Result<()> {
    let written = client.write("d", command(name), field, &[5, 0, 0, 0, 0])?;
    assert!(written.errors.len() <= 100_000);
    for error in &written.errors {
        let _ = (error.is_duplicate(), error.index);
    }
    Ok(())
}

/// A message of a seed: what is right about it, and its bytes.
pub fn seed(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("a short message");
    [&[kind][..], &len.to_le_bytes(), body].concat()
}
