//! Batches of the program as a source and as a destination.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rapidbyte::batches::{Batches, ConnectorError, ErrorKind, Function, Input, Output, Taken};
use rapidbyte::memory::Tables;
use rapidbyte::{
    Cancel, Class, Control, Engine, Environment, Failure, History, NativeConnector, Pipeline,
    Report, RunOptions,
};
use tempfile::TempDir;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]))
}

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let names = ids
        .clone()
        .map(|id| (id % 3 != 0).then(|| format!("name {id}")));
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(names.collect::<StringArray>()),
    ];
    RecordBatch::try_new(schema(), columns).expect("a batch")
}

/// Batches of 100 rows each, which `counted` counts as they are taken.
fn batches(rows: i64, counted: &Arc<AtomicU64>) -> Batches {
    let counted = Arc::clone(counted);
    Box::new((0..rows).step_by(100).map(move |from| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(batch(from..(from + 100).min(rows)))
    }))
}

fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    let ids = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values());
    ids.copied().collect()
}

/// A pipeline with these keys of its stream, and more keys at its end.
const COPY: &str = "version: 1\npipeline: copy\nsource: { use: python, streams: [STREAMS] }\n\
    destination: { use: TO, write_mode: append }\n";

fn run(
    connectors: impl IntoIterator<Item = NativeConnector>,
    text: &str,
    control: &Control,
) -> Result<Report, Failure> {
    let folder = TempDir::new().expect("a folder");
    let builder = Engine::builder().without_bundled();
    let builder = connectors
        .into_iter()
        .fold(builder, |builder, one| builder.connector(one));
    let engine = builder.build()?;
    let pipeline = Pipeline::from_str(text, folder.path(), &Environment::process())?;
    engine.run(&pipeline, &RunOptions::default(), control)
}

fn text(streams: &str, to: &str) -> String {
    COPY.replace("STREAMS", streams).replace("TO", to)
}

#[test]
fn batches_of_an_iterator_go_to_a_function_under_one_name() {
    let taken = Arc::new(AtomicU64::new(0));
    let input = Input::new().once("items", schema(), &["id"], batches(1_050, &taken));
    let arrived = Arc::new(Mutex::new((Vec::new(), 0)));
    let to = Arc::clone(&arrived);
    let output = Output::to(move |stream, one| {
        assert_eq!(stream, "items");
        let mut arrived = to.lock().expect("no panic");
        match one {
            Taken::Begun(begun) => assert_eq!(begun.fields(), schema().fields()),
            Taken::Rows(batch) => arrived.0.push(batch),
            Taken::Complete => arrived.1 += 1,
        }
        Ok(())
    });
    // A source and a destination may have one name.
    let connectors = [input.source("python"), output.destination("python")];
    let report = run(connectors, &text("items", "python"), &Control::default());
    assert_eq!(report.expect("it ends well").rows, 1_050);
    let arrived = arrived.lock().expect("no panic");
    assert_eq!(ids(&arrived.0), (0..1_050).collect::<Vec<_>>());
    assert_eq!(arrived.1, 1, "the stream is complete once");
    let expected = batch(0..1_050);
    let names = |batch: &RecordBatch| {
        let names = batch.column(1).as_string::<i32>().iter();
        names
            .map(|name| name.map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let found: Vec<_> = arrived.0.iter().flat_map(names).collect();
    assert_eq!(found, names(&expected));
}

/// A run that may share its sessions is short, and a thread for a source that waits for nobody takes longer than its rows.
#[test]
fn rows_in_memory_are_read_before_the_destination_begins_if_they_fit_in_a_batch() {
    for (resources, is_at_hand) in [("", true), ("resources: { batch_bytes: 4kb }\n", false)] {
        let rows = batch(0..2_000);
        let column = Arc::clone(rows.column(0));
        let input = Input::new().whole("items", &["id"], rows);
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&arrived);
        let output = Output::to(move |_, one| {
            match one {
                // The source has dropped the rows that it has encoded.
                Taken::Begun(_) => assert_eq!(Arc::strong_count(&column) == 1, is_at_hand),
                Taken::Rows(batch) => to.lock().expect("no panic").push(batch),
                Taken::Complete => {}
            }
            Ok(())
        });
        let engine = Engine::builder()
            .without_bundled()
            .connector(input.source("python"))
            .connector(output.destination("python"))
            .build()
            .expect("an engine");
        let folder = TempDir::new().expect("a folder");
        let text = text("items", "python") + resources;
        let pipeline = Pipeline::from_str(&text, folder.path(), &Environment::process());
        let options = RunOptions {
            history: History::Off,
            reuse: Some("the same".into()),
            ..RunOptions::default()
        };
        let report = engine.run(
            &pipeline.expect("it is read"),
            &options,
            &Control::default(),
        );
        assert_eq!(report.expect("it ends well").rows, 2_000);
        let arrived = arrived.lock().expect("no panic");
        assert_eq!(ids(&arrived), (0..2_000).collect::<Vec<_>>());
        assert_eq!(arrived.len() == 1, is_at_hand);
    }
}

#[test]
fn a_reader_that_is_slow_holds_the_source_back_and_one_that_goes_ends_the_run() {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    // A gigabyte in batches of 100 kB.
    let wide = (0..10_000).map(move |number: i64| {
        counted.fetch_add(1, Ordering::Relaxed);
        let ids = Int64Array::from_iter_values(number * 100..(number + 1) * 100);
        let names: StringArray = (0..100).map(|_| Some("x".repeat(1000))).collect();
        let batch = RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(names)]);
        Ok(batch.expect("a batch"))
    });
    let input = Input::new().once("items", schema(), &[], Box::new(wide));
    let (output, mut received) = Output::channel();
    let connectors = [input.source("python"), output.destination("reader")];
    let text = text("items", "reader") + "resources: { memory: 32mb }\n";
    let ended = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(connectors, &text, &Control::default()));
        assert_eq!(
            received.schema().expect("it begins").fields(),
            schema().fields()
        );
        let first: Vec<_> = received.by_ref().take(3).collect();
        assert_eq!(ids(&first), (0..300).collect::<Vec<_>>());
        assert!(!received.is_complete());
        drop(received);
        run.join().expect("no panic")
    });
    let failure = ended.expect_err("nobody reads");
    assert_eq!(failure.code, "reader_gone", "{failure:?}");
    // The run has room for 32 MB.
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < 640, "{taken} of 10,000 batches were made");
}

