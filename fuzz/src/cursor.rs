//! The cursor of an incremental read. It is in a destination that others may write to.

#[allow(dead_code, reason = "the connector uses what is not used here")]
#[path = "../../connectors/source-postgres/src/cursor.rs"]
mod of_source;

use std::collections::BTreeMap;

use of_source::{Cursor, Here, Identity, Ordered};

/// A cursor that is read is written and read as the same.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Cursor::parse(&text) {
        Ok(cursor) => {
            let json = cursor.to_json().expect("what was read can be written");
            assert_eq!(Cursor::parse(&json).expect("and read"), cursor);
            if let Cursor::Ordered(ordered) = &cursor {
                fits_its_own_fields(ordered);
            }
        }
        Err(error) => assert_eq!(error.code, "cursor_unreadable"),
    }
}

/// A cursor fits the columns that it was written with, if it has a value for each of them.
fn fits_its_own_fields(cursor: &Ordered) {
    let source = cursor.source.as_ref();
    let columns = source.map(|source| source.columns.clone());
    let columns = columns.unwrap_or_default();
    let names = cursor.fields.iter().map(|field| field.name.clone());
    let numbers: BTreeMap<String, i16> = names.zip(columns.iter().copied()).collect();
    // No table has two columns of one name.
    if numbers.len() != columns.len().min(cursor.fields.len()) {
        return;
    }
    let here = Here {
        identity: Identity {
            system: None,
            wal: None,
            database: 0,
            relation: 0,
            columns,
            file: None,
        },
        numbers,
        is_standby: false,
        took_over_at: None,
    };
    let is_complete = |values: &[String]| values.len() == cursor.fields.len();
    let emptied_at = source.and_then(Identity::emptied_at);
    assert_eq!(
        cursor.check(&cursor.fields, &here).is_ok(),
        cursor.values.as_deref().is_none_or(is_complete) && emptied_at.is_none_or(is_complete)
    );
}
