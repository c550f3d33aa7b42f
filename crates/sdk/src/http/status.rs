//! The error of a status, and who acts on it.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Response;
use crate::{Error, ErrorKind, Result};

/// Characters of an answer that a message shows.
const SHOWN_CHARS: usize = 200;
/// Bytes of an answer that are read for that.
const READ_BYTES: usize = 4 << 10;

impl Response {
    /// The answer if its status is 200 to 299.
    ///
    /// # Errors
    /// By the status: 429, and 503 with `retry-after`, are `http_rate_limited` (rate-limited, with
    /// the milliseconds to wait, if the server named them); 408, 425 and 500 and above
    /// `http_unavailable` (transient); 401 and 403 `http_unauthorized` (auth); 404 and 410
    /// `http_not_found`, others from 400 on `http_refused` (config); what is left
    /// `http_unexpected_status` (data). The message shows the first 200 characters of the answer.
    pub fn expect_success(mut self) -> Result<Self> {
        let status = self.status;
        if (200..300).contains(&status) {
            return Ok(self);
        }
        let after = self.header("retry-after");
        let after = after.and_then(|text| retry_after_ms(&text, SystemTime::now()));
        let (kind, code) = meaning(status, after);
        let mut text = format!("{} answers {status}", self.url.without_query());
        if let Some(ms) = after {
            text.push_str(&format!(" and asks to wait {} s", ms.div_ceil(1000)));
        }
        let said = self.beginning();
        if !said.is_empty() {
            text.push_str(&format!(": {said}"));
        }
        let error = Error::new(kind, code, text);
        Err(match code {
            "http_unauthorized" => error.hint("check the credentials and what they may read"),
            "http_not_found" => error.hint("check the path"),
            "http_refused" => error.hint("change the request as the server's documentation says"),
            _ => error,
        })
    }

    /// The first characters of the body, on one line. A longer body ends with `…`: the host then redacts a secret
    /// that was cut, too.
    fn beginning(&mut self) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < READ_BYTES {
            // The status is the error; a body that breaks off says no more than it did.
            match self.read() {
                Ok(piece) if !piece.is_empty() => bytes.extend_from_slice(&piece),
                _ => break,
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect();
        let text = words.join(" ");
        let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
        if shown.len() < text.len() || bytes.len() >= READ_BYTES {
            shown.push('…');
        }
        shown
    }
}

fn meaning(status: u16, after_ms: Option<u64>) -> (ErrorKind, &'static str) {
    match status {
        429 => (ErrorKind::RateLimited(after_ms), "http_rate_limited"),
        503 if after_ms.is_some() => (ErrorKind::RateLimited(after_ms), "http_rate_limited"),
        408 | 425 | 500.. => (ErrorKind::Transient, "http_unavailable"),
        401 | 403 => (ErrorKind::Auth, "http_unauthorized"),
        404 | 410 => (ErrorKind::Config, "http_not_found"),
        400.. => (ErrorKind::Config, "http_refused"),
        _ => (ErrorKind::Data, "http_unexpected_status"),
    }
}

/// Milliseconds that a header `retry-after` asks for: seconds, or a date of RFC 9110 in its usual
/// form (`Sun, 06 Nov 1994 08:49:37 GMT`); one that has passed is 0. None for anything else.
pub fn retry_after_ms(text: &str, now: SystemTime) -> Option<u64> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse::<u64>().ok()?.checked_mul(1000);
    }
    let then_ms = i64::try_from(seconds_of(text)?).ok()?.checked_mul(1000)?;
    let now_ms = now.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(u64::try_from(then_ms - i64::try_from(now_ms).ok()?).unwrap_or(0))
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, rest) = date.split_once(", ")?;
    let parts: Vec<&str> = rest.split([' ', ':']).collect();
    let &[day, month, year, hour, minute, second, "GMT"] = parts.as_slice() else {
        return None;
    };
    let number = |text: &str, most: u64| text.parse::<u64>().ok().filter(|n| *n <= most);
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (day, year) = (number(day, 31)?, number(year, 9999)?);
    if day == 0 || year < 1970 {
        return None;
    }
    let clock = number(hour, 23)? * 3600 + number(minute, 59)? * 60 + number(second, 60)?;
    Some(days_since_1970(year, month, day) * 86_400 + clock)
}

/// Of the Gregorian calendar, from 1970 on: the year is counted from March, so that the day that
/// a leap year has more is its last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::{Body, Url};

    struct Once(Vec<u8>);
    impl Body for Once {
        fn read(&mut self) -> Result<Vec<u8>> {
            Ok(std::mem::take(&mut self.0))
        }
    }

    fn answer(status: u16, after: Option<&str>, body: &str) -> Result<Response> {
        let headers = after.map(|text| ("Retry-After".to_owned(), text.to_owned()));
        Response {
            status,
            headers: headers.into_iter().collect(),
            url: Url::parse("https://a/x?key=hidden").unwrap(),
            body: Box::new(Once(body.into())),
        }
        .expect_success()
    }

    #[test]
    fn a_status_says_who_acts() {
        assert!(answer(204, None, "").is_ok());
        let limited = ErrorKind::RateLimited;
        for (status, after, kind, code) in [
            (429, None, limited(None), "http_rate_limited"),
            (429, Some("7"), limited(Some(7000)), "http_rate_limited"),
            (503, Some("0"), limited(Some(0)), "http_rate_limited"),
            (503, Some("soon"), ErrorKind::Transient, "http_unavailable"),
            (500, None, ErrorKind::Transient, "http_unavailable"),
            (401, None, ErrorKind::Auth, "http_unauthorized"),
            (404, None, ErrorKind::Config, "http_not_found"),
            (422, None, ErrorKind::Config, "http_refused"),
            (304, None, ErrorKind::Data, "http_unexpected_status"),
        ] {
            let error = answer(status, after, "").expect_err("no success");
            assert_eq!(format!("{:?}", error.kind), format!("{kind:?}"), "{status}");
            assert_eq!(error.code, code, "{status}");
        }
    }

    #[test]
    fn the_message_shows_the_beginning_of_the_answer_and_no_query() {
        let long = format!("{{\"error\":\r\n \"bad\u{1b}\"}} {}", "x".repeat(9000));
        let error = answer(400, None, &long).expect_err("no success");
        assert!(
            error
                .message
                .starts_with("https://a/x answers 400: {\"error\": \"bad \"} xxx"),
            "{}",
            error.message
        );
        assert!(error.message.chars().count() < 240, "{}", error.message);
        assert!(error.message.ends_with("xxx…"), "{}", error.message);
        let error = answer(400, None, "short").expect_err("no success");
        assert!(error.message.ends_with(": short"), "{}", error.message);
    }

    #[test]
    fn a_date_to_wait_for_is_read() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:00 GMT", Some(23_000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Wed, 09 Nov 1994 08:49:37 GMT", Some(3 * 86_400_000)),
            (
                "Tue, 29 Feb 2000 00:00:00 GMT",
                Some((951_782_400 - 784_111_777) * 1000),
            ),
            (" 12 ", Some(12_000)),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(retry_after_ms(text, now), expected, "{text}");
        }
    }
}
