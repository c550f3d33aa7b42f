//! Where and with what something was measured: what every line of the log says first.

use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_testkit::postgres::Server;
use serde_json::{Value, json};

/// Settings of the server that decide what a run costs.
const SERVER_SETTINGS: [&str; 8] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
    "data_checksums",
];

/// Machine, commit, server and its settings.
pub fn context(server: &Server) -> Value {
    let mut client = server.client("postgres");
    let mut setting = |name: &str| -> Option<String> {
        let row = client.query_one("SELECT current_setting($1, true)", &[&name]);
        row.ok()?.get(0)
    };
    let settings: serde_json::Map<String, Value> = SERVER_SETTINGS
        .iter()
        .map(|name| ((*name).to_owned(), json!(setting(name))))
        .collect();
    json!({
        "unix_secs": unix_secs(),
        "commit": std::env::var("BENCH_COMMIT").ok(),
        "cores": cores(),
        "cpu": cpu_model(),
        "kernel": kernel(),
        "postgres": setting("server_version"),
        "postgres_settings": settings,
    })
}

/// Seconds since 1970-01-01 UTC.
pub fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// How many threads the machine runs at a time; 0 when it does not say.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// As the processor calls itself (Linux on x86).
pub fn cpu_model() -> Option<String> {
    model(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// User and system time of this process (`CLOCK_PROCESS_CPUTIME_ID` of POSIX).
pub fn cpu_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process had resident so far (Linux).
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Name and release (Linux).
fn kernel() -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
    let (name, release) = (read("ostype")?, read("osrelease")?);
    Some(format!("{} {}", name.trim(), release.trim()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_processor_says_its_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Processor 7\nprocessor\t: 1\n";
        assert_eq!(super::model(cpuinfo).as_deref(), Some("A Processor 7"));
        assert_eq!(super::model("processor: 0"), None);
    }
}
