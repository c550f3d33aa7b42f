//! Whether the rows of a target are the rows of its source.
//!
//! Each side digests its rows in its own system: 128 bits for each row, which are added up. Rows whose digests begin with
//! the same bits are a bucket. The buckets that differ lead to the rows that differ, in a few questions and without an
//! order that both systems would have to share.
//!
//! A repair moves the rows that differ once more, by their keys, in one commit for at most 1,000 rows.

mod after;
mod repair;
pub(crate) mod staged;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte_runtime::{
    Bucket, Buckets, ChosenRows, Destination, DigestedRow, Digests, RowLimit, Selection, Source,
    SyncMode, Target, WriteMode,
};
use rapidbyte_wire::{counted, ipc};

use crate::document::Share;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::plan::{Plan, Prepared, StreamPlan, open_destination, open_source};
use crate::retry::{retried, wait};

/// Bits of the number of a bucket in the first question.
const BITS: u8 = 10;
/// Bits in the second question, where the buckets have too many rows.
const MORE_BITS: u8 = 20;
/// Buckets of the first question that the second one looks into.
const MAX_DEEPER: usize = 16;
/// Rows that are digested one by one, on each side.
const MAX_ROWS: u32 = 20_000;
/// Rows that are compared again by their keys, in one question.
const MAX_AGAIN: usize = 1_000;
/// Rows that are named.
const MAX_NAMED: usize = 1_000;
/// Rows that change while they are compared are compared again this many times.
const MAX_TRIES: u32 = 3;
/// The time between two comparisons of a row.
const PAUSE: Duration = Duration::from_secs(1);
/// All buckets of the first question.
const ALL: u32 = 1 << BITS;

pub(crate) use after::{after_run, refuse_after_run};
pub use repair::Repair;

/// The buckets of a sample with about this share of the rows: neighbours, from a random one on. `None`: all.
fn sampled(share: Share) -> Option<Buckets> {
    if share == Share::WHOLE {
        return None;
    }
    let wanted = u64::from(share.millionths()) * u64::from(ALL);
    let wanted = wanted.div_ceil(u64::from(Share::WHOLE.millionths()));
    let wanted = u32::try_from(wanted).unwrap_or(ALL).clamp(1, ALL);
    let random = RandomState::new().hash_one(0_u8) % u64::from(ALL);
    let first = u32::try_from(random).unwrap_or(0);
    Some(Buckets {
        bits: BITS,
        numbers: (first..first + wanted).map(|number| number % ALL).collect(),
    })
}

/// The rows of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Their number.
    pub rows: u64,
    /// The sum of the first halves of their digests.
    high: u64,
    /// The sum of the second halves.
    low: u64,
}

impl Sum {
    fn of<'a>(buckets: impl IntoIterator<Item = &'a Bucket>) -> Self {
        buckets
            .into_iter()
            .fold(Self::default(), |sum, bucket| Self {
                rows: sum.rows + bucket.rows,
                high: sum.high.wrapping_add(bucket.high),
                low: sum.low.wrapping_add(bucket.low),
            })
    }

    /// The checksum of the rows: 32 hexadecimal digits.
    pub fn checksum(&self) -> String {
        format!("{:016x}{:016x}", self.high, self.low)
    }
}

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Both sides have the key, with other values.
    Changed,
    /// Only the source has the row.
    Missing,
    /// Only the target has the row.
    Extra,
    /// The row changed each time it was compared.
    Changing,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The values of its key as texts. Empty if the stream has no key.
    pub key: Vec<String>,
    /// How it differs.
    pub difference: Difference,
    /// The columns that differ, if they are known.
    pub columns: Vec<String>,
}

