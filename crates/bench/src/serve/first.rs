//! The time until the destination executes the first statement of a body: of a run that goes on, of one that begins, of a
//! client that has its connection, and of one that also brings the body to the disk before, as the server does.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rapidbyte_testkit::postgres::Database;

use super::client::Client;
use super::{Bench, Figures, Spread, p50, pipeline, quantile};
use crate::failure::Failure;

/// Streams whose first run begins cold.
const COLD: usize = 10;
/// Bodies of the run that goes on, and statements of the bare client.
const WARM: usize = 500;

/// Seconds since 1970, of the clock that PostgreSQL has, too.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(f64::NAN, |since| since.as_secs_f64())
}

/// The moments of a row: when its transaction begins, which is when the server gets the first statement, and when the
/// statement with the row is executed.
const MOMENTS: [(&str, &str); 2] = [
    ("begun", "transaction_timestamp()"),
    ("at", "clock_timestamp()"),
];

/// Tables of a client without a server: of one that writes its rows, and of one that brings each to the disk before.
const BARE: [&str; 2] = ["bare", "durable"];

/// Adds columns with [`MOMENTS`].
fn watch(database: &Database<'_>, table: &str) -> Result<(), Failure> {
    for (column, now) in MOMENTS {
        let sql = format!("ALTER TABLE public.{table} ADD {column} timestamptz DEFAULT {now}");
        database.client().batch_execute(&sql)?;
    }
    Ok(())
}

/// The seconds between these moments and the column of the rows with these ids, from the first one.
fn waits(
    database: &Database<'_>,
    table: &str,
    column: &str,
    first: usize,
    begun: &[f64],
) -> Result<Vec<f64>, Failure> {
    let sql = format!(
        "SELECT extract(epoch FROM {column})::float8 FROM public.{table} WHERE id BETWEEN {first} AND 1000000 ORDER BY id"
    );
    let rows = database.client().query(&sql, &[])?;
    if rows.len() != begun.len() {
        let text = format!("{table} has {} rows of {}", rows.len(), begun.len());
        return Err(Failure(text));
    }
    let waited = rows.iter().zip(begun);
    Ok(waited
        .map(|(row, begun)| row.get::<_, f64>(0) - begun)
        .collect())
}

impl Bench<'_> {
    pub(super) fn first(&self, figures: &mut Figures) -> Result<(), Failure> {
        let database = self.server.database();
        let names: Vec<String> = (0..COLD).map(|number| format!("s{number}")).collect();
        let text = pipeline(&database.url(), &names, "", "");
        let running = self.start(&text, &[])?;
        for name in &names {
            running.warm(name)?;
            watch(&database, name)?;
        }
        drop(running);

        // Another server: each stream begins a run.
        let running = self.start(&text, &["--runs", "10"])?;
        let mut client = Client::new(&running)?;
        let mut cold = Vec::new();
        for name in &names {
            let begun = now();
            client.post(name, "?wait=true", b"{\"id\":1}", &[200])?;
            cold.extend(waits(&database, name, "begun", 1, &[begun])?);
        }
        let cold = Spread::of(cold).ok_or_else(|| Failure("no answer".into()))?;

        let mut bare = database.client();
        let mut inserts = Vec::new();
        for table in BARE {
            bare.batch_execute(&format!("CREATE TABLE {table} (id int8, name text)"))?;
            watch(&database, table)?;
            let insert = format!("INSERT INTO {table} (id, name) VALUES ($1, NULL)");
            inserts.push((bare.prepare(&insert)?, Vec::new()));
        }
        let mut file = tempfile::tempfile_in(self.folder)?;
        // The run of the last stream goes on. Its first row has the id 1.
        let name = &names[COLD - 1];
        let mut warm_begun = Vec::new();
        for number in 2..WARM + 2 {
            // In turn, with a pause as between the bodies of one sender.
            std::thread::sleep(Duration::from_millis(2));
            let body = format!("{{\"id\":{number}}}");
            for (at, (insert, begun)) in inserts.iter_mut().enumerate() {
                begun.push(now());
                if BARE[at] == "durable" {
                    file.write_all(body.as_bytes())?;
                    file.sync_data()?;
                }
                bare.execute(&*insert, &[&(number as i64)])?;
                std::thread::sleep(Duration::from_millis(2));
            }
            warm_begun.push(now());
            client.post(name, "?wait=true", body.as_bytes(), &[200])?;
        }
        let warm = waits(&database, name, "begun", 2, &warm_begun)?;
        let warm_row = waits(&database, name, "at", 2, &warm_begun)?;
        let mut of_bare = Vec::new();
        for (table, (_, begun)) in BARE.iter().zip(&inserts) {
            of_bare.push(waits(&database, table, "begun", 2, begun)?);
        }
        let [bare, durable] = of_bare.as_slice() else {
            return Err(Failure("not two tables".into()));
        };
        let mut add = |name, secs: f64, goal| figures.add(name, secs * 1e3, "ms", goal);
        add(
            "request to first statement, bare client: p50",
            p50(bare),
            None,
        );
        add(
            "request to first statement, bare client: p99",
            quantile(bare, 0.99),
            None,
        );
        add(
            "request to first statement, bare client with fsync: p50",
            p50(durable),
            None,
        );
        add(
            "request to first statement, bare client with fsync: p99",
            quantile(durable, 0.99),
            None,
        );
        add(
            "request to first statement, warm: p50",
            p50(&warm),
            Some((1.0, false)),
        );
        let limit = quantile(bare, 0.99) * 3e3;
        add(
            "request to first statement, warm: p99",
            quantile(&warm, 0.99),
            Some((limit, false)),
        );
        add("request to first statement, cold: p50", cold.median, None);
        add("request to the row, warm: p50", p50(&warm_row), None);
        Ok(())
    }
}
