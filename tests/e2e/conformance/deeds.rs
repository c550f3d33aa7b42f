//! Each clause has a connector that it fails, and nothing else.

use std::collections::BTreeSet;

use super::*;

/// Rows of the wrong source: some batches, of whatever size.
const ROWS: u64 = 5000;

/// Deeds of the wrong source, with the clause that each fails.
const OF_SOURCES: &[(&str, &str)] = &[
    ("takes_unknown_key", "unknown-key"),
    ("takes_missing_key", "missing-key"),
    ("checks_nothing", "check"),
    ("dies_when_denied", "denied"),
    ("miscounts_types", "discover"),
    ("declares_no_type", "discover"),
    ("changes_its_key", "discover-again"),
    ("fails_in_the_middle", "read"),
    ("refuses_its_stream", "read"),
    ("reads_other_schema", "read-schema"),
    ("miscounts_rows", "batches"),
    ("gives_nulls", "batches"),
    ("gives_one_batch", "batch-bytes"),
    ("goes_on_behind_end", "whole"),
    ("gives_checkpoint", "whole"),
    ("spins", "wait"),
    ("makes_up_values", "read-again"),
    ("ignores_columns", "columns"),
    ("takes_any_stream", "unknown-stream"),
    ("takes_any_column", "unknown-column"),
    ("forgets_last_checkpoint", "checkpoints"),
    ("counts_backwards", "order"),
    ("repeats_a_row", "resume"),
    ("takes_any_cursor", "foreign-cursor"),
    ("leaves_a_lock", "cancel"),
    ("reaches_out", "reach"),
    ("panics", "no-trap"),
    ("hoards", "limits"),
    ("shouts_its_code", "errors"),
    ("mistakes_time_unit", "read"),
    ("writes_midnight_as24", "read"),
    ("overflows_decimal", "read"),
    ("drops_row_at_border", "other-batches"),
    ("doubles_row_at_border", "other-batches"),
    ("drops_last_full_batch", "other-batches"),
    ("drops_last_partial_batch", "other-batches"),
    ("shifts_nulls", "other-batches"),
    ("ignores_batch_bytes", "batch-bytes"),
    ("cuts_long_records", "max-record"),
    ("skips_long_records", "max-record"),
    ("sorts_columns", "columns"),
    ("mixes_up_columns", "columns"),
    ("adds_its_key", "columns"),
    ("loses_sign_of_chosen", "columns"),
    ("adds_cursor_field", "cursor-columns"),
    ("ignores_filter", "filter"),
    ("filters_off_by_one", "filter"),
    ("goes_on_in_session", "session"),
    ("keeps_columns_in_session", "session"),
    ("keeps_snapshot_to_itself", "snapshot"),
    ("takes_any_cursor_field", "unknown-column"),
    ("leaves_out_last_row", "checkpoints"),
    ("drops_zone_in_increments", "checkpoints"),
    ("checks_in_too_early", "resume"),
    ("loses_a_row", "resume"),
    ("ignores_initial", "initial"),
    ("begins_behind_initial", "initial"),
    ("takes_any_initial", "initial"),
    ("prefers_initial", "initial"),
    ("ignores_exact", "late-rows"),
    ("ignores_lag", "late-rows"),
    ("takes_others_cursor", "other-cursor"),
    ("mixes_up_cursors", "other-cursor"),
];

/// Deeds of the wrong source that no clause can see: the source alone knows its values.
const UNSEEN_OF_SOURCES: &[&str] = &["empty_text_is_null", "drops_zone"];

/// The report of the failing clause for some deeds: the place, the expected and the found value.
const SEEN: &[(&str, &str)] = &[
    (
        "shifts_nulls",
        "row 92, column \"note\": expected \"\", found NULL",
    ),
    ("drops_zone_in_increments", "row 1, column \"at\": expected"),
    ("drops_row_at_border", "is missing: n "),
    ("doubles_row_at_border", "comes again: n "),
    ("loses_a_row", "row 1 of a whole read is missing: n 0"),
    (
        "loses_sign_of_chosen",
        "row 2, column \"amount\": expected ",
    ),
    ("mistakes_time_unit", "column \"clock\""),
    ("overflows_decimal", "column \"amount\": "),
];

