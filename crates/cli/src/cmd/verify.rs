//! `rapidbyte verify PIPELINE`

use std::path::Path;
use std::time::SystemTime;

use rapidbyte::verify::{self, Compared, Difference, Repair, Sum, Verified};
use rapidbyte::{Class, Failure, Narrowing, Share, VerifyOptions};
use serde_json::{Value, json};

use crate::args::{Common, Verify as Arguments};
use crate::output::{Output, count, counted, one_line, rows, short, table};
use crate::setup::{self, Session};
use rapidbyte_page::clock::utc;

/// Rows that are shown of a stream; `--output json` has all that were found.
const SHOWN: usize = 20;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    let pipeline = setup::pipeline_with_source(&arguments.pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let sample = arguments.sample.unwrap_or(Share::WHOLE);
    if let Some(path) = &arguments.receipt {
        check(path)?;
    }
    let options = VerifyOptions {
        narrowing: Narrowing {
            select: arguments.select.clone(),
            exclude: arguments.exclude.clone(),
            ..Narrowing::default()
        },
        sample,
        repair: match arguments.repair {
            true => Repair::Rows,
            false => Repair::Nothing,
        },
    };
    let told = |compared: &Compared| output.text(&text_of(compared, sample, output));
    let verified = engine.verify(&pipeline, &options, &control, told)?;
    let failure = verified.failure();
    // One alone is the error of the command.
    let is_alone = verified.failures.len() == 1
        && (failure.as_ref()).is_some_and(|told| told.stream == verified.failures[0].stream);
    let listed = verified.failures.iter().filter(|_| !is_alone);
    for other in listed {
        output.text(&format!(
            "{}: failed: {}: {}",
            one_line(other.stream.as_deref().unwrap_or("?")),
            other.code,
            one_line(&other.message)
        ));
    }
    let receipt = document(&verified, sample);
    if let Some(path) = &arguments.receipt {
        write(path, &receipt)?;
    }
    match failure {
        None => {
            let mut document = receipt;
            document["status"] = json!("ok");
            output.document(&document);
            Ok(())
        }
        Some(failure) => {
            output.known(receipt);
            Err(failure)
        }
    }
}

/// The receipt. It is dated with this moment.
pub fn document(verified: &Verified, sample: Share) -> Value {
    json!({
        "pipeline": verified.pipeline,
        "verified_at": utc(SystemTime::now()),
        "program": env!("CARGO_PKG_VERSION"),
        "sample_percent": f64::from(sample.millionths()) / 10_000.0,
        "connectors": {
            "source": verified.source,
            "destination": verified.destination,
        },
        "streams": verified.streams.iter().map(stream_document).collect::<Vec<_>>(),
        "failures": verified.failures,
    })
}

/// Refuses a file that cannot be there, before anything is compared.
fn check(path: &Path) -> Result<(), Failure> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match folder.is_dir() && !path.is_dir() {
        true => Ok(()),
        false => Err(not_written(
            path,
            "it is not a file of a directory that exists",
        )),
    }
}

fn write(path: &Path, receipt: &Value) -> Result<(), Failure> {
    let text = format!("{receipt:#}\n");
    std::fs::write(path, text).map_err(|error| not_written(path, &error.to_string()))
}

fn not_written(path: &Path, why: &str) -> Failure {
    let text = format!("cannot write {}: {why}", path.display());
    Failure::new(Class::Environment, "receipt_not_written", text)
        .hint("name a file in a directory that you can write to")
}

