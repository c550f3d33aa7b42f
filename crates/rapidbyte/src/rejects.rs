//! The records that runs refused, which the destination keeps.

use std::collections::{BTreeMap, BTreeSet};

use rapidbyte_engine::{Failure, Kept};
use rapidbyte_runtime::{KeptReject, RejectOrigin};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pipeline::Pipeline;

/// Other streams that an answer names.
const MAX_OTHERS: usize = 10;

/// The rejects of a pipeline.
pub struct Rejects {
    pub(crate) pipeline: Pipeline,
    pub(crate) kept: Kept,
}

impl Rejects {
    /// Calls `each` with the rejects, in the order in which they were kept, until it returns false. Without `with_data`
    /// they have no records.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn each(
        &mut self,
        with_data: bool,
        mut each: impl FnMut(KeptReject) -> bool,
    ) -> Result<(), Failure> {
        let read = self.kept.each(with_data, |kept| Ok(each(kept)));
        read.map_err(|failure| failure.redacted(&self.pipeline.document))
    }

    /// Calls `each` with the rejects that are asked for, and their records, in the order in which they were kept, until it
    /// returns false.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn show(
        &mut self,
        filter: RejectFilter<'_>,
        mut each: impl FnMut(ShownReject) -> bool,
    ) -> Result<ShownRejects, Failure> {
        let pipeline = self.pipeline.clone();
        let (mut rejects, mut bytes, mut complete) = (0, 0, true);
        let (mut others, mut has_others_of_stream) = (BTreeSet::new(), false);
        self.each(true, |kept| {
            if !filter.has(&kept) {
                match filter.stream == Some(&kept.stream) {
                    true => has_others_of_stream = true,
                    false => add_other(&mut others, kept.stream),
                }
                return true;
            }
            bytes += (kept.reject.data.len() + kept.reject.message.len()) as u64;
            complete = filter.limit.is_none_or(|limit| rejects < limit)
                && filter.max_bytes.is_none_or(|max_bytes| bytes <= max_bytes);
            if complete {
                rejects += 1;
                complete = each(ShownReject::of(&pipeline, &kept));
            }
            complete
        })?;
        let of_stream = filter.stream.filter(|_| has_others_of_stream);
        let others = of_stream.map(str::to_owned).into_iter().chain(others);
        Ok(ShownRejects {
            pipeline: pipeline.name().to_owned(),
            to: pipeline.rejects_to().unwrap_or_default().to_owned(),
            rejects,
            complete,
            other_streams: others.collect(),
        })
    }

    /// Counts the rejects by stream, column and code: all of them, or those of one stream. Lists at most `max_groups` of
    /// these groups.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn counts(
        &mut self,
        stream: Option<&str>,
        max_groups: usize,
    ) -> Result<RejectCounts, Failure> {
        let mut groups: BTreeMap<(String, String, String), Counted> = BTreeMap::new();
        let (mut rejects, mut unlisted) = (0, 0);
        let mut newest: Option<KeptReject> = None;
        let mut others = BTreeSet::new();
        self.each(false, |kept| {
            if stream.is_some_and(|stream| stream != kept.stream) {
                add_other(&mut others, kept.stream);
                return true;
            }
            rejects += 1;
            let column = kept.reject.column.clone().unwrap_or_default();
            let key = (kept.stream.clone(), column, kept.reject.code.clone());
            match groups.len() < max_groups || groups.contains_key(&key) {
                true => groups.entry(key).or_default().add(&kept.time, &kept.run_id),
                false => unlisted += 1,
            }
            if newest.as_ref().is_none_or(|one| kept.time >= one.time) {
                newest = Some(kept);
            }
            true
        })?;
        let groups = groups
            .into_iter()
            .map(|((stream, column, code), one)| RejectGroup {
                stream,
                column: (!column.is_empty()).then_some(column),
                code,
                rejects: one.rejects,
                first: one.first,
                last: one.last,
                last_run: one.last_run,
            });
        Ok(RejectCounts {
            pipeline: self.pipeline.name().to_owned(),
            to: self.pipeline.rejects_to().unwrap_or_default().to_owned(),
            rejects,
            groups: groups.collect(),
            unlisted,
            newest: newest.map(|kept| NewestReject::of(&self.pipeline, &kept)),
            other_streams: others.into_iter().collect(),
        })
    }
}

