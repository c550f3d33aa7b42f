//! An inferred schema changes nothing: a file comes back with the same characters, or an error says
//! which value would not.

use crate::support::{Format, schema};
use arrow_array::RecordBatch;
use proptest::prelude::*;
use rapidbyte_formats::csv::Dialect;

fn csv() -> Format {
    Format::csv(Dialect::default())
}

/// Through the inferred types and back.
fn copied(format: &Format, file: &str, sample_rows: u64) -> Result<String, String> {
    let batches = format
        .decode_inferred(file.as_bytes(), sample_rows)
        .map_err(|error| format!("{} {error}", error.code))?;
    let texts = batches.iter().map(|batch| format.encode(batch).unwrap());
    Ok(String::from_utf8(texts.flatten().collect()).unwrap())
}

#[test]
fn texts_of_numbers_and_times_come_back() {
    for values in [
        &["1.10", "2.00"][..],
        &["39", "39.92", "-0.5", "1e+16", "-0"],
        &["39.0", "39.92", "-0.0", "NaN"],
        &["1e5", "1"],
        &["+1", "1"],
        &["007", "7"],
        &[" 1", "2"],
        &["TRUE", "false"],
        &["2026-11-21", "0099-01-01"],
        &["2026-11-21 10:11:12", "2026-11-21T10:11:12"],
        &["2026-11-21T10:11:12Z", "2026-11-21T10:11:12.120Z"],
        &["9223372036854775807", "-9223372036854775808"],
        &["9223372036854775808"],
    ] {
        let file = format!("a,b\n{},\n", values.join(",\n"));
        let back = copied(&csv(), &file, 1000).unwrap();
        assert_eq!(back.replace('"', ""), file);
    }
}

#[test]
fn a_later_value_that_would_change_is_refused() {
    for (first, later) in [
        ("1.5\n1.25", "1.100"),
        ("1.5\n1.25", "2"),
        ("1\n1.25", "2.0"),
        ("1", "+1"),
        ("1", "01"),
        ("1", "-0"),
        ("1.10", "1.1"),
        ("1.10", "1e1"),
        ("2026-11-21", "+2026-11-21"),
        ("2026-11-21T10:11:12", "2026-11-21 10:11:12"),
        ("2026-11-21T10:11:12Z", "2026-11-21T10:11:12+00"),
        ("true", "T"),
    ] {
        let file = format!("a\n{first}\n{later}\n");
        let rows = first.lines().count() as u64;
        let error = csv().decode_inferred(file.as_bytes(), rows).unwrap_err();
        assert_eq!(
            (error.code, error.column.as_deref(), error.line),
            ("value_does_not_fit", Some("a"), Some(rows + 2)),
            "{error}"
        );
        assert!(error.message.contains(&format!("{later:?}")), "{error}");
        assert!(error.hint.unwrap().contains("schema:"));
        // Declared, every spelling is read.
        let inferred = csv().infer(file.as_bytes(), rows).unwrap();
        csv().decode(&inferred.schema, file.as_bytes()).unwrap();
    }
}

#[test]
fn later_json_numbers_lose_no_digits() {
    for (first, later) in [
        ("1.5", "0.1234567890123456789"),
        ("1.5", "9007199254740993"),
        ("1.5", "1e400"),
        ("[1.5]", "[0.1234567890123456789]"),
        ("{\"x\":1.5}", "{\"x\":9007199254740993}"),
        ("1", "9223372036854775808"),
        ("1", "1.0"),
    ] {
        let file = format!("{{\"a\":{first}}}\n{{\"a\":{later}}}\n");
        let error = Format::jsonl()
            .decode_inferred(file.as_bytes(), 1)
            .unwrap_err();
        assert_eq!(
            (error.code, error.line),
            ("value_does_not_fit", Some(2)),
            "{error}"
        );
        assert!(error.hint.unwrap().contains("schema:"));
    }
    let file = "{\"a\":1.5}\n{\"a\":2.50}\n{\"a\":1e2}\n{\"a\":3}\n";
    let back = copied(&Format::jsonl(), file, 1).unwrap();
    assert_eq!(
        back,
        "{\"a\":1.5}\n{\"a\":2.5}\n{\"a\":100.0}\n{\"a\":3.0}\n"
    );
    let file = "{\"a\":1e400}\n{\"a\":1}\n{\"a\":0.1234567890123456789}\n";
    assert_eq!(copied(&Format::jsonl(), file, 10).unwrap(), file);
}

