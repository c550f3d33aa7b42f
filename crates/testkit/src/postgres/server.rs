//! One server process in a temporary folder.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ::postgres::{Client, Config, NoTls};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::user::User;
use super::watchdog::Watchdog;
use super::{Database, Failure, Options, programs_folder, system};

/// Another process may take a free port before the server does.
const MAX_PORTS: usize = 5;
/// How long a server may take to accept, on a machine that is busy with other tests.
pub(super) const STARTUP: Duration = Duration::from_secs(60);
/// Of a log, this much is shown.
const LOG_SHOWN_BYTES: u64 = 4 << 10;
/// For every server. Memory as PostgreSQL has it; no vacuum while something is measured or asserted.
const CONF: &str = "max_connections = 100\nshared_buffers = 128MB\nmax_wal_size = 4GB\n\
    autovacuum = off\nlisten_addresses = '127.0.0.1'\nlog_min_messages = warning\n\
    lc_messages = 'C'\n";
/// Makes tests fast; none of them survives a crash of the machine.
const HASTY: &str = "fsync = off\nfull_page_writes = off\nshared_buffers = 64MB\n\
    max_wal_size = 256MB\n";
/// A file system in memory, where a database is made and dropped in a third of the CPU time: each has 300 files.
const MEMORY: &str = "/dev/shm";
/// The servers of two test programs hold less than this.
const ROOM_BYTES: u64 = 4 << 30;

/// A running server; dropping it stops it at once and removes everything.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    user: Option<User>,
    password: String,
    port: u16,
    running: Option<Running>,
    // The last field: removed when nothing uses it any more.
    folder: TempDir,
}

/// The use of a base backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// It follows its original until it is promoted.
    Standby,
    /// It ends its recovery at the end of the backup, in a new timeline.
    Restored,
    /// It recovers to the end of the backup as after a crash, and stays in the timeline, like a snapshot of a disk.
    Revived,
}

#[derive(Debug)]
struct Running {
    process: Child,
    // Called off only after the process was stopped, in `Server::stop`.
    watchdog: Watchdog,
}

impl Server {
    /// Makes a cluster and starts a server on it, which accepts connections on return.
    pub fn start(options: &Options) -> Result<Self, Failure> {
        let programs = match &options.programs {
            Some(programs) => programs.clone(),
            None => programs_folder()?,
        };
        let user = User::to_step_down_to().map_err(system("looking for an account"))?;
        let folder = folder(options.durable).map_err(system("making a temporary folder"))?;
        let mut server = Self {
            programs,
            user,
            password: options.password.clone(),
            port: 0,
            running: None,
            folder,
        };
        server.own(server.folder.path())?;
        server.initialize(options)?;
        server.configure(options)?;
        server.run()?;
        Ok(server)
    }

