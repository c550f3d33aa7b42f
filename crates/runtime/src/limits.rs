//! The limits of an instance: memory from a shared budget, and time without progress.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::ResourceLimiter;

/// Caps of one instance. Normal work meets none of them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// CPU time in the guest without moving a byte through the host, within one call.
    pub busy: Duration,
    /// Time without anything moving, waiting included: no byte, row or file. A connector that
    /// waits for a lock and asks who holds it moves bytes.
    pub stall: Duration,
    /// The time that `abort` may take after a run was given up, on top of the limit that ended the
    /// run.
    pub abort: Duration,
    /// Log messages; further ones are dropped.
    pub log_lines: u32,
    /// Bytes of log messages; further ones are dropped.
    pub log_bytes: usize,
    /// The log messages of all instances with these limits. With any number of streams and attempts,
    /// together they may log ten times as much as one instance.
    pub said: Said,
    /// Open connections at a time.
    pub connections: u32,
    /// Names that are being looked up for all instances with these limits.
    pub lookups: Lookups,
    /// Open files at a time.
    pub files: u32,
    /// Files and folders that all instances with these limits have begun to write.
    pub begun: Begun,
    /// Handles at a time, of the host's resources and of the guest's own.
    pub handles: usize,
    /// Bytes that the host holds for it at a time: buffers of connections, names of files.
    pub host_bytes: usize,
    /// Bytes of one batch message that a source may hand over.
    pub batch_bytes: usize,
    /// Bytes of one text or binary value in a batch.
    pub value_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            busy: Duration::from_secs(120),
            stall: Duration::from_secs(7200),
            abort: Duration::from_secs(30),
            log_lines: 10_000,
            log_bytes: 8 << 20,
            said: Said::default(),
            connections: 64,
            lookups: Lookups::default(),
            files: 1024,
            begun: Begun::default(),
            handles: crate::host::http::MAX_HANDLES,
            host_bytes: 64 << 20,
            batch_bytes: 512 << 20,
            value_bytes: 512 << 20,
        }
    }
}

/// All instances of a stage may log this many times as much in a run as one instance.
pub(crate) const ALL_MAY_SAY: u64 = 10;

/// Messages and their bytes. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Said(Arc<Mutex<(u64, u64)>>);

/// Whether a message is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// This message is the first one too many.
    JustFull,
    Full,
}

impl Said {
    /// Counts one message of this size, if it has room.
    pub(crate) fn add(&self, bytes: u64, most_lines: u64, most_bytes: u64) -> Room {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |(lines, bytes): (u64, u64)| lines > most_lines || bytes > most_bytes;
        if is_full(*said) {
            return Room::Full;
        }
        *said = (said.0 + 1, said.1 + bytes);
        match is_full(*said) {
            true => Room::JustFull,
            false => Room::Enough,
        }
    }
}

/// Files and folders that one stage may begin to write in a run: a small disk has that many inodes.
pub(crate) const MOST_BEGUN: u32 = 1_000_000;

/// Files and folders that one stage has begun to write. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Begun(Arc<AtomicU32>);

impl Begun {
    /// Counts one more; false where it is one too many.
    pub(crate) fn take(&self) -> bool {
        let more = |n: u32| (n < MOST_BEGUN).then_some(n + 1);
        let taken = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok()
    }
}

/// Threads of this process that look names up. One whose resolver is silent outlives the guest that
/// asked, by as much as the system waits for it.
const MOST_LOOKUPS: u32 = 256;
/// And threads of one stage, so that it leaves some to the other stages.
const MOST_LOOKUPS_OF_STAGE: u32 = 128;
/// The lookups of all stages.
static LOOKUPS: AtomicU32 = AtomicU32::new(0);

/// Names that are being looked up for one stage. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Lookups(Arc<AtomicU32>);

