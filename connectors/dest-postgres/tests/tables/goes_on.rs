//! A load of many transactions: what it asks before each of them, and what it notices.

use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Client, Database};
use serde_json::json;

use crate::common::*;
use crate::round_trips;

/// An append whose cursor moves with each commit.
struct Stream {
    load: Loading,
    seq: u64,
}

impl Stream {
    fn begin(to: &mut Session, run_id: &str) -> Self {
        let target = Target {
            is_incremental: true,
            ..target("t", &batch(&[]).schema(), WriteMode::Append)
        };
        to.plan(&target).unwrap();
        let mut load = fence(to, &target, run(run_id)).unwrap();
        let let_in = load.progress().clone();
        load.open_writer(let_in.cursor.as_deref()).unwrap();
        Self {
            load,
            seq: let_in.seq,
        }
    }

    fn add(&mut self, id: i64) -> Result<()> {
        self.load.write(&batch(&[id]))?;
        let part = self.load.flush()?;
        let cursor = id.to_string();
        self.load.commit(Commit {
            stream: "t",
            parts: vec![part],
            seq: self.seq,
            cursor: Some(&cursor),
            complete: false,
        })?;
        self.seq += 1;
        Ok(())
    }
}

/// A load that has committed some transactions.
fn going_on(database: &Database<'_>, table: &str) -> (Client, Session, Stream) {
    let mut client = database.client();
    execute(&mut client, &format!("CREATE SCHEMA raw; {table}"));
    let mut to = open(database);
    let mut stream = Stream::begin(&mut to, "r");
    (1..=3).for_each(|id| stream.add(id).unwrap());
    (client, to, stream)
}

const TABLE: &str = "CREATE TABLE raw.t (id int8, t text)";

#[test]
fn a_transaction_of_few_rows_takes_three_requests() {
    let server = round_trips::server();
    let of_type = "CREATE TYPE raw.e AS ENUM ('a'); \
                   CREATE TABLE raw.t (id int8, t text, more raw.e, at timestamptz DEFAULT now()); \
                   CREATE VIEW raw.v AS TABLE raw.t";
    for table in [TABLE, of_type] {
        let database = server.database();
        let (mut client, _to, mut stream) = going_on(&database, table);
        let before = round_trips::log(&mut client).len();
        for id in 4..=6 {
            stream.add(id).unwrap();
        }
        let said = round_trips::log(&mut client).split_off(before);
        let mut sent = round_trips::requests(&said, database.name());
        sent.retain(|request| !request.contains("data_directory"));
        assert_eq!(sent.len(), 9, "{said}");
        // They are short: the server has planned them before.
        let asked = said
            .split("LOG:  statement: ")
            .filter(|one| one.contains("json_build_object"));
        assert_eq!(asked.count(), 0, "{said}");
        assert_eq!(ids(&mut client, "raw.t"), "1,2,3,4,5,6");
    }
}

#[test]
fn changes_of_the_table_between_two_transactions_are_noticed() {
    for (change, is_kept) in [
        // There the bytes of a bigint mean another value.
        (
            "ALTER TABLE raw.t ALTER id TYPE float8",
            Err("column_refused"),
        ),
        ("ALTER TABLE raw.t ALTER id TYPE numeric", Ok("4")),
        (
            "ALTER TABLE raw.t RENAME id TO other; ALTER TABLE raw.t ADD id int4",
            Err("column_refused"),
        ),
        ("ALTER TABLE raw.t DROP id", Err("target_changed")),
        ("ALTER TABLE raw.t ADD more int NOT NULL DEFAULT 7", Ok("4")),
        // COPY would pass it by.
        (
            "CREATE TABLE raw.log (id int8); CREATE RULE r AS ON INSERT TO raw.t DO ALSO INSERT INTO raw.log VALUES (NEW.id)",
            Ok("4"),
        ),
        (
            "DROP TABLE raw.t; CREATE TABLE raw.t (id int8, t text)",
            Err("target_lost_rows"),
        ),
        ("TRUNCATE raw.t", Err("target_lost_rows")),
    ] {
        let database = database();
        let (mut client, _to, mut stream) = going_on(&database, TABLE);
        execute(&mut client, change);
        let added = stream.add(4).map_err(|error| error.code);
        assert_eq!(added, is_kept.map(drop).map_err(str::to_owned), "{change}");
        let last = "SELECT max(id) FROM raw.t";
        if let Ok(id) = is_kept {
            assert_eq!(one(&mut client, last), id, "{change}");
        }
        if change.contains("RULE") {
            assert_eq!(ids(&mut client, "raw.log"), "4");
        }
    }
}

#[test]
fn a_second_rule_is_noticed_too() {
    let database = database();
    let rules =
        "CREATE TABLE raw.log (id int8); CREATE RULE u AS ON UPDATE TO raw.t DO ALSO NOTHING";
    let (mut client, _to, mut stream) = going_on(&database, &format!("{TABLE}; {rules}"));
    execute(
        &mut client,
        "CREATE RULE r AS ON INSERT TO raw.t DO ALSO INSERT INTO raw.log VALUES (NEW.id)",
    );
    stream.add(4).unwrap();
    assert_eq!(ids(&mut client, "raw.log"), "4");
}

#[test]
fn policies_and_rights_that_change_are_noticed() {
    for (change, code) in [
        (
            "ALTER TABLE raw.t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON raw.t FOR ALL TO PUBLIC USING (true)",
            None,
        ),
        // Whether the table has lost its rows is not known then.
        ("REVOKE SELECT ON raw.t FROM $ROLE", None),
        ("REVOKE INSERT ON raw.t FROM $ROLE", Some("no_privilege")),
        (
            "REVOKE INSERT ON raw.t FROM $ROLE; GRANT INSERT (id) ON raw.t TO $ROLE",
            Some("no_privilege"),
        ),
    ] {
        let database = database();
        let role = format!("writer_{}", database.name());
        let mut client = database.client();
        execute(
            &mut client,
            &format!(
                "CREATE ROLE {role} LOGIN PASSWORD 'w'; CREATE SCHEMA raw; {TABLE}; GRANT USAGE ON SCHEMA raw TO {role}; \
                 GRANT SELECT, INSERT ON raw.t TO {role}; GRANT CREATE ON DATABASE {} TO {role}",
                database.name()
            ),
        );
        let mut to = open_with(&database.url_of(&role, "w"), json!({"schema": "raw"}));
        let mut stream = Stream::begin(&mut to, "r");
        (1..=3).for_each(|id| stream.add(id).unwrap());
        execute(&mut client, &change.replace("$ROLE", &role));
        let added = stream.add(4).map_err(|error| error.code).err();
        assert_eq!(added.as_deref(), code, "{change}");
        drop((stream, to));
        execute(
            &mut client,
            &format!("DROP OWNED BY {role}; DROP ROLE {role}"),
        );
    }
}