/// The cells of a CSV file as texts.
fn cells(file: &[u8], columns: usize) -> Vec<RecordBatch> {
    let names = ["a", "b", "c"];
    let columns: Vec<_> = names[..columns].iter().map(|n| (*n, "string")).collect();
    csv().decode(&schema(&columns), file).unwrap()
}

/// Texts near to what types write.
fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        "",
        "\"\"",
        "[+-]?[0-9]{1,3}",
        "-?[0-9]{1,2}\\.[0-9]{1,2}",
        "-?[0-9]{1,2}\\.[0-9]0",
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?",
        "[0-9](\\.[0-9])?[eE][+-]?[0-9]{1,3}",
        "NaN|Infinity|-Infinity|inf|null|true|false|TRUE|t|0",
        "20[0-9]{2}-0[1-9]-[012][1-8]",
        "2026-0[1-9]-1[0-9][T ]1[0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|\\+00)?",
        "2026-0[1-9]-1[0-9]T1[0-9]:[0-5][0-9]:[0-5][0-9]\\.[0-9]{3}Z",
        "[ 0-9a.]{0,4}",
        "\"[0-9]{1,2}\"",
    ]
}

/// Rows of columns that have mostly cells of one kind.
fn table() -> impl Strategy<Value = Vec<Vec<String>>> {
    (1..4_usize).prop_flat_map(|columns| {
        let column = prop_oneof![
            prop::collection::vec("-?[0-9]{1,3}\\.[0-9]{2}|", 8),
            prop::collection::vec("-?[0-9]{1,3}(\\.[0-9]{0,2}[1-9])?|", 8),
            prop::collection::vec("-?[1-9][0-9]{0,17}|0|", 8),
            prop::collection::vec(
                "2026-0[1-9]-1[0-9]T1[0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{2}[1-9])?",
                8
            ),
            prop::collection::vec(cell(), 8),
        ];
        let with_stranger =
            (column, prop::option::of((0..8_usize, cell()))).prop_map(|(mut c, stranger)| {
                if let Some((at, cell)) = stranger {
                    c[at] = cell;
                }
                c
            });
        prop::collection::vec(with_stranger, columns)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn inferred_csv_comes_back_or_is_refused(columns in table(), sample_rows in 1..9_u64) {
        let mut file = ["a", "b", "c"][..columns.len()].join(",") + "\n";
        for row in 0..8 {
            let cells: Vec<&str> = columns.iter().map(|c| c[row].as_str()).collect();
            file += &cells.join(",");
            file += "\n";
        }
        match csv().decode_inferred(file.as_bytes(), sample_rows) {
            Ok(batches) => {
                let texts = batches.iter().map(|batch| csv().encode(batch).unwrap());
                let back: Vec<u8> = texts.flatten().collect();
                prop_assert_eq!(cells(&back, columns.len()), cells(file.as_bytes(), columns.len()), "{}", file);
            }
            Err(error) => {
                prop_assert!(sample_rows < 8, "all rows were seen: {}\n{}", error, file);
                prop_assert_eq!(error.code, "value_does_not_fit");
                prop_assert!(error.line.is_some() && error.column.is_some());
            }
        }
    }

    #[test]
    fn inferred_json_numbers_keep_their_value_or_are_refused(
        numbers in prop::collection::vec(
            "-?(0|[1-9][0-9]{0,2})(\\.[0-9]{1,3})?|-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
            1..6,
        ),
        sample_rows in 1..6_u64,
    ) {
        let lines: Vec<_> = numbers.iter().map(|n| format!("{{\"a\":{n}}}\n")).collect();
        if let Ok(back) = copied(&Format::jsonl(), &lines.concat(), sample_rows) {
            for (line, number) in back.lines().zip(&numbers) {
                let written = &line["{\"a\":".len()..line.len() - 1];
                prop_assert_eq!(digits(written), digits(number), "{} {}", written, number);
            }
        } else {
            prop_assert!(sample_rows < numbers.len() as u64);
        }
    }
}

/// A number's sign, its digits without zeros around them, and the place of its point.
fn digits(number: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().unwrap()),
        None => (number, 0),
    };
    let plain = mantissa.trim_start_matches('-');
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    let zeros = (all.len() - significant.len()) as i64;
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return (false, String::new(), 0);
    }
    let point = whole.len() as i64 + exponent - zeros;
    (mantissa.starts_with('-'), significant.into(), point)
}
