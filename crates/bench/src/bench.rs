//! One bench: a server, its programs, and what becomes of the figures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rapidbyte_testkit::postgres::Server;
use serde_json::Value;

use crate::chart::Chart;
use crate::compiled::Compiled;
use crate::databases;
use crate::failure::{Failure, timed_out};
use crate::figures::{Size, json, table};
use crate::machine;
use crate::measure::Series;
use crate::peers::Peer;
use crate::run::Programs;
use crate::settings::Settings;

/// The tools that all scenarios share.
pub struct Bench {
    pub settings: Settings,
    pub programs: Programs,
    /// With PostgreSQL's own settings for durability.
    pub server: Server,
    /// Other products; empty unless asked for.
    pub peers: Vec<Peer>,
    /// The beginning of every line of the log.
    context: Value,
    log: Option<Log>,
    chart: Chart,
    compiled: Compiled,
    /// Runs of ours and of `psql` that took too long.
    timed_out: Vec<String>,
}

/// The title of one table of figures.
pub struct Title {
    pub workload: &'static str,
    /// Which part of the workload; may be empty.
    pub what: String,
    /// Each way; 0 for no proxy.
    pub latency_ms: u32,
}

/// Lines for programs; the chart goes to the same folder.
struct Log {
    file: fs::File,
    path: PathBuf,
}

impl Bench {
    /// Starts the server.
    pub fn start(settings: Settings) -> Result<Self, Failure> {
        let programs = Programs::find(settings.limit)?;
        if programs.psql.is_none() {
            eprintln!("psql is not installed: its column is left out");
        }
        let peers = if settings.peers {
            Peer::installed()?
        } else {
            Vec::new()
        };
        let server = databases::server()?;
        let mut context = machine::context(&server);
        context["iterations"] = settings.iterations.into();
        Ok(Self {
            log: settings.log.as_deref().map(Log::open).transpose()?,
            chart: Chart::new(),
            compiled: Compiled::of(&programs.rapidbyte),
            timed_out: Vec::new(),
            settings,
            programs,
            server,
            peers,
            context,
        })
    }

    /// Draws the chart. An error names the runs that took too long.
    pub fn finish(self) -> Result<(), Failure> {
        if let Some(log) = &self.log {
            let chart = log.path.with_extension("svg");
            fs::write(&chart, self.chart.svg())?;
            eprintln!("every value: {}", shown(&log.path));
            eprintln!("chart: {}", shown(&chart));
        }
        match self.timed_out.as_slice() {
            [] => Ok(()),
            late => Err(Failure(late.join("; "))),
        }
    }

    /// Shows one comparison, and adds it to the log and to the chart.
    pub fn publish(
        &mut self,
        title: &Title,
        size: Size,
        mut series: Vec<Series>,
    ) -> Result<(), Failure> {
        for each in &mut series {
            each.compiled_load_secs = self.compiled.load_secs(each)?;
        }
        let heading = title.heading(size);
        println!("\n{heading}, median of {}", self.settings.iterations);
        println!("{}", table(&series, size));
        self.chart.add(&heading, &series);
        let is_peer = |each: &Series| self.peers.iter().any(|peer| peer.name() == each.name);
        let late: Vec<&str> = series
            .iter()
            .filter(|each| each.timed_out.is_some() && !is_peer(each))
            .map(|each| each.name.as_str())
            .collect();
        if !late.is_empty() {
            let (names, what) = (late.join(", "), timed_out(self.settings.limit));
            self.timed_out.push(format!("{heading}: {names} {what}"));
        }
        let mut context = self.context.clone();
        context["workload"] = title.workload.into();
        context["what"] = title.what.as_str().into();
        context["latency_ms"] = title.latency_ms.into();
        if let Some(log) = &mut self.log {
            for each in &series {
                writeln!(log.file, "{}", json(each, &context, size))?;
            }
        }
        Ok(())
    }
}

impl Title {
    fn heading(&self, size: Size) -> String {
        let Size { rows, .. } = size;
        let mut heading = format!("{rows} rows, {}", self.workload);
        if !self.what.is_empty() {
            heading += &format!(" {}", self.what);
        }
        if self.latency_ms > 0 {
            heading += &format!(", {} ms each way", self.latency_ms);
        }
        heading + &format!(" ({:.0} bytes a row in binary COPY)", size.row_bytes())
    }
}

impl Log {
    fn open(folder: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("postgres-{}.jsonl", machine::unix_secs()));
        let file = fs::File::create_new(&path)?;
        Ok(Self { file, path })
    }
}

/// A file by its folder's and its own name.
pub fn shown(path: &Path) -> String {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let folder = path.parent().and_then(name).unwrap_or_default();
    format!("{folder}/{}", name(path).unwrap_or_default())
}
