//! Behind a pooler no session is anybody's: the epoch alone decides.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::{Destination, Target, WriteMode, Writer};
use rapidbyte_testkit::postgres::{PgBouncer, PoolMode, shared};
use serde_json::json;

#[test]
fn behind_a_pooler_of_transactions_a_newer_run_goes_on_and_the_older_one_cannot_commit() {
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
    let epoch = older.fence(&target, &run("older")).unwrap().epoch;
    let mut writer = older.open_writer(&target, epoch, None).unwrap();
    writer.write(&batch(&[1, 2])).unwrap();
    let part = writer.flush().unwrap();
    let kept = "SELECT concat_ws(' ', run_id, epoch, seq, coalesce(backend_pid::text, 'none')) FROM _rapidbyte.checkpoint";
    assert_eq!(one(&mut client, kept), "older 2 1 none");
    write_to(&mut open(), &target, &[batch(&[3])]).unwrap();
    let error = older
        .commit(Commit {
            seq: 1,
            ..Commit::whole("t", vec![part])
        })
        .unwrap_err();
    assert_eq!(error.code, "run_superseded", "{error:?}");
    assert_eq!(ids(&mut client, "raw.t"), "1,3");
    assert_eq!(one(&mut client, kept), "r 3 2 none");
}
