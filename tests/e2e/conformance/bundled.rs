//! What comes with the program, and what others begin with, keeps the contract.

use rapidbyte_testkit::postgres::Server as Postgres;

use super::*;

/// No clause fails, and these alone are skipped.
#[track_caller]
fn passes(folder: &Folder, name: &str, config: &Value, more: &[&str], skipped: &[&str]) {
    let (document, code) = test(folder, name, config, more);
    let told = document["clauses"].as_array().expect("clauses").iter();
    let told: Vec<String> = told
        .filter(|clause| clause["verdict"] != "pass")
        .map(Value::to_string)
        .collect();
    assert_eq!((code, with(&document, "skip")), (0, skipped.iter().map(|s| (*s).into()).collect()), "{told:#?}");
}

const NO_INCREMENT: [&str; 3] = ["checkpoints", "resume", "foreign-cursor"];
