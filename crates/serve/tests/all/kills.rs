//! Servers in processes of their own, which are killed.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::{RwLock, mpsc};

use rapidbyte_testkit::postgres::shared;

use crate::runs::{JSON_LINES, ROWS, ROWS_AND_WAIT, done, ids, text};
use crate::served::{self, told_of};
use crate::support::{self, Client, request};

const FOLDER: &str = "RAPIDBYTE_SERVE_KILLS";
const URL: &str = "RAPIDBYTE_SERVE_URL";

/// Not a test of its own: the server of the next ones, whose log is a file.
#[test]
fn server_of_a_folder() {
    let (Some(folder), Ok(url)) = (std::env::var_os(FOLDER), std::env::var(URL)) else {
        return;
    };
    let folder = Path::new(&folder);
    let log = served::log_to(&folder.join("log"));
    let server = served::serve(folder, &text(&url), served::settings(folder), log);
    println!("listens on {}", server.address());
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

fn spawn(folder: &Path, url: &str, faults: &str) -> (Child, SocketAddr) {
    let variables = [
        (FOLDER, folder.as_os_str()),
        (URL, url.as_ref()),
        ("RAPIDBYTE_FAULTS", faults.as_ref()),
    ];
    support::spawn("kills::server_of_a_folder", &variables)
}

#[test]
fn a_commit_that_no_run_has_heard_of_is_told_once_and_its_job_is_done() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, address) = spawn(folder.path(), &database.url(), "engine.committed=error@2");
    let mut client = Client::new(address);
    for id in 1..=4 {
        done(&mut client, &format!("{{\"id\":{id}}}"));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(ids(&database), [1, 2, 3, 4]);
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    let expected = ["fault_injected", "works again"];
    assert_eq!(told_of(&log, "orders.orders"), expected, "{log}");
}

/// Otherwise another program that opens the store, such as a backup, takes itself for the only one, and removes the log that
/// the server goes on to write. Closing any file of the store would take the locks from a process.
#[test]
#[cfg(target_os = "linux")]
fn a_server_has_its_lock_of_the_store() {
    use std::os::unix::fs::MetadataExt;

    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, address) = spawn(folder.path(), &database.url(), "");
    done(&mut Client::new(address), "{\"id\":1}");
    for store in ["jobs.db", "runs.db"] {
        let file = std::fs::metadata(folder.path().join("server").join(store));
        let inode = file.expect("a store").ino();
        let locks = std::fs::read_to_string("/proc/locks").expect("locks");
        let (process, file) = (format!(" {} ", child.id()), format!(":{inode} "));
        let is_locked = |line: &str| line.contains(&process) && line.contains(&file);
        assert!(locks.lines().any(is_locked), "{store} ({inode}): {locks}");
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
}

/// Kills between an answer and a commit, and between a commit and its record.
#[test]
fn kills_lose_no_row_and_double_none() {
    const CLIENTS: i64 = 4;
    const JOBS_OF_KILL: usize = 24;
    let kills = support::kills();
    let jobs = (kills as i64 + 1) * JOBS_OF_KILL as i64 / CLIENTS;
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let url = database.url();
    let running = RwLock::new(spawn(folder.path(), &url, ""));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let running = &running;
        let client = |number: i64, tell: mpsc::Sender<()>| {
            for id in (1..=jobs).map(|job| number * jobs + job) {
                // Each fifth job waits for its rows: kills then meet runs at work.
                let path = if id % 5 == 0 { ROWS_AND_WAIT } else { ROWS };
                let headers = format!("{JSON_LINES}Idempotency-Key: {id}\r\n");
                let request = request(path, &headers, format!("{{\"id\":{id}}}").as_bytes());
                loop {
                    let address = running.read().expect("a server").1;
                    // After a kill the next read of the address waits for the next server.
                    let Ok(stream) = TcpStream::connect(address) else {
                        continue;
                    };
                    let mut client = Client(BufReader::new(stream));
                    tell.send(()).ok();
                    if client.0.get_mut().write_all(&request).is_ok()
                        && let Some(answer) = client.answer()
                    {
                        assert!(matches!(answer.status, 200 | 202), "{}", answer.body);
                        break;
                    }
                }
            }
        };
        for number in 0..CLIENTS {
            let tell = tell.clone();
            scope.spawn(move || client(number, tell));
        }
        for _ in 0..kills {
            let requests = told.iter().take(JOBS_OF_KILL);
            requests.for_each(drop);
            let mut running = running.write().expect("a server");
            running.0.kill().expect("killed");
            running.0.wait().expect("ended");
            *running = spawn(folder.path(), &url, "");
        }
    });
    let (mut child, address) = running.into_inner().expect("a server");
    let body = format!("{{\"id\":{}}}", CLIENTS * jobs + 1);
    let last = Client::new(address).post(ROWS_AND_WAIT, JSON_LINES, body.as_bytes());
    assert_eq!(
        (last.status, &last.body["job"]["state"]),
        (200, &"done".into()),
        "{}",
        last.body
    );
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(ids(&database), (1..=CLIENTS * jobs + 1).collect::<Vec<_>>());
}
