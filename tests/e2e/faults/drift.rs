//! Killed at moments that nobody chose, while the columns of the source change.

use std::time::Duration;

use rapidbyte_testkit::numbers::Numbers;
use rapidbyte_testkit::postgres::{Client, shared};

use super::number;
use crate::postgres::content;
use crate::support::Folder;

/// Rounds of a run of all tests; `cargo xtask faults --drift N` sets another number.
const ROUNDS: u64 = 3;
const KILLS: usize = 3;
const MOST_MS: usize = 120;

const TABLE: &str = "CREATE TYPE mood AS ENUM ('l0'); \
    CREATE TABLE t (id bigint PRIMARY KEY, v varchar(8) NOT NULL, m mood); \
    INSERT INTO t SELECT i, 'v' || i, 'l0' FROM generate_series(1, 500) i";

/// The columns that come and go, by name.
fn movable(client: &mut Client) -> Vec<String> {
    let sql = "SELECT attname::text FROM pg_attribute WHERE attrelid = 'public.t'::regclass AND attnum > 3 \
        AND NOT attisdropped ORDER BY attnum";
    let rows = client.query(sql, &[]).expect("columns");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Changes the columns of the source once, with values in them.
fn change(client: &mut Client, numbers: &mut Numbers, count: u64) {
    let columns = movable(client);
    let any = (!columns.is_empty()).then(|| &columns[numbers.below(columns.len())]);
    let sql = match (numbers.below(6), any) {
        (0, Some(column)) => format!("ALTER TABLE t DROP COLUMN {column}"),
        (1, Some(column)) => format!("ALTER TABLE t RENAME COLUMN {column} TO r{count}"),
        // Another column has the name of the dropped column.
        (2, Some(column)) => format!(
            "ALTER TABLE t DROP COLUMN {column}; ALTER TABLE t ADD COLUMN {column} text; UPDATE t SET {column} = id"
        ),
        (3, _) => format!("ALTER TABLE t ALTER COLUMN v TYPE varchar({})", 8 + count),
        (4, _) => format!("ALTER TYPE mood ADD VALUE 'l{count}'"),
        _ => format!(
            "ALTER TABLE t ADD COLUMN c{count} text NOT NULL DEFAULT 'd'; UPDATE t SET c{count} = 'c' || id + {count}"
        ),
    };
    client.batch_execute(&sql).expect(&sql);
    let rows = format!(
        "UPDATE t SET v = '{count}', m = (enum_range(NULL::mood))[1 + id % cardinality(enum_range(NULL::mood))] \
         WHERE id % 7 = {}",
        count % 7
    );
    client.batch_execute(&rows).expect("rows");
}

#[test]
fn a_target_follows_columns_that_change_under_random_kills() {
    let rounds = number("RAPIDBYTE_FAULTS_DRIFT").unwrap_or(ROUNDS);
    let mut numbers = Numbers::new(number("RAPIDBYTE_FAULTS_SEED").unwrap_or(1));
    let (mut killed, mut count) = (0, 0);
    for mode in ["replace", "upsert"] {
        let (source, target) = (shared().database(), shared().database());
        let mut client = source.client();
        client.batch_execute(TABLE).expect("a table");
        let folder = Folder::new();
        let pipeline = format!(
            "version: 1\npipeline: drift\nschema_changes: {{ dropped_column: drop }}\n\
             source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }}, write_mode: {mode} }}\n",
            source.url(),
            target.url()
        );
        folder.write("p.yaml", &pipeline);
        let goes_well = || {
            let ended = folder.rapidbyte(&["run", "p.yaml"]);
            assert_eq!(ended.code, Some(0), "{mode} {ended:?}");
        };
        goes_well();
        for round in 0..rounds {
            for _ in 0..KILLS {
                count += 1;
                change(&mut client, &mut numbers, count);
                let mut child = folder.command(&["run", "p.yaml", "--quiet"]);
                let mut child = child.spawn().expect("the program starts");
                // The moment is the fault: no matter what the program does by then.
                std::thread::sleep(Duration::from_millis(numbers.below(MOST_MS) as u64));
                child.kill().expect("killed");
                killed += usize::from(!child.wait().expect("it ends").success());
                if numbers.below(2) == 0 {
                    goes_well();
                }
            }
            goes_well();
            let names = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attname) FROM pg_attribute \
                 WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped";
            let columns: String = client
                .query_one(names, &[&"public.t"])
                .expect("names")
                .get(0);
            let mut reader = target.client();
            let there: String = reader.query_one(names, &[&"raw.t"]).expect("names").get(0);
            assert_eq!(there, columns, "{mode}, round {round}");
            let expected = content(&mut client, &format!("(SELECT {columns} FROM t)"));
            let found = content(&mut reader, &format!("(SELECT {columns} FROM raw.t)"));
            assert_eq!(found, expected, "{mode}, round {round}");
        }
    }
    println!("faults: {rounds} rounds of changing columns, {killed} kills");
}
