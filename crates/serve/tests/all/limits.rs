//! A server that many slow clients hold, one whose disk is full, and one whose destination is down.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rapidbyte_serve::{Log, Server, Settings};
use rapidbyte_testkit::postgres::{self, Database, Options, shared};

use crate::served;
use crate::support::{self, Client, request};

const ROWS: &str = "/v1/ingest/p/rows";
const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";
const KIB: u64 = 1 << 10;

const FOLDER: &str = "RAPIDBYTE_SERVE_LIMITS";
const URL: &str = "RAPIDBYTE_SERVE_LIMITS_URL";

/// Not a test of its own: the server of the next ones.
#[test]
fn server_of_a_folder() {
    let (Some(folder), Ok(url)) = (std::env::var_os(FOLDER), std::env::var(URL)) else {
        return;
    };
    let folder = Path::new(&folder);
    let settings = Settings {
        // What is left is nothing, instead of the room that the server keeps.
        keep_free: 0,
        ..served::settings(folder)
    };
    let server = start(folder, &url, settings);
    println!("listens on {}", server.address());
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

/// A server whose queue moves rows into `public.rows`.
fn start(folder: &Path, url: &str, settings: Settings) -> Server {
    let text = format!(
        "version: 1\npipeline: p\n\
         source: {{ use: ingest, config: {{ schema: {{ id: int64, name: string }} }}, streams: [rows] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: append }}\n"
    );
    served::serve(folder, &text, settings, Log::default())
}

/// A server in a process of its own, which ends with the test.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(folder: &Path, url: &str, before: &[OsString]) -> Self {
        let variables = [(FOLDER, folder.as_os_str()), (URL, url.as_ref())];
        let test = "limits::server_of_a_folder";
        let (child, address) = support::spawn_behind(before, test, &variables);
        Self { child, address }
    }

    fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Bytes of memory that are its own.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a process");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.expect("a size").parse::<u64>().expect("a number") * KIB
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

const IDS: &str = "SELECT id FROM public.rows ORDER BY id";

