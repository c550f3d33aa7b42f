//! A real server comes, serves and goes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use postgres::config::SslMode;
use rapidbyte_testkit::postgres::{Auth, NoTls, Options, Server, shared};

fn over_tcp(url: &str, password: &str) -> Result<postgres::Client, postgres::Error> {
    let mut config: postgres::Config = url.parse().expect("our own URL");
    config.password(password).ssl_mode(SslMode::Disable);
    config.connect(NoTls)
}

#[test]
fn each_test_has_a_database_that_goes_with_it() {
    let server = shared();
    let (a, b) = (server.database(), server.database());
    assert_ne!(a.name(), b.name());
    a.client().batch_execute("CREATE TABLE t (id int)").unwrap();
    assert!(b.client().batch_execute("SELECT * FROM t").is_err());
    let name = a.name().to_owned();
    let held = a.client();
    drop(a);
    drop(held);
    let left = b
        .client()
        .query("SELECT 1 FROM pg_database WHERE datname = $1", &[&name])
        .unwrap();
    assert!(left.is_empty());
}

#[test]
fn databases_are_utf8_and_compare_bytes() {
    let database = shared().database();
    let row = database
        .client()
        .query_one(
            "SELECT getdatabaseencoding()::text, 'Z' < 'a' COLLATE \"default\"",
            &[],
        )
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "UTF8");
    assert!(row.get::<_, bool>(1));
}

#[test]
fn every_method_lets_in_the_right_password_and_no_other() {
    for auth in [Auth::Password, Auth::Md5, Auth::ScramSha256] {
        let server = Server::start(&Options {
            auth,
            password: "right".into(),
            ..Options::default()
        })
        .unwrap();
        let url = server.url("postgres");
        over_tcp(&url, "right").unwrap();
        assert!(over_tcp(&url, "wrong").is_err(), "{auth:?}");
        let kept: String = server
            .client("postgres")
            .query_one(
                "SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'",
                &[],
            )
            .unwrap()
            .get(0);
        assert_eq!(kept.starts_with("md5"), auth == Auth::Md5, "{kept}");
    }
}

#[test]
fn lines_of_both_files_are_obeyed_and_data_outlives_a_crash() {
    let mut server = Server::start(&Options {
        auth: Auth::Trust,
        conf: vec!["wal_level = logical".into()],
        hba: vec!["host all outcast all reject".into()],
        ..Options::default()
    })
    .unwrap();
    let mut client = server.client("postgres");
    client
        .batch_execute("CREATE ROLE outcast LOGIN; CREATE TABLE t AS SELECT 1 AS id")
        .unwrap();
    let row = client.query_one("SHOW wal_level", &[]).unwrap();
    assert_eq!(row.get::<_, String>(0), "logical");
    let outcast = server.url("postgres").replace("//postgres", "//outcast");
    assert!(over_tcp(&outcast, "any").is_err());
    over_tcp(&server.url("postgres"), "any").unwrap();

    server.stop();
    assert!(client.batch_execute("SELECT 1").is_err());
    server.run_again().unwrap();
    let row = server.client("postgres").query_one("SELECT id FROM t", &[]);
    assert_eq!(row.unwrap().get::<_, i32>(0), 1);
}

#[test]
fn a_bad_setting_is_reported_with_the_servers_words() {
    let failure = Server::start(&Options {
        conf: vec!["no_such_setting = 1".into()],
        ..Options::default()
    })
    .unwrap_err();
    assert!(failure.to_string().contains("no_such_setting"), "{failure}");
}

/// Not a test: the process that the next one kills. It holds a server and waits to be ended.
#[test]
#[ignore = "started by the_server_goes_when_the_process_is_killed"]
fn holds_a_server() {
    if std::env::var_os("TESTKIT_HOLD").is_none() {
        return;
    }
    let server = Server::start(&Options::default()).unwrap();
    let folder = server
        .client("postgres")
        .query_one("SHOW unix_socket_directories", &[])
        .unwrap()
        .get::<_, String>(0);
    println!("\nserver {} {folder}", server.pid().unwrap());
    std::io::Read::read(&mut std::io::stdin(), &mut [0]).unwrap();
}

#[test]
fn the_server_goes_when_the_process_is_killed() {
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "holds_a_server", "--nocapture"])
        .env("TESTKIT_HOLD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(holder.stdout.take().unwrap());
    let line = std::io::BufRead::lines(output)
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("server ").map(str::to_owned))
        .unwrap();
    let (pid, folder) = line.split_once(' ').unwrap();
    let alive = || {
        let mut probe = Command::new("kill");
        let probe = probe.args(["-0", pid]).stderr(Stdio::null());
        probe.status().unwrap().success()
    };
    assert!(alive());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let begun = Instant::now();
    while alive() || Path::new(folder).exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}
