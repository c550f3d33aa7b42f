//! Pauses between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use rapidbyte_runtime::Cancel;

use crate::document::{Document, Retry};
use crate::event::Event;
use crate::failure::Failure;
use crate::host::Host;

/// The longest pause that a server may ask for. If it asks for a longer pause, its error ends the attempts.
const LONGEST_ASKED_MS: u32 = 3_600_000;

/// Counts attempts; each pause is twice the one before, and half of it is left to chance, so that
/// many runs that failed at one moment do not all come back at one moment.
pub(crate) struct Backoff {
    retry: Retry,
    since_commit: u32,
    pause: Duration,
    /// Also attempts before a commit.
    attempts: u32,
    random: RandomState,
}

impl Backoff {
    pub(crate) fn new(retry: Retry) -> Self {
        Self {
            retry,
            since_commit: 1,
            pause: first(retry),
            attempts: 1,
            random: RandomState::new(),
        }
    }

    /// Attempts so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// A commit starts the attempts and the pauses anew.
    pub(crate) fn begin_anew(&mut self) {
        self.since_commit = 1;
        self.pause = first(self.retry);
    }

    /// How long to wait after a failure, and the message. None if the failure is not transient, if it was the
    /// last attempt, or if the run is cancelled. `kept` says which rows stay.
    pub(crate) fn after(
        &mut self,
        failure: &Failure,
        passes_after_ms: Option<u32>,
        kept: &str,
        cancel: &Cancel,
    ) -> Option<(Duration, String)> {
        let least = passes_after_ms.filter(|ms| *ms <= LONGEST_ASKED_MS)?;
        if cancel.is_cancelled() {
            return None;
        }
        let pause = self.next(Duration::from_millis(least.into()))?;
        let of = match &failure.connector {
            Some(connector) => format!("{connector}: "),
            None => String::new(),
        };
        let text = format!(
            "{of}{}: {}; {kept}; retries in {:.1} s",
            failure.code,
            failure.message,
            pause.as_secs_f64()
        );
        Some((pause, text))
    }

    /// How long to wait before the next attempt, `least` at least; none when it was the last.
    fn next(&mut self, least: Duration) -> Option<Duration> {
        if self.since_commit >= self.retry.max_attempts {
            return None;
        }
        self.since_commit += 1;
        self.attempts += 1;
        let half = self.pause / 2;
        let chance = self.random.hash_one(self.attempts) as f64 / u64::MAX as f64;
        let longest = Duration::from_secs(self.retry.max_backoff_seconds);
        self.pause = (self.pause * 2).min(longest);
        Some((half + half.mul_f64(chance)).max(least))
    }

    /// The last failure, with the number of attempts if there were several.
    pub(crate) fn told(&self, mut failure: Failure) -> Failure {
        if self.attempts > 1 {
            failure.message = format!("{} (tried {} times)", failure.message, self.attempts);
        }
        failure
    }
}

/// The first pause; no pause is above the longest, unless the server asks for it.
fn first(retry: Retry) -> Duration {
    Duration::from_secs(retry.backoff_seconds.min(retry.max_backoff_seconds))
}

/// Retries `work` while its failure is transient and attempts are left. `work` gets the number of the attempt.
/// Only for steps before the first row, because each attempt starts anew.
pub(crate) fn until_it_passes<T>(
    document: &Document,
    host: &Host,
    work: impl FnMut(u32) -> Result<T, Failure>,
) -> Result<T, Failure> {
    retried(document, host, "no row has moved yet", work)
}

/// The same for steps that move no rows at any time. `kept` says what a failure leaves.
pub(crate) fn retried<T>(
    document: &Document,
    host: &Host,
    kept: &str,
    mut work: impl FnMut(u32) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut backoff = Backoff::new(document.retry);
    loop {
        let failure = match work(backoff.attempts()) {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let passes = failure.passes_after_ms;
        if let Some(ms) = passes.filter(|ms| is_too_long(*ms, host.longest_pause)) {
            let seconds = ms.div_ceil(1000);
            let hint = format!("run the command again after {seconds} s, as the server asks");
            return Err(backoff.told(failure.hint(hint)));
        }
        let next = backoff.after(&failure, passes, kept, &host.cancel);
        let Some((pause, text)) = next else {
            return Err(backoff.told(failure));
        };
        host.tell(&Event::Retrying {
            stream: failure.stream.as_deref(),
            failure: &failure.redacted(document),
            attempt: backoff.attempts(),
            pause,
            message: &document.redact(&text),
        });
        if !wait(pause, &host.cancel) {
            return Err(Failure::cancelled());
        }
    }
}

/// True when a server asks for a longer pause than a command waits.
fn is_too_long(ms: u32, longest: Duration) -> bool {
    Duration::from_millis(ms.into()) > longest
}

/// False when it was cancelled meanwhile.
pub(crate) fn wait(pause: Duration, cancel: &Cancel) -> bool {
    let (wake, woken) = crossbeam_channel::bounded::<()>(1);
    // One word is enough: a full channel has it.
    let _registered = cancel.on_cancel(move || {
        let _ = wake.try_send(());
    });
    woken.recv_timeout(pause).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;

    #[test]
    fn a_command_that_looks_waits_half_a_minute_at_most() {
        let longest = Duration::from_secs(30);
        assert!(is_too_long(LONGEST_ASKED_MS, longest) && is_too_long(30_001, longest));
        assert!(!is_too_long(30_000, longest) && !is_too_long(u32::MAX, Duration::MAX));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retry = Retry {
            max_attempts: 5,
            backoff_seconds: 2,
            max_backoff_seconds: 5,
        };
        let mut backoff = Backoff::new(retry);
        for longest in [2, 4, 5, 5] {
            let pause = backoff.next(Duration::ZERO).unwrap().as_secs_f64();
            let longest = f64::from(longest);
            assert!((longest / 2.0..=longest).contains(&pause), "{pause}");
        }
        assert_eq!(backoff.next(Duration::ZERO), None);
        let failure = backoff.told(Failure::new(Class::Run, "x", "it broke"));
        assert_eq!(failure.message, "it broke (tried 5 times)");
        // After a commit it begins anew, and the other side may ask for more.
        backoff.begin_anew();
        let asked = Duration::from_secs(77);
        assert_eq!(backoff.next(asked), Some(asked));
    }

    #[test]
    fn the_first_pause_is_within_the_longest_and_a_server_may_ask_for_an_hour() {
        let retry = Retry {
            max_attempts: 9,
            backoff_seconds: 60,
            max_backoff_seconds: 2,
        };
        let mut backoff = Backoff::new(retry);
        assert!(backoff.next(Duration::ZERO).unwrap() <= Duration::from_secs(2));
        let mut failure = Failure::new(Class::Run, "http_rate_limited", "answers 429");
        failure.connector = Some("source-http".into());
        let mut after = |ms| backoff.after(&failure, Some(ms), "nothing moved", &Cancel::new());
        let (pause, text) = after(LONGEST_ASKED_MS).unwrap();
        assert_eq!(pause, Duration::from_secs(3600));
        assert_eq!(
            text,
            "source-http: http_rate_limited: answers 429; nothing moved; retries in 3600.0 s"
        );
        assert_eq!(after(LONGEST_ASKED_MS + 1), None);
    }

    #[test]
    fn cancelling_ends_a_pause() {
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(!wait(Duration::from_secs(3600), &cancel));
        assert!(wait(Duration::from_millis(1), &Cancel::new()));
    }
}
