//! The CPU time and the memory of one run, in a process that may have many runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rapidbyte_runtime::RunMemory;
use rustix::time::{ClockId, clock_gettime};

/// The CPU time and the memory of one run. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    cpu_nanos: Arc<AtomicU64>,
    /// The linear memory of its connectors.
    pub memory: RunMemory,
}

impl Usage {
    /// Counts the CPU time of the calling thread from now on, until the guard is dropped on the same thread.
    #[must_use]
    pub(crate) fn of_thread(&self) -> OfThread<'_> {
        OfThread {
            usage: self,
            begun: cpu_time(ClockId::ThreadCPUTime),
        }
    }

    /// The CPU time of all threads whose guards have been dropped.
    pub(crate) fn cpu_secs(&self) -> f64 {
        Duration::from_nanos(self.cpu_nanos.load(Ordering::Acquire)).as_secs_f64()
    }
}

/// A thread that works for a run.
pub(crate) struct OfThread<'a> {
    usage: &'a Usage,
    begun: Duration,
}

impl Drop for OfThread<'_> {
    fn drop(&mut self) {
        let taken = cpu_time(ClockId::ThreadCPUTime).saturating_sub(self.begun);
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.usage.cpu_nanos.fetch_add(nanos, Ordering::AcqRel);
    }
}

/// User and system time by one of the clocks of POSIX.
pub(crate) fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let whole = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    whole + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the CPU until the thread has taken `most` CPU time.
    fn work(most: Duration) {
        let begun = cpu_time(ClockId::ThreadCPUTime);
        while cpu_time(ClockId::ThreadCPUTime) - begun < most {
            std::hint::black_box((0..1000).sum::<u64>());
        }
    }

    #[test]
    fn processor_time_belongs_to_the_run_whose_threads_took_it() {
        let (one, other) = (Usage::default(), Usage::default());
        let more = Duration::from_millis(20);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _counted = one.of_thread();
                    work(more);
                });
            }
            scope.spawn(|| {
                let counted = other.of_thread();
                work(more);
                drop(counted);
                work(more * 10);
            });
        });
        let (one, other) = (one.cpu_secs(), other.cpu_secs());
        assert!(one >= 0.04, "{one}");
        assert!((0.02..0.2).contains(&other), "{other}");
    }
}
