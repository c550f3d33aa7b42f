//! What a server that takes rows over HTTP costs: `cargo xtask bench-serve`.
//!
//! The server is the release program in a process of its own, with a folder on the disk of the workspace and a PostgreSQL
//! with the defaults for durability. Beside the durable answers stands the time of one `fsync` of the same bytes, which no
//! server can beat. Each measurement counts its rows in the table.

mod client;
mod first;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rapidbyte_testkit::postgres::{Database, Server};
use serde_json::{Value, json};

use crate::databases;
use crate::failure::Failure;
use crate::stats::Spread;

use client::{Client, Running, fsync_secs};

pub const USAGE: &str = "usage: rapidbyte-bench serve <folder> [--secs <seconds of a measurement>]";

/// Bytes of a small body.
const SMALL: usize = 1000;
/// Bytes of a large body, and how many there are.
const LARGE: usize = 10 << 20;
const LARGE_BODIES: usize = 100;
/// Jobs of the measurement from end to end.
const FILES: usize = 10_000;
/// Jobs of the store in which hashes are looked up.
const LOOKUPS: u32 = 200_000;
/// The longest wait for the table.
const LIMIT: Duration = Duration::from_secs(300);

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the server works, and the log goes.
    folder: PathBuf,
    /// Of one measurement.
    secs: u64,
}

impl Request {
    /// Reads the arguments behind `serve`.
    pub fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let secs = |text: &String| {
            let wrong = || Failure(format!("{text:?} is not a number of seconds"));
            text.parse().map_err(|_| wrong())
        };
        match arguments {
            [folder] => Ok(Self {
                folder: folder.into(),
                secs: 5,
            }),
            [folder, option, number] if option == "--secs" => Ok(Self {
                folder: folder.into(),
                secs: secs(number)?,
            }),
            _ => Err(Failure("a folder is needed".into())),
        }
    }
}

/// One line of the table.
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// The goal, and whether more is better.
    goal: Option<(f64, bool)>,
}

/// The figures so far, each shown when it is known.
#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(
        &mut self,
        name: &'static str,
        value: f64,
        unit: &'static str,
        goal: Option<(f64, bool)>,
    ) {
        let shown = match goal {
            None => String::new(),
            Some((goal, is_more)) => {
                let sign = if is_more { "≥" } else { "≤" };
                let met = if is_more {
                    value >= goal
                } else {
                    value <= goal
                };
                format!("goal {sign} {goal} {}", if met { "met" } else { "MISSED" })
            }
        };
        println!("{name:<58} {value:>12.3} {unit:<10} {shown}");
        self.0.push(Figure {
            name,
            value,
            unit,
            goal,
        });
    }

    fn document(&self) -> Value {
        let figures = self.0.iter().map(|figure| {
            json!({
                "name": figure.name, "value": figure.value, "unit": figure.unit,
                "goal": figure.goal.map(|(goal, _)| goal),
            })
        });
        figures.collect()
    }
}

/// Measures, prints a table, and adds a line to the log.
pub fn run(request: &Request) -> Result<(), Failure> {
    std::fs::create_dir_all(&request.folder)?;
    let server = databases::server()?;
    let mut figures = Figures::default();
    let bench = Bench {
        folder: &request.folder,
        server: &server,
        secs: Duration::from_secs(request.secs),
    };
    bench.durable(&mut figures)?;
    bench.known(&mut figures)?;
    bench.files(&mut figures)?;
    bench.streams(&mut figures)?;
    bench.first(&mut figures)?;
    bench.rows(&mut figures)?;
    bench.large(&mut figures)?;
    let line = json!({
        "context": crate::machine::context(&server), "figures": figures.document(),
    });
    let log = request
        .folder
        .join(format!("serve-{}.jsonl", crate::machine::unix_secs()));
    std::fs::write(&log, format!("{line}\n"))?;
    println!("log: {}", log.display());
    Ok(())
}

struct Bench<'a> {
    folder: &'a Path,
    server: &'a Server,
    secs: Duration,
}

/// A pipeline that takes rows `id` and `name` for some streams.
fn pipeline(url: &str, streams: &[String], more: &str, load: &str) -> String {
    format!(
        "version: 1\npipeline: p\n\
         source: {{ use: ingest, config: {{ schema: {{ id: int64, name: string }}{more} }}, streams: [{}] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{url}\"{load} }}, write_mode: append }}\n",
        streams.join(", ")
    )
}

