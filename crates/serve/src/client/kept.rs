//! What destinations keep: the cursors of streams, and rejects.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use percent_encoding::utf8_percent_encode;
use rapidbyte::{
    CheckedCursor, RejectCounts, RejectFilter, Repaired, ShownCursor, ShownReject, ShownRejects,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Client, ClientError, PATH};

/// The longest time for an answer about a destination. The server gives up before.
const DESTINATION: Duration = Duration::from_secs(90);
/// The same for records, and for a replay.
const RECORDS: Duration = Duration::from_secs(3660);
/// Bytes of a line with a record, which has at most 64 KiB before they are escaped.
const MAX_LINE: u64 = 1 << 20;

/// The outcome of a replay.
#[derive(Debug, Clone, Deserialize)]
pub struct Replayed {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The place where rejects are kept.
    pub to: String,
    /// Rejects that were replayed.
    pub replayed: u64,
    /// Rows that are in the target now.
    pub rows: u64,
    /// Records that failed again.
    pub rejected: u64,
    /// The first of them, as a report has them.
    pub rejects: Vec<Value>,
    /// The runs that replayed them.
    pub run_ids: Vec<String>,
}

/// A cursor that was set.
#[derive(Debug, Clone, Deserialize)]
pub struct SetCursor {
    /// The progress of the stream.
    pub stream: ShownCursor,
    /// The run that is fenced.
    pub fences: Option<String>,
    /// Why the source could not check the cursor: a code and a message.
    pub unchecked: Option<Unchecked>,
}

/// Why the source could not check a cursor.
#[derive(Debug, Clone, Deserialize)]
pub struct Unchecked {
    /// A code from `docs/errors.md`.
    pub code: String,
    /// What happened.
    pub message: String,
}

/// Cursors that were moved.
#[derive(Debug, Clone, Deserialize)]
pub struct MovedCursors {
    /// The progress of each stream.
    pub streams: Vec<ShownCursor>,
    /// The streams whose cursors are valid only for their own server.
    pub of_server: Vec<String>,
    /// The run that is fenced.
    pub fences: Option<String>,
}

impl Client {
    /// The cursors of all streams of a pipeline, without secrets.
    ///
    /// # Errors
    /// The server refuses it, or does not answer. So do all calls here.
    pub fn cursors(&self, pipeline: &str) -> Result<Vec<CheckedCursor>, ClientError> {
        let answer = self.get(&of(pipeline, "cursors"), DESTINATION)?;
        self.typed(self.member(answer, "streams")?)
    }

    /// The cursor of a stream, and its text as the destination stores it.
    ///
    /// # Errors
    /// `no_cursor` and `unknown_stream`.
    pub fn cursor(
        &self,
        pipeline: &str,
        stream: &str,
    ) -> Result<(CheckedCursor, String), ClientError> {
        #[derive(Deserialize)]
        struct Answer {
            stream: CheckedCursor,
            text: String,
        }
        let answer = self.get(&of_stream(pipeline, stream), DESTINATION)?;
        let Answer { stream, text } = self.typed(answer)?;
        Ok((stream, text))
    }

    /// Sets the cursor of a stream. `seq` is the number of commits that the caller has seen.
    ///
    /// # Errors
    /// `already_running` without `force`, `cursor_moved`, and the errors of the cursor.
    pub fn set_cursor(
        &self,
        (pipeline, stream): (&str, &str),
        cursor: &str,
        seq: Option<u64>,
        force: bool,
    ) -> Result<SetCursor, ClientError> {
        let body = json!({ "cursor": cursor, "seq": seq, "force": force }).to_string();
        let request = self.agent.put(self.place(&of_stream(pipeline, stream)));
        let answer = self.send(request, &body, DESTINATION)?;
        self.typed(answer)
    }

    /// Lets the next run accept another source or target, for one stream or for all.
    ///
    /// # Errors
    /// `already_running` without `force`, and `unknown_stream`.
    pub fn rebind_cursors(
        &self,
        pipeline: &str,
        stream: Option<&str>,
        force: bool,
    ) -> Result<MovedCursors, ClientError> {
        self.move_cursors(&of(pipeline, "cursors/rebind"), stream, force)
    }

    /// Lets the next run begin with the first row, for one stream or for all.
    ///
    /// # Errors
    /// `already_running` without `force`, and `unknown_stream`.
    pub fn clear_cursors(
        &self,
        pipeline: &str,
        stream: Option<&str>,
        force: bool,
    ) -> Result<MovedCursors, ClientError> {
        self.move_cursors(&of(pipeline, "cursors/clear"), stream, force)
    }

