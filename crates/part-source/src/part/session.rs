//! A source that was opened: its streams, and what can be asked of them.

use std::rc::Rc;

use rapidbyte_rows::{Encoder, Refusal, one};

use crate::part::contract::{
    self, Bucket, Buckets, CheckItem, ChosenRows, Cursor, DigestedRow, GuestSession, Increment,
    LateRows, ReadRequest, RowLimit, Selection, Stream,
};
use crate::part::reader::{Reader, TOGETHER};
use crate::part::script;
use crate::part::{Error, of_host, refused};

/// The script, opened with one configuration.
pub struct Session(Rc<script::Session>);

/// A read of a stream that the script has.
struct Asked {
    stream: script::Stream,
    increment: Option<script::Increment>,
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>, Error> {
        let streams = self.0.streams()?.len();
        Ok(vec![CheckItem {
            name: "discover".into(),
            problem: None,
            detail: match streams {
                1 => "1 stream".to_owned(),
                _ => format!("{streams} streams"),
            },
        }])
    }

    fn discover(&self, _forms: Vec<String>) -> Result<Vec<Stream>, Error> {
        let streams = self.0.streams()?;
        streams.into_iter().map(described).collect()
    }

    fn describe_query(
        &self,
        stream: String,
        _query: String,
        _forms: Vec<String>,
    ) -> Result<Stream, Error> {
        Err(unknown(&stream, &[]))
    }

    fn digest_limits(&self, _: Selection, _: Option<String>) -> Result<Vec<RowLimit>, Error> {
        Err(no_digests())
    }

    fn digest(
        &self,
        _: Selection,
        _: Option<String>,
        _: String,
        _: Vec<RowLimit>,
        _: Option<Buckets>,
        _: u8,
    ) -> Result<Vec<Bucket>, Error> {
        Err(no_digests())
    }

    fn digest_rows(
        &self,
        _: Selection,
        _: Option<String>,
        _: String,
        _: Vec<RowLimit>,
        _: ChosenRows,
        _: u32,
    ) -> Result<Vec<DigestedRow>, Error> {
        Err(no_digests())
    }

    fn snapshot(&self, streams: Vec<Selection>) -> Result<String, Error> {
        for selection in streams {
            let asked = self.asked(&selection.stream, selection.increment, selection.cursor)?;
            encoder(&asked.stream, selection.columns.as_deref(), 1)?;
        }
        Ok(String::new())
    }

    fn read(&self, requests: Vec<ReadRequest>) -> Result<contract::Reader, Error> {
        let request = of_host(one::only(requests, TOGETHER))?;
        let Asked { stream, increment } =
            self.asked(&request.stream, request.increment, request.cursor)?;
        let columns = request.columns.as_deref();
        let encoder = encoder(&stream, columns, request.max_record_bytes)?;
        let reader = self.0.read(&script::Request {
            columns: encoder.names(),
            stream: request.stream,
            increment,
            batch_bytes: request.batch_bytes,
            max_record_bytes: request.max_record_bytes,
        })?;
        let reader = Reader::new(reader, Rc::clone(&self.0), stream.name, encoder);
        Ok(contract::Reader::new(reader))
    }
}

impl Session {
    pub fn new(script: script::Session) -> Self {
        Self(Rc::new(script))
    }

    fn asked(
        &self,
        name: &str,
        increment: Option<Increment>,
        cursor: Option<Cursor>,
    ) -> Result<Asked, Error> {
        let mut streams = self.0.streams()?;
        let Some(at) = streams.iter().position(|stream| stream.name == name) else {
            return Err(unknown(name, &streams));
        };
        let stream = streams.swap_remove(at);
        let increment = match increment {
            None => None,
            Some(increment) if is_plain(&increment, &stream) => Some(script::Increment {
                initial: increment.initial,
                cursor,
            }),
            Some(_) => return Err(not_possible(&stream)),
        };
        Ok(Asked { stream, increment })
    }
}

/// Whether a read resumes as the script does: by its own fields, without lag.
fn is_plain(increment: &Increment, stream: &script::Stream) -> bool {
    matches!(increment.late_rows, LateRows::Lag(None))
        && increment.cursor_fields == stream.cursor_fields
}

/// Names of streams that a hint has at most.
const MAX_NAMED: usize = 20;

fn unknown(name: &str, streams: &[script::Stream]) -> Error {
    let names = streams.iter().map(|stream| stream.name.as_str());
    let names: Vec<&str> = names.take(MAX_NAMED).collect();
    let hint = match &*names {
        [] => "the source has no streams with this configuration".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    let refusal = Refusal::schema(
        "unknown_stream",
        format!("the stream `{name}` does not exist"),
    );
    refused(refusal.hint(hint), name)
}

fn not_possible(stream: &script::Stream) -> Error {
    let (text, hint) = match &*stream.cursor_fields {
        [] => (
            "the stream has no columns by which it can resume".to_owned(),
            "set sync_mode: full_refresh".to_owned(),
        ),
        fields => {
            let fields = fields.join(", ");
            (
                format!(
                    "the stream is read from a cursor on {fields}, without lag and \
                     change_detection"
                ),
                format!("write cursor_field: {fields}, and remove lag and change_detection"),
            )
        }
    };
    let refusal = Refusal::config("increment_not_possible", text).hint(hint);
    refused(refusal, &stream.name)
}

fn encoder(
    stream: &script::Stream,
    wanted: Option<&[String]>,
    max_record_bytes: u64,
) -> Result<Encoder, Error> {
    Encoder::new(&stream.columns, wanted, max_record_bytes)
        .map_err(|refusal| refused(refusal, &stream.name))
}

fn described(stream: script::Stream) -> Result<Stream, Error> {
    let encoder = encoder(&stream, None, 1)?;
    Ok(Stream {
        schema: encoder.schema_message().to_vec(),
        source_types: encoder.types(),
        name: stream.name,
        primary_key: stream.primary_key,
        cursor_fields: stream.cursor_fields,
        estimated_rows: stream.estimated_rows,
        estimated_bytes: None,
        inferred: Vec::new(),
        notes: stream.notes,
    })
}

/// The error for a connector whose spec has no forms of digests.
fn no_digests() -> Error {
    let text = "the connector does not digest rows";
    refused(Refusal::internal("internal", text), "")
}
