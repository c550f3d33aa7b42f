//! A whole table into an empty one: `psql` and its pipe, the program by INSERT and by COPY, the
//! same connectors natively, and other products.

use std::path::PathBuf;
use std::time::Duration;

use rapidbyte_engine::compress::Compression;
use rapidbyte_testkit::proxy::Proxy;

use crate::bench::{Bench, Title};
use crate::databases::Databases;
use crate::failure::{Failure, Missed};
use crate::measure::{Run, Series, measure};
use crate::peers::Peer;
use crate::run::{Method, PSQL, Pair, Programs, TARGET};
use crate::workload::Workload;

/// How rows are moved.
enum Way {
    Psql,
    Program(Method, Compression),
    Native(Method),
    Peer(Peer),
}

/// Measures one table behind one line.
pub fn run(
    bench: &mut Bench,
    workload: Workload,
    rows: u64,
    latency_ms: u32,
) -> Result<(), Failure> {
    let (size, series) = {
        let databases = Databases::seeded(&bench.server, workload, rows)?;
        let proxy = match latency_ms {
            0 => None,
            ms => {
                let proxy = Proxy::to(bench.server.port())?;
                proxy.set_delay(Duration::from_millis(ms.into()));
                Some(proxy)
            }
        };
        let copy = Copy {
            programs: &bench.programs,
            pair: Pair {
                proxy: proxy.as_ref(),
                ..databases.pair()
            },
            pipeline: bench.programs.append()?,
            create: workload.create(TARGET),
        };
        let (contenders, late) = contenders(bench, &copy);
        let mut series = measure(&contenders, bench.settings.iterations, |way| {
            copy.once(way).map_err(|missed| match (way, missed) {
                (Way::Peer(peer), Missed::Failed(failure)) => left_out(peer, &failure),
                (_, missed) => missed,
            })
        })?;
        series.extend(late);
        (databases.size, series)
    };
    let title = Title {
        workload: workload.name(),
        what: String::new(),
        latency_ms,
    };
    bench.publish(&title, size, series)
}

/// One table, to be copied again and again.
struct Copy<'a> {
    programs: &'a Programs,
    pair: Pair<'a>,
    pipeline: PathBuf,
    /// Makes the target, for those who make none.
    create: String,
}

impl Copy<'_> {
    /// Copies into an empty target and compares every value.
    fn once(&self, way: &Way) -> Result<Run, Missed> {
        let Self { programs, pair, .. } = self;
        let has_table = matches!(way, Way::Psql | Way::Peer(_));
        pair.begin_anew(has_table.then_some(self.create.as_str()))?;
        if let Way::Peer(peer) = way {
            peer.prepare(pair)?;
        }
        let before = pair.connections();
        let mut run = match way {
            Way::Psql => {
                let into = format!("COPY {TARGET} FROM STDIN (FORMAT binary)");
                programs.pipe(pair, &[&into])
            }
            Way::Program(method, compression) => {
                programs.run(pair, &self.pipeline, *method, *compression)
            }
            Way::Native(method) => programs.native(pair, *method, "append"),
            Way::Peer(peer) => peer.run(programs, pair).map(|timed| Run::silent(&timed)),
        }?;
        // One from the source and one into the target.
        if before.is_some_and(|before| pair.connections() < Some(before + 2)) {
            return Err(Failure("not every byte went through the slow line".into()).into());
        }
        match way {
            Way::Peer(peer) => run.differs = peer.differs(pair)?,
            _ => pair.verify()?,
        }
        Ok(run)
    }
}

/// Ours, and the peers that can copy this table at all; apart from them those that took too long.
fn contenders(bench: &Bench, copy: &Copy<'_>) -> (Vec<(String, Way)>, Vec<Series>) {
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
    for method in Method::BOTH {
        contenders.push((method.native_column().to_owned(), Way::Native(method)));
    }
    let mut late = Vec::new();
    for peer in &bench.peers {
        let way = Way::Peer(peer.clone());
        let name = peer.name();
        match copy.once(&way) {
            Ok(_) => contenders.push((name.to_owned(), way)),
            Err(Missed::TimedOut(limit)) => late.push(Series::late(name, limit)),
            Err(Missed::Failed(failure)) => {
                left_out(peer, &failure);
            }
            Err(Missed::LeftOut) => {}
        }
    }
    (contenders, late)
}

/// A peer that cannot copy the table does not end the bench.
fn left_out(peer: &Peer, Failure(text): &Failure) -> Missed {
    eprintln!("{} is left out: {}", peer.name(), last_line(text));
    Missed::LeftOut
}

/// Python tells the cause last.
fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev();
    lines.find(|line| !line.trim().is_empty()).unwrap_or(text)
}