    fn move_cursors(
        &self,
        path: &str,
        stream: Option<&str>,
        force: bool,
    ) -> Result<MovedCursors, ClientError> {
        let body = json!({ "stream": stream, "all": stream.is_none(), "force": force });
        let request = self.agent.post(self.place(path));
        let answer = self.send(request, &body.to_string(), DESTINATION)?;
        self.typed(answer)
    }

    /// Counts the rejects of a pipeline, or of one of its streams.
    ///
    /// # Errors
    /// `no_rejects` and errors of the destination.
    pub fn rejects(
        &self,
        pipeline: &str,
        stream: Option<&str>,
    ) -> Result<RejectCounts, ClientError> {
        let path = of(pipeline, "rejects") + &query(&[("stream", stream)]);
        let answer = self.get(&path, DESTINATION)?;
        self.typed(answer)
    }

    /// Calls `each` with the rejects that are asked for.
    ///
    /// # Errors
    /// `no_rejects` and errors of the destination: `each` may have had some of them.
    pub fn records(
        &self,
        pipeline: &str,
        filter: RejectFilter<'_>,
        mut each: impl FnMut(ShownReject),
    ) -> Result<ShownRejects, ClientError> {
        let limit = filter.limit.map(|limit| limit.to_string());
        let max_bytes = filter.max_bytes.map(|bytes| bytes.to_string());
        let path = of(pipeline, "rejects/records")
            + &query(&[
                ("stream", filter.stream),
                ("code", filter.code),
                ("column", filter.column),
                ("limit", limit.as_deref()),
                ("max_bytes", max_bytes.as_deref()),
            ]);
        let request = self.authorized(self.agent.get(self.place(&path)));
        let request = request.config().timeout_global(Some(RECORDS)).build();
        let answer = request.call();
        let answer = match answer {
            Ok(answer) if answer.status().is_success() => answer,
            refused => return Err(self.answer(refused).err().unwrap_or_else(|| self.cut())),
        };
        let mut lines = BufReader::new(answer.into_body().into_reader());
        while let Some(line) = self.line(&mut lines)? {
            if line.get("status").is_none() {
                each(self.typed(line)?);
                continue;
            }
            return match line["status"].as_str() {
                Some("ok") => self.typed(line),
                _ => Err(self.refused(200, &line)),
            };
        }
        Err(self.cut())
    }

    fn line(&self, lines: &mut impl BufRead) -> Result<Option<Value>, ClientError> {
        let mut line = Vec::new();
        let read = lines.take(MAX_LINE).read_until(b'\n', &mut line);
        let unreachable = |error: io::Error| self.unreachable(&ureq::Error::Io(error));
        if read.map_err(unreachable)? == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(self.cut());
        }
        let line = serde_json::from_slice(&line);
        let line = line.map_err(|_| self.unexpected("a line is not JSON"))?;
        Ok(Some(line))
    }

    fn cut(&self) -> ClientError {
        ClientError::Unreachable(self.base.clone(), "the answer has no end".to_owned())
    }

    /// Replays the rejects of a stream: the `repaired` ones, or all of them.
    ///
    /// # Errors
    /// Those of a replay on this machine. If the server does not answer, some records may have been replayed.
    pub fn replay(
        &self,
        pipeline: &str,
        stream: &str,
        repaired: Option<&[Repaired]>,
    ) -> Result<Replayed, ClientError> {
        let of_record = |one: &Repaired| {
            json!({
                "id": one.id, "record": String::from_utf8_lossy(&one.record), "run_id": one.run_id, "place": one.place,
            })
        };
        let repaired: Option<Vec<Value>> = repaired.map(|all| all.iter().map(of_record).collect());
        let body = json!({ "stream": stream, "repaired": repaired }).to_string();
        let request = self.agent.post(self.place(&of(pipeline, "rejects/replay")));
        let answer = self.send(request, &body, RECORDS)?;
        self.typed(answer)
    }
}

/// The path of a part of a pipeline.
fn of(pipeline: &str, part: &str) -> String {
    let name = utf8_percent_encode(pipeline, PATH);
    format!("/v1/pipelines/{name}/{part}")
}

fn of_stream(pipeline: &str, stream: &str) -> String {
    let stream = utf8_percent_encode(stream, PATH);
    of(pipeline, &format!("streams/{stream}/cursor"))
}

/// The query with the values that are given.
fn query(values: &[(&str, Option<&str>)]) -> String {
    let mut query = String::new();
    for (name, value) in values {
        if let Some(value) = value {
            let before = if query.is_empty() { '?' } else { '&' };
            let value = utf8_percent_encode(value, PATH);
            query.push_str(&format!("{before}{name}={value}"));
        }
    }
    query
}
