//! The progress of a run at several moments, for charts.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use rapidbyte::{Progress, rss_bytes};

/// Between two samples at the beginning.
const EVERY: Duration = Duration::from_millis(20);
/// Kept at most. When there are as many, every second one goes and they come half as often.
const MAX_SAMPLES: usize = 512;

/// One moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Since the sampler began.
    pub secs: f64,
    /// That the destinations had taken, of all streams.
    pub rows: u64,
    /// Bytes of Arrow data of these rows.
    pub bytes: u64,
    /// Resident in the whole process, where the system tells.
    pub rss_bytes: Option<u64>,
}

/// Samples a run until it is stopped.
pub struct Sampler {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
    samples: Arc<Mutex<Vec<Sample>>>,
    progress: Arc<Progress>,
    start: Instant,
}

impl Sampler {
    /// Begins to look at `progress`.
    pub fn start(progress: Arc<Progress>) -> Self {
        let (stop, stopped) = bounded::<()>(0);
        let samples = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();
        let (kept, looked_at) = (Arc::clone(&samples), Arc::clone(&progress));
        let look = move || {
            let mut every = EVERY;
            loop {
                let mut samples = kept.lock().unwrap_or_else(PoisonError::into_inner);
                samples.push(Sample::now(&looked_at, start));
                if samples.len() >= MAX_SAMPLES {
                    thin_out(&mut samples);
                    every *= 2;
                }
                drop(samples);
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("sampler".into());
        Self {
            stop,
            // A page without charts is still a page.
            thread: thread.spawn(look).ok(),
            samples,
            progress,
            start,
        }
    }

    /// All samples, the last one from now.
    pub fn stop(self) -> Vec<Sample> {
        drop(self.stop);
        if let Some(thread) = self.thread {
            // One that panicked has sampled what it could.
            let _ = thread.join();
        }
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(Sample::now(&self.progress, self.start));
        std::mem::take(&mut samples)
    }
}

impl Sample {
    fn now(progress: &Progress, start: Instant) -> Self {
        Self {
            secs: start.elapsed().as_secs_f64(),
            rows: progress.streams.iter().map(|stream| stream.rows()).sum(),
            bytes: progress.streams.iter().map(|stream| stream.bytes()).sum(),
            rss_bytes: rss_bytes(),
        }
    }
}

/// Every second one, beginning with the first.
fn thin_out(samples: &mut Vec<Sample>) {
    let mut index = 0;
    samples.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_samples_stay_and_the_first_among_them() {
        let sample = |rows| Sample {
            secs: rows as f64,
            rows,
            bytes: 0,
            rss_bytes: None,
        };
        let mut samples: Vec<_> = (0..MAX_SAMPLES as u64).map(sample).collect();
        thin_out(&mut samples);
        assert_eq!(samples.len(), MAX_SAMPLES / 2);
        assert_eq!((samples[0].rows, samples[1].rows), (0, 2));
    }

    #[test]
    fn a_sampler_gives_the_beginning_and_the_end() {
        let samples = Sampler::start(Arc::default()).stop();
        assert!(!samples.is_empty());
        assert!(samples.is_sorted_by(|a, b| a.secs <= b.secs));
    }
}