/// The ids in the table, in order.
fn ids(database: &Database<'_>) -> Vec<i64> {
    let rows = database.client().query(IDS, &[]).expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

fn post_and_wait(client: &mut Client, id: i64) {
    let body = format!("{{\"id\":{id}}}");
    let answer = client.post(&format!("{ROWS}?wait=true"), JSON_LINES, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// `RAPIDBYTE_SLOW_CLIENTS` for more clients than in each test, up to the server's limit of connections.
#[test]
fn slow_clients_take_little_memory_and_do_not_stop_others() {
    let count = std::env::var("RAPIDBYTE_SLOW_CLIENTS").ok();
    let count: u64 = count.map_or(400, |count| count.parse().expect("a number"));
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = Process::start(folder.path(), &database.url(), &[]);
    post_and_wait(&mut server.client(), 1);
    let before = server.memory();
    let whole = request(ROWS, JSON_LINES, &vec![b' '; 100_000]);
    let slow = (1..count).map(|number| {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        // Each tenth has sent so much that its body is in a file.
        let sent = match number % 10 {
            0 => whole.len() - 1,
            _ => whole.len() - 99_999,
        };
        stream.write_all(&whole[..sent]).expect("sent");
        stream
    });
    let slow: Vec<TcpStream> = slow.collect();
    // The server closes a connection that has been idle for some seconds.
    let mut client = server.client();
    for id in 2..=20 {
        post_and_wait(&mut client, id);
    }
    let grown = server.memory().saturating_sub(before);
    let allowed = (32 << 20) + count * 40 * KIB;
    assert!(grown < allowed, "{count} clients take {grown} bytes");
    println!("{count} slow clients: {} KiB more", grown / KIB);
    drop(slow);
    post_and_wait(&mut server.client(), 21);
    assert_eq!(ids(&database), (1..=21).collect::<Vec<_>>());
}

/// A file that takes all that is left of a disk.
struct Ballast(PathBuf);

impl Ballast {
    fn fill(folder: &Path) -> Self {
        let path = folder.join("ballast");
        let mut file = File::create(&path).expect("a file");
        let piece = [0; 4096];
        let full = loop {
            if let Err(error) = file.write_all(&piece) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        Self(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("removed");
    }
}

/// The command before a server that mounts a disk of this size, in MiB, on its folder. No other process sees the disk. `None`:
/// the system does not allow it.
fn with_disk(folder: &Path, mib: u32) -> Option<Vec<OsString>> {
    let mount = format!("mount -t tmpfs -o size={mib}m tmpfs \"${FOLDER}\" && exec \"$0\" \"$@\"");
    let before = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount];
    let before: Vec<OsString> = before.map(OsString::from).into();
    let mut probe = Command::new(&before[0]);
    probe.args(&before[1..]).arg("true");
    let why = match probe.env(FOLDER, folder).output() {
        Ok(probe) if probe.status.success() => return Some(before),
        Ok(probe) => String::from_utf8_lossy(&probe.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("SKIPPED: a full disk needs a mount of its own: {why}");
    None
}

#[test]
fn a_small_disk_is_not_full_of_the_log_of_the_store() {
    const JOBS: i64 = 1000;
    let folder = tempfile::tempdir().expect("a folder");
    let Some(before) = with_disk(folder.path(), 16) else {
        return;
    };
    let database = shared().database();
    let server = Process::start(folder.path(), &database.url(), &before);
    let mut client = server.client();
    let name = "n".repeat(3000);
    for id in 1..=JOBS {
        let body = format!("{{\"id\":{id},\"name\":\"{name}\"}}");
        let answer = client.post(ROWS, JSON_LINES, body.as_bytes());
        assert_eq!(answer.status, 202, "{id}: {}", answer.body);
    }
    post_and_wait(&mut server.client(), JOBS + 1);
    assert_eq!(ids(&database), (1..=JOBS + 1).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_refuses_bodies_and_keeps_those_that_it_took() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(before) = with_disk(folder.path(), 48) else {
        return;
    };
    let database = shared().database();
    let server = Process::start(folder.path(), &database.url(), &before);
    let disk = PathBuf::from(format!("/proc/{}/root", server.child.id()));
    let disk = disk.join(folder.path().strip_prefix("/").expect("an absolute path"));
    let mut client = server.client();
    post_and_wait(&mut client, 1);
    let send = |id: i64| {
        let name = match id % 3 {
            0 => "n".repeat(100_000),
            _ => "n".repeat(2000),
        };
        let headers = format!("{JSON_LINES}Idempotency-Key: {id}\r\n");
        let body = format!("{{\"id\":{id},\"name\":\"{name}\"}}");
        // A refusal may close the connection, with or without an answer.
        let stream = TcpStream::connect(server.address).expect("a connection");
        let mut client = Client(BufReader::new(stream));
        let request = request(ROWS, &headers, body.as_bytes());
        let sent = client.0.get_mut().write_all(&request);
        match sent.ok().and_then(|()| client.answer()) {
            Some(answer) if answer.status == 202 => true,
            Some(answer) => {
                let code = answer.body["error"]["code"].as_str();
                let is_of_disk =
                    matches!(code, Some("spool_failed" | "store_failed" | "disk_full"));
                assert!(is_of_disk, "{}: {}", answer.status, answer.body);
                assert!((500..600).contains(&answer.status) || answer.status == 429);
                false
            }
            None => false,
        }
    };
    let mut next = 2..;
    let mut refused = Vec::new();
    for _ in 0..3 {
        for id in next.by_ref().take(30) {
            assert!(send(id), "{id}");
        }
        let _ballast = Ballast::fill(&disk);
        // The first ones may find room in what the store has already.
        let ids = next.by_ref().take(60);
        refused.extend(ids.filter(|id| !send(*id)));
    }
    assert!(refused.len() > 60, "{refused:?}");
    for id in refused {
        assert!(send(id), "{id}");
    }
    let last = next.next().expect("an id");
    post_and_wait(&mut server.client(), last);
    assert_eq!(ids(&database), (1..=last).collect::<Vec<_>>());
}

#[test]
fn a_destination_that_is_down_fills_the_queue_and_gets_its_rows_when_it_is_back() {
    const JOBS: u64 = 50;
    let mut postgres = postgres::Server::start(&Options::default());
    let postgres = postgres.as_mut().expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(&folder.path().join("server"));
    settings.queue.jobs = JOBS;
    let server = start(folder.path(), &postgres.url("postgres"), settings);
    let mut client = Client::new(server.address());
    post_and_wait(&mut client, 0);
    let post = |client: &mut Client, query: &str, id: i64| {
        let body = format!("{{\"id\":{id}}}");
        client.post(&format!("{ROWS}{query}"), JSON_LINES, body.as_bytes())
    };
    let mut last = 0;
    for _ in 0..2 {
        postgres.kill();
        let full = loop {
            let answer = post(&mut client, "", last + 1);
            if answer.status != 202 {
                break answer;
            }
            last += 1;
        };
        let code = &full.body["error"]["code"];
        assert_eq!((full.status, code), (429, &"queue_full".into()));
        assert!(full.head.to_lowercase().contains("retry-after: "));
        postgres.run_again().expect("a server");
        last += 1;
        // Nobody does anything but send again.
        let moved = loop {
            let answer = post(&mut client, "?wait=true", last);
            if answer.status != 429 {
                break answer;
            }
        };
        assert_eq!(moved.status, 200, "{}", moved.body);
    }
    assert_eq!(last, 2 * (i64::try_from(JOBS).expect("jobs") + 1));
    let rows = postgres.client("postgres").query(IDS, &[]).expect("rows");
    let ids = rows.iter().map(|row| row.get::<_, i64>(0));
    assert_eq!(ids.collect::<Vec<_>>(), (0..=last).collect::<Vec<_>>());
    server.stop();
}

#[test]
fn a_request_that_does_not_say_how_long_its_body_is_has_none() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = Process::start(folder.path(), &database.url(), &[]);
    for version in ["1.0", "1.1"] {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        let request = format!(
            "POST {ROWS} HTTP/{version}\r\nHost: 127.0.0.1\r\n{JSON_LINES}Connection: close\r\n\r\n{{\"id\":1}}\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(
            answer.contains(" 411 ") && answer.contains("length_required"),
            "{answer}"
        );
    }
    // A body of no bytes says so.
    let none = server.client().post(ROWS, JSON_LINES, b"");
    assert_eq!(none.status, 202, "{}", none.body);
}