/// The same of the wrong destination, which a peer reads. The first eleven fail without a peer, too.
const OF_DESTINATIONS: &[(&str, &str)] = &[
    ("turns_columns", "plan"),
    ("miscounts_rows", "write"),
    ("fails_at_bytes", "types"),
    ("fails_without_rows", "empty"),
    ("shows_early", "staged"),
    ("keeps_aborted", "abort"),
    ("takes_garbage", "bad-batch"),
    ("forgets_cursor", "progress"),
    ("commits_twice", "commit-once"),
    ("lets_both_commit", "fence"),
    ("leaves_a_lock", "cancel"),
    ("commits_nothing", "write"),
    ("turns_ones_into_twos", "write"),
    ("empty_text_to_null", "write"),
    ("repeats_under_null", "write"),
    ("sorts_columns", "write"),
    ("drops_column", "types"),
    ("mixes_up_units", "types"),
    ("shifts_zone", "types"),
    ("cuts_time", "types"),
    ("nan_to_null", "edge-values"),
    ("infinity_to_max", "edge-values"),
    ("loses_negative_zero", "edge-values"),
    ("rounds_through_double", "edge-values"),
    ("clips_unsigned", "edge-values"),
    ("loses_sign_below_one", "edge-values"),
    ("cuts_decimals", "edge-values"),
    ("rounds_before_epoch", "edge-values"),
    ("loses_sign_of_date", "edge-values"),
    ("null_text_to_null", "edge-values"),
    ("trims_text", "edge-values"),
    ("escapes_backslash", "write"),
    ("loses_wide_characters", "edge-values"),
    ("cuts_long_text", "edge-values"),
    ("empty_bytes_to_null", "edge-values"),
    ("drops_null_items", "types"),
    ("empty_list_to_null", "edge-values"),
    ("empty_struct_to_null", "edge-values"),
    ("drops_null_entries", "types"),
    ("drops_rest_of_chunk", "batch-sizes"),
    ("forgets_before_empty", "batch-sizes"),
    ("commits_first_part", "parts"),
    ("doubles_part", "parts"),
    ("replace_appends", "replace"),
    ("append_replaces", "append"),
    ("keeps_first", "upsert"),
    ("keeps_old_for_null", "upsert"),
    ("commits_backwards", "upsert"),
    ("mixes_streams", "streams"),
    ("keeps_first_columns", "streams"),
    ("plan_creates", "plan"),
    ("plan_empties", "plan-again"),
    ("leaves_parts", "abort"),
    ("aborts_committed", "abort"),
    ("takes_up_leavings", "cancel"),
    ("progress_lets_in", "progress"),
    ("loses_row_behind_cursor", "progress"),
    ("shares_cursor", "pipelines"),
    ("plan_leaves_file", "plan"),
    ("plan_begins_file", "plan"),
    ("says_new", "plan-again"),
    ("leaves_file_of_writer", "abort"),
    ("loses_rejects", "rejects"),
    ("shows_rejects_early", "rejects"),
    ("mends_rejects", "rejects"),
    ("keeps_replayed", "rejects"),
];

/// Deeds that no clause sees, and why.
const UNSEEN_OF_DESTINATIONS: &[(&str, &str)] =
    &[("turns_rows", "nothing promises an order of rows")];

/// Deeds of a destination that can be seen by what it counts alone.
const WITHOUT_PEER: usize = 11;

/// Deeds of the transform for tests, with the clause that each fails.
const OF_TRANSFORMS: &[(&str, &str)] = &[
    ("fails_to_open", "open"),
    ("miscounts_types", "plan"),
    ("invents_key", "plan"),
    ("doubles_column", "plan"),
    ("forgets_key", "plan-again"),
    ("turns_columns", "begin"),
    ("never_ends", "batches"),
    ("fails_at_rows", "batches"),
    ("keeps_a_row", "same-rows"),
    ("numbers_rows", "same-rows"),
    ("fails_without_rows", "empty"),
    ("fails_at_nulls", "nulls"),
    ("goes_on_behind_end", "end"),
    ("forgets_further_streams", "session"),
    ("panics", "no-trap"),
    ("shouts_its_code", "errors"),
];

