//! Rejects that are kept, as the host lists them: which are committed, and in what order.

use std::collections::{BTreeMap, HashSet};

use rapidbyte_bson::{BsonError, Builder, Document, Value};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::ids::{self, Epochs, ID_BYTES, Tag};
use crate::rejects::named;
use crate::replay;

/// Rejects of a page.
const PAGE_ROWS: usize = 1000;
/// Bytes of the records and messages of a page, which may be one reject longer.
const PAGE_BYTES: usize = 1 << 20;

/// The id of a reject for the host: its place in the order, and its `_id`, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub first: Vec<u8>,
    pub id: Vec<u8>,
}

impl Place {
    /// Errors: `reject_missing`.
    pub fn parse(text: &str) -> Result<Self> {
        let place = text.split_once('.').and_then(|(first, id)| {
            Some(Self {
                first: bytes(first)?,
                id: bytes(id)?,
            })
        });
        place.ok_or_else(|| replay::missing(&format!("there is no reject {text:?}: it was")))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.first
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(".")?;
        self.id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let is_hex = hex.len().is_multiple_of(2) && hex.bytes().all(|c| c.is_ascii_hexdigit());
    let pairs = (0..hex.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).ok();
    is_hex.then(|| pairs.map(byte).collect())?
}

/// What a document of a collection of rejects says.
pub(crate) struct Kept {
    pub place: Place,
    pub version: String,
    pub kept: KeptReject,
}

impl Kept {
    /// Errors: `rejects_differ`.
    pub fn read(document: Document<'_>, to: &str) -> Result<Self> {
        let read = Self::try_read(document).ok().flatten();
        read.ok_or_else(|| {
            let text = format!("{to} has a document that is not a reject");
            Error::schema("rejects_differ", text)
                .hint("name another collection for rejects")
                .at("rejects.to")
        })
    }

