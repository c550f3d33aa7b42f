//! The cursor of an incremental read. It is in a destination that others may write to.

#[allow(dead_code, reason = "the connector uses what is not used here")]
#[path = "../../connectors/source-postgres/src/cursor.rs"]
mod cursor;

use cursor::Cursor;

/// A cursor that is read is written and read as the same.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Cursor::parse(&text) {
        Ok(cursor) => {
            let json = cursor.to_json().expect("what was read can be written");
            assert_eq!(Cursor::parse(&json).expect("and read"), cursor);
            if let Cursor::Ordered(ordered) = &cursor {
                let fits = ordered.check(&ordered.fields).is_ok();
                let values = ordered.values.as_ref();
                assert_eq!(fits, values.is_none_or(|v| v.len() == ordered.fields.len()));
            }
        }
        Err(error) => assert_eq!(error.code, "cursor_unreadable"),
    }
}