/// The comparison of one stream.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The name of the stream.
    pub stream: String,
    /// The table or file that has the rows.
    pub location: String,
    /// The columns of the key.
    pub key: Vec<String>,
    /// The rows at the source.
    pub source: Sum,
    /// The rows in the target.
    pub target: Sum,
    /// The rows that count: only those that the cursor of an incremental stream covers.
    pub limits: Vec<RowLimit>,
    /// The cursor of the target.
    pub cursor: Option<String>,
    /// The rows that differ.
    pub rows: Vec<Row>,
    /// There are more rows that differ than `rows` has.
    pub has_more: bool,
    /// Rows that the source changed after the cursor. They do not count.
    pub newer: u64,
    /// The rows that differed and were moved again: at most 20,000. `rows` has those that still differ.
    pub repaired: Vec<Row>,
    /// The time that the comparison took.
    pub seconds: f64,
}

impl Compared {
    /// Both sides have the same rows, except rows that the source changed after the cursor.
    pub fn is_equal(&self) -> bool {
        self.rows.is_empty() && !self.has_more
    }
}

/// The comparison of all streams of a pipeline.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// The pipeline.
    pub pipeline: String,
    /// The name of the source's connector.
    pub source: String,
    /// The name of the destination's connector.
    pub destination: String,
    /// The streams that were compared.
    pub streams: Vec<Compared>,
    /// The streams that could not be compared.
    pub failures: Vec<Failure>,
}

impl Verified {
    /// The failure of the command. `None` if all rows are equal.
    pub fn failure(&self) -> Option<Failure> {
        let differing = rows_differ(&self.streams);
        let differing = differing.map(|failure| {
            failure.hint(
                "if the source has changed since the last run, run the pipeline and compare again; `rapidbyte explain \
                 rows_differ` lists other reasons",
            )
        });
        differing.or_else(|| self.failures.first().cloned())
    }
}

/// The failure for streams that differ. `None` if all are equal.
fn rows_differ(streams: &[Compared]) -> Option<Failure> {
    let differing: Vec<&str> = streams
        .iter()
        .filter(|one| !one.is_equal())
        .map(|one| one.stream.as_str())
        .collect();
    let text = match differing.as_slice() {
        [] => return None,
        [one] => format!("the target does not have the rows of the source in {one}"),
        several => format!(
            "the targets do not have the rows of the source in {} streams: {}",
            several.len(),
            several.join(", ")
        ),
    };
    Some(Failure::new(Class::Run, "rows_differ", text))
}

/// Compares the rows of all streams of a plan with the rows of their targets. Changes nothing unless it repairs.
/// `compared` gets each result as it is known.
///
/// # Errors
/// A failure that stops the whole comparison. A stream that cannot be compared is in [`Verified::failures`].
pub fn verify(
    prepared: &mut Prepared,
    host: &Host,
    sample: Share,
    repair: Repair,
    mut compared: impl FnMut(&Compared),
) -> Result<Verified, Failure> {
    let _counted = host.usage.of_thread();
    let plan = &prepared.plan;
    let mut verified = Verified {
        pipeline: plan.document.pipeline.clone(),
        source: plan.source.connector.name().to_owned(),
        destination: plan.destination.connector.name().to_owned(),
        ..Verified::default()
    };
    let taken = prepared.take_moment(host)?;
    verified.failures.extend(
        prepared
            .plan
            .all_refused(&taken)
            .into_iter()
            .map(|one| one.failure),
    );
    let refused: BTreeSet<usize> = taken.refused.iter().map(|(index, _)| *index).collect();
    let prepared = &*prepared;
    let streams = prepared.plan.streams.iter().enumerate();
    for (_, stream) in streams.filter(|(index, _)| !refused.contains(index)) {
        let within = sampled(sample);
        if repair == Repair::Rows
            && let Err(failure) = repair::refuse(&prepared.plan, stream)
        {
            verified.failures.push(failure);
            continue;
        }
        let kept = "the comparison begins again";
        let answer = retried(&prepared.plan.document, host, kept, |attempt| {
            if attempt > 1 {
                reopen(prepared, host, true)?;
            }
            let sides = Sides::new(prepared, stream, host)?;
            match repair {
                Repair::Nothing => sides.compare(within.as_ref()),
                Repair::Rows => sides.repair(within.as_ref()),
            }
        });
        match answer {
            Ok(one) => {
                compared(&one);
                verified.streams.push(one);
            }
            Err(failure) if failure.stops_run || failure.class == Class::Cancelled => {
                return Err(failure);
            }
            Err(failure) => verified.failures.push(failure),
        }
    }
    Ok(verified)
}

