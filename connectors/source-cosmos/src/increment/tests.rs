//! The cursor from one read to the next.

use arrow_schema::TimeUnit;

use super::*;

fn increment(field: &str, allow_duplicates: bool) -> Increment {
    Increment {
        cursor_fields: vec![field.into()],
        initial: None,
        late_rows: LateRows::Lag(None),
        allow_duplicates,
    }
}

fn schema() -> Schema {
    let zone = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Schema::new(vec![
        Field::new("_ts", DataType::Int64, true),
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("at", zone, true),
    ])
}

fn tracker(field: &str, allow_duplicates: bool, saved: Option<&str>, now: u64) -> Tracker {
    let increment = increment(field, allow_duplicates);
    let mut tracker = Tracker::new(&increment, &schema(), saved).unwrap();
    tracker.begin(|| Ok(now)).unwrap();
    tracker
}

fn asked(tracker: &Tracker) -> (String, String) {
    let (conditions, params) = tracker.conditions();
    (
        conditions.join(" AND "),
        serde_json::to_string(&params).unwrap(),
    )
}

#[test]
fn the_last_second_is_held_back_where_rows_must_not_come_again() {
    let mut first = tracker("_ts", false, None, 1000);
    let until = r#"[{"name":"@until","value":999}]"#;
    let expected = (r#"c["_ts"] < @until"#.to_owned(), until.to_owned());
    assert_eq!(asked(&first), expected);
    assert_eq!(first.checkpoint().unwrap(), None);
    assert!(first.takes(r#"{"id":"1","_ts":990}"#).unwrap());
    assert!(first.takes(r#"{"id":"2","_ts":998}"#).unwrap());
    let saved = first.checkpoint().unwrap().unwrap();
    assert_eq!(saved, r#"{"version":1,"field":"_ts","from":999}"#);
    let second = tracker("_ts", false, Some(&saved), 1000);
    let (conditions, params) = asked(&second);
    assert_eq!(conditions, r#"c["_ts"] >= @from AND c["_ts"] < @until"#);
    assert!(params.contains(r#""@from","value":999"#), "{params}");
    // The server's clock went back: the cursor does not.
    let mut back = tracker("_ts", false, Some(&saved), 500);
    assert!(back.takes(r#"{"_ts":499}"#).unwrap());
    assert_eq!(back.checkpoint().unwrap().unwrap(), saved);
}

#[test]
fn documents_of_the_last_seconds_come_again_where_rows_may() {
    let mut first = tracker("_ts", true, None, 1000);
    assert_eq!(asked(&first), (String::new(), "[]".to_owned()));
    for seconds in [990, 1000, 1001] {
        let document = format!("{{\"_ts\":{seconds}}}");
        assert!(first.takes(&document).unwrap());
    }
    let saved = first.checkpoint().unwrap().unwrap();
    assert_eq!(saved, r#"{"version":1,"field":"_ts","from":999}"#);
    let mut second = tracker("_ts", true, Some(&saved), 2000);
    assert_eq!(asked(&second).0, r#"c["_ts"] >= @from"#);
    assert_eq!(second.checkpoint().unwrap(), None);
    assert!(second.takes(r#"{"_ts":1001}"#).unwrap());
    let saved = second.checkpoint().unwrap().unwrap();
    assert_eq!(saved, r#"{"version":1,"field":"_ts","from":1001}"#);
}

#[test]
fn equal_values_of_another_field_are_neither_lost_nor_doubled() {
    let mut first = tracker("n", false, None, 0);
    let one = |rid: &str, etag: &str, n: &str| {
        format!("{{\"_rid\":\"{rid}\",\"_etag\":\"{etag}\",\"n\":{n}}}")
    };
    for document in [one("a", "1", "5"), one("b", "1", "7"), one("c", "1", "7.0")] {
        assert!(first.takes(&document).unwrap());
    }
    assert!(first.takes("{\"id\":\"none\"}").unwrap());
    let saved = first.checkpoint().unwrap().unwrap();
    assert!(saved.contains("\"from\":7,"), "{saved}");
    let mut second = tracker("n", false, Some(&saved), 0);
    let (conditions, _) = asked(&second);
    assert!(
        conditions.contains("NOT IS_NUMBER(c[\"n\"])"),
        "{conditions}"
    );
    for (document, is_new) in [
        (one("b", "1", "7"), false),
        // A new version of a document.
        (one("c", "2", "7"), true),
        (one("d", "1", "7"), true),
        (one("e", "1", "8"), true),
    ] {
        assert_eq!(second.takes(&document).unwrap(), is_new, "{document}");
    }
    let third = second.checkpoint().unwrap().unwrap();
    assert!(third.contains("\"from\":8,"), "{third}");
    let mut again = tracker("n", true, Some(&saved), 0);
    assert!(again.takes(&one("b", "1", "7")).unwrap());
}

#[test]
fn values_without_an_order_are_refused() {
    for documents in [
        &[r#"{"n":1}"#, r#"{"n":"a"}"#][..],
        &[r#"{"n":true}"#],
        &[r#"{"n":[1]}"#],
    ] {
        let mut tracker = tracker("n", true, None, 0);
        let taken: Result<Vec<bool>> = documents.iter().map(|one| tracker.takes(one)).collect();
        assert_eq!(taken.unwrap_err().code, "cosmos_cursor_value");
    }
}

#[test]
fn a_lag_and_a_first_value_are_those_of_the_column() {
    let with = |field: &str, lag: Option<&str>, initial: Option<&str>, saved: Option<&str>| {
        let increment = Increment {
            initial: initial.map(|text| vec![text.to_owned()]),
            late_rows: LateRows::Lag(lag.map(str::to_owned)),
            ..increment(field, true)
        };
        let tracker = Tracker::new(&increment, &schema(), saved);
        tracker.map(|tracker| tracker.from.map(|mark| mark.json().to_string()))
    };
    let saved = |field: &str, from: &str| {
        format!("{{\"version\":1,\"field\":\"{field}\",\"from\":{from}}}")
    };
    for (field, lag, from, expected) in [
        ("_ts", "5 minutes", "1000", "700"),
        ("_ts", "10", "1000", "990"),
        ("n", "1000", "1", "-999"),
        (
            "at",
            "1 s",
            "\"2026-01-01T00:00:00.5Z\"",
            "\"2025-12-31T23:59:59\"",
        ),
    ] {
        let found = with(field, Some(lag), None, Some(&saved(field, from))).unwrap();
        assert_eq!(found.as_deref(), Some(expected), "{field} {lag}");
    }
    for (field, lag) in [
        ("n", "5 minutes"),
        ("s", "5"),
        ("at", "5"),
        ("n", "-1"),
        ("n", "x"),
    ] {
        let refused = with(field, Some(lag), None, None).unwrap_err();
        assert_eq!(refused.code, "invalid_lag", "{field} {lag}");
    }
    for (field, initial, expected) in [
        ("_ts", "1970-01-01T00:01:00Z", "60"),
        ("n", "1.5", "1.5"),
        ("s", "007", "\"007\""),
    ] {
        let found = with(field, None, Some(initial), None).unwrap();
        assert_eq!(found.as_deref(), Some(expected), "{field}");
    }
    let refused = with("n", None, Some("x"), None).unwrap_err();
    assert_eq!(refused.code, "invalid_cursor_initial");
    for (json, code) in [
        ("{", "cursor_unreadable"),
        (r#"{"version":2,"field":"n","from":1}"#, "cursor_unreadable"),
        (
            r#"{"version":1,"field":"n","from":null}"#,
            "cursor_unreadable",
        ),
        (r#"{"version":1,"field":"s","from":1}"#, "cursor_changed"),
    ] {
        assert_eq!(with("n", None, None, Some(json)).unwrap_err().code, code);
    }
}
