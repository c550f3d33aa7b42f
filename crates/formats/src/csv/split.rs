//! Splits bytes into records and fields, wherever the pieces of the file end.
//!
//! A record that is whole in one piece is split in place. Of one that does not, the beginning is
//! kept, and a scan that can stop at any byte looks for its end; then it is split like the others.

use memchr::{memchr, memchr_iter, memchr3};

use super::Dialect;
use crate::FormatError;

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Room that is kept for the beginnings of records: most are far shorter.
const KEPT_BYTES: usize = 1 << 16;

/// One field within its record, without its quotes.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    quoted: bool,
    /// It holds doubled quotes.
    doubled: bool,
}

/// One record, whole.
pub(crate) struct Record<'a> {
    data: &'a [u8],
    spans: &'a [Span],
    quote: u8,
    /// The physical line it begins on.
    pub line: u64,
}

impl Record<'_> {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// True for a line without any character.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self.spans, [span] if !span.quoted && span.start == span.end)
    }

    /// Its bytes, without the line break.
    pub(crate) fn data(&self) -> &[u8] {
        let end = self
            .spans
            .last()
            .map_or(0, |span| span.end + usize::from(span.quoted));
        &self.data[..end]
    }

    /// A field's bytes and whether it was quoted; `scratch` is used for doubled quotes.
    #[inline]
    pub(crate) fn field<'s>(&'s self, at: usize, scratch: &'s mut Vec<u8>) -> (&'s [u8], bool) {
        let span = self.spans[at];
        let text = &self.data[span.start..span.end];
        if !span.doubled {
            return (text, span.quoted);
        }
        scratch.clear();
        crate::json::reserve(text.len(), scratch);
        let mut rest = text;
        while let Some(quote) = memchr(self.quote, rest) {
            scratch.extend_from_slice(&rest[..=quote]);
            rest = rest.get(quote + 2..).unwrap_or_default();
        }
        scratch.extend_from_slice(rest);
        (scratch, true)
    }

    /// The physical line that a field begins on.
    pub(crate) fn line_of(&self, at: usize) -> u64 {
        self.line + count_lines(&self.data[..self.spans[at].start])
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// The state of the scan for the end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote within quotes: the end of the field or the first of two.
    Quote,
    /// After a CR outside quotes: an LF, or a line end that is refused.
    Cr,
    /// After characters that follow a closing quote: the line's end is all that is looked for.
    Broken,
}

/// The result of splitting a slice that begins with a record.
enum Split {
    /// The bytes of the record, its line break included, and its lines.
    Record(usize, u64),
    /// The record does not end here. The place of the open quote, if there is one.
    Open(Option<usize>),
}

/// Splits one file after the other.
pub(crate) struct Splitter {
    delimiter: u8,
    quote: u8,
    max_record_bytes: usize,
    /// The beginning of a record whose end has not come yet.
    pending: Vec<u8>,
    state: State,
    /// Where the next record begins.
    line: u64,
    /// How many bytes of a byte order mark have come; 3 once that is settled.
    mark: usize,
    spans: Vec<Span>,
}

impl Splitter {
    pub(crate) fn new(dialect: &Dialect, max_record_bytes: usize) -> Self {
        Self {
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            max_record_bytes,
            pending: Vec::new(),
            state: State::FieldStart,
            line: 1,
            mark: 0,
            spans: Vec::new(),
        }
    }

    pub(crate) fn begin_file(&mut self) {
        self.pending.clear();
        self.state = State::FieldStart;
        self.line = 1;
        self.mark = 0;
    }