/// Gives the destination, and the source unless its session holds a snapshot, new sessions after a failure.
fn reopen(prepared: &Prepared, host: &Host, with_source: bool) -> Result<(), Failure> {
    let (document, clocks) = (&prepared.plan.document, &prepared.clocks);
    let (_, session) = open_destination(document, host, &clocks.destination, false)?;
    prepared.sessions.replace_writer(session);
    if with_source {
        let (_, session) = open_source(document, host, &clocks.source)?;
        prepared.sessions.replace_coordinator(session);
    }
    Ok(())
}

/// How the rows of a stream are compared.
#[derive(Debug)]
struct Way {
    /// The forms of digests that both sides have.
    forms: Vec<String>,
    /// The source does not digest its rows, or transforms make other rows of them: all rows are read, and staged where
    /// the target is.
    is_staged: bool,
}

/// The side that has the rows of the source.
enum Origin {
    /// The session that holds the snapshot of the plan.
    Source,
    /// A session of the destination that staged the rows.
    Staged(Box<Mutex<Destination>>),
}

/// Both sides of a stream.
struct Sides<'a> {
    prepared: &'a Prepared,
    /// The plan, or a newer one if the columns changed while the rows were staged.
    stream: Cow<'a, StreamPlan>,
    host: &'a Host,
    origin: Origin,
    selection: Selection,
    /// The snapshot that has the rows of the source. `None`: as they are now.
    snapshot: Option<&'a str>,
    recipe: String,
    /// For the source.
    limits: Vec<RowLimit>,
    /// The same for the destination, which may have other names of columns.
    target_limits: Vec<RowLimit>,
    /// The names of the columns in the target.
    columns: Vec<String>,
}

/// Rows of one side by their keys, or, without a key, by their digests.
type Found = BTreeMap<Vec<String>, Vec<DigestedRow>>;

impl<'a> Sides<'a> {
    fn new(
        prepared: &'a Prepared,
        stream: &'a StreamPlan,
        host: &'a Host,
    ) -> Result<Self, Failure> {
        let plan = &prepared.plan;
        let way = Way::of(plan, stream)?;
        refuse_missing(stream)?;
        let selection = stream.selection(plan.full_refresh);
        if !way.is_staged {
            let stream = Cow::Borrowed(stream);
            return Self::of(prepared, stream, host, (selection, None), &way);
        }
        let (staged, session) = staged::stage(prepared, stream, host)?;
        let mut sides = Self::of(prepared, Cow::Owned(staged), host, (selection, None), &way)?;
        sides.origin = Origin::Staged(Box::new(Mutex::new(session)));
        Ok(sides)
    }

