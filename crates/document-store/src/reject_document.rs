//! A reject as a JSON document. A database adds its name of the document beside it.

use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::hex;
use crate::rejects::{Place, Record, origin_of, time_text};

/// The fields of the document of a reject, apart from its id.
#[derive(Debug, Serialize, Deserialize)]
pub struct RejectDocument {
    place: String,
    rejected_at: String,
    pipeline: String,
    run_id: String,
    stream: String,
    target: String,
    origin: String,
    code: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    column: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read_with: Option<String>,
    /// The record, as text or, where it is not UTF-8, as hexadecimal digits.
    record: String,
    record_is_hex: bool,
    record_is_cut: bool,
}

impl RejectDocument {
    /// The document of a reject that is kept. Its `place` has the id of the record.
    pub fn new(record: &Record<'_>) -> Self {
        let reject = record.reject;
        let (text, record_is_hex) = match std::str::from_utf8(&reject.data) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (hex::encode(&reject.data), true),
        };
        let place = Place {
            first: record.first.to_vec(),
            id: record.id.bytes().to_vec(),
        };
        Self {
            place: place.to_string(),
            rejected_at: time_text(record.rejected_at_ms),
            pipeline: record.run.pipeline.clone(),
            run_id: record.run.id.clone(),
            stream: record.stream.to_owned(),
            target: record.target.to_owned(),
            origin: record.origin.name().to_owned(),
            code: reject.code.clone(),
            message: reject.message.clone(),
            location: reject.location.clone(),
            column: reject.column.clone(),
            read_with: reject.read_with.clone(),
            record: text,
            record_is_hex,
            record_is_cut: reject.is_cut,
        }
    }

    /// The reject. `version` is the version of its document.
    pub fn kept(self, version: String) -> KeptReject {
        let data = match self.record_is_hex {
            false => self.record.into_bytes(),
            true => hex::decode(&self.record).unwrap_or_default(),
        };
        KeptReject {
            id: self.place,
            version,
            stream: self.stream,
            run_id: self.run_id,
            time: self.rejected_at,
            origin: origin_of(Some(&self.origin)),
            reject: Reject {
                data,
                is_cut: self.record_is_cut,
                location: self.location,
                column: self.column,
                code: self.code,
                message: self.message,
                read_with: self.read_with,
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ids::{RowId, Tag};

    /// As connectors store it.
    #[derive(Serialize, Deserialize)]
    struct Stored {
        id: String,
        #[serde(flatten)]
        reject: RejectDocument,
    }

    #[test]
    fn a_reject_comes_back_from_its_document_beside_fields_of_the_database() {
        let run = Run {
            id: "run".into(),
            pipeline: "p".into(),
        };
        for data in [b"{\"a\":1}".to_vec(), vec![0xff, 0]] {
            let reject = Reject {
                data,
                is_cut: true,
                location: Some("a.csv:3".into()),
                column: None,
                code: "value_does_not_fit".into(),
                message: "no".into(),
                read_with: Some("{}".into()),
            };
            let id = RowId::new(Tag::random().unwrap(), 3, 5).unwrap();
            let record = Record {
                id,
                first: &[1, 2],
                rejected_at_ms: 0,
                run: &run,
                stream: "t",
                target: "u",
                origin: RejectOrigin::Source,
                reject: &reject,
            };
            let stored = Stored {
                id: id.to_string(),
                reject: RejectDocument::new(&record),
            };
            let mut document = serde_json::to_value(&stored).unwrap();
            document["_ts"] = 5.into();
            let stored: Stored = serde_json::from_value(document).unwrap();
            let kept = stored.reject.kept("v7".into());
            assert_eq!(kept.id, format!("0102.{}", hex::encode(&id.bytes())));
            assert_eq!((kept.stream.as_str(), kept.run_id.as_str()), ("t", "run"));
            assert!(matches!(kept.origin, RejectOrigin::Source));
            assert_eq!(format!("{:?}", kept.reject), format!("{reject:?}"));
            assert_eq!(kept.version, "v7");
        }
    }
}
