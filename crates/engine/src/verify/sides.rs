//! The two sides of a stream, and the rows in which they differ.

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

use super::compared::{Compared, Difference, Row, Sum};
use super::way::{UNSUPPORTED, Way, staged_target, without_cursor_columns};
use crate::document::Share;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::plan::{Prepared, StreamPlan, open_destination, open_source};
use crate::retry::wait;

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

/// The buckets of a sample with about this share of the rows: neighbours, from a random one on. `None`: all.
pub(super) fn sampled(share: Share) -> Option<Buckets> {
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

/// Gives the destination, and the source unless its session holds a snapshot, new sessions after a failure.
pub(super) fn reopen(prepared: &Prepared, host: &Host, with_source: bool) -> Result<(), Failure> {
    let (document, clocks) = (&prepared.plan.document, &prepared.clocks);
    let (_, session) = open_destination(document, host, &clocks.destination, false)?;
    prepared.sessions.replace_writer(session);
    if with_source {
        let (_, session) = open_source(document, host, &clocks.source)?;
        prepared.sessions.replace_coordinator(session);
    }
    Ok(())
}

/// The side that has the rows of the source.
pub(super) enum Origin {
    /// The session that holds the snapshot of the plan.
    Source,
    /// A session of the destination that staged the rows.
    Staged(Box<Mutex<Destination>>),
}

/// Both sides of a stream.
pub(super) struct Sides<'a> {
    pub(super) prepared: &'a Prepared,
    /// The plan, or a newer one if the columns changed while the rows were staged.
    pub(super) stream: Cow<'a, StreamPlan>,
    pub(super) host: &'a Host,
    pub(super) origin: Origin,
    pub(super) selection: Selection,
    /// The snapshot that has the rows of the source. `None`: as they are now.
    pub(super) snapshot: Option<&'a str>,
    pub(super) recipe: String,
    /// For the source.
    pub(super) limits: Vec<RowLimit>,
    /// The same for the destination, which may have other names of columns.
    pub(super) target_limits: Vec<RowLimit>,
    /// The names of the columns in the target.
    pub(super) columns: Vec<String>,
}

/// Rows of one side by their keys, or, without a key, by their digests.
type Found = BTreeMap<Vec<String>, Vec<DigestedRow>>;

impl<'a> Sides<'a> {
    pub(super) fn of(
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

    pub(super) fn of_source<T>(
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

    pub(super) fn of_target<T>(
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
        let target = staged_target(&self.stream.target);
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

    pub(super) fn sums(
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

    pub(super) fn rows(
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
    pub(super) fn compare(&self, within: Option<&Buckets>) -> Result<Compared, Failure> {
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
