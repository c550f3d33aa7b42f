//! How one value is written as text, for every type that crosses the contract.
//!
//! | type | written | also read |
//! | --- | --- | --- |
//! | `bool` | `true`, `false` | `t`, `f` in any case, `1`, `0` |
//! | whole numbers | `-12` | a leading `+`, leading zeros |
//! | `float32`, `float64` | the shortest text that reads back the same, `NaN`, `Infinity`, `-Infinity` | any decimal text (the nearest float) |
//! | `decimal(p, s)` | plain digits, all `s` of them after the point | fewer digits, more if they are zeros, exponents |
//! | `binary`, `fixed_binary(n)` | `\x00ff` | upper-case digits |
//! | `date` | `2026-11-21`; years beyond 9999 with more digits, before 0 as ISO 8601 `-0043-03-15` | |
//! | `time` | `10:11:12`, `10:11:12.123456` | `10:11` |
//! | `timestamp` | `2026-11-21T10:11:12.123456` | a space for `T` |
//! | `timestamptz` | `2026-11-21T10:11:12.123456Z` | `+02`, `+0200`, `+02:00` |
//! | `duration` | `PT12.345S` | `-PT1H2M3S`, `PT0.5H`, `P1W2D` with days of 24 hours |
//! | `interval` | `P1M2DT3.000000004S` | years, weeks, hours, minutes, a sign before the `P` |
//! | `uuid` | `00112233-4455-6677-8899-aabbccddeeff` | upper case, without hyphens |
//!
//! A fraction of a second is left out when it is zero, else it has all digits of the unit.
//! Sources: RFC 3339, ISO 8601-1 (durations, expanded years), RFC 9562 (UUID), "Binary Data Types"
//! in the PostgreSQL manual (`\x`).
//!
//! A `float64` column that inference found to have whole values without a point (`39` beside
//! `39.92`) writes them so in CSV.
//!
//! Every `parse_*` gives back the reason why a text is not such a value; it reads on after the
//! text: `"12x" is not a whole number`.

pub mod bytes;
pub mod decimal;
pub mod duration;
pub mod number;
pub mod pattern;
pub mod time;

/// Why a text is not a value of the type: the end of a sentence that begins with the text.
pub type Reason = &'static str;

/// Reads `true`, `false`, `t`, `f` in any case, `1` and `0`.
pub fn parse_bool(text: &[u8]) -> Result<bool, Reason> {
    match text {
        b"true" | b"t" | b"1" => Ok(true),
        b"false" | b"f" | b"0" => Ok(false),
        _ if text.eq_ignore_ascii_case(b"true") || text == b"T" => Ok(true),
        _ if text.eq_ignore_ascii_case(b"false") || text == b"F" => Ok(false),
        _ => Err("is neither true nor false"),
    }
}

/// Writes `true` or `false`.
pub fn write_bool(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}