#[test]
fn a_reader_gets_all_rows_and_knows_that_they_are_all() {
    let taken = Arc::new(AtomicU64::new(0));
    let input = Input::new().once("items", schema(), &[], batches(2_000, &taken));
    let (output, mut received) = Output::channel();
    let connectors = [input.source("python"), output.destination("reader")];
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run(connectors, &text("items", "reader"), &Control::default()));
        let all: Vec<_> = received.by_ref().collect();
        assert_eq!(ids(&all), (0..2_000).collect::<Vec<_>>());
        assert!(received.is_complete());
        run.join().expect("no panic").expect("it ends well");
    });
}

#[test]
fn a_run_that_is_cancelled_while_nobody_reads_ends() {
    let taken = Arc::new(AtomicU64::new(0));
    let input = Input::new().once("items", schema(), &[], batches(1_000_000, &taken));
    let (output, mut received) = Output::channel();
    let connectors = [input.source("python"), output.destination("reader")];
    let cancel = Cancel::new();
    let control = Control::default().cancel(&cancel);
    let ended = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(connectors, &text("items", "reader"), &control));
        received.schema().expect("it begins");
        cancel.cancel();
        run.join().expect("no panic")
    });
    assert_eq!(ended.expect_err("cancelled").class, Class::Cancelled);
    assert!(!received.is_complete());
}

/// A function that begins again serves a retry; an iterator does not, and says so.
#[test]
fn a_function_of_batches_survives_a_retry_and_an_iterator_does_not() {
    let opened = Arc::new(AtomicU64::new(0));
    let open = {
        let opened = Arc::clone(&opened);
        move || -> Result<Batches, ConnectorError> {
            let is_first = opened.fetch_add(1, Ordering::Relaxed) == 0;
            let rows = batches(500, &Arc::default());
            Ok(Box::new(rows.enumerate().map(
                move |(number, batch)| match is_first && number == 2 {
                    true => Err(ConnectorError::new(ErrorKind::Transient, "busy", "later")),
                    false => batch,
                },
            )))
        }
    };
    let text = text("items", "tables");
    let tables = Tables::new();
    let again = Input::new().again("items", schema(), &[], open.clone());
    let connectors = [again.source("python"), tables.destination("tables")];
    let report = run(connectors, &text, &Control::default());
    assert_eq!(report.expect("the second read ends well").rows, 500);
    assert_eq!(opened.load(Ordering::Relaxed), 2);
    let stored = tables.get("items").expect("a table");
    assert_eq!(ids(&stored), (0..500).collect::<Vec<_>>());

    opened.store(0, Ordering::Relaxed);
    let tables = Tables::new();
    let once = open().expect("batches");
    let once = Input::new().once("items", schema(), &[], once);
    let connectors = [once.source("python"), tables.destination("tables")];
    let failure = run(connectors, &text, &Control::default()).expect_err("it cannot begin again");
    assert_eq!(failure.code, "rows_used_up", "{failure:?}");
    assert!(tables.get("items").is_none_or(|rows| ids(&rows).is_empty()));
}