/// One lookup, until it ends, even if nobody waits for it any more.
pub(crate) struct Lookup(Lookups, &'static AtomicU32);

impl Lookups {
    /// A place for one more. `None` where there are too many.
    pub(crate) fn take(&self) -> Option<Lookup> {
        self.take_of(&LOOKUPS)
    }

    fn take_of(&self, all: &'static AtomicU32) -> Option<Lookup> {
        let take = |count: &AtomicU32, most: u32| {
            let more = |n: u32| (n < most).then_some(n + 1);
            count
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
                .is_ok()
        };
        if !take(&self.0, MOST_LOOKUPS_OF_STAGE) {
            return None;
        }
        if !take(all, MOST_LOOKUPS) {
            self.0.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Lookup(self.clone(), all))
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
        self.1.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Bytes of linear memory that all instances of a run hold. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct RunMemory(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl RunMemory {
    /// The most that was held at one time, in bytes.
    pub fn peak(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        let before = self.0.now.fetch_add(bytes, Ordering::AcqRel);
        self.0.peak.fetch_max(before + bytes, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.0.now.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Bytes of linear memory that several instances share.
pub struct MemoryBudget {
    total: usize,
    /// The bytes of the setting that this budget is a part of.
    setting: usize,
    run: RunMemory,
    used: AtomicUsize,
    peak: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `total` bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Self::part_of(&RunMemory::default(), total, total)
    }

    /// A budget of `total` bytes of a run, which is a part of a setting of the operator.
    pub fn part_of(run: &RunMemory, setting: usize, total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            setting,
            run: run.clone(),
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        })
    }

    /// The whole budget in bytes.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The most that was ever in use, in bytes.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.total)
            });
        if let Ok(before) = taken {
            self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Charges one instance's memory to the budget, and gives it back when dropped.
pub(crate) struct MemoryLimiter {
    budget: Arc<MemoryBudget>,
    held: usize,
    /// Set when the budget refused: the trap that follows is then explained by it.
    pub refused: AtomicBool,
    /// The size that the whole budget would have needed when it refused; 0 before.
    wanted: AtomicUsize,
}

impl MemoryLimiter {
    pub fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            budget,
            held: 0,
            refused: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
        }
    }

    /// The budget that would have been enough for what it refused. More may be asked for after that.
    pub fn wanted_bytes(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    pub fn budget_bytes(&self) -> usize {
        self.budget.total
    }

    /// The bytes of the setting that the budget is a part of.
    pub fn setting_bytes(&self) -> usize {
        self.budget.setting
    }

    /// Linear memory of the instance: it never shrinks.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// Charges what is held to another budget, perhaps of another run; false, and nothing changes, if it has not so much.
    pub fn move_to(&mut self, budget: &Arc<MemoryBudget>) -> bool {
        let moved = budget.take(self.held);
        if moved {
            self.budget.give_back(self.held);
            self.budget.run.subtract(self.held);
            budget.run.add(self.held);
            self.budget = Arc::clone(budget);
        }
        moved
    }
}

impl Drop for MemoryLimiter {
    fn drop(&mut self) {
        self.budget.give_back(self.held);
        self.budget.run.subtract(self.held);
    }
}

/// Elements of one table: a component of ours has a few thousand functions.
const MAX_TABLE: usize = 1_000_000;
/// Bytes that wasmtime holds for each of them, rounded up.
const TABLE_ELEMENT_BYTES: usize = 16;
/// Core instances of one component. One in Rust has 4, one in Python about 40.
const MAX_INSTANCES: usize = 512;
/// Memories of one component: each one reserves addresses, used or not. Ours have one.
const MAX_MEMORIES: usize = 16;
/// Tables of one component. Ours have a few.
const MAX_TABLES: usize = 256;

impl MemoryLimiter {
    /// Takes more from the budget, or notes that there is none.
    fn take(&mut self, more: usize) -> bool {
        let granted = self.budget.take(more);
        if granted {
            self.held += more;
            self.budget.run.add(more);
        } else {
            let used = self.budget.used.load(Ordering::Relaxed);
            let wanted = used.saturating_add(more);
            self.wanted.fetch_max(wanted, Ordering::Relaxed);
            self.refused.store(true, Ordering::Relaxed);
        }
        granted
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.take(desired.saturating_sub(current)))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        if desired > MAX_TABLE {
            self.refused.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        Ok(self.take(more * TABLE_ELEMENT_BYTES))
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_moves_to_another_run_is_counted_there() {
        let (one, other) = (RunMemory::default(), RunMemory::default());
        let now = |run: &RunMemory| run.0.now.load(Ordering::Acquire);
        let mut limiter = MemoryLimiter::new(MemoryBudget::part_of(&one, 100, 100));
        assert!(limiter.take(60));
        assert!(!limiter.move_to(&MemoryBudget::part_of(&other, 50, 50)));
        assert_eq!((now(&one), now(&other)), (60, 0));
        assert!(limiter.move_to(&MemoryBudget::part_of(&other, 100, 100)));
        assert_eq!((now(&one), now(&other)), (0, 60));
        assert!(limiter.take(10) && other.peak() == 70);
        drop(limiter);
        assert_eq!((now(&one), now(&other)), (0, 0));
    }

    #[test]
    fn files_that_a_stage_begins_are_bounded_together() {
        let begun = Begun::default();
        let other = begun.clone();
        assert!((0..MOST_BEGUN).all(|_| begun.take()));
        assert!(!other.take() && Begun::default().take());
    }

    #[test]
    fn lookups_are_bounded_for_a_stage_and_for_the_process() {
        // Other tests connect meanwhile.
        static ALL: AtomicU32 = AtomicU32::new(0);
        let hostile = Lookups::default();
        // As of many streams: their limits are clones.
        let of_streams: Vec<Lookups> = (0..60).map(|_| hostile.clone()).collect();
        let asked = of_streams.iter().cycle().take(4200);
        let held: Vec<Lookup> = asked.filter_map(|one| one.take_of(&ALL)).collect();
        assert_eq!(held.len(), MOST_LOOKUPS_OF_STAGE as usize);
        // The other stage is not held up by it.
        let one = Lookups::default().take_of(&ALL).expect("a place");
        let stages = (0..10).map(|_| Lookups::default());
        let others: Vec<Lookup> = stages
            .flat_map(|stage| {
                (0..1000)
                    .map_while(|_| stage.take_of(&ALL))
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(held.len() + 1 + others.len() <= MOST_LOOKUPS as usize);
        assert!(
            Lookups::default().take_of(&ALL).is_none(),
            "of the whole process"
        );
        drop((held, one, others));
        assert!(hostile.take_of(&ALL).is_some(), "given back");
    }
}
