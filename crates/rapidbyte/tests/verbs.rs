//! The work of a command or a service around a run: it shows the plan, past runs, cursors and connectors.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use rapidbyte::memory::Tables;
use rapidbyte::{
    Control, Discovered, Engine, Environment, Fit, History, Kind, Narrowing, PastRuns, Pipeline,
    PlannedRun, RunOptions,
};
use tempfile::TempDir;

/// A pipeline between two sets of tables in memory.
struct Shop {
    folder: TempDir,
    engine: Engine,
    control: Control,
    target: Tables,
}

impl Shop {
    fn new() -> Self {
        let ids = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let rows = RecordBatch::try_from_iter([("id", ids as _)]).expect("rows");
        let (source, target) = (Tables::new(), Tables::new());
        source.set("orders", rows.schema(), &["id"], vec![rows]);
        let engine = Engine::builder()
            .without_bundled()
            .connector(source.source("memory-source"))
            .connector(target.destination("memory-destination"));
        Self {
            folder: TempDir::new().expect("a folder"),
            engine: engine.build().expect("an engine"),
            control: Control::default(),
            target,
        }
    }

    /// Writes the pipeline file, and reads it.
    fn pipeline(&self, write_mode: &str) -> Pipeline {
        let text = format!(
            "version: 1\npipeline: shop\nsource:\n  use: memory-source\n  streams:\n    - name: orders\n      \
             sync_mode: incremental\n      cursor_field: [id]\ndestination: {{ use: memory-destination, \
             write_mode: {write_mode} }}\n"
        );
        std::fs::write(self.file(), text).expect("a file");
        Pipeline::from_file(&self.file(), &Environment::process()).expect("a pipeline")
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("shop.yaml")
    }

    fn planned(&self, pipeline: &Pipeline) -> PlannedRun {
        let options = RunOptions::default();
        let planned = self.engine.plan_run(pipeline, &options, &self.control);
        planned.unwrap_or_else(|unplanned| panic!("{}", unplanned.failure))
    }

    fn rows(&self) -> usize {
        let batches = self.target.get("orders").unwrap_or_default();
        batches.iter().map(RecordBatch::num_rows).sum()
    }
}

#[test]
fn a_run_is_inspected_before_it_begins_and_listed_after_its_end() {
    let shop = Shop::new();
    let pipeline = shop.pipeline("append");
    let mut planned = shop.planned(&pipeline);
    let column = &planned.plan().streams[0].planned_columns()[0];
    assert_eq!(
        (column.name, column.target_type, column.fit),
        ("id", "int64", Fit::Exact)
    );
    assert!(planned.open_history().expect("a history").is_none());
    let recorded = planned.recorded().expect("the history is open").clone();
    let (run_id, progress) = (recorded.run_id(), planned.progress());
    assert!(run_id.get().is_none() && recorded.attempt().is_none());
    let past = PastRuns::of_file(&shop.file(), &Environment::process(), &History::Beside);
    let past = past.expect("a name");
    let mut status = None;
    let ended = planned.run(|ended| {
        let id = run_id.get().expect("the run began");
        assert_eq!(
            ended.map(|report| report.run_id.as_str()).ok(),
            Some(id.as_str())
        );
        // The end is recorded after this.
        let attempt = recorded.attempt().expect("it is recorded");
        recorded
            .set_report(&attempt, Path::new("/reports/a.html"))
            .expect("a place for it");
        status = Some(attempt.status);
    });
    ended.expect("it runs");
    assert_eq!(status.as_deref(), Some("running"));
    assert_eq!(progress.streams[0].rows(), 3);
    let listed = past.last(5).expect("a history");
    assert_eq!(listed.runs.len(), 1);
    assert_eq!(listed.attempts[0].status, "ok");
    assert_eq!(
        listed.attempts[0].report.as_deref(),
        Some("/reports/a.html")
    );
    assert_eq!(Some(&listed.runs[0].id), run_id.get());
}

#[test]
fn a_planned_run_has_the_turn_of_its_pipeline_until_it_is_dropped() {
    let shop = Shop::new();
    let pipeline = shop.pipeline("append");
    let planned = shop.planned(&pipeline);
    let options = RunOptions::default();
    let second = shop.engine.plan_run(&pipeline, &options, &shop.control);
    let refused = second.err().expect("the first one has the turn");
    assert_eq!(refused.failure.code, "already_running");
    drop(planned);
    drop(shop.planned(&pipeline));
    assert_eq!(shop.rows(), 0);
}

