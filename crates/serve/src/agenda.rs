//! The streams that have jobs, and when each is due.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

/// The pause before a run is tried again, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// After so many failures in a row, about a minute, a job may be to blame for what looks like an error of a connector.
const PATIENCE: u32 = 8;

/// A pipeline and one of its streams.
pub type Key = (String, String);

/// The streams that are due.
#[derive(Default)]
pub struct Agenda {
    ready: VecDeque<Key>,
    /// Streams whose last run failed.
    later: BTreeMap<Instant, Vec<Key>>,
    streams: HashMap<Key, Standing>,
    /// Streams at work.
    running: usize,
    ends: bool,
}

/// The state of a stream.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    is_due: bool,
    /// A thread has it.
    is_running: bool,
    /// Callers of [`Agenda::hold`] that wait for it.
    wanted: u32,
    /// Its run waits for jobs.
    rests: bool,
    /// The destination has changed while the stream ran, so the store no longer knows what it has.
    is_distrusted: bool,
    /// A job came while the stream ran.
    is_due_again: bool,
    /// It has committed rows, also since a job was blamed for an error of a connector. `None`: nobody has looked.
    is_proved: Option<bool>,
    /// Runs that failed one after the other. A run that is retried from its last commit has not failed.
    pub failures: u32,
    /// The store knows what the destination has.
    pub is_reconciled: bool,
    /// Why its jobs wait: the last failure, as JSON. A run that is retried has one, too.
    pub problem: Option<Value>,
    /// When it is tried again.
    pub again_at: Option<Instant>,
    /// Its last run that committed rows.
    pub last: Option<LastRun>,
    /// All of its runs since the server began.
    pub runs: u64,
    /// Rows of all of them.
    pub rows: u64,
}

impl Standing {
    /// Whether a run of it has jobs.
    pub fn works(&self) -> bool {
        self.is_running && !self.rests
    }
}

/// A run that committed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LastRun {
    /// When it ended, in milliseconds since 1970-01-01.
    pub ended_ms: i64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Its jobs.
    pub jobs: u64,
    /// The rows that it committed.
    pub rows: u64,
}

/// The outcome of a turn of a stream.
pub enum Turn {
    /// It has no more jobs.
    Empty,
    /// It may have more. Other streams come first.
    More,
    /// It is tried again after a pause, for this reason.
    Later(Value),
}

/// The next step of a thread.
pub enum Next {
    /// This stream. The flag says whether the store knows what the destination has.
    Stream(Key, bool),
    /// Nothing until this moment, or until something changes.
    Wait(Option<Instant>),
    /// The end.
    End,
}

