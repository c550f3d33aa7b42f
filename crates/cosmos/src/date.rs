//! The date of a request, as RFC 9110 writes it.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Now.
pub(crate) fn now() -> String {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    text(passed.map_or(0, |time| time.as_secs()))
}

/// `Thu, 27 Apr 2017 00:51:12 GMT`, of seconds since 1970.
fn text(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[(month - 1) as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(1_493_254_272), "Thu, 27 Apr 2017 00:51:12 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
