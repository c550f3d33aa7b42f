//! The source as the host drives it, natively: `cargo test`.

use std::time::Duration;

use {{crate}}::Numbers;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::source;

const WAIT: Duration = Duration::from_millis(100);

fn request(stream: &Stream, cursor: Option<&str>) -> ReadRequest {
    ReadRequest {
        increment: Some(Increment {
            cursor_fields: vec!["n".into()],
            initial: None,
            late_rows: LateRows::Lag(None),
            allow_duplicates: false,
        }),
        cursor: cursor.map(Into::into),
        ..ReadRequest::of(stream)
    }
}

/// How many rows come, and the last checkpoint.
fn read(cursor: Option<&str>) -> (usize, Option<String>) {
    let mut source = source::open::<Numbers>(r#"{"rows": 25000}"#).expect("a configuration");
    let stream = source.discover(&[]).expect("streams").remove(0);
    let mut reader = source.read(&request(&stream, cursor)).expect("a reader");
    let (mut rows, mut last) = (0, None);
    loop {
        match reader.next(WAIT).expect("an event") {
            Event::Batch(batch) => rows += batch.num_rows(),
            Event::Checkpoint(cursor) => last = Some(cursor),
            Event::Idle | Event::Rejects(_) | Event::Changed(_) => {}
            Event::End => return (rows, last),
        }
    }
}

#[test]
fn all_rows_come_and_a_read_goes_on_behind_its_cursor() {
    assert_eq!(read(None), (25_000, Some("24999".into())));
    assert_eq!(read(Some("9999")), (15_000, Some("24999".into())));
    assert_eq!(read(Some("24999")), (0, None));
}

#[test]
fn a_misspelt_key_is_refused() {
    let error = source::open::<Numbers>(r#"{"row": 1}"#)
        .err()
        .expect("an error");
    assert!(error.message.contains("`row` does not exist"), "{}", error.message);
}
