//! The receipt's statements about the rows.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use dest_null::{Null, hash};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::arrow_array::builder::{Int32Builder, ListBuilder};
use rapidbyte_sdk::prelude::*;

fn batch(numbers: Vec<Option<i64>>, texts: Vec<Option<&str>>) -> RecordBatch {
    let mut lists = ListBuilder::new(Int32Builder::new());
    for number in &numbers {
        lists.append_value(number.iter().map(|n| (*n != 2).then_some(*n as i32)));
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(Int64Array::from(numbers))),
        ("s", Arc::new(StringArray::from(texts))),
        ("l", Arc::new(lists.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn request(target: Target) -> LoadRequest {
    LoadRequest {
        target,
        run: Run {
            pipeline: "p".into(),
            id: "r".into(),
        },
    }
}

/// Writes each slice, flushing after each, and commits all parts at once.
fn receipt(config: &str, batches: &[RecordBatch]) -> Receipt {
    let mut destination = rapidbyte_sdk::destination::open::<Null>(config).unwrap();
    let target = Target {
        stream: "s".into(),
        schema: ipc::encode_schema(batches[0].schema_ref()).unwrap(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    };
    assert_eq!(destination.plan(&target).unwrap().columns.len(), 3);
    let mut load = destination.begin(&[request(target)]).unwrap();
    load.open_writer(None).unwrap();
    let parts = batches.iter().map(|batch| {
        load.write(batch).unwrap();
        load.flush().unwrap()
    });
    let parts = parts.collect();
    load.commit(Commit::whole("s", parts)).unwrap()
}

#[test]
fn order_and_batches_do_not_matter_and_values_do() {
    let all = batch(
        vec![Some(1), Some(2), None, Some(4)],
        vec![Some("a"), None, Some(""), Some("12345678")],
    );
    let location = |batches: &[RecordBatch]| receipt(r#"{"hash": true}"#, batches).location;
    let whole = location(std::slice::from_ref(&all));
    assert!(whole.len() == 21 && whole.starts_with("null:"), "{whole}");
    assert_eq!(
        location(&[all.slice(2, 2), all.slice(0, 1), all.slice(1, 1)]),
        whole
    );
    // Lost, doubled, NULL for empty, one bit of a number, values exchanged between rows.
    for other in [
        vec![all.slice(0, 3)],
        vec![all.clone(), all.slice(0, 1)],
        vec![batch(
            vec![Some(1), Some(2), None, Some(4)],
            vec![Some("a"), None, None, Some("12345678")],
        )],
        vec![batch(
            vec![Some(1), Some(3), None, Some(4)],
            vec![Some("a"), None, Some(""), Some("12345678")],
        )],
        vec![batch(
            vec![Some(1), Some(2), None, Some(4)],
            vec![None, Some("a"), Some(""), Some("12345678")],
        )],
    ] {
        assert_ne!(location(&other), whole);
    }
}

#[test]
fn bytes_under_a_null_do_not_matter() {
    let hidden = |text: &str| {
        let bytes = StringArray::from(vec![text]).into_parts();
        let nulls = Int64Array::from(vec![None::<i64>]).nulls().cloned();
        let array: ArrayRef = Arc::new(StringArray::new(bytes.0, bytes.1, nulls));
        hash::rows(&RecordBatch::try_from_iter([("s", array)]).unwrap()).unwrap()
    };
    assert_eq!(hidden("a"), hidden("bc"));
}

#[test]
fn counts_without_a_hash() {
    let all = batch(vec![Some(1); 10], vec![Some("abc"); 10]);
    let receipt = receipt("{}", &[all.clone(), all]);
    assert_eq!((receipt.rows, &*receipt.location), (20, "null:"));
    // 8 of the number, 4 + 3 of the text, 4 + 4 of the list, and bits.
    assert!(
        (2 * 230..=2 * 260).contains(&receipt.bytes),
        "{}",
        receipt.bytes
    );
}

#[test]
fn an_upsert_is_refused() {
    let mut destination = rapidbyte_sdk::destination::open::<Null>("{}").unwrap();
    let target = Target {
        stream: "s".into(),
        schema: ipc::encode_schema(&Schema::empty()).unwrap(),
        write_mode: WriteMode::Upsert,
        primary_key: vec!["n".into()],
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    };
    let error = destination.begin(&[request(target)]).err().unwrap();
    assert_eq!(error.code, "unsupported_write_mode");
}