#[test]
fn only_a_run_that_appends_needs_its_history() {
    let shop = Shop::new();
    std::fs::write(shop.folder.path().join(".rapidbyte"), "a file").expect("a file");
    let mut planned = shop.planned(&shop.pipeline("append"));
    let refused = planned.open_history().expect_err("it appends");
    assert_eq!(refused.code, "state_unusable");
    let mut planned = shop.planned(&shop.pipeline("upsert"));
    let missing = planned.open_history().expect("it does not append");
    assert_eq!(
        missing.map(|failure| failure.code).as_deref(),
        Some("state_unusable")
    );
    planned.run(|_| ()).expect("it runs without a history");
    assert_eq!(shop.rows(), 3);
}

#[test]
fn cursors_are_listed_moved_and_cleared() {
    let shop = Shop::new();
    let pipeline = shop.pipeline("upsert");
    let open = |changes| {
        let cursors = shop.engine.cursors(&pipeline, None, changes, &shop.control);
        cursors.expect("a destination with cursors")
    };
    let listed = open(false).list().expect("the streams");
    assert_eq!(listed[0].stream, "orders");
    assert!(listed[0].progress.is_none());
    let none = open(false).get("orders").expect_err("no run has begun it");
    assert_eq!(none.code, "no_cursor");
    let run = || {
        let options = RunOptions::default();
        let report = shop.engine.run(&pipeline, &options, &shop.control);
        report.expect("it runs").rows
    };
    assert_eq!(run(), 3);
    let found = open(false).get("orders").expect("a cursor");
    let cursor = found.cursor().expect("a cursor").to_owned();
    // Rows with the value of the cursor come again.
    assert_eq!(run(), 1);
    let mut cursors = open(true);
    let unknown = cursors.ensure_known("order").expect_err("misspelt");
    assert_eq!(unknown.code, "unknown_stream");
    assert!(
        cursors
            .begin_move(false)
            .expect("no run is active")
            .is_none()
    );
    let mut cleared = Vec::new();
    let clear = cursors.clear(None, |stream, progress| {
        cleared.push((stream.to_owned(), progress.cursor.clone()));
    });
    clear.expect("it is cleared");
    assert_eq!(cleared, [("orders".to_owned(), None)]);
    drop(cursors);
    assert_eq!(run(), 3);
    // Somebody else has committed since `found`.
    let seq = found.progress.as_ref().map(|progress| progress.seq);
    let stale = open(true).put("orders", Some(&cursor), seq);
    assert_eq!(stale.expect_err("it moved").code, "cursor_moved");
    open(true)
        .put("orders", Some(&cursor), None)
        .expect("it moves");
    assert_eq!(run(), 1);
}

#[test]
fn connectors_streams_and_plans_are_shown_without_a_run() {
    let shop = Shop::new();
    let pipeline = shop.pipeline("append");
    let (engine, control) = (&shop.engine, &shop.control);
    assert_eq!(engine.connectors(), ["memory-destination", "memory-source"]);
    let source = engine.connector("memory-source", Path::new("."), control);
    let source = source.expect("a connector");
    assert_eq!((source.kind(), source.is_file()), (Kind::Source, false));
    assert_eq!(source.asks_for().expect("nothing"), [] as [&str; 0]);
    let settings = engine.connector_settings(control).expect("settings");
    assert_eq!(settings[0].kind, Kind::Destination);
    assert!(
        engine
            .lock(&pipeline, false, control)
            .expect("no files")
            .is_empty()
    );
    let found = engine.discover(&pipeline, control).expect("streams");
    let columns = Discovered::columns(&found.streams[0]).expect("columns");
    assert_eq!(
        (columns[0].name.as_str(), columns[0].arrow_type.as_str()),
        ("id", "int64")
    );
    let grants = engine.grants(&pipeline, control).expect("stages");
    assert_eq!(grants.len(), 2);
    let preview = engine.preview(&pipeline, &Narrowing::default(), control);
    let mut preview = preview.expect("a plan");
    let refusals = preview.refusals().expect("a snapshot");
    assert!(refusals.streams.is_empty() && refusals.failure.is_none());
    assert_eq!(shop.rows(), 0);
}
