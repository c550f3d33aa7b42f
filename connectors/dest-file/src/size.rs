//! A number of rows as a person writes it.

use serde::de::{Deserializer, Error, Visitor};

/// A number of rows, with an error in words.
pub(crate) fn rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Rows;
    impl Visitor<'_> for Rows {
        type Value = Option<u64>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number of rows, 1 or more")
        }
        fn visit_u64<E: Error>(self, rows: u64) -> Result<Option<u64>, E> {
            Ok(Some(rows))
        }
        fn visit_i64<E: Error>(self, rows: i64) -> Result<Option<u64>, E> {
            Err(E::invalid_value(serde::de::Unexpected::Signed(rows), &self))
        }
        fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
            Ok(None)
        }
    }
    deserializer.deserialize_any(Rows)
}
