//! The dates of requests and answers, as RFC 9110 writes them.

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

/// Seconds since 1970 of a date such as `Thu, 27 Apr 2017 00:51:12 GMT`. `None` for any other text: answers have no other
/// form today.
pub(crate) fn parse(date: &str) -> Option<u64> {
    let words: Vec<&str> = date.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let number = |text: &str, most: u64| {
        let number = text.parse::<u64>().ok();
        number.filter(|number| *number <= most)
    };
    let (day, year) = (number(day, 31)?, number(year, 9999)?);
    let mut parts = time.split(':');
    let mut part = |most| number(parts.next()?, most);
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?);
    if parts.next().is_some() || day == 0 || year < 1970 {
        return None;
    }
    // The same source, days_from_civil.
    let year = year - u64::from(month <= 2);
    let of_era = year % 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year / 400 * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::{parse, text};

    #[test]
    fn dates_of_answers_are_read() {
        for seconds in [
            0,
            784_111_777,
            951_782_400,
            951_868_799,
            1_493_254_272,
            4_102_444_800,
        ] {
            assert_eq!(parse(&text(seconds)), Some(seconds));
        }
        for other in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(1_493_254_272), "Thu, 27 Apr 2017 00:51:12 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