/// Changes to the description of a connector, and the clause that each change fails.
const OF_SPECS: &[(&str, &str, &str)] = &[
    ("source-wrong", "source_wrong", "describe"),
    (
        "\"additionalProperties\":false",
        "\"additionalProperties\":true ",
        "config-schema",
    ),
    (
        "\"x-grant\":\"write\"",
        "\"x-grant\":\"wrote\"",
        "grant-marks",
    ),
    // Files are what it imports, and a server all that could be granted.
    ("\"x-grant\":\"write\"", "\"x-grant\":\"url\"  ", "imports"),
];

#[track_caller]
fn fails_alone(document: &Value, code: i32, clause: &str, why: &str) {
    assert_eq!(with(document, "fail"), [clause], "{why}: {document:#}");
    assert_eq!(
        (document["status"].as_str(), code),
        (Some("error"), 1),
        "{why}"
    );
    assert_eq!(document["error"]["code"], "not_conforming", "{why}");
    let clauses = document["clauses"].as_array().expect("clauses");
    let failed = clauses
        .iter()
        .find(|found| found["id"] == clause)
        .expect("it");
    for part in ["seen", "action"] {
        assert!(
            failed[part].as_str().is_some_and(|text| !text.is_empty()),
            "{why}: {failed}"
        );
    }
}

#[test]
fn each_clause_for_sources_fails_for_the_one_that_breaks_it() {
    let wrong = testkit("source-wrong");
    for (deed, clause) in OF_SOURCES {
        let folder = Folder::new();
        let config = json!({ "deed": deed, "rows": ROWS, "state": "state" });
        let (document, code) = test(&folder, &wrong, &config, &[]);
        fails_alone(&document, code, clause, deed);
    }
}

#[test]
fn each_clause_for_transforms_fails_for_the_one_that_breaks_it() {
    let wrong = testkit("transform-pass");
    for (deed, clause) in OF_TRANSFORMS {
        let (document, code) = test(&Folder::new(), &wrong, &json!({ "deed": deed }), &[]);
        fails_alone(&document, code, clause, deed);
    }
}

/// `numbers_rows` gives every number of the first batch 20 too many when the batch comes again.
#[test]
fn a_row_that_comes_otherwise_is_named_with_its_column_and_values() {
    let wrong = testkit("transform-pass");
    let config = json!({ "deed": "numbers_rows" });
    let (document, _) = test(&Folder::new(), &wrong, &config, &[]);
    let clauses = document["clauses"].as_array().expect("clauses");
    let mut failed = clauses.iter().filter_map(|clause| clause["seen"].as_str());
    let seen = failed.next().expect("a clause that failed");
    let expected = "a second time: row 1, column \"n\": expected 0, found 20";
    assert_eq!(seen, expected);
}

#[test]
fn of_thirty_deeds_of_a_source_all_but_one_in_twenty_are_seen() {
    let (seen, unseen) = (OF_SOURCES.len(), UNSEEN_OF_SOURCES.len());
    println!("{seen} of {} deeds of a source are seen", seen + unseen);
    assert!(seen + unseen >= 30);
    assert!(seen * 100 >= (seen + unseen) * 95);
    let wrong = testkit("source-wrong");
    for deed in UNSEEN_OF_SOURCES {
        let folder = Folder::new();
        let config = json!({ "deed": deed, "rows": ROWS, "state": "state" });
        let (document, code) = test(&folder, &wrong, &config, &[]);
        assert_eq!((with(&document, "fail").len(), code), (0, 0), "{deed}");
    }
}

