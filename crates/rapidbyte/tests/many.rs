//! Many runs of one engine at a time.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rapidbyte::{
    Cancel, Class, Control, Engine, Environment, Event, Failure, Pipeline, Report, RunOptions,
};
use tempfile::TempDir;

const RUNS: usize = 50;
const AT_A_TIME: usize = 8;

/// How a run is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    Failed,
    Cancelled,
}

fn end_of(run: usize) -> End {
    match run % 5 {
        3 => End::Failed,
        4 => End::Cancelled,
        _ => End::Well,
    }
}

/// One row more for each run, so that each report differs.
fn rows_of(run: usize) -> u64 {
    1_000 + run as u64
}

fn pipeline(run: usize, folder: &Path) -> Pipeline {
    let (rows, path) = match end_of(run) {
        End::Well => (rows_of(run), "out/{stream}.csv"),
        // Nobody can make this folder.
        End::Failed => (rows_of(run), "taken/{stream}.csv"),
        End::Cancelled => (1_000_000_000_000, "out/{stream}.csv"),
    };
    let text = format!(
        "version: 1\npipeline: run{run}\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-generate\n  \
         config: {{ preset: narrow, rows: {rows} }}\n  streams: [\"*\"]\ndestination:\n  use: dest-file\n  \
         config: {{ path: \"{path}\" }}\n  write_mode: replace\n"
    );
    std::fs::write(folder.join("taken"), "a file").expect("a file");
    Pipeline::from_str(&text, folder, &Environment::process()).expect("a pipeline")
}

/// Runs one, and gives every run id that its events named.
fn run(engine: &Engine, run: usize) -> (Result<Report, Failure>, HashSet<String>) {
    let folder = TempDir::new().expect("a folder");
    let pipeline = pipeline(run, folder.path());
    let cancel = Cancel::new();
    let ids = Arc::new(Mutex::new(HashSet::new()));
    let (seen, ends) = (Arc::clone(&ids), cancel.clone());
    let control = Control::default()
        .cancel(&cancel)
        .on_event(move |event| match event {
            Event::Started { run_id, .. } => {
                seen.lock().expect("ids").insert((*run_id).to_owned());
            }
            Event::StreamStarted { .. } if end_of(run) == End::Cancelled => ends.cancel(),
            _ => {}
        });
    let ended = engine.run(&pipeline, &RunOptions::default(), &control);
    drop(control);
    let ids = Arc::into_inner(ids).expect("nobody else has the sink any more");
    (ended, ids.into_inner().expect("ids"))
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn fifty_runs_at_a_time_leave_nothing_behind_and_do_not_mix() {
    let cache = rapidbyte::user_cache().ok();
    let engine = Engine::builder().cache(cache).build().expect("an engine");
    // The first runs, one of each end, create everything that exists once per process.
    for first in 0..5 {
        let _ = run(&engine, first);
    }
    let now = || (entries("/proc/self/fd"), entries("/proc/self/task"));
    let before = now();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(HashSet::new()));
    // CPU time: the sum over the runs, and the process's at the end of the last run.
    let times = Mutex::new((0.0, 0.0_f64));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= RUNS {
                        return;
                    }
                    let (ended, ids) = run(&engine, number);
                    assert_eq!(ids.len(), 1, "run {number}: {ids:?}");
                    match (end_of(number), ended) {
                        (End::Well, Ok(report)) => {
                            assert_eq!(report.rows, rows_of(number));
                            assert_eq!(report.pipeline, format!("run{number}"));
                            assert!(ids.contains(&report.run_id), "{ids:?}");
                            let memory = report.peak_memory_bytes;
                            assert!(memory >= report.peak_connector_bytes, "{memory}");
                            assert!((1..256 << 20).contains(&memory), "{memory}");
                            assert!(report.cpu_secs > 0.0);
                            let mut times = times.lock().expect("times");
                            times.0 += report.cpu_secs;
                            times.1 = times.1.max(report.process_cpu_secs);
                        }
                        (End::Failed, Err(failure)) => {
                            assert_eq!(failure.code, "not_a_file", "{failure}");
                        }
                        (End::Cancelled, Err(failure)) => {
                            assert_eq!(failure.class, Class::Cancelled, "{failure}");
                        }
                        (_, ended) => panic!("run {number}: {ended:?}"),
                    }
                    all.lock().expect("ids").extend(ids);
                }
            });
        }
    });
    assert_eq!(all.into_inner().expect("ids").len(), RUNS, "ids of runs");
    let (of_runs, of_process) = times.into_inner().expect("times");
    assert!(of_runs <= of_process, "{of_runs} > {of_process}");
    if cfg!(target_os = "linux") {
        // A thread that was told to end is listed until the system has ended it. One of the first runs may have left
        // such a thread, which `before` then counts: so less than before is as good.
        let grew = |now: (usize, usize)| now.0 > before.0 || now.1 > before.1;
        let end = Instant::now() + Duration::from_secs(30);
        let mut after = now();
        while grew(after) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            after = now();
        }
        assert!(
            !grew(after),
            "file descriptors and threads: {after:?} after {before:?}"
        );
    }
}
