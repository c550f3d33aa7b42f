//! Asks a source for its streams.

use rapidbyte_runtime::{Selection, Source, Stream};
use rapidbyte_wire::ipc;

use crate::bench::{Bench, Reach, Trouble};

/// The streams of a source. If it gives a stream of the test without columns, it says why as its error.
pub(crate) fn discovered(
    bench: &Bench<'_>,
    reach: Reach,
    source: &mut Source,
) -> Result<Vec<Stream>, Trouble> {
    let found = bench.note_as(reach, source.discover(&[]))?;
    let asked = &bench.trial.streams;
    let is_asked = |stream: &&Stream| asked.is_empty() || asked.contains(&stream.name);
    for stream in found.iter().filter(is_asked) {
        bench.note_as(reach, ask_columnless(source, stream))?;
    }
    Ok(found)
}

/// Has a source say why it gives a stream without columns, if it does.
pub(crate) fn ask_columnless(
    source: &mut Source,
    stream: &Stream,
) -> rapidbyte_runtime::Result<()> {
    let schema = ipc::decode_schema(&stream.schema);
    if !schema.is_ok_and(|schema| schema.fields().is_empty()) {
        return Ok(());
    }
    let selection = Selection {
        stream: stream.name.clone(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    };
    source.snapshot(&[selection]).map(drop)
}