/// Remembers the first names, in their order.
fn add_other(others: &mut BTreeSet<String>, stream: String) {
    others.insert(stream);
    if others.len() > MAX_OTHERS {
        others.pop_last();
    }
}

/// Which rejects are shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct RejectFilter<'a> {
    /// Only those of this stream.
    pub stream: Option<&'a str>,
    /// Only those with this error code.
    pub code: Option<&'a str>,
    /// Only those of this column.
    pub column: Option<&'a str>,
    /// At most this many, the oldest.
    pub limit: Option<u64>,
    /// At most this many bytes of records and messages.
    pub max_bytes: Option<u64>,
}

impl RejectFilter<'_> {
    fn has(&self, kept: &KeptReject) -> bool {
        let is = |wanted: Option<&str>, found| wanted.is_none_or(|wanted| Some(wanted) == found);
        is(self.stream, Some(&kept.stream))
            && is(self.code, Some(&kept.reject.code))
            && is(self.column, kept.reject.column.as_deref())
    }
}

/// The rejects that were shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownRejects {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The place where they are kept.
    pub to: String,
    /// Their number.
    pub rejects: u64,
    /// Whether no reject that was asked for was left out.
    pub complete: bool,
    /// Streams of rejects that were not asked for, at most ten: the stream that was asked for is among them if it has
    /// other rejects.
    pub other_streams: Vec<String>,
}

/// The kept rejects of a pipeline, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectCounts {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The place where they are kept.
    pub to: String,
    /// Their number.
    pub rejects: u64,
    /// By stream, column and code, in this order.
    pub groups: Vec<RejectGroup>,
    /// Rejects of groups that are not listed.
    #[serde(default)]
    pub unlisted: u64,
    /// The reject that was kept last.
    pub newest: Option<NewestReject>,
    /// Where one stream was asked for: other streams that have rejects, at most ten.
    pub other_streams: Vec<String>,
}

/// Rejects with one stream, column and code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectGroup {
    /// The stream.
    pub stream: String,
    /// The column, if they are of one.
    pub column: Option<String>,
    /// The code of the error.
    pub code: String,
    /// Their number.
    pub rejects: u64,
    /// When the first was kept, as the destination writes times.
    pub first: String,
    /// When the last was kept.
    pub last: String,
    /// The run that kept the last.
    pub last_run: String,
}

/// The reject that was kept last, without its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewestReject {
    /// The stream.
    pub stream: String,
    /// Its place in the data, such as `orders.csv:17`.
    pub location: Option<String>,
    /// The code of the error.
    pub code: String,
    /// The reason, which may quote the record. `None` for a reader who may not see values.
    pub message: Option<String>,
    /// Why the rejects of its stream cannot be replayed, if they cannot.
    pub unreplayable: Option<Unreplayable>,
}

/// Why the rejects of a stream cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreplayable {
    /// The reason.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl NewestReject {
    fn of(pipeline: &Pipeline, kept: &KeptReject) -> Self {
        let refused = pipeline.ensure_replayable(&kept.stream).err();
        let location = kept.reject.location.as_deref();
        Self {
            stream: kept.stream.clone(),
            location: location.map(|text| pipeline.redact(text)),
            code: kept.reject.code.clone(),
            message: Some(pipeline.redact(&kept.reject.message)),
            unreplayable: refused.map(|failure| Unreplayable {
                message: failure.message,
                hint: failure.hint,
            }),
        }
    }
}

/// Rejects with one stream, column and code, as they are counted.
#[derive(Default)]
struct Counted {
    rejects: u64,
    first: String,
    last: String,
    last_run: String,
}