    /// Hands over the records that end in `bytes` until one answers false; gives how many bytes
    /// were taken.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut on_record: impl FnMut(&Record<'_>) -> Result<bool, FormatError>,
    ) -> Result<usize, FormatError> {
        let mut at = self.skip_mark(bytes);
        if !self.pending.is_empty() {
            let (taken, ended) = self.scan(&bytes[at..]);
            self.keep(&bytes[at..at + taken])?;
            at += taken;
            if !ended || !self.split_pending(&mut on_record)? {
                return Ok(at);
            }
        }
        while at < bytes.len() {
            let rest = &bytes[at..];
            let Split::Record(len, lines) = self.split(rest)? else {
                self.state = State::FieldStart;
                self.scan(rest);
                self.keep(rest)?;
                return Ok(bytes.len());
            };
            self.check_size(len)?;
            let record = Record {
                data: rest,
                spans: &self.spans,
                quote: self.quote,
                line: self.line,
            };
            let go_on = on_record(&record)?;
            self.line += lines;
            at += len;
            if !go_on {
                break;
            }
        }
        Ok(at)
    }

    /// Hands over a last record without a line break.
    pub(crate) fn end_of_file(
        &mut self,
        mut on_record: impl FnMut(&Record<'_>) -> Result<bool, FormatError>,
    ) -> Result<(), FormatError> {
        if (1..3).contains(&self.mark) {
            self.pending
                .extend_from_slice(&BYTE_ORDER_MARK[..self.mark]);
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.state == State::Quoted {
            return Err(self.unterminated());
        }
        if self.pending.ends_with(b"\r") {
            // An error before the CR is reported first, wherever the pieces of the file ended.
            let pending = std::mem::take(&mut self.pending);
            self.split(&pending)?;
            return Err(self.bare_cr(&pending));
        }
        self.pending.push(b'\n');
        self.split_pending(&mut on_record)?;
        Ok(())
    }

    /// Drops a record without an end: the sample ends, not the file.
    pub(crate) fn end_of_sample(&mut self) {
        self.begin_file();
    }

    fn skip_mark(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.mark < 3 {
            match bytes.get(at) {
                None => return at,
                Some(byte) if *byte == BYTE_ORDER_MARK[self.mark] => {
                    self.mark += 1;
                    at += 1;
                }
                Some(_) => {
                    // The first bytes of a mark that is none are data.
                    self.pending
                        .extend_from_slice(&BYTE_ORDER_MARK[..self.mark]);
                    if self.mark > 0 {
                        self.state = State::Unquoted;
                    }
                    self.mark = 3;
                }
            }
        }
        at
    }

    fn check_size(&self, len: usize) -> Result<(), FormatError> {
        if len <= self.max_record_bytes {
            return Ok(());
        }
        Err(FormatError::new(
            "record_too_large",
            format!("a record larger than {} bytes", self.max_record_bytes),
        )
        .hint("raise resources.max_record_bytes, or check for a quote that is never closed")
        .line(self.line))
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        self.check_size(self.pending.len() + bytes.len())?;
        crate::rows::reserve_within(&mut self.pending, bytes.len(), self.max_record_bytes);
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn split_pending(
        &mut self,
        on_record: &mut impl FnMut(&Record<'_>) -> Result<bool, FormatError>,
    ) -> Result<bool, FormatError> {
        let mut pending = std::mem::take(&mut self.pending);
        self.state = State::FieldStart;
        let Split::Record(_, lines) = self.split(&pending)? else {
            // The scan and the split agree on where a record ends.
            return Ok(true);
        };
        let record = Record {
            data: &pending,
            spans: &self.spans,
            quote: self.quote,
            line: self.line,
        };
        let go_on = on_record(&record)?;
        self.line += lines;
        pending.clear();
        pending.shrink_to(KEPT_BYTES);
        self.pending = pending;
        Ok(go_on)
    }

    /// Looks for the end of a record from where the last scan stopped: how many bytes belong to
    /// the record, and whether it ends there.
    fn scan(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let found = match self.state {
                State::FieldStart | State::Quote | State::Cr => Some(0),
                State::Unquoted => memchr3(self.delimiter, b'\n', b'\r', rest),
                State::Quoted => memchr(self.quote, rest),
                State::Broken => memchr(b'\n', rest),
            };
            let Some(found) = found else {
                return (bytes.len(), false);
            };
            let byte = rest[found];
            at += found + 1;
            self.state = match self.state {
                State::Quoted => State::Quote,
                State::Quote if byte == self.quote => State::Quoted,
                State::FieldStart if byte == self.quote => State::Quoted,
                State::Broken | State::Cr => return (at, true),
                _ if byte == b'\n' => return (at, true),
                _ if byte == b'\r' => State::Cr,
                _ if byte == self.delimiter => State::FieldStart,
                State::Quote => State::Broken,
                _ => State::Unquoted,
            };
        }
        (at, false)
    }

    /// Finds the fields of the record that `data` begins with.
    fn split(&mut self, data: &[u8]) -> Result<Split, FormatError> {
        let (delimiter, quote) = (self.delimiter, self.quote);
        self.spans.clear();
        let mut lines = 1;
        let mut at = 0;
        loop {
            match data.get(at) {
                None => return Ok(Split::Open(None)),
                Some(byte) if *byte == quote => {
                    let Some(span) = quoted(data, at + 1, quote) else {
                        return Ok(Split::Open(Some(at)));
                    };
                    lines += count_lines(&data[span.start..span.end]);
                    self.spans.push(span);
                    at = span.end + 1;
                    match (data.get(at), data.get(at + 1)) {
                        (Some(byte), _) if *byte == delimiter => at += 1,
                        (Some(b'\n'), _) => return Ok(Split::Record(at + 1, lines)),
                        (Some(b'\r'), Some(b'\n')) => return Ok(Split::Record(at + 2, lines)),
                        (None, _) | (Some(b'\r'), None) => return Ok(Split::Open(None)),
                        (Some(b'\r'), Some(_)) => return Err(self.bare_cr(&data[..at])),
                        _ => return Err(self.bad_quote(data, at)),
                    }
                }
                Some(_) => {
                    let Some(end) = find_end(data, at, delimiter) else {
                        return Ok(Split::Open(None));
                    };
                    self.spans.push(Span {
                        start: at,
                        end,
                        quoted: false,
                        doubled: false,
                    });
                    at = end + 1;
                    match data[end] {
                        b'\n' => return Ok(Split::Record(at, lines)),
                        b'\r' => match data.get(at) {
                            Some(b'\n') => return Ok(Split::Record(at + 1, lines)),
                            Some(_) => return Err(self.bare_cr(&data[..end])),
                            None => return Ok(Split::Open(None)),
                        },
                        _ => {}
                    }
                }
            }
        }
    }

    /// A CR behind `before`, the beginning of a record, that ends no line and is not in quotes:
    /// old programs end lines so, and then the whole file would look like one header.
    fn bare_cr(&self, before: &[u8]) -> FormatError {
        FormatError::new(
            "csv_bare_cr",
            "a carriage return (CR) without a line feed (LF), outside quotes",
        )
        .hint("convert the line ends to LF or CRLF, or put a field that contains a CR in quotes")
        .line(self.line + count_lines(before))
    }

    fn bad_quote(&self, data: &[u8], at: usize) -> FormatError {
        let line = self.line + count_lines(&data[..at]);
        FormatError::new(
            "csv_bad_quote",
            format!(
                "field {} continues after its closing quote",
                self.spans.len()
            ),
        )
        .hint("double a quote inside a quoted field")
        .line(line)
    }

    fn unterminated(&mut self) -> FormatError {
        let pending = std::mem::take(&mut self.pending);
        let line = match self.split(&pending) {
            Ok(Split::Open(Some(quote))) => self.line + count_lines(&pending[..quote]),
            _ => self.line,
        };
        FormatError::new(
            "csv_unterminated_quote",
            "the quote that opens here is never closed",
        )
        .line(line)
    }
}

/// The quoted field whose characters begin at `start`; `None` if its end is not known yet.
fn quoted(data: &[u8], start: usize, quote: u8) -> Option<Span> {
    let mut from = start;
    loop {
        let end = from + memchr(quote, data.get(from..)?)?;
        if *data.get(end + 1)? != quote {
            return Some(Span {
                start,
                end,
                quoted: true,
                doubled: from > start,
            });
        }
        from = end + 2;
    }
}

/// Finds the delimiter, an LF or a CR, eight bytes at a time: fields are short, so the set-up of a
/// vectorised search would cost more than the search.
#[inline]
fn find_end(data: &[u8], from: usize, delimiter: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    const AFTER_CR: u64 = 14;
    let spread = ONES * u64::from(delimiter);
    // The highest bit of each byte below `limit`; above the first one it may be wrong.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGHS;
    let ends = |byte: u8| byte == delimiter || matches!(byte, b'\n' | b'\r');
    let mut at = from;
    while let Some(chunk) = data.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let found = below(word ^ spread, 1) | below(word, AFTER_CR);
        if found == 0 {
            at += 8;
            continue;
        }
        at += found.trailing_zeros() as usize / 8;
        if ends(data[at]) {
            return Some(at);
        }
        // Another control character, such as a tab.
        at += 1;
    }
    let rest = data.get(at..)?;
    Some(at + rest.iter().position(|byte| ends(*byte))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = Vec<(u64, Vec<(String, bool)>)>;

    fn split(pieces: &[&[u8]]) -> Result<Found, FormatError> {
        let mut splitter = Splitter::new(&Dialect::default(), 1000);
        let mut found = Vec::new();
        let mut collect = |record: &Record<'_>| {
            let mut scratch = Vec::new();
            let fields = (0..record.len()).map(|at| {
                let (text, quoted) = record.field(at, &mut scratch);
                (String::from_utf8_lossy(text).into_owned(), quoted)
            });
            found.push((record.line, fields.collect()));
            Ok(true)
        };
        for piece in pieces {
            let taken = splitter.push(piece, &mut collect)?;
            assert_eq!(taken, piece.len());
        }
        splitter.end_of_file(&mut collect)?;
        Ok(found)
    }

    #[test]
    fn records_are_the_same_wherever_pieces_end() {
        let data = b"\xef\xbb\xbfa,\"b \"\"c\"\"\nd\",e\r\n,\"\",\n\nx\"y,\"z\rw\"\n\"q\",last";
        let whole = split(&[data]).unwrap();
        let plain = |text: &str| (text.to_owned(), false);
        let quoted = |text: &str| (text.to_owned(), true);
        assert_eq!(
            whole,
            [
                (1, vec![plain("a"), quoted("b \"c\"\nd"), plain("e")]),
                (3, vec![plain(""), quoted(""), plain("")]),
                (4, vec![plain("")]),
                (5, vec![plain("x\"y"), quoted("z\rw")]),
                (6, vec![quoted("q"), plain("last")]),
            ]
        );
        for at in 0..data.len() {
            assert_eq!(
                split(&[&data[..at], &data[at..]]).unwrap(),
                whole,
                "cut at {at}"
            );
        }
        let bytes: Vec<&[u8]> = data.chunks(1).collect();
        assert_eq!(split(&bytes).unwrap(), whole);
    }

    #[test]
    fn broken_quotes_name_their_line_wherever_pieces_end() {
        for (data, code, line) in [
            (&b"a,b\n\"x\ny\"z,\"1\n2\n"[..], "csv_bad_quote", 3),
            (b"a\n\"b\"c\r\n", "csv_bad_quote", 2),
            (b"a\n\"b\n\",\"c\nd\n", "csv_unterminated_quote", 3),
            (b"\"", "csv_unterminated_quote", 1),
            (b"\"\"a\r", "csv_bad_quote", 1),
        ] {
            let bytes: Vec<&[u8]> = data.chunks(1).collect();
            for pieces in [&[data][..], &bytes] {
                let error = split(pieces).unwrap_err();
                assert_eq!((error.code, error.line), (code, Some(line)));
            }
        }
    }

    #[test]
    fn a_record_without_end_is_refused_before_it_fills_the_memory() {
        let piece = [b'x'; 100];
        let error = split(&vec![&piece[..]; 20]).unwrap_err();
        assert_eq!(error.code, "record_too_large");
        let long = [b"ok\n".as_slice(), &[b'x'; 2000], b"\n"].concat();
        let error = split(&[&long]).unwrap_err();
        assert_eq!((error.code, error.line), ("record_too_large", Some(2)));
    }

    #[test]
    fn a_carriage_return_alone_is_refused_wherever_pieces_end() {
        for (data, line) in [
            (&b"a,b\r1,2\r3,4\r"[..], 1),
            (b"a\r", 1),
            (b"\r", 1),
            (b"a,b\n1,2\r", 2),
            (b"a,b\r\n1,2\r3,4\r\n", 2),
            (b"a,b\n\r1,2\n", 2),
            (b"a,b\n1,\r,3\n", 2),
            (b"\"a\"\r\"b\"\r", 1),
            (b"a\n\"b\n\"\r\r\n", 3),
            (b"a\n\"b\n\",c\rd\n", 3),
            (b"a\n\"b\"\r", 2),
            (b"a\r\r\n", 1),
            (b"\xef\xbb\xbf\r", 1),
        ] {
            for at in 0..=data.len() {
                let error = split(&[&data[..at], &data[at..]]).unwrap_err();
                assert_eq!(
                    (error.code, error.line),
                    ("csv_bare_cr", Some(line)),
                    "{:?} cut at {at}",
                    String::from_utf8_lossy(data)
                );
            }
            let bytes: Vec<&[u8]> = data.chunks(1).collect();
            assert_eq!(split(&bytes).unwrap_err().code, "csv_bare_cr");
        }
    }

    #[test]
    fn the_end_of_a_field_is_found_at_every_place() {
        for filler in [b'\x80', b'\t', b'\0', b'\x0e', b'\x0c', b'x'] {
            for len in 0..40 {
                for at in 0..len {
                    let mut data = vec![filler; len];
                    for end in [b',', b'\n', b'\r'] {
                        data[at] = end;
                        assert_eq!(find_end(&data, 0, b','), Some(at));
                        assert_eq!(find_end(&data, at, b','), Some(at));
                        assert_eq!(find_end(&data, at + 1, b','), None);
                    }
                }
            }
        }
        assert_eq!(find_end(b"abcdefgh\tx", 0, b'\t'), Some(8));
    }
}
