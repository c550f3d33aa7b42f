//! When a request is made again.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use super::{Response, retry_after_ms};
use crate::{Error, ErrorKind, Result};

const ATTEMPTS: u32 = 5;
/// Before the first retry; twice as long before each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A server that asks for a longer wait gets no retry here: the host retries the stream after it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How often a request is made, and how long to wait in between.
///
/// The waits double from half a second on. Half of each wait is jitter, so that clients that failed
/// together do not come back together. A retry waits for a server's `retry-after` (seconds or a date)
/// of a minute at most; for a longer wait the request is not retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
}

impl Default for Retry {
    /// Five attempts.
    fn default() -> Self {
        Self { attempts: ATTEMPTS }
    }
}

impl Retry {
    /// One attempt.
    pub const NEVER: Self = Self { attempts: 1 };

    /// At most `attempts` attempts; at least one.
    pub fn attempts(attempts: u32) -> Self {
        Self {
            attempts: attempts.max(1),
        }
    }

    /// The same with at most `attempts` attempts; at least one.
    #[must_use]
    pub fn at_most(self, attempts: u32) -> Self {
        Self::attempts(self.attempts.min(attempts))
    }

    /// How long to wait after an answer to attempt `attempt`, counted from 1. None where the answer is
    /// not 429, 502, 503 or 504, and after the last attempt.
    pub fn after(&self, attempt: u32, response: &Response) -> Option<Duration> {
        if !matches!(response.status(), 429 | 502..=504) {
            return None;
        }
        let asked = response.header("retry-after");
        let asked = asked.and_then(|text| retry_after_ms(&text, SystemTime::now()));
        self.wait(attempt, asked)
    }

    /// The same after an error. None where the error is not transient.
    pub fn after_error(&self, attempt: u32, error: &Error) -> Option<Duration> {
        match error.kind {
            ErrorKind::RateLimited(asked) => self.wait(attempt, asked),
            ErrorKind::Transient | ErrorKind::Connection => self.wait(attempt, None),
            _ => None,
        }
    }

    fn wait(&self, attempt: u32, asked_ms: Option<u64>) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        match asked_ms.map(Duration::from_millis) {
            Some(asked) => (asked <= LONGEST_WAIT).then_some(asked),
            None => Some(backoff(attempt, RandomState::new().hash_one(attempt))),
        }
    }
}

/// `random` is any number.
fn backoff(attempt: u32, random: u64) -> Duration {
    let longest = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(16));
    let half = longest.min(LONGEST_WAIT) / 2;
    // The upper bits, so that they fit a fraction exactly.
    half + half.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

/// Asks until an answer or an error is not retried any more.
pub(super) fn retrying(
    retry: Retry,
    mut sleep: impl FnMut(Duration),
    mut ask: impl FnMut() -> Result<Response>,
) -> Result<Response> {
    let mut attempt = 1;
    loop {
        let answer = ask();
        let wait = match &answer {
            Ok(response) => retry.after(attempt, response),
            Err(error) => retry.after_error(attempt, error),
        };
        let Some(wait) = wait else { return answer };
        drop(answer);
        sleep(wait);
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Body, Request, Url};

    struct Empty;
    impl Body for Empty {
        fn read(&mut self) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    fn answer(status: u16, retry_after: Option<&str>) -> Response {
        let header = retry_after.map(|text| ("retry-after".to_owned(), text.to_owned()));
        Response {
            status,
            headers: header.into_iter().collect(),
            url: Url::parse("http://a/").unwrap(),
            body: Box::new(Empty),
        }
    }

    /// The last answer's status, and the milliseconds of each wait.
    fn run(
        retry: Retry,
        mut answers: impl FnMut() -> Result<Response>,
    ) -> (Result<u16>, Vec<u128>) {
        let mut waits = Vec::new();
        let last = retrying(retry, |wait| waits.push(wait.as_millis()), &mut answers);
        (last.map(|response| response.status()), waits)
    }

    #[test]
    fn a_busy_server_fails_no_read_of_a_hundred_pages() {
        let mut asked = 0;
        for _ in 0..100 {
            let (last, _) = run(Retry::default(), || {
                asked += 1;
                Ok(answer(if asked % 37 == 0 { 503 } else { 200 }, None))
            });
            assert_eq!(last.unwrap(), 200);
        }
        assert_eq!(asked, 102);
    }

    #[test]
    fn only_transient_failures_are_retried_a_bounded_number_of_times() {
        for (status, attempts) in [
            (429, 5),
            (502, 5),
            (503, 5),
            (504, 5),
            (200, 1),
            (404, 1),
            (500, 1),
            (501, 1),
        ] {
            let (last, waits) = run(Retry::default(), || Ok(answer(status, None)));
            assert_eq!((last.unwrap(), waits.len() + 1), (status, attempts));
            let longest = [500, 1000, 2000, 4000];
            let mut pairs = waits.iter().zip(longest);
            assert!(
                pairs.all(|(wait, most)| (most / 2..=most).contains(wait)),
                "{waits:?}"
            );
        }
        for (kind, attempts) in [
            (ErrorKind::Connection, 3),
            (ErrorKind::Transient, 3),
            (ErrorKind::Config, 1),
            (ErrorKind::Auth, 1),
        ] {
            let error = || Err(Error::new(kind, "x", "x"));
            let (last, waits) = run(Retry::attempts(3), error);
            assert!(last.is_err());
            assert_eq!(waits.len() + 1, attempts, "{kind:?}");
        }
    }

    #[test]
    fn the_server_says_how_long_to_wait_up_to_a_minute() {
        let waits = |text: &str| run(Retry::attempts(2), || Ok(answer(503, Some(text)))).1;
        assert_eq!(waits("7"), [7000]);
        assert_eq!(waits("0"), [0]);
        assert_eq!(waits("Sun, 06 Nov 1994 08:49:37 GMT"), [0]);
        assert_eq!(waits("60"), [60_000]);
        assert_eq!(waits("61"), [] as [u128; 0]);
        assert_eq!(waits("Sun, 06 Nov 9994 08:49:37 GMT"), [] as [u128; 0]);
        assert!((250..=500).contains(&waits("soon")[0]));
    }

    #[test]
    fn waits_grow_to_a_minute_with_jitter() {
        assert_eq!(backoff(1, 0), Duration::from_millis(250));
        assert_eq!(backoff(1, u64::MAX), Duration::from_millis(500));
        assert_eq!(backoff(4, 0), Duration::from_secs(2));
        assert_eq!(backoff(40, u64::MAX), Duration::from_secs(60));
    }

    #[test]
    fn a_post_is_retried_only_where_somebody_says_so() {
        let url = Url::parse("http://a/").unwrap();
        assert_eq!(Request::get(url.clone()).retry, Retry::default());
        assert_eq!(Request::post(url.clone(), "x").retry, Retry::NEVER);
        let opted_in = Request::post(url, "x").retry(Retry::default());
        assert_eq!(opted_in.retry, Retry::default());
    }
}