/// A row with this id, of about [`SMALL`] bytes.
fn small(id: usize) -> Vec<u8> {
    let name = "x".repeat(SMALL - 30);
    format!("{{\"id\":{id},\"name\":\"{name}\"}}\n").into_bytes()
}

fn count(database: &Database<'_>, table: &str) -> Result<u64, Failure> {
    let sql = format!("SELECT count(*), count(DISTINCT id) FROM public.{table}");
    let row = database.client().query_one(&sql, &[])?;
    let (all, distinct): (i64, i64) = (row.get(0), row.get(1));
    if all != distinct {
        return Err(Failure(format!("{table} has {all} rows of {distinct} ids")));
    }
    Ok(all as u64)
}

fn p50(times: &[f64]) -> f64 {
    quantile(times, 0.5)
}

fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

impl Bench<'_> {
    fn start(&self, text: &str, arguments: &[&str]) -> Result<Running, Failure> {
        Running::start(self.folder, text, arguments)
    }

    /// Clients that post for the time of a measurement: the seconds of each answer.
    fn post_for(
        &self,
        running: &Running,
        clients: usize,
        body: impl Fn(usize) -> Vec<u8> + Sync,
    ) -> Result<Vec<f64>, Failure> {
        let until = Instant::now() + self.secs;
        let times = std::thread::scope(|scope| {
            let client = |number: usize| {
                let body = &body;
                scope.spawn(move || {
                    let mut client = Client::new(running)?;
                    let (mut times, mut id) = (Vec::new(), number);
                    while Instant::now() < until {
                        let body = body(id);
                        let begun = Instant::now();
                        client.post("s", "", &body, &[200, 202])?;
                        times.push(begun.elapsed().as_secs_f64());
                        id += clients;
                    }
                    Ok::<_, Failure>(times)
                })
            };
            let clients: Vec<_> = (0..clients).map(client).collect();
            let joined = clients.into_iter().map(|client| {
                client
                    .join()
                    .map_err(|_| Failure("a client panicked".into()))?
            });
            joined.collect::<Result<Vec<_>, Failure>>()
        })?;
        Ok(times.concat())
    }

    /// Durable answers while nothing runs: nobody listens at the destination.
    fn durable(&self, figures: &mut Figures) -> Result<(), Failure> {
        let nowhere = pipeline("postgres://x@127.0.0.1:1/x", &["s".into()], "", "");
        let running = self.start(&nowhere, &[])?;
        let one = self.post_for(&running, 1, small)?;
        let many = self.post_for(&running, 64, small)?;
        let per_second = many.len() as f64 / self.secs.as_secs_f64();
        figures.add(
            "fsync of 1 KB, the reference: p50",
            p50(&fsync_secs(self.folder, SMALL)?) * 1e3,
            "ms",
            None,
        );
        figures.add(
            "durable 202 of 1 KB, one client: p50",
            p50(&one) * 1e3,
            "ms",
            Some((0.6, false)),
        );
        figures.add(
            "durable 202 of 1 KB, one client: p99",
            quantile(&one, 0.99) * 1e3,
            "ms",
            None,
        );
        figures.add(
            "durable 202 of 1 KB, 64 clients",
            per_second,
            "1/s",
            Some((5000.0, true)),
        );
        figures.add(
            "durable 202 of 1 KB, 64 clients: p99",
            quantile(&many, 0.99) * 1e3,
            "ms",
            None,
        );
        Ok(())
    }

    /// Bodies that came before.
    fn known(&self, figures: &mut Figures) -> Result<(), Failure> {
        let more = ", dedup: content";
        let nowhere = pipeline("postgres://x@127.0.0.1:1/x", &["s".into()], more, "");
        let running = self.start(&nowhere, &[])?;
        let new = self.post_for(&running, 8, small)?;
        let known = self.post_for(&running, 1, |id| small(id % new.len().max(1)))?;
        figures.add(
            "known by its content, one client: p50",
            p50(&known) * 1e3,
            "ms",
            None,
        );
        let folder = tempfile::tempdir_in(self.folder)?;
        let file = folder.path().join("jobs.db");
        let found = rapidbyte_serve::lookups(&file, LOOKUPS);
        let found = found.map_err(|error| Failure(error.to_string()))?;
        figures.add(
            "lookup of a hash in a store of 200,000 jobs",
            found.store * 1e6,
            "µs",
            Some((15.0, false)),
        );
        figures.add(
            "lookup of a hash in memory",
            found.memory * 1e6,
            "µs",
            Some((0.25, false)),
        );
        Ok(())
    }

    /// Small bodies into a table, from the first request to the last commit.
    fn files(&self, figures: &mut Figures) -> Result<(), Failure> {
        let database = self.server.database();
        let running = self.start(&pipeline(&database.url(), &["s".into()], "", ""), &[])?;
        running.warm("s")?;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let client = |number: usize| {
                let running = &running;
                scope.spawn(move || {
                    let mut client = Client::new(running)?;
                    for id in (number..FILES).step_by(8) {
                        client.post("s", "", &small(id), &[202])?;
                    }
                    Ok::<_, Failure>(())
                })
            };
            let clients: Vec<_> = (0..8).map(client).collect();
            clients.into_iter().try_for_each(|client| {
                client
                    .join()
                    .map_err(|_| Failure("a client panicked".into()))?
            })
        })?;
        while count(&database, "s")? < FILES as u64 + 1 {
            if begun.elapsed() > LIMIT {
                return Err(Failure("the rows did not come".into()));
            }
            // A look at the table ten times a second.
            std::thread::sleep(Duration::from_millis(100));
        }
        let per_second = FILES as f64 / begun.elapsed().as_secs_f64();
        figures.add(
            "bodies of 1 KB into a table, each once",
            per_second,
            "1/s",
            Some((1000.0, true)),
        );
        Ok(())
    }

    /// Streams at a time against a table that takes 5 ms for each statement.
    fn streams(&self, figures: &mut Figures) -> Result<(), Failure> {
        const STREAMS: usize = 10;
        let database = self.server.database();
        let names: Vec<String> = (0..STREAMS).map(|number| format!("s{number}")).collect();
        let running = self.start(
            &pipeline(&database.url(), &names, "", ""),
            &["--runs", "10"],
        )?;
        let mut slow = String::from(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END';",
        );
        for name in &names {
            running.warm(name)?;
            slow += &format!(
                "CREATE TRIGGER slow AFTER INSERT ON public.{name} FOR EACH STATEMENT EXECUTE FUNCTION slow();"
            );
        }
        database.client().batch_execute(&slow)?;
        let jobs = |streams: usize| -> Result<f64, Failure> {
            let until = Instant::now() + self.secs;
            let done = std::thread::scope(|scope| {
                let client = |name: &'_ String| {
                    let (running, name) = (&running, name.clone());
                    scope.spawn(move || {
                        let (mut client, mut done) = (Client::new(running)?, 0_u64);
                        while Instant::now() < until {
                            client.post(&name, "?wait=true", b"{\"id\":1}", &[200])?;
                            done += 1;
                        }
                        Ok::<_, Failure>(done)
                    })
                };
                let clients: Vec<_> = names.iter().take(streams).map(client).collect();
                let joined = clients.into_iter().map(|client| {
                    client
                        .join()
                        .map_err(|_| Failure("a client panicked".into()))?
                });
                joined.sum::<Result<u64, Failure>>()
            })?;
            Ok(done as f64 / self.secs.as_secs_f64())
        };
        let (one, all) = (jobs(1)?, jobs(STREAMS)?);
        figures.add("runs of one stream, table waits 5 ms", one, "1/s", None);
        figures.add("runs of ten streams, table waits 5 ms", all, "1/s", None);
        figures.add("ten streams against one", all / one, "x", Some((8.0, true)));
        Ok(())
    }

    /// Rows per second of a client that keeps its connection and commits each row by itself.
    fn bare_inserts(&self) -> Result<f64, Failure> {
        let database = self.server.database();
        let mut client = database.client();
        client.batch_execute("CREATE TABLE bare (id int8, name text)")?;
        let insert = client.prepare("INSERT INTO bare VALUES ($1, $2)")?;
        let (begun, mut rows) = (Instant::now(), 0_i64);
        while begun.elapsed() < self.secs {
            client.execute(&insert, &[&rows, &"a"])?;
            rows += 1;
        }
        Ok(rows as f64 / begun.elapsed().as_secs_f64())
    }

    /// Rows of bodies with one row, with 1,000 and with 100,000, by COPY and by single INSERTs.
    fn rows(&self, figures: &mut Figures) -> Result<(), Failure> {
        const ROWS: usize = 1000;
        const MANY: usize = 100_000;
        let rows = |count: usize| -> Vec<u8> {
            (0..count)
                .flat_map(|id| format!("{{\"id\":{id},\"name\":\"a\"}}\n").into_bytes())
                .collect()
        };
        let body = rows(ROWS);
        let rate = |load: &str, body: &[u8], rows: usize| -> Result<(f64, f64), Failure> {
            let database = self.server.database();
            let text = pipeline(&database.url(), &["s".into()], "", load);
            let running = self.start(&text, &[])?;
            running.warm("s")?;
            let (mut client, until) = (Client::new(&running)?, Instant::now() + self.secs);
            let mut times = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                client.post("s", "?wait=true", body, &[200])?;
                times.push(begun.elapsed().as_secs_f64());
            }
            let spread = Spread::of(times).ok_or_else(|| Failure("no answer".into()))?;
            Ok((rows as f64 / spread.median, spread.median))
        };
        let (copy, secs) = rate("", &body, ROWS)?;
        let (copy_many, _) = rate("", &rows(MANY), MANY)?;
        let (single, single_secs) = rate("", b"{\"id\":1,\"name\":\"a\"}", 1)?;
        let (inserts, _) = rate(", load_method: insert, insert_rows: 1", &body, ROWS)?;
        figures.add(
            "one row, from request to commit: p50",
            single_secs * 1e3,
            "ms",
            None,
        );
        figures.add(
            "1,000 rows, from request to commit: p50",
            secs * 1e3,
            "ms",
            None,
        );
        figures.add(
            "rows of bodies with 1,000 rows, COPY",
            copy,
            "rows/s",
            Some((100_000.0, true)),
        );
        figures.add(
            "bodies with 1,000 rows against bodies with one",
            copy / single,
            "x",
            Some((13.6, true)),
        );
        figures.add(
            "1,000 rows by COPY against `insert_rows: 1`",
            copy / inserts,
            "x",
            None,
        );
        let inserts = self.bare_inserts()?;
        figures.add(
            "1,000 rows by COPY against INSERTs of a bare client",
            copy / inserts,
            "x",
            None,
        );
        figures.add(
            "100,000 rows by COPY against INSERTs of a bare client",
            copy_many / inserts,
            "x",
            Some((85.0, true)),
        );
        Ok(())
    }

    /// Large bodies, several at a time, and the memory of the server.
    fn large(&self, figures: &mut Figures) -> Result<(), Failure> {
        let nowhere = pipeline("postgres://x@127.0.0.1:1/x", &["s".into()], "", "");
        let running = self.start(&nowhere, &["--queue-bytes", "20gb", "--keep-free", "0"])?;
        let before = running.peak_bytes()?;
        let body = vec![b' '; LARGE];
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let client = |number: usize| {
                let (running, body) = (&running, &body);
                scope.spawn(move || {
                    let mut client = Client::new(running)?;
                    for _ in (number..LARGE_BODIES).step_by(8) {
                        client.post("s", "", body, &[202])?;
                    }
                    Ok::<_, Failure>(())
                })
            };
            let clients: Vec<_> = (0..8).map(client).collect();
            clients.into_iter().try_for_each(|client| {
                client
                    .join()
                    .map_err(|_| Failure("a client panicked".into()))?
            })
        })?;
        let megabytes = (LARGE_BODIES * LARGE) as f64 / 1e6;
        figures.add(
            "bodies of 10 MB, 8 at a time",
            megabytes / begun.elapsed().as_secs_f64(),
            "MB/s",
            None,
        );
        let more = running.peak_bytes()?.saturating_sub(before);
        figures.add(
            "more memory with bodies of 10 MB",
            more as f64 / 1e6,
            "MB",
            Some((64.0, false)),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_needed() {
        let parsed = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Request::parse(&arguments)
        };
        assert_eq!(parsed("out --secs 1").expect("it is right").secs, 1);
        assert!(parsed("out").is_ok());
        for wrong in ["", "out --secs", "out --secs x", "out --rows 1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quantiles_are_of_the_sorted_values() {
        let times = [5.0, 1.0, 2.0, 4.0, 3.0];
        assert_eq!((p50(&times), quantile(&times, 0.99)), (3.0, 5.0));
        assert!(p50(&[]).is_nan());
    }
}
