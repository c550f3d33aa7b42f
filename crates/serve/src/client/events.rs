//! The events of a run, as they come.

use std::io::{self, BufRead, BufReader, Read};
use std::thread::sleep;
use std::time::Duration;

use rapidbyte::{Level, Line};
use serde::Deserialize;
use serde_json::Value;

use super::{Client, ClientError, SILENCE};

/// Bytes of a line of the stream. The longest one has a run with its report and its error.
const MAX_LINE: u64 = 4 << 20;
/// Attempts, one after the other, that bring no event.
const MAX_ATTEMPTS: u32 = 12;
/// The first pause between two of them. The server may start.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Something that happens during a run.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// A message of a connector or of the engine.
    Line(Line),
    /// Messages that were lost, because this client was slow.
    Lost(u64),
    /// The counts of all streams.
    Progress(Vec<Counts>),
    /// The connection broke, for this reason. The client connects again.
    Reconnects(&'a ClientError),
}

/// The counts of a stream so far.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// The stream.
    pub name: String,
    /// `waiting`, `running`, `done` or `failed`.
    pub state: String,
    /// Rows that were moved.
    pub rows: u64,
    /// Bytes of Arrow data.
    pub bytes: u64,
    /// Rows that the source expects.
    pub estimated_rows: Option<u64>,
}

#[derive(Deserialize)]
struct LogLine {
    from: String,
    stream: Option<String>,
    level: String,
    message: String,
}

impl From<LogLine> for Line {
    fn from(line: LogLine) -> Self {
        Self {
            from: line.from,
            stream: line.stream,
            level: match line.level.as_str() {
                "error" => Level::Error,
                "warn" => Level::Warn,
                "debug" => Level::Debug,
                _ => Level::Info,
            },
            message: line.message,
        }
    }
}

#[derive(Deserialize)]
struct Lost {
    lines: u64,
}

#[derive(Deserialize)]
struct Progress {
    streams: Vec<Counts>,
}

/// The place in a stream of events.
#[derive(Default)]
struct Place {
    /// The number of the last line.
    last: Option<String>,
    /// Events so far.
    seen: u64,
}

impl Client {
    /// Follows a run to its end, also over connections that break. Returns the run as the API shows it.
    ///
    /// # Errors
    /// The server refuses it, or does not answer for about a minute: the run may go on.
    pub fn follow(
        &self,
        run: i64,
        mut each: impl FnMut(RunEvent<'_>),
    ) -> Result<Value, ClientError> {
        let mut place = Place::default();
        let (mut attempts, mut pause) = (0, FIRST_PAUSE);
        loop {
            let seen = place.seen;
            let error = match self.follow_once(run, &mut place, &mut each) {
                Ok(Some(run)) => return Ok(run),
                Ok(None) => {
                    ClientError::Unreachable(self.base.clone(), "the connection ended".into())
                }
                Err(error) => error,
            };
            if place.seen > seen {
                (attempts, pause) = (0, FIRST_PAUSE);
            }
            attempts += 1;
            if !error.is_transient() || attempts == MAX_ATTEMPTS {
                return Err(error);
            }
            each(RunEvent::Reconnects(&error));
            sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Follows a run until the connection ends. `None` if the run goes on.
    fn follow_once(
        &self,
        run: i64,
        place: &mut Place,
        each: &mut impl FnMut(RunEvent<'_>),
    ) -> Result<Option<Value>, ClientError> {
        let request = self
            .agent
            .get(self.place(&format!("/v1/runs/{run}/events")));
        let mut request = self.authorized(request);
        if let Some(last) = &place.last {
            request = request.header("last-event-id", last);
        }
        let request = request
            .config()
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        let answer = request.call().map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return match self.answer(Ok(answer)) {
                Err(error) => Err(error),
                Ok(_) => Err(self.unexpected("the answer has no events")),
            };
        }
        let mut stream = BufReader::new(answer.into_body().into_reader());
        loop {
            let event = match read_event(&mut stream) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(self.unexpected(&error.to_string()));
                }
                Err(error) => {
                    return Err(ClientError::Unreachable(
                        self.base.clone(),
                        error.to_string(),
                    ));
                }
            };
            place.seen += 1;
            let of = |error: serde_json::Error| {
                self.unexpected(&format!("the event {:?}: {error}", event.name))
            };
            match event.name.as_str() {
                "log" => {
                    let line: LogLine = serde_json::from_str(&event.data).map_err(of)?;
                    place.last = event.id;
                    each(RunEvent::Line(line.into()));
                }
                "lost" => {
                    let lost: Lost = serde_json::from_str(&event.data).map_err(of)?;
                    each(RunEvent::Lost(lost.lines));
                }
                "progress" => {
                    let progress: Progress = serde_json::from_str(&event.data).map_err(of)?;
                    each(RunEvent::Progress(progress.streams));
                }
                "end" => return serde_json::from_str(&event.data).map(Some).map_err(of),
                // A newer server may have more.
                _ => {}
            }
        }
    }
}

/// An event of the stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    id: Option<String>,
    data: String,
}

/// The next event. `None` at the end of the stream, also within an event.
fn read_event(stream: &mut BufReader<impl Read>) -> io::Result<Option<Event>> {
    let mut event = Event::default();
    loop {
        let mut line = Vec::new();
        let read = stream
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
        if !line.ends_with(b"\n") {
            return match read as u64 == MAX_LINE {
                true => Err(invalid("a line of the events is too long")),
                false => Ok(None),
            };
        }
        let line = std::str::from_utf8(&line).map_err(|_| invalid("the events are not UTF-8"))?;
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            if event.name.is_empty() {
                continue;
            }
            return Ok(Some(event));
        }
        // A comment has no name before its colon.
        let Some((field, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut event.name),
            "id" => event.id = Some(value.to_owned()),
            "data" => value.clone_into(&mut event.data),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        let mut stream = BufReader::new(text.as_bytes());
        std::iter::from_fn(|| read_event(&mut stream).expect("events")).collect()
    }

    #[test]
    fn events_are_read_and_comments_and_broken_ends_are_not() {
        let found = events(
            ": hello\n\nevent: log\nid: 7\ndata: {\"a\": 1}\n\r\nevent:end\ndata:x\n\nevent: log\ndata",
        );
        let log = Event {
            name: "log".into(),
            id: Some("7".into()),
            data: "{\"a\": 1}".into(),
        };
        let end = Event {
            name: "end".into(),
            id: None,
            data: "x".into(),
        };
        assert_eq!(found, [log, end]);
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_memory() {
        let mut stream = BufReader::new(io::repeat(b'x'));
        let error = read_event(&mut stream).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