#[test]
fn rows_that_were_handed_over_are_not_handed_over_again() {
    let attempts = Arc::new(AtomicU64::new(0));
    let of = Arc::clone(&attempts);
    let output = Output::to(move |_, one| match one {
        Taken::Rows(_) => {
            of.fetch_add(1, Ordering::Relaxed);
            Err(ConnectorError::new(ErrorKind::Transient, "busy", "later"))
        }
        _ => Ok(()),
    });
    let input = Input::new().again("items", schema(), &[], || Ok(batches(10, &Arc::default())));
    let connectors = [input.source("python"), output.destination("function")];
    let failure = run(connectors, &text("items", "function"), &Control::default());
    let failure = failure.expect_err("the function refuses");
    assert_eq!(failure.code, "rows_handed_over", "{failure:?}");
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
}

#[test]
fn columns_are_chosen_and_other_ones_are_refused() {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&arrived);
    let output = Output::to(move |_, one| {
        if let Taken::Rows(batch) = one {
            to.lock().expect("no panic").push(batch);
        }
        Ok(())
    });
    let input = Input::new().once("items", schema(), &[], batches(10, &Arc::default()));
    let connectors = [
        input.source("python"),
        output.clone().destination("function"),
    ];
    let streams = "{ name: items, columns: [name] }";
    run(connectors, &text(streams, "function"), &Control::default()).expect("it ends well");
    let arrived = arrived.lock().expect("no panic");
    assert_eq!(arrived[0].schema().fields().len(), 1);
    assert_eq!(arrived[0].schema().field(0).name(), "name");

    let other = Arc::new(Schema::new(vec![Field::new("id", DataType::Utf8, true)]));
    let ids: StringArray = [Some("one")].into_iter().collect();
    let other = RecordBatch::try_new(other, vec![Arc::new(ids)]).expect("a batch");
    let both = [Ok(batch(0..1)), Ok(other)].into_iter();
    let input = Input::new().once("items", schema(), &[], Box::new(both));
    let tables = Tables::new();
    let connectors = [input.source("python"), tables.destination("tables")];
    let failure = run(connectors, &text("items", "tables"), &Control::default());
    let failure = failure.expect_err("other columns");
    assert_eq!(failure.code, "other_columns", "{failure:?}");
    let found = failure.to_string();
    assert!(found.contains("id string"), "{found}");
}

#[test]
fn one_reader_reads_one_stream() {
    let input = Input::new()
        .once("a", schema(), &[], batches(10, &Arc::default()))
        .once("b", schema(), &[], batches(10, &Arc::default()));
    let (output, received) = Output::channel();
    let connectors = [input.source("python"), output.destination("reader")];
    let ended = std::thread::scope(|scope| {
        let reads = scope.spawn(|| received.count());
        let ended = run(connectors, &text("a, b", "reader"), &Control::default());
        reads.join().expect("no panic");
        ended
    });
    let failure = ended.expect_err("two streams");
    assert_eq!(failure.code, "several_streams", "{failure:?}");
}

/// Doubles `id` and drops `name`; batches after the first have another column if `is_wrong`.
fn doubling(is_wrong: bool) -> Function {
    let columns = |_: &str, before: &SchemaRef| {
        let columns = before.project(&[0]);
        Ok(Arc::new(columns.map_err(|error| {
            ConnectorError::new(ErrorKind::Schema, "unknown_column", error)
        })?))
    };
    Function::new(columns, move |stream, batch, planned| {
        assert_eq!(stream, "items");
        assert_eq!(
            planned.fields(),
            schema().project(&[0]).expect("a column").fields()
        );
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let is_first = ids.value(0) == 0;
        let ids: Int64Array = ids.unary(|id| 2 * id);
        let made = RecordBatch::try_new(
            Arc::new(schema().project(&[0]).expect("a column")),
            vec![Arc::new(ids)],
        );
        let made = made.expect("a batch");
        match is_wrong && !is_first {
            true => Ok(vec![batch]),
            // A function may make several batches of one, and empty ones.
            false => Ok(vec![
                made.slice(0, 1),
                made.slice(0, 0),
                made.slice(1, made.num_rows() - 1),
            ]),
        }
    })
}

#[test]
fn a_function_makes_batches_of_batches_and_no_other_columns() {
    let transformed = |is_wrong| {
        let tables = Tables::new();
        let input = Input::new().once("items", schema(), &["id"], batches(250, &Arc::default()));
        let connectors = [
            input.source("python"),
            doubling(is_wrong).transform("double"),
            tables.destination("tables"),
        ];
        let streams = "{ name: items, transforms: [{ use: double }] }";
        let ended = run(connectors, &text(streams, "tables"), &Control::default());
        (ended, tables)
    };
    let (ended, tables) = transformed(false);
    assert_eq!(ended.expect("it ends well").rows, 250);
    let stored = tables.get("items").expect("a table");
    assert_eq!(stored[0].num_columns(), 1);
    assert_eq!(ids(&stored), (0..250).map(|id| 2 * id).collect::<Vec<_>>());
    let failure = transformed(true).0.expect_err("other columns");
    assert_eq!(failure.code, "other_columns", "{failure:?}");
}