    fn try_read(document: Document<'_>) -> Result<Option<Self>, BsonError> {
        let text = |name: &str| -> Result<Option<String>, BsonError> {
            Ok(match document.get(name)? {
                Some(Value::String(text)) => Some(text.to_owned()),
                _ => None,
            })
        };
        let binary = |name: &str| -> Result<Option<Vec<u8>>, BsonError> {
            Ok(match document.get(name)? {
                Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
                _ => None,
            })
        };
        let (Some(id), Some(first), Some(code)) = (binary("_id")?, binary("first")?, text("code")?)
        else {
            return Ok(None);
        };
        let place = Place { first, id };
        let data = match document.get("record")? {
            Some(Value::String(record)) => record.as_bytes().to_vec(),
            Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
            _ => Vec::new(),
        };
        let time = match document.get("rejected_at")? {
            Some(Value::DateTime(ms)) => time_text(ms),
            _ => String::new(),
        };
        let version = format!("{:016x}", hash(document.as_bytes()));
        Ok(Some(Self {
            kept: KeptReject {
                id: place.to_string(),
                version: version.clone(),
                stream: text("stream")?.unwrap_or_default(),
                run_id: text("run_id")?.unwrap_or_default(),
                time,
                origin: match text("origin")?.as_deref() {
                    Some("source") => RejectOrigin::Source,
                    Some("transform") => RejectOrigin::Transform,
                    _ => RejectOrigin::Destination,
                },
                reject: Reject {
                    data,
                    is_cut: document
                        .get("record_is_cut")?
                        .is_some_and(|cut| cut.is_true()),
                    location: text("location")?,
                    column: text("column")?,
                    code,
                    message: text("message")?.unwrap_or_default(),
                    read_with: text("read_with")?,
                },
            },
            place,
            version,
        }))
    }
}

/// FNV-1a of 64 bits: a change of a reject is seen, and nobody gains by hiding one.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// `2026-05-01 06:30:00 UTC`, of milliseconds since 1970.
fn time_text(ms: i64) -> String {
    let seconds = ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Which rejects of a pipeline are committed.
pub(crate) struct Visible {
    /// By the tags of streams.
    epochs: BTreeMap<Tag, Epochs>,
    /// Replays that are not committed.
    replays: HashSet<Tag>,
    /// The rejects that a replay has removed, as far as the server still has them.
    removed: HashSet<Vec<u8>>,
}

impl Visible {
    pub fn new(
        epochs: BTreeMap<Tag, Epochs>,
        replays: HashSet<Tag>,
        removed: impl IntoIterator<Item = Vec<u8>>,
    ) -> Self {
        let removed = removed.into_iter().collect();
        Self {
            epochs,
            replays,
            removed,
        }
    }

    fn has(&self, id: &[u8]) -> bool {
        if self.removed.contains(id) {
            return false;
        }
        let Ok(id) = <[u8; ID_BYTES]>::try_from(id) else {
            return true;
        };
        let (tag, epoch, number) = ids::parts(&id);
        match self.epochs.get(&tag) {
            _ if self.replays.contains(&tag) => false,
            Some(epochs) => epochs.has(epoch, number),
            None => true,
        }
    }
}

/// A page of the rejects of a pipeline behind the reject `after`, without records unless `with_data`.
pub(crate) fn page(
    client: &mut Client,
    settings: &Settings,
    (to, pipeline): (&str, &str),
    after: Option<&str>,
    with_data: bool,
) -> Result<Vec<KeptReject>> {
    named(settings, to)?;
    let after = after.map(Place::parse).transpose()?;
    let visible = replay::visible(client, settings, pipeline, to)?;
    let mut command = Builder::new();
    command
        .string("find", to)
        .open_document("filter")
        .string("pipeline", pipeline);
    if let Some(Place { first, id }) = &after {
        let binary = |bytes| Value::Binary { subtype: 0, bytes };
        command
            .open_array("$or")
            .open_document("0")
            .open_document("first")
            .value("$gt", &binary(first))
            .close()
            .close()
            .open_document("1")
            .binary("first", first)
            .open_document("_id")
            .value("$gt", &binary(id))
            .close()
            .close()
            .close();
    }
    command
        .close()
        .open_document("sort")
        .int32("first", 1)
        .int32("_id", 1)
        .close();
    let mut cursor = client.find(&settings.database, command)?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = cursor.next(client, 0)? {
        for document in batch.documents()? {
            let Kept {
                place, mut kept, ..
            } = Kept::read(document?, to)?;
            if !visible.has(&place.id) {
                continue;
            }
            bytes += kept.reject.data.len() + kept.reject.message.len();
            if !with_data {
                (kept.reject.data, kept.version) = (Vec::new(), String::new());
            }
            page.push(kept);
            if page.len() >= PAGE_ROWS || bytes >= PAGE_BYTES {
                cursor.close(client)?;
                return Ok(page);
            }
        }
    }
    Ok(page)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_for_people() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time_text(1_777_617_000_999), "2026-05-01 06:30:00 UTC");
        assert_eq!(time_text(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(time_text(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = Place {
            first: vec![0, 1, 255],
            id: vec![16],
        };
        assert_eq!(place.to_string(), "0001ff.10");
        assert_eq!(Place::parse("0001ff.10").unwrap(), place);
        for text in ["", "00", "0.1", "zz.00", "00.0", "é0.00"] {
            assert_eq!(Place::parse(text).unwrap_err().code, "reject_missing");
        }
    }

    #[test]
    fn rejects_of_an_attempt_that_was_not_committed_are_not_listed() {
        let (tag, other) = (*b"aaaaaaaa", *b"bbbbbbbb");
        let epochs = Epochs::default().with(2, 3, false);
        let removed = [ids::id(tag, 2, 1).unwrap().to_vec()];
        let visible = Visible::new(
            BTreeMap::from([(tag, epochs)]),
            HashSet::from([other]),
            removed,
        );
        for (tag, epoch, number, expected) in [
            (tag, 2, 0, true),
            (tag, 2, 1, false),
            (tag, 2, 2, true),
            (tag, 2, 3, false),
            (tag, 1, 0, false),
            (tag, 3, 0, false),
            (other, 0, 0, false),
            (*b"cccccccc", 0, 0, true),
        ] {
            let id = ids::id(tag, epoch, number).unwrap();
            assert_eq!(visible.has(&id), expected, "{epoch} {number}");
        }
    }
}