    fn of(
        prepared: &'a Prepared,
        stream: Cow<'a, StreamPlan>,
        host: &'a Host,
        (selection, snapshot): (Selection, Option<&'a str>),
        way: &Way,
    ) -> Result<Self, Failure> {
        let is_incremental = stream.sync_mode == SyncMode::Incremental;
        let fields = stream.schema.fields().iter();
        let columns = fields.map(|field| field.name().clone()).collect();
        let mut sides = Self {
            prepared,
            stream,
            host,
            origin: Origin::Source,
            snapshot,
            recipe: String::new(),
            limits: Vec::new(),
            target_limits: Vec::new(),
            columns,
            selection,
        };
        sides.recipe =
            sides.of_target(|writer, target, _| writer.digest_recipe(target, &way.forms))?;
        if is_incremental {
            sides.limits = sides.of_source(|source, selection, digests| {
                source.digest_limits(selection, digests.snapshot)
            })?;
            sides.target_limits = sides.renamed()?;
        }
        Ok(sides)
    }

    /// The limits with the names that the columns have in the target.
    fn renamed(&self) -> Result<Vec<RowLimit>, Failure> {
        let read = ipc::decode_schema(&self.stream.read_schema);
        let read = read.map_err(|error| Failure::new(Class::Run, "internal", error))?;
        let name = |name: &String| {
            let at = read.index_of(name).ok()?;
            self.columns.get(at).cloned()
        };
        let limit = |limit: &RowLimit| {
            let columns = limit.columns.iter().map(name).collect::<Option<Vec<_>>>();
            columns.map(|columns| RowLimit {
                columns,
                ..limit.clone()
            })
        };
        let limits = self.limits.iter().map(limit);
        let limits = limits.collect::<Option<Vec<_>>>();
        limits.ok_or_else(|| without_cursor_columns(&self.stream))
    }

    fn of_source<T>(
        &self,
        ask: impl FnOnce(&mut Source, &Selection, Digests<'_>) -> rapidbyte_runtime::Result<T>,
    ) -> Result<T, Failure> {
        let digests = Digests {
            snapshot: self.snapshot,
            recipe: &self.recipe,
            limits: &self.limits,
        };
        let answer = self
            .prepared
            .sessions
            .with_coordinator(|source| ask(source, &self.selection, digests));
        self.answered(answer, "source")
    }

    fn of_target<T>(
        &self,
        ask: impl FnOnce(&mut Destination, &Target, Digests<'_>) -> rapidbyte_runtime::Result<T>,
    ) -> Result<T, Failure> {
        let digests = Digests {
            snapshot: None,
            recipe: &self.recipe,
            limits: &self.target_limits,
        };
        let answer = self
            .prepared
            .sessions
            .with_writer(|writer| ask(writer, &self.stream.target, digests));
        self.answered(answer, "destination")
    }

    fn answered<T>(
        &self,
        answer: Option<rapidbyte_runtime::Result<T>>,
        side: &str,
    ) -> Result<T, Failure> {
        let gone = || {
            Failure::new(
                Class::Run,
                "internal",
                "the session of a comparison is gone",
            )
        };
        let answer = answer.ok_or_else(gone)?;
        answer.map_err(|error| {
            let failure = Failure::from_runtime(error, &self.prepared.plan.document, side);
            failure.in_stream(&self.stream.name)
        })
    }

    /// Asks the session that staged the rows of the source.
    fn of_staged<T>(
        &self,
        session: &Mutex<Destination>,
        ask: impl FnOnce(&mut Destination, &Target, Digests<'_>) -> rapidbyte_runtime::Result<T>,
    ) -> Result<T, Failure> {
        let target = staged::target(&self.stream.target);
        let digests = Digests {
            snapshot: None,
            recipe: &self.recipe,
            limits: &[],
        };
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = ask(&mut session, &target, digests);
        self.answered(Some(answer), "destination")
    }

    /// Asks both sides at the same time.
    fn both<T: Send>(
        &self,
        source: impl FnOnce() -> Result<T, Failure> + Send,
        target: impl FnOnce(&mut Destination, &Target, Digests<'_>) -> rapidbyte_runtime::Result<T>,
    ) -> Result<(T, T), Failure> {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let _counted = self.host.usage.of_thread();
                source()
            });
            let target = self.of_target(target);
            let source = asking
                .join()
                .unwrap_or_else(|_| Err(Failure::panicked("source")));
            Ok((source?, target?))
        })
    }

    fn sums(
        &self,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<(Vec<Bucket>, Vec<Bucket>), Failure> {
        let source = || match &self.origin {
            Origin::Source => self.of_source(|source, selection, digests| {
                source.digest(selection, &digests, within, bits)
            }),
            Origin::Staged(session) => self.of_staged(session, |writer, target, digests| {
                writer.digest(target, &digests, within, bits)
            }),
        };
        self.both(source, |writer, target, digests| {
            writer.digest(target, &digests, within, bits)
        })
    }

    fn rows(
        &self,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<(Vec<DigestedRow>, Vec<DigestedRow>), Failure> {
        let source = || match &self.origin {
            Origin::Source => self.of_source(|source, selection, digests| {
                source.digest_rows(selection, &digests, rows, max)
            }),
            Origin::Staged(session) => self.of_staged(session, |writer, target, digests| {
                writer.digest_rows(target, &digests, rows, max)
            }),
        };
        self.both(source, |writer, target, digests| {
            writer.digest_rows(target, &digests, rows, max)
        })
    }

    /// `within`: only rows of these buckets.
    fn compare(&self, within: Option<&Buckets>) -> Result<Compared, Failure> {
        let begun = Instant::now();
        let (source, target) = self.sums(within, BITS)?;
        let mut compared = Compared {
            stream: self.stream.name.clone(),
            location: self.stream.location.clone(),
            key: self.stream.target.primary_key.clone(),
            source: Sum::of(&source),
            target: Sum::of(&target),
            limits: self.limits.clone(),
            cursor: self.selection.cursor.clone(),
            rows: Vec::new(),
            has_more: false,
            newer: 0,
            repaired: Vec::new(),
            seconds: 0.0,
        };
        self.refuse_other_rows(&compared)?;
        let differing = Differing::of(&source, &target);
        if !differing.numbers.is_empty() {
            self.find(differing, &mut compared)?;
        }
        compared.seconds = begun.elapsed().as_secs_f64();
        Ok(compared)
    }

    /// An append target keeps the rows of earlier runs.
    fn refuse_other_rows(&self, compared: &Compared) -> Result<(), Failure> {
        let (source, target) = (compared.source.rows, compared.target.rows);
        if self.stream.target.write_mode != WriteMode::Append || target <= source {
            return Ok(());
        }
        let text = format!(
            "{} has {}, and the source has {}: a target of write_mode: append keeps rows of earlier runs, so it cannot \
             be compared",
            compared.location,
            counted(target, "row"),
            counted(source, "row")
        );
        Err(Failure::new(Class::Config, UNSUPPORTED, text)
            .hint("compare streams with write_mode: upsert or replace")
            .in_stream(&self.stream.name))
    }

    /// Finds the rows in buckets that differ.
    fn find(&self, differing: Differing, compared: &mut Compared) -> Result<(), Failure> {
        let most = u64::from(MAX_ROWS);
        let is_deep = differing.sizes.iter().take(MAX_DEEPER).sum::<u64>() > most;
        let mut differing = differing;
        let mut bits = BITS;
        if is_deep {
            compared.has_more |= differing.numbers.len() > MAX_DEEPER;
            differing.numbers.truncate(MAX_DEEPER);
            let buckets = Buckets {
                bits,
                numbers: differing.numbers,
            };
            let (source, target) = self.sums(Some(&buckets), MORE_BITS)?;
            differing = Differing::of(&source, &target);
            bits = MORE_BITS;
        }
        compared.has_more |= differing.truncate(most);
        let buckets = Buckets {
            bits,
            numbers: differing.numbers,
        };
        let (source, target) = self.rows(&ChosenRows::Of(buckets), MAX_ROWS)?;
        let (source, target) = without_equal(found(source), found(target));
        compared.rows.extend(unnamed(&source, Difference::Missing));
        compared.rows.extend(unnamed(&target, Difference::Extra));
        // Rows of the source first: a repair must not see rows of the target alone while there are others.
        let extra = target.keys().filter(|key| !source.contains_key(*key));
        let keys = source.keys().chain(extra).filter(|key| !key.is_empty());
        let keys: Vec<Vec<String>> = keys.cloned().collect();
        for some in keys.chunks(MAX_AGAIN) {
            if compared.rows.len() >= MAX_NAMED {
                compared.has_more = true;
                break;
            }
            let of = |found: &Found| -> Found {
                let rows = some.iter().filter_map(|key| found.get_key_value(key));
                rows.map(|(key, rows)| (key.clone(), rows.clone()))
                    .collect()
            };
            self.compare_again(some.to_vec(), (of(&source), of(&target)), compared)?;
        }
        compared.rows.sort_by(|one, other| one.key.cmp(&other.key));
        if compared.rows.is_empty() && compared.has_more {
            let text = format!(
                "the source changed more than {} after the cursor, and other differences cannot be told from them",
                counted(compared.newer, "row")
            );
            let failure = Failure::new(Class::Config, UNSUPPORTED, text);
            let failure = failure.hint("run the pipeline, and then compare");
            return Err(failure.in_stream(&self.stream.name));
        }
        Ok(())
    }

    /// Compares rows again by their keys: some differ only because a side was asked earlier than the other.
    fn compare_again(
        &self,
        mut keys: Vec<Vec<String>>,
        mut before: (Found, Found),
        compared: &mut Compared,
    ) -> Result<(), Failure> {
        let mut tries = 0;
        let (source, target, changing) = loop {
            let (source, target) = self.rows(&ChosenRows::Keys(keys.clone()), MAX_ROWS)?;
            let source = found(source);
            self.refuse_repeated(&source)?;
            let now = without_equal(source, found(target));
            keys.retain(|key| now.0.contains_key(key) || now.1.contains_key(key));
            // A row that changed after the sums may be in a bucket that did not differ: its side did not list it.
            let changed = |before: &Found, now: &Found, key: &Vec<String>| {
                halves(before.get(key)) != halves(now.get(key))
            };
            let is_changing = |key: &&Vec<String>| {
                changed(&before.0, &now.0, key) || changed(&before.1, &now.1, key)
            };
            let changing: BTreeSet<Vec<String>> =
                keys.iter().filter(is_changing).cloned().collect();
            tries += 1;
            if changing.is_empty() || tries > MAX_TRIES {
                break (now.0, now.1, changing);
            }
            before = now;
            if !wait(PAUSE, &self.host.cancel) {
                return Err(Failure::cancelled());
            }
        };
        let newer = self.newer(&keys, &source)?;
        compared.newer += newer.len() as u64;
        for key in keys.into_iter().filter(|key| !newer.contains(key)) {
            let (of_source, of_target) = (source.get(&key), target.get(&key));
            let difference = match (of_source, of_target) {
                _ if changing.contains(&key) => Difference::Changing,
                (Some(_), None) => Difference::Missing,
                (None, _) => Difference::Extra,
                (Some(_), Some(_)) => Difference::Changed,
            };
            let columns = match (of_source.map(Vec::as_slice), of_target.map(Vec::as_slice)) {
                (Some([one]), Some([other])) => self.differing_columns(one, other),
                _ => Vec::new(),
            };
            compared.rows.push(Row {
                key,
                difference,
                columns,
            });
        }
        Ok(())
    }

    /// Refuses a source that has several rows of a key: the target has one of them.
    fn refuse_repeated(&self, source: &Found) -> Result<(), Failure> {
        let is_repeated =
            |(key, rows): &(&Vec<String>, &Vec<DigestedRow>)| !key.is_empty() && rows.len() > 1;
        let Some((key, rows)) = source.iter().find(is_repeated) else {
            return Ok(());
        };
        if self.stream.target.write_mode != WriteMode::Upsert {
            return Ok(());
        }
        let named = self.stream.target.primary_key.iter().zip(key);
        let named: Vec<String> = named
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let text = format!(
            "the source has {} with {}, and upsert keeps one of them: the rows cannot be compared",
            counted(rows.len(), "row"),
            named.join(", ")
        );
        let failure =
            Failure::new(Class::Contract, "key_not_unique", text).in_stream(&self.stream.name);
        Err(failure.hint("name columns that identify a row with primary_key, or remove the other rows from the source"))
    }

    /// Keys whose rows the source has beyond the limits: it changed them after the cursor.
    fn newer(
        &self,
        keys: &[Vec<String>],
        source: &Found,
    ) -> Result<BTreeSet<Vec<String>>, Failure> {
        let gone: Vec<Vec<String>> = keys
            .iter()
            .filter(|key| !source.contains_key(*key))
            .cloned()
            .collect();
        if self.limits.is_empty() || gone.is_empty() {
            return Ok(BTreeSet::new());
        }
        let rows = ChosenRows::Keys(gone);
        let found = self.of_source(|source, selection, digests| {
            let digests = Digests {
                limits: &[],
                ..digests
            };
            source.digest_rows(selection, &digests, &rows, MAX_ROWS)
        })?;
        Ok(found.into_iter().map(|row| row.key).collect())
    }

    fn differing_columns(&self, one: &DigestedRow, other: &DigestedRow) -> Vec<String> {
        let digests = one.columns.iter().zip(&other.columns);
        let differing = self
            .columns
            .iter()
            .zip(digests)
            .filter(|(_, (one, other))| one != other);
        differing.map(|(name, _)| name.clone()).collect()
    }
}

/// Buckets that differ.
struct Differing {
    numbers: Vec<u32>,
    /// The rows of the larger side of each.
    sizes: Vec<u64>,
}

impl Differing {
    fn of(source: &[Bucket], target: &[Bucket]) -> Self {
        let by_number = |buckets: &[Bucket]| -> HashMap<u32, Sum> {
            buckets
                .iter()
                .map(|bucket| (bucket.number, Sum::of([bucket])))
                .collect()
        };
        let (source, target) = (by_number(source), by_number(target));
        let numbers: BTreeSet<u32> = source.keys().chain(target.keys()).copied().collect();
        let sum =
            |of: &HashMap<u32, Sum>, number: &u32| of.get(number).copied().unwrap_or_default();
        let differing = numbers
            .into_iter()
            .filter(|number| sum(&source, number) != sum(&target, number));
        let numbers: Vec<u32> = differing.collect();
        let sizes: Vec<u64> = numbers
            .iter()
            .map(|number| sum(&source, number).rows.max(sum(&target, number).rows))
            .collect();
        Self { numbers, sizes }
    }

    /// Keeps the first buckets, with at most `most` rows. Says whether some are left out.
    fn truncate(&mut self, most: u64) -> bool {
        let mut rows = 0;
        let fits = self.sizes.iter().take_while(|size| {
            rows += **size;
            rows <= most
        });
        let fits = fits.count().max(1);
        let is_cut = fits < self.numbers.len();
        self.numbers.truncate(fits);
        is_cut
    }
}

const UNSUPPORTED: &str = "unsupported_verify";

impl Way {
    /// Refuses a stream that cannot be compared.
    fn of(plan: &Plan, stream: &StreamPlan) -> Result<Self, Failure> {
        let (source, destination) = (&plan.source, &plan.destination);
        if destination.spec.digest_forms.is_empty() {
            let text = format!(
                "{} does not compute digests of rows",
                destination.connector.name()
            );
            let hint = "compare copies in PostgreSQL";
            return Err(unsupported(stream, &text, hint));
        }
        if let Some(column) = stream.left_out.first() {
            let text = format!(
                "--select or --exclude leaves out the column {column}, and rows would be equal that differ in it"
            );
            return Err(unsupported(stream, &text, "choose whole streams"));
        }
        let forms = source.spec.digest_forms.iter();
        let forms = forms.filter(|form| destination.spec.digest_forms.contains(form));
        let forms: Vec<String> = forms.cloned().collect();
        if !forms.is_empty() && stream.transforms.is_empty() {
            return Ok(Self {
                forms,
                is_staged: false,
            });
        }
        let why = match stream.transforms.is_empty() {
            true => format!(
                "{} does not compute digests of rows",
                source.connector.name()
            ),
            false => "its transforms make other rows of the rows of the source".to_owned(),
        };
        let leave_out = "leave the stream out with --exclude";
        if stream.sync_mode == SyncMode::Incremental {
            let text =
                format!("{why}, and all rows of an incremental stream would have to be read");
            return Err(unsupported(stream, &text, leave_out));
        }
        if stream.target.deleted_field.is_some() {
            let text = format!("{why}, and deleted_field takes some rows out of the target");
            return Err(unsupported(stream, &text, leave_out));
        }
        Ok(Self {
            forms: destination.spec.digest_forms.clone(),
            is_staged: true,
        })
    }
}

const RUN_FIRST: &str = "run the pipeline first: `rapidbyte run PIPELINE`";

fn unsupported(stream: &StreamPlan, text: &str, hint: &str) -> Failure {
    let failure = Failure::new(Class::Config, UNSUPPORTED, text).hint(hint);
    failure.in_stream(&stream.name)
}

fn without_cursor_columns(stream: &StreamPlan) -> Failure {
    let text = "the target does not have the columns of the cursor, so the rows up to the cursor are not known";
    let hint = "add the columns of the cursor to `columns:` of the stream";
    unsupported(stream, text, hint)
}

/// Refuses a stream without a target.
fn is_there(stream: &StreamPlan) -> Result<(), Failure> {
    if !stream.placed.is_new {
        return Ok(());
    }
    let text = format!("{} does not exist", stream.location);
    let failure = Failure::new(Class::Contract, "no_target", text).hint(RUN_FIRST);
    Err(failure.in_stream(&stream.name))
}

/// Refuses a stream that no run has moved.
fn refuse_missing(stream: &StreamPlan) -> Result<(), Failure> {
    is_there(stream)?;
    let progress = stream.progress.as_ref();
    let has_cursor = progress.is_some_and(|progress| progress.cursor.is_some());
    if stream.sync_mode == SyncMode::Incremental && !has_cursor {
        let text = "no run has committed a cursor of the stream";
        return Err(unsupported(stream, text, RUN_FIRST));
    }
    Ok(())
}

/// Rows by their keys.
fn found(rows: Vec<DigestedRow>) -> Found {
    let mut found = Found::new();
    for row in rows {
        found.entry(row.key.clone()).or_default().push(row);
    }
    for rows in found.values_mut() {
        rows.sort_by_key(|row| (row.high, row.low));
    }
    found
}

/// The digests of the rows of a key.
fn halves(rows: Option<&Vec<DigestedRow>>) -> Vec<(u64, u64)> {
    rows.iter()
        .flat_map(|rows| rows.iter())
        .map(|row| (row.high, row.low))
        .collect()
}

/// Leaves out the rows that both sides have.
fn without_equal(mut source: Found, mut target: Found) -> (Found, Found) {
    for (key, rows) in &mut source {
        let Some(others) = target.get_mut(key) else {
            continue;
        };
        rows.retain(|row| {
            let same = |other: &DigestedRow| (other.high, other.low) == (row.high, row.low);
            match others.iter().position(same) {
                Some(at) => {
                    others.remove(at);
                    false
                }
                None => true,
            }
        });
    }
    source.retain(|_, rows| !rows.is_empty());
    target.retain(|_, rows| !rows.is_empty());
    (source, target)
}

/// Rows without a key, or without a value of it.
fn unnamed(rows: &Found, difference: Difference) -> Vec<Row> {
    let row = |_: &DigestedRow| Row {
        key: Vec::new(),
        difference,
        columns: Vec::new(),
    };
    let unnamed = rows.get(&Vec::new());
    unnamed
        .iter()
        .flat_map(|rows| rows.iter())
        .map(row)
        .collect()
}