/// A line for a stream, and below it the rows that differ.
fn text_of(compared: &Compared, sample: Share, output: &Output) -> String {
    let (source, target) = (compared.source, compared.target);
    let name = format!(
        "{} → {}",
        one_line(&compared.stream),
        one_line(&compared.location)
    );
    let of = match (sample != Share::WHOLE, compared.limits.is_empty()) {
        (true, _) => " in the sample",
        (false, false) => " up to the cursor",
        (false, true) => "",
    };
    let newer = match compared.newer {
        0 => String::new(),
        newer => format!("; {} changed at the source after the cursor", rows(newer)),
    };
    let repaired = repaired(compared);
    let why = match (sample != Share::WHOLE, compared.limits.is_empty()) {
        (true, _) => Some("the sample has no rows: take a larger one with --sample"),
        (false, false) => Some("no row lies at or below the cursor minus the lag"),
        (false, true) => None,
    };
    if let Some(why) = why.filter(|_| compared.is_equal() && source.rows == 0) {
        let nothing = output.paint_result("33", "nothing compared");
        return format!(
            "{name}: {repaired}{nothing}, {why} ({:.1} s){newer}",
            compared.seconds
        );
    }
    if compared.is_equal() {
        let equal = output.paint_result("32", "equal");
        return format!(
            "{name}: {repaired}{equal}, {}{of}, checksum {} ({:.1} s){newer}",
            rows(source.rows),
            source.checksum(),
            compared.seconds
        );
    }
    let at_least = if compared.has_more { "at least " } else { "" };
    let found = compared.rows.len() as u64;
    let differ = if found == 1 { "differs" } else { "differ" };
    let differ = output.paint_result("31", &format!("{at_least}{} {differ}", rows(found)));
    let counts = match sample != Share::WHOLE {
        // A row that differs may be in the sample of one side alone, so the numbers say nothing.
        true => format!("in a sample of about {}", rows(source.rows)),
        false => format!(
            "the source has {}, the target {}{of}",
            rows(source.rows),
            count(target.rows)
        ),
    };
    let mut lines = vec![format!(
        "{name}: {repaired}{differ}; {counts} ({:.1} s){newer}",
        compared.seconds
    )];
    for (difference, place) in [
        (Difference::Missing, "source"),
        (Difference::Extra, "target"),
    ] {
        let unnamed = compared.rows.iter().filter(|row| row.key.is_empty());
        let number = unnamed.filter(|row| row.difference == difference).count();
        if number > 0 {
            let only = if number == 1 { "is only" } else { "are only" };
            lines.push(format!("  {} {only} in the {place}", rows(number as u64)));
        }
    }
    let named = compared.rows.iter().filter(|row| !row.key.is_empty());
    let named: Vec<Vec<String>> = named.map(|row| line(compared, row)).collect();
    let shown = table(&named[..named.len().min(SHOWN)], "  ");
    lines.extend(shown.lines().map(str::to_owned));
    if named.len() > SHOWN {
        let more = counted(named.len() - SHOWN, "more row");
        lines.push(format!("  … and {more}, which --output json lists"));
    }
    lines.join("\n")
}

/// The rows that were repaired, by their differences.
fn repaired(compared: &Compared) -> String {
    if compared.repaired.is_empty() {
        return String::new();
    }
    let number = |difference: Difference, what: &str| {
        let all = compared.repaired.iter();
        let number = all.filter(|row| row.difference == difference).count();
        (number > 0).then(|| format!("{} {what}", count(number as u64)))
    };
    let parts = [
        number(Difference::Changed, "changed"),
        number(Difference::Missing, "added"),
        number(Difference::Extra, "deleted"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let all = rows(compared.repaired.len() as u64);
    format!("{all} repaired ({}), now ", parts.join(", "))
}

fn line(compared: &Compared, row: &verify::Row) -> Vec<String> {
    let values = compared.key.iter().zip(&row.key);
    let key: Vec<String> = values
        .map(|(name, value)| format!("{}={}", one_line(name), one_line(&short(value))))
        .collect();
    let key = key.join(", ");
    let columns: Vec<String> = row.columns.iter().map(|name| one_line(name)).collect();
    let what = match row.difference {
        Difference::Changed if columns.is_empty() => "has other values".to_owned(),
        Difference::Changed => format!("has other values in {}", columns.join(", ")),
        Difference::Missing => "is only in the source".to_owned(),
        Difference::Extra => "is only in the target".to_owned(),
        Difference::Changing => {
            "is changing: it was different each time it was compared".to_owned()
        }
    };
    vec![key, what]
}

fn difference_name(difference: Difference) -> &'static str {
    match difference {
        Difference::Changed => "changed",
        Difference::Missing => "only_in_source",
        Difference::Extra => "only_in_target",
        Difference::Changing => "changing",
    }
}

fn stream_document(compared: &Compared) -> Value {
    let sum = |sum: Sum| json!({ "rows": sum.rows, "checksum": sum.checksum() });
    let row = |row: &verify::Row| {
        json!({
            "key": row.key, "difference": difference_name(row.difference), "columns": row.columns,
        })
    };
    json!({
        "stream": compared.stream,
        "location": compared.location,
        "equal": compared.is_equal(),
        "source": sum(compared.source),
        "target": sum(compared.target),
        "key": compared.key,
        "cursor": compared.cursor,
        "rows": compared.rows.iter().map(row).collect::<Vec<_>>(),
        "has_more": compared.has_more,
        "repaired": compared.repaired.iter().map(row).collect::<Vec<_>>(),
        "newer": compared.newer,
        "seconds": compared.seconds,
    })
}