    /// A fresh database, dropped at the end.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn database(&self) -> Database<'_> {
        Database::create(self)
    }

    /// `postgres://postgres:…@127.0.0.1:…/database`.
    pub fn url(&self, database: &str) -> String {
        self.url_of("postgres", &self.password, database)
    }

    /// The same for another role.
    pub fn url_of(&self, role: &str, password: &str, database: &str) -> String {
        url(role, password, self.port, database)
    }

    /// The same as [`Server::url`] through a proxy in front of it.
    pub fn url_through(&self, proxy: &crate::proxy::Proxy, database: &str) -> String {
        url("postgres", &self.password, proxy.port(), database)
    }

    /// The same as [`Server::url`] at the port of a program in front of it.
    pub fn url_at(&self, port: u16, database: &str) -> String {
        url("postgres", &self.password, port, database)
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The superuser's.
    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// The process that tests may stop, continue or kill; nothing when it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// A client of the superuser, over the socket where everybody is trusted.
    ///
    /// # Panics
    /// When the server does not let it in.
    pub fn client(&self, database: &str) -> Client {
        match self.try_client(database) {
            Ok(client) => client,
            Err(error) => panic!("no connection to {database}: {error:?}; {}", self.log()),
        }
    }

    pub(super) fn try_client(&self, database: &str) -> Result<Client, ::postgres::Error> {
        Config::new()
            .host_path(self.folder.path())
            .port(self.port)
            .user("postgres")
            .dbname(database)
            .connect_timeout(Duration::from_secs(10))
            .connect(NoTls)
    }

    /// Ends the server as a crash would: sessions are cut, nothing is written. The data stays.
    pub fn stop(&mut self) {
        let Some(Running {
            mut process,
            watchdog,
        }) = self.running.take()
        else {
            return;
        };
        if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
            // A stopped process takes no other signal. Failing, it has ended.
            let _ = kill_process(pid, Signal::QUIT);
            let _ = kill_process(pid, Signal::CONT);
        }
        let _ = process.wait();
        drop(watchdog);
    }

    /// Ends the server's first process and all sessions by SIGKILL, as a system that is out of memory
    /// does. The data stays; [`Server::run_again`] repairs it. Gives how many processes that were.
    ///
    /// # Panics
    /// When they have not ended after a minute.
    pub fn kill(&mut self) -> usize {
        let Some(Running {
            mut process,
            watchdog,
        }) = self.running.take()
        else {
            return 0;
        };
        let mut pids = children(process.id());
        pids.push(process.id());
        // The first process last: it must not tidy up behind a session that was killed. Stopped, it
        // starts no other.
        send(process.id(), Signal::STOP);
        for pid in &pids {
            send(*pid, Signal::KILL);
        }
        let _ = process.wait();
        drop(watchdog);
        let begun = Instant::now();
        // Their shared memory must be free before the server starts again.
        while pids.iter().any(|pid| parent(*pid).is_some()) {
            assert!(begun.elapsed() < STARTUP, "killed processes do not end");
            thread::sleep(Duration::from_millis(5));
        }
        pids.len()
    }

    /// Ends the server as its administrator would, moves its counter of transactions so that the
    /// next one has this id in this round of 32 bits, and starts it again. `id` must begin a page
    /// of 32768; all rows that are to be seen afterwards must be frozen before. False, and nothing
    /// is done, where the programs have no `pg_resetwal`.
    ///
    /// # Panics
    /// When a program fails.
    pub fn move_transaction_id(&mut self, round: u32, id: u32) -> bool {
        if !self.programs.join("pg_resetwal").is_file() {
            return false;
        }
        if let Some(Running {
            mut process,
            watchdog,
        }) = self.running.take()
        {
            if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
                // Failing, it has ended.
                let _ = kill_process(pid, Signal::INT);
            }
            let _ = process.wait();
            drop(watchdog);
        }
        let output = self
            .command("pg_resetwal")
            .arg("-D")
            .arg(self.data())
            .args(["-e", &round.to_string(), "-x", &id.to_string()])
            .output();
        match output {
            Ok(output) if output.status.success() => {}
            other => panic!("pg_resetwal: {other:?}"),
        }
        if let Err(failure) = self.run_again() {
            panic!("{failure}");
        }
        true
    }

    /// Starts a stopped server again on the same data and port.
    pub fn run_again(&mut self) -> Result<(), Failure> {
        self.stop();
        self.launch(self.port)
    }

    /// Another server, on a base backup of this one that is taken now.
    ///
    /// # Panics
    /// When a program fails.
    pub fn copy(&self, from: Copied) -> Self {
        let folder = folder(false).unwrap_or_else(|error| panic!("a temporary folder: {error}"));
        let mut copy = Self {
            programs: self.programs.clone(),
            user: self.user,
            password: self.password.clone(),
            port: 0,
            running: None,
            folder,
        };
        let made = copy.own(copy.folder.path()).and_then(|()| {
            let mut program = copy.command("pg_basebackup");
            program
                .arg("--pgdata")
                .arg(copy.data())
                .args([
                    "--wal-method",
                    "stream",
                    "--checkpoint",
                    "fast",
                    "--no-sync",
                ])
                .args(["--dbname", &self.url("postgres")]);
            if from == Copied::Standby {
                program.arg("--write-recovery-conf");
            }
            let output = program.output().map_err(system("starting pg_basebackup"))?;
            if !output.status.success() {
                return Err(Failure::Ended {
                    program: "pg_basebackup",
                    status: output.status,
                    log: String::from_utf8_lossy(&output.stderr).into_owned(),
                });
            }
            // The last line of a setting counts.
            let conf = copy.data().join("postgresql.auto.conf");
            let mut lines = fs::read_to_string(&conf).map_err(system("reading the settings"))?;
            let folder = copy.folder.path().display();
            lines += &format!("unix_socket_directories = '{folder}'\n");
            if from == Copied::Restored {
                lines += "restore_command = 'false'\n";
                copy.write(&copy.data().join("recovery.signal"), "")?;
            }
            copy.write(&conf, &lines)?;
            copy.run()
        });
        if let Err(failure) = made {
            panic!("{failure}");
        }
        copy
    }

    /// The last of what the server wrote to its log.
    pub fn log(&self) -> String {
        tail(&self.folder.path().join("log"))
    }

    fn initialize(&self, options: &Options) -> Result<(), Failure> {
        let password = self.folder.path().join("password");
        self.write(&password, &options.password)?;
        let mut initdb = self.command("initdb");
        initdb
            .arg("--pgdata")
            .arg(self.data())
            .arg("--pwfile")
            .arg(&password)
            .args(["--username", "postgres", "--encoding", "UTF8", "--no-sync"])
            // macOS knows no C.UTF-8.
            .args([
                "--locale",
                if cfg!(target_os = "linux") {
                    "C.UTF-8"
                } else {
                    "C"
                },
            ])
            // Decides how the superuser's password is kept; our own pg_hba.conf follows.
            .args(["--auth", options.auth.encryption()]);
        let output = initdb.output().map_err(system("starting initdb"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::Ended {
            program: "initdb",
            status: output.status,
            log: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn configure(&self, options: &Options) -> Result<(), Failure> {
        let folder = self.folder.path().display();
        let encryption = options.auth.encryption();
        let mut conf = format!(
            "{CONF}unix_socket_directories = '{folder}'\npassword_encryption = '{encryption}'\n"
        );
        if !options.durable {
            conf += HASTY;
        }
        if let Some(tls) = &options.tls {
            self.write(&self.data().join("server.crt"), &tls.certificate)?;
            self.write(&self.data().join("server.key"), &tls.key)?;
            conf += "ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\n";
            if let Some(authority) = &tls.client_authority {
                self.write(&self.data().join("clients.crt"), authority)?;
                conf += "ssl_ca_file = 'clients.crt'\n";
            }
        }
        for line in &options.conf {
            conf += line;
            conf.push('\n');
        }
        self.write(&self.data().join("postgresql.auto.conf"), &conf)?;
        let mut hba = String::from("local all all trust\n");
        for line in &options.hba {
            hba += line;
            hba.push('\n');
        }
        let method = options.auth.method();
        hba += &format!("host all all 127.0.0.1/32 {method}\n");
        hba += &format!("host replication all 127.0.0.1/32 {method}\n");
        self.write(&self.data().join("pg_hba.conf"), &hba)
    }

    fn run(&mut self) -> Result<(), Failure> {
        for attempt in 1.. {
            let port = free_port().map_err(system("looking for a free port"))?;
            match self.launch(port) {
                Err(Failure::Ended { log, .. })
                    if attempt < MAX_PORTS && log.contains("could not bind") => {}
                result => return result,
            }
        }
        unreachable!("the last attempt returns")
    }

    fn launch(&mut self, port: u16) -> Result<(), Failure> {
        let log = File::create(self.folder.path().join("log")).map_err(system("making a log"))?;
        let process = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C in the terminal is for the tests.
            .process_group(0)
            .spawn()
            .map_err(system("starting postgres"))?;
        let pid = process.id();
        let watchdog = match Watchdog::start(pid, self.folder.path()) {
            Ok(watchdog) => watchdog,
            Err(error) => {
                let mut process = process;
                let _ = process.kill();
                let _ = process.wait();
                return Err(system("starting a watchdog")(error));
            }
        };
        self.port = port;
        self.running = Some(Running { process, watchdog });
        let accepted = self.wait_until_it_accepts();
        if accepted.is_err() {
            self.stop();
        }
        accepted
    }

    fn wait_until_it_accepts(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(10);
        loop {
            let source = match self.try_client("postgres") {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let ended = self
                .running
                .as_mut()
                .and_then(|running| running.process.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(Failure::Ended {
                    program: "postgres",
                    status,
                    log: self.log(),
                });
            }
            if begun.elapsed() > STARTUP {
                let log = self.log();
                return Err(Failure::Deaf { source, log });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// One of the server's programs, run by an account that it accepts.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env("LC_ALL", "C");
        if let Some(user) = self.user {
            user.run(&mut command);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), Failure> {
        let doing = || format!("writing {}", file.display());
        fs::write(file, text).map_err(system(doing()))?;
        // PostgreSQL refuses a key that others may read.
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).map_err(system(doing()))?;
        self.own(file)
    }

    fn own(&self, path: &Path) -> Result<(), Failure> {
        match self.user {
            Some(user) => user
                .own(path)
                .map_err(system(format!("giving {} away", path.display()))),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The folder of a server: in memory if there is room, unless it has to keep what it commits.
fn folder(durable: bool) -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("rapidbyte-pg-");
    let has_room = || {
        let memory = rustix::fs::statvfs(MEMORY);
        memory.is_ok_and(|memory| memory.f_bavail * memory.f_frsize >= ROOM_BYTES)
    };
    if !durable && has_room() {
        // Not everybody may write there.
        if let Ok(folder) = builder.tempdir_in(MEMORY) {
            return Ok(folder);
        }
    }
    builder.tempdir()
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Failing, it has ended.
        let _ = kill_process(pid, signal);
    }
}

/// The processes that a process has started, where the system has `/proc`.
fn children(of: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(of)).collect()
}

/// The parent of a process; nothing when the process has ended.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: the state and the parent.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    match words.next()? {
        "Z" | "X" => None,
        _ => words.next()?.parse().ok(),
    }
}

/// Encodes the role and the password, which may hold any characters.
pub(super) fn url(role: &str, password: &str, port: u16, database: &str) -> String {
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let (role, password) = (encoded(role), encoded(password));
    format!("postgres://{role}:{password}@127.0.0.1:{port}/{database}")
}

pub(super) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The last of a file; nothing when it cannot be read.
pub(super) fn tail(file: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(file)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LOG_SHOWN_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_SHOWN_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}
