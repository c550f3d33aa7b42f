//! Changed rows into a full table by its key: a staged COPY and one `INSERT … ON CONFLICT` by
//! `psql` beside `write_mode: upsert`.

use rapidbyte_engine::compress::Compression;
use rapidbyte_testkit::postgres::Database;

use crate::bench::{Bench, Title};
use crate::databases::sized;
use crate::failure::Failure;
use crate::measure::measure;
use crate::run::{Digest, Method, PSQL, Pair, TABLE, TARGET, table_pipeline};
use crate::workload::Workload;

/// The target as it is before each run.
const BEFORE: &str = "public.before";
const WORKLOAD: Workload = Workload::Upsert;

/// How rows are merged.
enum Way {
    Psql,
    Program(Method),
    Native(Method),
}

/// Measures a tenth of the rows changed, then all of them.
pub fn run(bench: &mut Bench, rows: u64) -> Result<(), Failure> {
    changed(bench, rows, rows.div_ceil(10))?;
    changed(bench, rows, rows)
}

fn changed(bench: &mut Bench, rows: u64, changed: u64) -> Result<(), Failure> {
    let programs = &bench.programs;
    let pipeline = programs.pipeline("upsert", &upsert_pipeline())?;
    let mut contenders = Vec::new();
    if programs.psql.is_some() {
        contenders.push((PSQL.to_owned(), Way::Psql));
    }
    for method in Method::BOTH {
        contenders.push((method.column(Compression::None), Way::Program(method)));
    }
    for method in Method::BOTH {
        contenders.push((method.native_column().to_owned(), Way::Native(method)));
    }
    let (size, series) = {
        let (source, target) = (bench.server.database(), bench.server.database());
        let pair = Pair {
            source: &source,
            target: &target,
            proxy: None,
        };
        let step = rows / changed;
        change(&source, changed, step)?;
        let size = sized(&source, changed)?;
        let expected = prepare(&target, rows, changed, step)?.and(Digest::of(&source, TABLE)?);
        let merge = merge();
        let merge: Vec<&str> = merge.iter().map(String::as_str).collect();
        let series = measure(&contenders, bench.settings.iterations, |way| {
            pair.begin_anew(None)?;
            restore(&target)?;
            let run = match way {
                Way::Psql => programs.pipe(&pair, &merge),
                Way::Program(method) => programs.run(&pair, &pipeline, *method, Compression::None),
                Way::Native(method) => programs.native(&pair, *method, "upsert"),
            }?;
            expected.must_be(Digest::of(&target, TARGET)?)?;
            Ok(run)
        })?;
        (size, series)
    };
    let title = Title {
        workload: WORKLOAD.name(),
        what: format!("changed in {rows}"),
        latency_ms: 0,
    };
    bench.publish(&title, size, series)
}

/// Rows of the table with other values than it has.
fn change(source: &Database<'_>, changed: u64, step: u64) -> Result<(), Failure> {
    let mut client = source.client();
    let numbers =
        format!("(SELECT (n - 1) * {step} + 1 AS i FROM generate_series(1, {changed}) AS n) AS n");
    client.batch_execute(&WORKLOAD.create(TABLE))?;
    client.batch_execute(&WORKLOAD.fill_from(TABLE, &numbers))?;
    client.batch_execute(&format!(
        "UPDATE {TABLE} SET amount = amount + 1, note = 'changed ' || id, active = NOT active"
    ))?;
    client.batch_execute(&format!("VACUUM (FULL, ANALYZE, FREEZE) {TABLE}"))?;
    Ok(())
}

/// Makes the table before the change, and gives what of it stays.
fn prepare(target: &Database<'_>, rows: u64, changed: u64, step: u64) -> Result<Digest, Failure> {
    let mut client = target.client();
    client.batch_execute(&WORKLOAD.create(BEFORE))?;
    client.batch_execute(&WORKLOAD.fill(BEFORE, rows))?;
    let stays = format!(
        "(SELECT * FROM {BEFORE} WHERE (id - 1) % {step} <> 0 OR (id - 1) / {step} >= {changed})"
    );
    Digest::of(target, &stays)
}

fn restore(target: &Database<'_>) -> Result<(), Failure> {
    let mut client = target.client();
    client.batch_execute(&WORKLOAD.create(TARGET))?;
    client.batch_execute(&format!(
        "INSERT INTO {TARGET} SELECT * FROM {BEFORE}; ALTER TABLE {TARGET} ADD PRIMARY KEY (id)"
    ))?;
    client.batch_execute(&format!("VACUUM (ANALYZE) {TARGET}"))?;
    client.batch_execute("CHECKPOINT")?;
    Ok(())
}

/// The statements that a person would give `psql`.
fn merge() -> Vec<String> {
    let columns = WORKLOAD.names();
    let set: Vec<String> = columns
        .iter()
        .filter(|column| *column != "id")
        .map(|column| format!("{column} = EXCLUDED.{column}"))
        .collect();
    [
        "BEGIN".to_owned(),
        format!("CREATE TEMP TABLE staged (LIKE {TARGET}) ON COMMIT DROP"),
        "COPY staged FROM STDIN (FORMAT binary)".to_owned(),
        format!(
            "INSERT INTO {TARGET} SELECT * FROM staged ON CONFLICT (id) DO UPDATE SET {}",
            set.join(", ")
        ),
        "COMMIT".to_owned(),
    ]
    .into()
}

fn upsert_pipeline() -> String {
    let text = table_pipeline("upsert");
    text.replace(
        "  write_mode: upsert\n",
        "  write_mode: upsert\n  primary_key: [id]\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_merge_sets_all_columns_but_the_key() {
        let merge = merge();
        assert_eq!(merge.len(), 5);
        assert!(merge[3].contains("note = EXCLUDED.note"));
        assert!(!merge[3].contains("id = EXCLUDED.id"));
        assert!(upsert_pipeline().contains("primary_key: [id]"));
    }
}
