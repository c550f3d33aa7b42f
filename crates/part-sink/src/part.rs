wit_bindgen::generate!({
    path: ["../../wit", "../rows/wit"],
    world: "rapidbyte:script/sink-part",
    generate_all,
});

use exports::rapidbyte::script::sink::Guest;
use rapidbyte::connector::files::Output;
use rapidbyte::connector::types::{Error, ErrorKind};

struct Sink;

impl Guest for Sink {
    fn write_text(to: &Output, text: String) -> Result<(), Error> {
        to.write(text.as_bytes())
    }

    fn write_latin(to: &Output, text: String) -> Result<(), Error> {
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        to.write(&bytes.map_err(|_| no_byte())?)
    }
}

fn no_byte() -> Error {
    Error {
        kind: ErrorKind::Internal,
        code: "not_latin1".into(),
        message: "a character above 255 where each stands for a byte".into(),
        hint: Some("each character of `write_latin` is a byte: give a text to `write_text`".into()),
        stream: None,
        column: None,
        location: None,
    }
}

export!(Sink);
