//! The ranges of a container: each physical partition of the server has one range of hashes, and a request for documents
//! of several partition keys goes to one range.
//!
//! The hash is the one of partition keys of version 2: MurmurHash3 with 128 bits ("x64", seed 0) of the value behind a
//! byte for its type. Its bytes are written from the last one, as hexadecimal digits, without the two highest bits.

use rapidbyte_sdk::Result;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, Verb};
use crate::container::Container;
use crate::error;

/// More ranges than these are not kept: an account gives a container 50 GB for each.
const MAX_RANGES: usize = 10_000;
/// The version of partition keys whose hash this module knows.
const HASHED: u32 = 2;

/// The ranges of one container, by their first hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranges {
    all: Vec<Range>,
    /// The hashes of the container are those of this module.
    is_hashed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Range {
    /// A string; the server of the tests gives a number.
    id: Value,
    #[serde(rename = "minInclusive")]
    first: String,
    /// The hash behind the last one.
    #[serde(rename = "maxExclusive")]
    end: String,
}

impl Ranges {
    /// The id of the range that has a partition, which is given as in a header. `None`: nobody here knows.
    pub fn of(&self, partition: &str) -> Option<String> {
        let range = match self.all.as_slice() {
            [only] => only,
            all if self.is_hashed => {
                let hash = hash(partition)?;
                let next = all.partition_point(|range| range.first <= hash);
                let range = all.get(next.checked_sub(1)?)?;
                (hash < range.end).then_some(range)?
            }
            _ => return None,
        };
        Some(match &range.id {
            Value::String(id) => id.clone(),
            other => other.to_string(),
        })
    }
}

impl Client {
    /// The ranges of a container. `None` if the server does not say, or if there are too many.
    pub(crate) fn read_ranges(&mut self, container: &Container) -> Result<Option<Ranges>> {
        #[derive(Deserialize)]
        struct Feed {
            #[serde(rename = "PartitionKeyRanges")]
            ranges: Vec<Range>,
        }
        let mut all: Vec<Range> = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let mut call =
                self.of_container(Verb::Get, "pkranges", &container.name, "read the ranges of");
            if let Some(token) = continuation.take() {
                call.headers.push(("x-ms-continuation", token));
            }
            let answer = self.ask(call)?;
            if !(200..300).contains(&answer.status) {
                return Ok(None);
            }
            let feed: Feed = serde_json::from_slice(&answer.body)
                .map_err(|error| error::violation(&error.to_string()))?;
            let is_empty = feed.ranges.is_empty();
            all.extend(feed.ranges);
            continuation = answer.continuation;
            if all.len() > MAX_RANGES {
                return Ok(None);
            }
            if continuation.is_none() || is_empty {
                break;
            }
        }
        all.sort_by(|one, other| one.first.cmp(&other.first));
        Ok((!all.is_empty()).then_some(Ranges {
            all,
            is_hashed: container.key_version == HASHED,
        }))
    }
}

/// The hash of a partition, which is given as in a header.
fn hash(partition: &str) -> Option<String> {
    let [value] = serde_json::from_str::<[Value; 1]>(partition).ok()?;
    let mut bytes = Vec::new();
    match value {
        // A document without the field.
        Value::Object(_) => bytes.push(0),
        Value::Null => bytes.push(1),
        Value::Bool(false) => bytes.push(2),
        Value::Bool(true) => bytes.push(3),
        Value::Number(number) => {
            bytes.push(5);
            bytes.extend(number.as_f64()?.to_le_bytes());
        }
        Value::String(text) => {
            bytes.push(8);
            bytes.extend(text.as_bytes());
            bytes.push(0xff);
        }
        Value::Array(_) => return None,
    }
    let mut hash = murmur(&bytes).to_be_bytes();
    hash[0] &= 0x3f;
    Some(hash.iter().map(|byte| format!("{byte:02X}")).collect())
}

