//! The time of day, as logs and pages show it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::figures::counted;

/// A moment in UTC (RFC 3339), as the history writes it: `2026-01-31T23:59:59.123Z`.
pub fn utc(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (secs, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(secs / 86_400);
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The same for milliseconds since 1970-01-01.
pub fn utc_ms(ms: i64) -> String {
    utc(UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// The same without the fraction of a second, as a page shows it: `2026-01-31 23:59:59 UTC`.
pub fn readable_ms(ms: i64) -> String {
    let text = utc_ms(ms);
    format!("{} {} UTC", &text[..10], &text[11..19])
}

/// A time in words, in its largest unit: `1 second`, `3 minutes`, `2 days`.
pub fn words(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let secs = time.as_secs();
    let unit = UNITS.iter().find(|(unit, _)| secs >= *unit);
    let (unit, noun) = unit.copied().unwrap_or((1, "second"));
    counted(secs / unit, noun)
}

/// The date of a day since 1970-01-01 in the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last of a year.
fn date(days: u64) -> (u64, u64, u64) {
    // 1970-01-01 is day 719468 since 0000-03-01; 400 years have 146097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, in_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_of_the_calendar() {
        for (secs, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696, "2000-02-29T12:34:56.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(secs)), expected);
        }
        assert_eq!(readable_ms(951_827_696_999), "2000-02-29 12:34:56 UTC");
        let moment = UNIX_EPOCH + Duration::from_millis(1_789);
        assert_eq!(utc(moment), "1970-01-01T00:00:01.789Z");
    }

    #[test]
    fn a_time_in_words_has_its_largest_unit() {
        for (secs, expected) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (119, "1 minute"),
            (7200, "2 hours"),
            (200_000, "2 days"),
        ] {
            assert_eq!(words(Duration::from_secs(secs)), expected);
        }
    }
}