impl Agenda {
    /// A stream has a job. Returns whether a thread is to be woken.
    pub fn due(&mut self, key: Key) -> bool {
        let standing = self.streams.entry(key.clone()).or_default();
        if standing.is_running {
            standing.is_due_again = true;
            return false;
        }
        if std::mem::replace(&mut standing.is_due, true) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Makes streams due that wait after a failure: all streams that are meant.
    pub fn retry(&mut self, is_meant: impl Fn(&Key) -> bool) -> bool {
        let mut found = Vec::new();
        self.later.retain(|_, keys| {
            let (meant, others) = std::mem::take(keys)
                .into_iter()
                .partition(|key| is_meant(key));
            found.extend::<Vec<Key>>(meant);
            *keys = others;
            !keys.is_empty()
        });
        let any = !found.is_empty();
        self.ready.extend(found);
        any
    }

    /// The store no longer knows what the destination of this stream has.
    pub fn distrust(&mut self, key: &Key) {
        if let Some(standing) = self.streams.get_mut(key) {
            (standing.is_reconciled, standing.is_distrusted) = (false, true);
        }
    }

    /// Keeps a stream from running. False if a thread has it.
    pub fn hold(&mut self, key: &Key) -> bool {
        let standing = self.streams.entry(key.clone()).or_default();
        !std::mem::replace(&mut standing.is_running, true)
    }

    /// Somebody waits for the end of the stream's run, or does so no more.
    pub fn want(&mut self, key: &Key, wants: bool) {
        let standing = self.streams.entry(key.clone()).or_default();
        standing.wanted = match wants {
            true => standing.wanted + 1,
            false => standing.wanted.saturating_sub(1),
        };
    }

    /// Whether somebody waits for the end of the stream's run.
    pub fn is_wanted(&self, key: &Key) -> bool {
        let standing = self.streams.get(key);
        standing.is_some_and(|standing| standing.wanted > 0)
    }

    /// A stream that was held may run again.
    pub fn release(&mut self, key: &Key) {
        let standing = self.streams.entry(key.clone()).or_default();
        standing.is_running = false;
        if std::mem::take(&mut standing.is_due_again) && !standing.is_due {
            standing.is_due = true;
            self.ready.push_back(key.clone());
        }
    }

    /// The run of a stream waits for jobs, or has some again.
    pub fn rests(&mut self, key: &Key, rests: bool) {
        if let Some(standing) = self.streams.get_mut(key) {
            standing.rests = rests;
        }
    }

    /// No stream begins any more.
    pub fn end(&mut self) {
        self.ends = true;
    }

    /// Whether no stream begins any more.
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// Streams at work.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Whether more streams are ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What comes next.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.ends {
            return Next::End;
        }
        while let Some(first) = self.later.first_entry().filter(|first| *first.key() <= now) {
            self.ready.extend(first.remove());
        }
        while let Some(key) = self.ready.pop_front() {
            let standing = self.streams.entry(key.clone()).or_default();
            standing.is_due = false;
            if standing.is_running {
                // Somebody holds it, and gives it back.
                standing.is_due_again = true;
                continue;
            }
            standing.is_running = true;
            (standing.rests, standing.is_distrusted) = (false, false);
            standing.again_at = None;
            let is_reconciled = standing.is_reconciled;
            self.running += 1;
            return Next::Stream(key, is_reconciled);
        }
        Next::Wait(self.later.keys().next().copied())
    }

    /// A run of a stream has committed. Returns whether the stream had a problem.
    pub fn committed(&mut self, key: &Key, run: LastRun) -> bool {
        let Some(standing) = self.streams.get_mut(key) else {
            return false;
        };
        standing.runs += 1;
        standing.rows += run.rows;
        standing.last = Some(run);
        standing.is_proved = Some(true);
        // The run may go on for long.
        standing.failures = 0;
        standing.problem.take().is_some()
    }

    /// A stream has a problem, and is retried. Returns whether it is another problem than before.
    pub fn fails(&mut self, key: &Key, problem: Value) -> bool {
        let standing = self.streams.entry(key.clone()).or_default();
        let before = standing.problem.replace(problem);
        before.as_ref().map(reason) != standing.problem.as_ref().map(reason)
    }

    /// Whether a stream has failed so often that a job may be to blame for an error of a connector.
    pub fn is_patience_over(&self, key: &Key) -> bool {
        let standing = self.streams.get(key);
        standing.is_some_and(|standing| standing.failures >= PATIENCE)
    }

    /// Whether the connectors of a stream have moved rows, so that an error of theirs may be about a job.
    pub fn is_proved(&self, key: &Key) -> bool {
        let standing = self.streams.get(key);
        standing.is_some_and(|standing| standing.is_proved == Some(true))
    }

    /// A job was blamed for an error of a connector. Until others are moved, the next error blames none.
    pub fn doubt(&mut self, key: &Key) {
        if let Some(standing) = self.streams.get_mut(key) {
            standing.is_proved = Some(false);
        }
    }

    /// The destination has jobs of the stream, perhaps of an earlier process.
    pub fn has_moved(&mut self, key: &Key) {
        let standing = self.streams.entry(key.clone()).or_default();
        standing.is_proved.get_or_insert(true);
    }

    /// A stream has had its turn. Returns whether it had a problem and has none any more.
    pub fn ended(&mut self, key: Key, turn: Turn, now: Instant) -> bool {
        self.running = self.running.saturating_sub(1);
        let standing = self.streams.entry(key.clone()).or_default();
        standing.is_running = false;
        let is_due_again = std::mem::take(&mut standing.is_due_again);
        match turn {
            Turn::Later(problem) => {
                standing.failures = standing.failures.saturating_add(1);
                // What the last run committed is not known.
                (standing.is_reconciled, standing.is_due) = (false, true);
                let pause = FIRST_PAUSE.saturating_mul(1 << (standing.failures - 1).min(10));
                let at = now + pause.min(MAX_PAUSE);
                (standing.problem, standing.again_at) = (Some(problem), Some(at));
                self.later.entry(at).or_default().push(key);
                false
            }
            Turn::Empty | Turn::More => {
                (standing.failures, standing.is_reconciled) = (0, !standing.is_distrusted);
                let had_problem = standing.problem.take().is_some();
                if is_due_again || matches!(turn, Turn::More) {
                    standing.is_due = true;
                    self.ready.push_back(key);
                }
                had_problem
            }
        }
    }

    /// All streams that the server has seen.
    pub fn streams(&self) -> &HashMap<Key, Standing> {
        &self.streams
    }
}