#[test]
fn a_fault_of_a_value_is_reported_by_row_column_and_value() {
    let wrong = testkit("source-wrong");
    for (deed, part) in SEEN {
        let folder = Folder::new();
        let config = json!({ "deed": deed, "rows": ROWS, "state": "state" });
        let (document, _) = test(&folder, &wrong, &config, &[]);
        let clauses = document["clauses"].as_array().expect("clauses");
        let mut failed = clauses.iter().filter_map(|clause| clause["seen"].as_str());
        let seen = failed.next().expect("a clause that failed");
        assert!(seen.contains(part), "{deed}: {seen}");
    }
}

#[test]
fn each_clause_for_destinations_fails_for_the_one_that_breaks_it() {
    let wrong = testkit("dest-wrong");
    for (deed, clause) in OF_DESTINATIONS {
        let folder = Folder::new();
        let (document, code) = test(&folder, &wrong, &counted(deed), &PEER);
        fails_alone(&document, code, clause, deed);
    }
    for (deed, why) in UNSEEN_OF_DESTINATIONS {
        let folder = Folder::new();
        let (document, code) = test(&folder, &wrong, &counted(deed), &PEER);
        assert_eq!(code, 0, "{deed} ({why}): {document:#}");
    }
    let (caught, unseen) = (OF_DESTINATIONS.len(), UNSEEN_OF_DESTINATIONS.len());
    println!(
        "a destination: {caught} deeds of {} are caught",
        caught + unseen
    );
    assert!(caught >= 30 && caught * 100 >= 95 * (caught + unseen));
}

#[test]
fn some_faults_of_a_destination_show_without_a_peer() {
    let wrong = testkit("dest-wrong");
    for (deed, clause) in &OF_DESTINATIONS[..WITHOUT_PEER] {
        let folder = Folder::new();
        let (document, code) = test(&folder, &wrong, &counted(deed), &[]);
        fails_alone(&document, code, clause, deed);
    }
    let (document, _) = test(&Folder::new(), &wrong, &counted("none"), &[]);
    let clauses = document["clauses"].as_array().expect("clauses");
    let write = clauses.iter().find(|c| c["id"] == "write").expect("write");
    let detail = write["detail"].as_str().expect("a detail");
    assert!(detail.ends_with("counted only: give --peer"), "{detail}");
}

