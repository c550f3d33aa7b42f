//! The values of a row, and what is wrong with them.

use std::sync::Arc;

use rapidbyte_sdk::prelude::arrow_schema::TimeUnit;
use rapidbyte_sdk::prelude::{
    ArrayRef, DataType, Decimal128Array, Field, Int64Array, Schema, StringArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};

use crate::Deed;

/// Digits of `amount`, and how many of them are behind the point.
const DIGITS: (u8, i8) = (12, 2);
/// Microseconds.
const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
/// One row in this many is long.
const LONG_EVERY: u64 = 1000;
/// Bytes that a long row has on top.
const LONG_BYTES: usize = 2000;

/// How the rows of one read are made.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub deed: Deed,
    pub is_incremental: bool,
    pub chooses_columns: bool,
    /// Added to each number.
    pub shift: u64,
    /// Bytes that a text is cut at.
    pub cut: usize,
}

/// The columns, as they are discovered or read.
pub fn schema(deed: Deed, is_read: bool) -> Schema {
    let null = deed == Deed::ReadsOtherSchema && is_read;
    let utc = Some("UTC".into());
    Schema::new(vec![
        Field::new("n", DataType::Int64, null),
        Field::new("t", DataType::Utf8, false),
        Field::new("note", DataType::Utf8, true),
        Field::new("amount", DataType::Decimal128(DIGITS.0, DIGITS.1), false),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, utc), true),
        Field::new("clock", DataType::Time64(TimeUnit::Microsecond), false),
    ])
}

/// Bytes of the row that counts `n`.
pub fn bytes(n: u64) -> usize {
    let note = note(n).map_or(0, |note| note.len());
    text(n).len() + note + 8 + 16 + 8 + 8
}

fn text(n: u64) -> String {
    let long = if n % LONG_EVERY == LONG_EVERY - 1 {
        LONG_BYTES
    } else {
        0
    };
    format!("row number {n:>80}{}", "x".repeat(long))
}

fn note(n: u64) -> Option<String> {
    match (n % 3, n % 5) {
        (0, _) => None,
        (_, 1) => Some(String::new()),
        _ => Some(format!("note {n}")),
    }
}

impl Making {
    /// The column `name` of rows that count `numbers`.
    pub fn column(&self, name: &str, numbers: &[u64]) -> ArrayRef {
        match name {
            "n" => Arc::new(Int64Array::from_iter_values(
                numbers.iter().map(|n| (n + self.shift) as i64),
            )),
            "t" => Arc::new(StringArray::from_iter_values(
                numbers.iter().map(|n| self.text(*n)),
            )),
            "note" => {
                let notes = numbers.iter().enumerate();
                Arc::new(
                    notes
                        .map(|(at, n)| self.note(at, *n))
                        .collect::<StringArray>(),
                )
            }
            "amount" => {
                let amounts = numbers.iter().map(|n| self.amount(*n));
                let amounts = Decimal128Array::from_iter_values(amounts);
                Arc::new(amounts.with_data_type(DataType::Decimal128(DIGITS.0, DIGITS.1)))
            }
            "at" => {
                let times = numbers.iter().map(|n| self.at(*n));
                Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC"))
            }
            _ => Arc::new(Time64MicrosecondArray::from_iter_values(
                numbers.iter().map(|n| self.clock(*n)),
            )),
        }
    }

    fn text(&self, n: u64) -> String {
        let mut text = text(n + self.shift);
        if self.deed == Deed::CutsLongRecords {
            text.truncate(self.cut);
        }
        text
    }

    fn note(&self, at: usize, n: u64) -> Option<String> {
        match self.deed {
            Deed::ShiftsNulls if at.is_multiple_of(3) => None,
            Deed::ShiftsNulls => Some(note(n).unwrap_or_default()),
            Deed::EmptyTextIsNull => note(n).filter(|note| !note.is_empty()),
            _ => note(n),
        }
    }

    fn amount(&self, n: u64) -> i128 {
        let sign = if n % 2 == 1 { -1 } else { 1 };
        let amount = sign * (i128::from(n) * 101 + 7);
        match self.deed {
            Deed::LosesSignOfChosen if self.chooses_columns => amount.abs(),
            Deed::OverflowsDecimal if n == 1234 => 10_i128.pow(DIGITS.0.into()),
            _ => amount,
        }
    }

    fn at(&self, n: u64) -> Option<i64> {
        let late = match self.deed {
            Deed::DropsZone => HOUR,
            Deed::DropsZoneInIncrements if self.is_incremental => HOUR,
            _ => 0,
        };
        let at = 1_700_000_000_000_000 + n as i64 * 1_000_001 + late;
        (n % 7 != 3).then_some(at)
    }

    fn clock(&self, n: u64) -> i64 {
        let clock = n as i64 * 7_000_003 % DAY;
        match self.deed {
            Deed::MistakesTimeUnit => clock * 1000,
            Deed::WritesMidnightAs24 if clock == 0 => DAY,
            _ => clock,
        }
    }
}