/// What tells one reason of a failure from another. The message of one reason may have other numbers each time.
fn reason(problem: &Value) -> [&Value; 5] {
    ["code", "connector", "location", "column", "job"].map(|key| &problem[key])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> Key {
        ("p".into(), name.into())
    }

    fn stream(agenda: &mut Agenda, now: Instant) -> Option<(String, bool)> {
        match agenda.next(now) {
            Next::Stream((_, stream), is_reconciled) => Some((stream, is_reconciled)),
            _ => None,
        }
    }

    #[test]
    fn a_stream_has_one_run_at_a_time_and_comes_again_for_new_jobs() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        assert!(agenda.due(key("a")));
        assert!(!agenda.due(key("a")));
        assert!(agenda.due(key("b")));
        assert_eq!(stream(&mut agenda, now), Some(("a".into(), false)));
        assert!(!agenda.due(key("a")));
        assert_eq!(stream(&mut agenda, now), Some(("b".into(), false)));
        assert_eq!(stream(&mut agenda, now), None);
        agenda.ended(key("b"), Turn::Empty, now);
        agenda.ended(key("a"), Turn::Empty, now);
        assert_eq!(stream(&mut agenda, now), Some(("a".into(), true)));
        agenda.ended(key("a"), Turn::Empty, now);
        assert!(matches!(agenda.next(now), Next::Wait(None)));
        agenda.end();
        assert!(matches!(agenda.next(now), Next::End));
    }

    #[test]
    fn a_stream_that_is_held_runs_when_it_is_given_back() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        agenda.due(key("a"));
        assert!(agenda.hold(&key("a")) && !agenda.hold(&key("a")));
        agenda.due(key("b"));
        assert_eq!(stream(&mut agenda, now), Some(("b".into(), false)));
        assert_eq!(stream(&mut agenda, now), None);
        assert!(!agenda.hold(&key("b")));
        agenda.release(&key("a"));
        assert_eq!(stream(&mut agenda, now), Some(("a".into(), false)));
        assert_eq!(agenda.running(), 2);
    }

    #[test]
    fn an_error_of_a_connector_blames_a_job_only_between_others_that_were_moved() {
        let (mut agenda, mut now) = (Agenda::default(), Instant::now());
        agenda.due(key("a"));
        for failures in 0..PATIENCE {
            assert!(!agenda.is_patience_over(&key("a")), "{failures}");
            now += MAX_PAUSE;
            stream(&mut agenda, now);
            agenda.ended(key("a"), Turn::Later(json!({})), now);
        }
        assert!(agenda.is_patience_over(&key("a")) && !agenda.is_proved(&key("a")));
        let run = LastRun {
            ended_ms: 0,
            seconds: 0.1,
            jobs: 1,
            rows: 1,
        };
        agenda.committed(&key("a"), run.clone());
        assert!(!agenda.is_patience_over(&key("a")) && agenda.is_proved(&key("a")));
        agenda.doubt(&key("a"));
        agenda.has_moved(&key("a"));
        assert!(!agenda.is_proved(&key("a")));
        agenda.has_moved(&key("b"));
        assert!(agenda.is_proved(&key("b")));
        agenda.committed(&key("a"), run);
        assert!(agenda.is_proved(&key("a")));
    }

    #[test]
    fn a_stream_that_fails_waits_longer_each_time_and_can_be_called() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        agenda.due(key("a"));
        stream(&mut agenda, now);
        agenda.ended(key("a"), Turn::Later(json!({ "code": "c" })), now);
        // A new job does not shorten the pause.
        assert!(!agenda.due(key("a")));
        assert_eq!(stream(&mut agenda, now), None);
        let later = now + FIRST_PAUSE;
        assert_eq!(stream(&mut agenda, later), Some(("a".into(), false)));
        agenda.ended(key("a"), Turn::Later(json!({ "code": "d" })), later);
        let standing = &agenda.streams()[&key("a")];
        assert_eq!(standing.failures, 2);
        assert_eq!(standing.again_at, Some(later + 2 * FIRST_PAUSE));
        assert!(!agenda.retry(|key| key.1 == "b"));
        assert!(agenda.retry(|key| key.1 == "a"));
        assert_eq!(stream(&mut agenda, later), Some(("a".into(), false)));
        agenda.ended(key("a"), Turn::More, later);
        assert_eq!(agenda.streams()[&key("a")].problem, None);
    }

    #[test]
    fn a_problem_is_news_once_until_the_reason_is_another_or_the_stream_is_well() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        let a = key("a");
        let lost =
            |tries: u32| json!({ "code": "lost", "message": format!("tried {tries} times") });
        let other = json!({ "code": "lost", "column": "id" });
        let turn = |agenda: &mut Agenda, turn| {
            agenda.due(key("a"));
            agenda.retry(|_| true);
            stream(agenda, now);
            agenda.ended(key("a"), turn, now)
        };
        assert!(agenda.fails(&a, lost(1)));
        assert!(!agenda.fails(&a, lost(2)));
        // The run that was retried has failed, and so has the next one.
        for _ in 0..2 {
            assert!(!turn(&mut agenda, Turn::Later(lost(5))));
            assert!(!agenda.fails(&a, lost(1)));
        }
        assert!(agenda.fails(&a, other));
        assert!(turn(&mut agenda, Turn::Empty));
        assert!(!turn(&mut agenda, Turn::Empty));
        assert!(agenda.fails(&a, lost(1)));
        let run = LastRun {
            ended_ms: 0,
            seconds: 0.1,
            jobs: 1,
            rows: 1,
        };
        assert!(agenda.committed(&a, run.clone()));
        assert!(!agenda.committed(&a, run));
        assert!(!turn(&mut agenda, Turn::More));
        assert!(agenda.fails(&a, lost(1)));
    }
}