/// MurmurHash3 with 128 bits for 64-bit machines, with the seed 0. The first of its two words is the lower one.
fn murmur(bytes: &[u8]) -> u128 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix_low = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix_high = |word: u64| word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut low, mut high) = (0_u64, 0_u64);
    for block in bytes.chunks(16) {
        let mut padded = [0; 16];
        padded[..block.len()].copy_from_slice(block);
        let words = u128::from_le_bytes(padded);
        let (first, second) = (words as u64, (words >> 64) as u64);
        low ^= mix_low(first);
        if block.len() < 16 {
            high ^= mix_high(second);
            break;
        }
        low = low.rotate_left(27).wrapping_add(high);
        low = low.wrapping_mul(5).wrapping_add(0x52dc_e729);
        high ^= mix_high(second);
        high = high.rotate_left(31).wrapping_add(low);
        high = high.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let length = bytes.len() as u64;
    (low, high) = (low ^ length, high ^ length);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high) = (finish(low), finish(high));
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    u128::from(high) << 64 | u128::from(low)
}

fn finish(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_the_hash_that_an_account_gives_it() {
        // From the tests of Microsoft's clients, which compare with the service.
        for (partition, expected) in [
            (r#"["redmond"]"#, "22E342F38A486A088463DFF7838A5963"),
            (r#"["partitionKey"]"#, "013AEFCF77FA271571CF665A58C933F1"),
            (r#"["customer42"]"#, "19819C94CE42A1654CCC8110539D9589"),
            (r#"[""]"#, "32E9366E637A71B4E710384B2F4970A0"),
            (r#"["aa"]"#, "05033626483AE80D00E44FBD35362B19"),
            ("[null]", "378867E4430E67857ACE5C908374FE16"),
            ("[true]", "0E711127C5B5A8E4726AC6DD306A3E59"),
            ("[false]", "2FE1BE91E90A3439635E0E9E37361EF2"),
            ("[{}]", "11622DAA78F835834610ABE56EFF5CB5"),
            ("[5]", "19C08621B135968252FB34B4CF66F811"),
            ("[5.0]", "19C08621B135968252FB34B4CF66F811"),
            ("[5.5]", "0E2EE47829D1AF775EEFB6540FD1D0ED"),
            ("[-128]", "01DAEDABF913540367FE219B2AD06148"),
            ("[2147483647]", "2D9349D64712AEB5EB1406E2F0BE2725"),
        ] {
            assert_eq!(hash(partition).unwrap(), expected, "{partition}");
        }
        for partition in ["", "[]", "[1,2]", "[[1]]", "1"] {
            assert_eq!(hash(partition), None, "{partition}");
        }
    }

    fn ranges(ends: &[&str], is_hashed: bool) -> Ranges {
        let mut first = String::new();
        let mut all = Vec::new();
        for (id, end) in ends.iter().enumerate() {
            all.push(Range {
                id: Value::from(id.to_string()),
                first: std::mem::replace(&mut first, (*end).to_owned()),
                end: (*end).to_owned(),
            });
        }
        Ranges { all, is_hashed }
    }

    #[test]
    fn a_partition_is_in_the_range_of_its_hash() {
        let redmond = "22E342F38A486A088463DFF7838A5963";
        for (ends, expected) in [
            (&["0AAA", redmond, "FF"][..], Some("2")),
            (
                &["0AAA", "22E342F38A486A088463DFF7838A5964", "FF"],
                Some("1"),
            ),
            (&["3000", "FF"], Some("0")),
            // Nobody has said what is behind it.
            (&["01", "02"], None),
        ] {
            let found = ranges(ends, true).of(r#"["redmond"]"#);
            assert_eq!(found.as_deref(), expected, "{ends:?}");
        }
        // With one range, the hash makes no difference.
        assert_eq!(ranges(&["FF"], false).of("[1]").as_deref(), Some("0"));
        assert_eq!(ranges(&["10", "FF"], false).of("[1]"), None);
    }
}
