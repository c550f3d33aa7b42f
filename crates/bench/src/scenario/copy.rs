//! A whole table into an empty one: `psql` and its pipe, the program by INSERT and by COPY, the
//! same connectors natively, and other products.

use std::time::Duration;

use rapidbyte_engine::compress::Compression;
use rapidbyte_testkit::proxy::Proxy;

use crate::bench::{Bench, Title};
use crate::failure::Failure;
use crate::measure::{Run, measure};
use crate::peers::Peer;
use crate::run::{Method, NATIVE, PSQL, Pair, TARGET, table_pipeline};
use crate::scenario::seed;
use crate::workload::Workload;

/// How rows are moved.
enum Way {
    Psql,
    Program(Method, Compression),
    Native,
    Peer(Peer),
}

/// Measures one table behind one line.
pub fn run(
    bench: &mut Bench,
    workload: Workload,
    rows: u64,
    latency_ms: u32,
) -> Result<(), Failure> {
    let programs = &bench.programs;
    let pipeline = programs.pipeline("append", &table_pipeline("append"))?;
    let (size, series) = {
        let (source, target) = (bench.server.database(), bench.server.database());
        let size = seed(&source, workload, rows)?;
        let proxy = match latency_ms {
            0 => None,
            ms => {
                let proxy = Proxy::to(bench.server.port())?;
                proxy.set_delay(Duration::from_millis(ms.into()));
                Some(proxy)
            }
        };
        let pair = Pair {
            source: &source,
            target: &target,
            proxy: proxy.as_ref(),
        };
        let create = workload.create(TARGET);
        let run = |way: &Way| {
            let has_table = matches!(way, Way::Psql | Way::Peer(_));
            pair.begin_anew(has_table.then_some(create.as_str()))?;
            if let Way::Peer(peer) = way {
                peer.prepare(&pair)?;
            }
            let mut run = match way {
                Way::Psql => programs.pipe(
                    &pair,
                    &[&format!("COPY {TARGET} FROM STDIN (FORMAT binary)")],
                ),
                Way::Program(method, compression) => {
                    programs.run(&pair, &pipeline, *method, *compression)
                }
                Way::Native => programs.native(&pair, "append"),
                Way::Peer(peer) => peer.run(programs, &pair).map(|timed| Run::silent(&timed)),
            }?;
            match way {
                Way::Peer(peer) => run.differs = peer.differs(&pair)?,
                _ => pair.verify()?,
            }
            Ok(run)
        };
        let contenders = contenders(bench, run);
        let series = measure(&contenders, bench.settings.iterations, run)?;
        (size, series)
    };
    let title = Title {
        workload: workload.name(),
        what: String::new(),
        latency_ms,
    };
    bench.publish(&title, size, &series)
}

/// Ours, and the peers that can copy this table at all.
fn contenders(bench: &Bench, run: impl Fn(&Way) -> Result<Run, Failure>) -> Vec<(String, Way)> {
    let mut contenders = Vec::new();
    if bench.programs.psql.is_some() {
        contenders.push((PSQL.to_owned(), Way::Psql));
    }
    for compression in &bench.settings.compressions {
        for method in Method::BOTH {
            let way = Way::Program(method, *compression);
            contenders.push((method.column(*compression), way));
        }
    }
    contenders.push((NATIVE.to_owned(), Way::Native));
    for peer in &bench.peers {
        let way = Way::Peer(peer.clone());
        match run(&way) {
            Ok(_) => contenders.push((peer.name().to_owned(), way)),
            Err(Failure(text)) => eprintln!("{} is left out: {}", peer.name(), last_line(&text)),
        }
    }
    contenders
}

/// Python tells the cause last.
fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev();
    lines.find(|line| !line.trim().is_empty()).unwrap_or(text)
}