impl Counted {
    /// Counts one more. They come in any order of their times.
    fn add(&mut self, time: &str, run: &str) {
        if self.rejects == 0 || time < self.first.as_str() {
            self.first = time.to_owned();
        }
        if time >= self.last.as_str() {
            self.last = time.to_owned();
            self.last_run = run.to_owned();
        }
        self.rejects += 1;
    }
}

/// A kept reject with its record, for people and programs. Its texts do not have the secrets of the pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownReject {
    /// Unique in the place.
    pub id: String,
    /// The stream.
    pub stream: String,
    /// The record: an object if it is a JSON object that is written back unchanged, or else a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Value>,
    /// A record that is not UTF-8, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_hex: Option<String>,
    /// Whether a part of the record was left out.
    pub is_cut: bool,
    /// Who refused it: `source`, `transform` or `destination`.
    pub origin: String,
    /// Its place in the data, such as `orders.csv:17`.
    pub location: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The code of the error.
    pub code: String,
    /// The reason.
    pub message: String,
    /// When it was kept, as the destination writes times.
    pub time: String,
    /// The run that kept it.
    pub run_id: String,
}

impl ShownReject {
    /// A reject of a pipeline.
    pub fn of(pipeline: &Pipeline, kept: &KeptReject) -> Self {
        let reject = &kept.reject;
        let (record, record_hex) = match std::str::from_utf8(&reject.data) {
            Ok(text) => (Some(as_value(text)), None),
            Err(_) => (None, Some(hexadecimal(&reject.data))),
        };
        let location = reject.location.as_deref();
        Self {
            id: kept.id.clone(),
            stream: kept.stream.clone(),
            record,
            record_hex,
            is_cut: reject.is_cut,
            origin: origin_name(kept.origin).to_owned(),
            location: location.map(|text| pipeline.redact(text)),
            column: reject.column.clone(),
            code: reject.code.clone(),
            message: pipeline.redact(&reject.message),
            time: kept.time.clone(),
            run_id: kept.run_id.clone(),
        }
    }

    /// The record as text. Bytes that are not UTF-8 are shown as U+FFFD.
    pub fn record_text(&self) -> String {
        match (&self.record, &self.record_hex) {
            (Some(Value::String(text)), _) => text.clone(),
            (Some(object), _) => object.to_string(),
            (None, Some(hex)) => String::from_utf8_lossy(&bytes_of(hex)).into_owned(),
            (None, None) => String::new(),
        }
    }
}

fn origin_name(origin: RejectOrigin) -> &'static str {
    match origin {
        RejectOrigin::Source => "source",
        RejectOrigin::Transform => "transform",
        RejectOrigin::Destination => "destination",
    }
}

fn as_value(text: &str) -> Value {
    let object = serde_json::from_str(text).ok().filter(Value::is_object);
    let written = object.as_ref().map(Value::to_string);
    match object.filter(|_| written.as_deref() == Some(text)) {
        Some(object) => object,
        None => text.into(),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of pairs of digits. Anything else is left out.
fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs
        .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_of_a_group_is_the_newest_in_any_order() {
        let mut counted = Counted::default();
        for (time, run) in [("11:02", "b"), ("11:03", "c"), ("11:01", "a")] {
            counted.add(time, run);
        }
        let Counted {
            rejects,
            first,
            last,
            last_run,
        } = counted;
        assert_eq!(
            (rejects, &*first, &*last, &*last_run),
            (3, "11:01", "11:03", "c")
        );
    }

    #[test]
    fn a_record_is_shown_as_an_object_only_if_that_changes_nothing() {
        assert!(as_value(r#"{"id":5,"x":"NaN","total":500.0}"#).is_object());
        for text in ["x,b,2", "{broken", r#"{"a": 1}"#, r#"{"a":1.10}"#, "[1]"] {
            assert_eq!(as_value(text), json!(text));
        }
        assert_eq!(bytes_of(&hexadecimal(b"\xff\0a")), b"\xff\0a");
    }
}
