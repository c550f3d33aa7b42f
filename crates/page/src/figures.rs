//! Numbers as a person reads them.

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with its noun: `1 stream`, `2 streams`.
pub fn counted<N: std::fmt::Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// A number of rows: `1 row`, `1,000 rows`.
pub fn rows(number: u64) -> String {
    match number {
        1 => "1 row".into(),
        _ => format!("{} rows", count(number)),
    }
}

/// A number of bytes with a binary unit.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{number} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A rate by its magnitude.
pub fn rate(rows: u64, secs: f64) -> String {
    match rows as f64 / secs.max(1e-9) {
        r if r >= 1e6 => format!("{:.2}M rows/s", r / 1e6),
        r if r >= 1e4 => format!("{:.0}k rows/s", r / 1e3),
        r => format!("{r:.0} rows/s"),
    }
}

/// A time in seconds with the digits that matter.
pub fn seconds(secs: f64) -> String {
    match secs {
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s => format!("{} min {:02.0} s", (s / 60.0) as u64, s % 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1 << 20), "1.0 MiB");
        assert_eq!(rate(2_500_000, 1.0), "2.50M rows/s");
    }
    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(12.345), "12.35 s");
        assert_eq!(seconds(187.0), "3 min 07 s");
    }
}
