//! Streams that a source gives without columns.

use rapidbyte_runtime::{Selection, Source, Stream};
use rapidbyte_wire::ipc;

use super::refused::{Refused, stops};
use crate::document::Document;
use crate::failure::Failure;

/// Leaves out the streams that the source gives without columns because it cannot find them out. The source says why
/// when it is asked for the moment of such a stream.
///
/// # Errors
/// A failure that stops the whole run.
pub(super) fn readable<T>(
    document: &Document,
    found: Vec<T>,
    stream: impl Fn(&T) -> &Stream,
    session: &mut Source,
) -> Result<(Vec<T>, Vec<Refused>), Failure> {
    let (mut readable, mut refused) = (Vec::new(), Vec::new());
    for one in found {
        let stream = stream(&one);
        let failure = match is_columnless(stream) {
            true => session.snapshot(&[whole(&stream.name)]).err(),
            false => None,
        };
        let failure = failure.map(|error| Failure::from_runtime(error, document, "source"));
        match failure {
            None => readable.push(one),
            Some(failure) if failure.passes_after_ms.is_none() && stops(&failure) => {
                return Err(failure);
            }
            Some(failure) => refused.push(Refused {
                stream: stream.name.clone(),
                failure: failure.in_stream(&stream.name),
            }),
        }
    }
    Ok((readable, refused))
}

/// False for an unreadable schema: the code that uses the schema reports the error.
fn is_columnless(stream: &Stream) -> bool {
    let schema = ipc::decode_schema(&stream.schema);
    schema.is_ok_and(|schema| schema.fields().is_empty())
}

pub(super) fn whole(stream: &str) -> Selection {
    Selection {
        stream: stream.to_owned(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    }
}
