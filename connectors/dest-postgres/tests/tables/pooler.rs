//! Behind a pooler no session is anybody's: the epoch alone decides.

use crate::common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::{Target, WriteMode};
use rapidbyte_testkit::postgres::{Client, NoTls, PgBouncer, PoolMode, SimpleQueryMessage, shared};
use serde_json::json;

#[test]
fn behind_a_transaction_pooler_a_newer_run_continues_and_the_older_cannot_commit() {
    let Some(pooler) = PgBouncer::start(shared(), PoolMode::Transaction).unwrap() else {
        return;
    };
    let database = database();
    let mut client = database.client();
    let url = pooler.url(database.name());
    let open = || open_with(&url, json!({"schema": "raw"}));
    let target = Target {
        primary_key: vec!["id".into()],
        ..target("t", &batch(&[1]).schema(), WriteMode::Upsert)
    };
    write_to(&mut open(), &target, &[batch(&[1])]).unwrap();
    let mut older = open();
    let mut load = fence(&mut older, &target, run("older")).unwrap();
    load.open_writer(None).unwrap();
    load.write(&batch(&[1, 2])).unwrap();
    let part = load.flush().unwrap();
    let kept = "SELECT concat_ws(' ', run_id, epoch, seq, coalesce(backend_pid::text, 'none')) FROM _rapidbyte.checkpoint";
    assert_eq!(one(&mut client, kept), "older 2 1 none");
    write_to(&mut open(), &target, &[batch(&[3])]).unwrap();
    let error = load
        .commit(Commit {
            seq: 1,
            ..Commit::whole("t", vec![part])
        })
        .unwrap_err();
    assert_eq!(error.code, "run_superseded", "{error:?}");
    assert_eq!(ids(&mut client, "raw.t"), "1,3");
    assert_eq!(one(&mut client, kept), "r 3 2 none");
}

#[test]
fn behind_a_pooler_of_transactions_no_limit_of_a_session_is_changed() {
    let Some(pooler) = PgBouncer::start(shared(), PoolMode::Transaction).unwrap() else {
        return;
    };
    let database = database();
    let limit = "idle_session_timeout";
    let mut client = database.client();
    if one(
        &mut client,
        &format!("SELECT current_setting('{limit}', true)"),
    ) == "NULL"
    {
        // Older than PostgreSQL 14.
        return;
    }
    let name = database.name();
    client
        .batch_execute(&format!("ALTER DATABASE {name} SET {limit} = '1h'"))
        .unwrap();
    let url = pooler.url(name);
    append(
        &mut open_with(&url, json!({"schema": "raw"})),
        "t",
        &batch(&[1]),
    )
    .unwrap();
    // The pooler gives the next client the session that the run used.
    let mut next = Client::connect(&url, NoTls).unwrap();
    let answers = next.simple_query(&format!("SHOW {limit}")).unwrap();
    let value = answers.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(value, Some("1h"));
}