/// The peer does not find the stream either way.
#[test]
fn a_commit_that_does_nothing_is_not_blamed_on_the_peer_nor_a_wrong_peer_on_the_commit() {
    let wrong = testkit("dest-wrong");
    let write = |deed: &str, peer: &[&str]| {
        let (document, _) = test(&Folder::new(), &wrong, &counted(deed), peer);
        let clauses = document["clauses"].as_array().expect("clauses");
        let write = clauses.iter().find(|c| c["id"] == "write");
        write.expect("write").clone()
    };
    let told = write("commits_nothing", &PEER);
    assert_eq!(told["verdict"], "fail", "{told:#}");
    let seen = told["seen"].as_str().expect("what was seen");
    for part in ["20 rows were committed", "nothing at out/"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    let action = told["action"].as_str().expect("an action");
    assert!(action.contains("commit"), "{action}");
    let elsewhere = ["--peer", "source-file", "--peer-config"];
    let elsewhere = [&elsewhere[..], &["{ path: \"other/{stream}.arrow\" }"]].concat();
    let told = write("none", &elsewhere);
    assert_eq!(told["verdict"], "skip", "{told:#}");
    let told = told.to_string();
    for part in ["--peer-config", "commit"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_changed_value_is_named_with_its_column_and_row() {
    let wrong = testkit("dest-wrong");
    for (deed, seen) in [
        (
            "nan_to_null",
            "column c_float64, row 0: written NaN, read NULL",
        ),
        (
            "empty_text_to_null",
            "column t, row 0: written \"\", read NULL",
        ),
        (
            "loses_sign_of_date",
            "column c_date, row 1: written 1969-12-31, read 1970-01-02",
        ),
        (
            "drops_column",
            "column c_interval was written, and is not among the columns that are read",
        ),
        (
            "turns_ones_into_twos",
            "column n, row 1: written 1, and no row with it is among the 20",
        ),
    ] {
        let (document, _) = test(&Folder::new(), &wrong, &counted(deed), &PEER);
        let clauses = document["clauses"].as_array().expect("clauses");
        let failed = clauses
            .iter()
            .find(|c| c["verdict"] == "fail")
            .expect("one");
        let told = failed["seen"].as_str().expect("what was seen");
        assert!(told.contains(seen), "{told}");
    }
}

#[test]
fn the_spec_of_a_connector_is_judged_first() {
    for (from, to, clause) in OF_SPECS {
        let folder = Folder::new();
        let name = changed(&folder, "source-wrong", from, to);
        let config = json!({ "deed": "none", "rows": 10 });
        let (document, code) = test(&folder, &name, &config, &[]);
        fails_alone(&document, code, clause, to);
    }
}

#[test]
fn without_a_deed_every_clause_passes_and_every_clause_has_a_deed() {
    let folder = Folder::new();
    let config = json!({ "deed": "none", "rows": 20_000, "state": "state" });
    let (source, code) = test(&folder, &testkit("source-wrong"), &config, &[]);
    assert_eq!(code, 0, "{source:#}");
    let (destination, code) = test(&folder, &testkit("dest-wrong"), &counted("none"), &[]);
    assert_eq!(code, 0, "{destination:#}");
    let (seen, code) = test(&folder, &testkit("dest-wrong"), &counted("none"), &PEER);
    assert_eq!((code, with(&seen, "skip").len()), (0, 0), "{seen:#}");
    let all = |document: &Value| -> BTreeSet<String> {
        let clauses = document["clauses"].as_array().expect("clauses");
        let ids = clauses
            .iter()
            .map(|clause| clause["id"].as_str().expect("an id"));
        ids.map(str::to_owned).collect()
    };
    assert_eq!(
        BTreeSet::from_iter(with(&source, "pass")),
        all(&source),
        "{source:#}"
    );
    let passed = BTreeSet::from_iter(with(&destination, "pass"));
    assert_eq!(passed, all(&destination), "{destination:#}");
    let (transform, code) = test(&folder, &testkit("transform-pass"), &json!({}), &[]);
    assert_eq!(code, 0, "{transform:#}");
    let passed = BTreeSet::from_iter(with(&transform, "pass"));
    assert_eq!(passed, all(&transform), "{transform:#}");
    let common: BTreeSet<String> = all(&source)
        .intersection(&all(&destination))
        .cloned()
        .collect();
    let deeds = OF_TRANSFORMS.iter().map(|(_, clause)| (*clause).to_owned());
    let deeds = BTreeSet::from_iter(deeds);
    let mut own = all(&transform);
    own.retain(|clause| !common.contains(clause));
    assert!(own.is_subset(&deeds), "{own:?} without {deeds:?}");
    let mut proved: BTreeSet<String> = OF_SPECS.iter().map(|spec| spec.2.to_owned()).collect();
    let deeds = OF_SOURCES
        .iter()
        .chain(OF_DESTINATIONS)
        .chain(OF_TRANSFORMS);
    proved.extend(deeds.map(|(_, clause)| (*clause).to_owned()));
    let judged = [&source, &destination, &transform];
    let judged: BTreeSet<String> = judged.into_iter().flat_map(all).collect();
    assert_eq!(proved, judged);
    let page = include_str!("../../../docs/authors/testing.md");
    let explained = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(
        explained.map(str::to_owned).collect::<BTreeSet<_>>(),
        judged
    );
}

/// Reads what the wrong destination wrote.
const PEER: [&str; 4] = [
    "--peer",
    "source-file",
    "--peer-config",
    "{ path: \"out/{stream}.arrow\" }",
];

fn counted(deed: &str) -> Value {
    json!({
        "deed": deed, "rows": "out/{stream}.arrow", "again": "out/{stream}.arrow",
        "state": "out/{stream}.state", "look": "out/{stream}.state",
    })
}
