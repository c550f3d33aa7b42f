//! Splits a JSON document into records, wherever the pieces of the file end.
//!
//! The document is an array, whose elements are the records, or one object, which is its only record. The splitter
//! knows the grammar of arrays and objects, and passes over the insides of strings, numbers and words. So it knows
//! where a record ends even if a value in it is not JSON. Behind a place that breaks this grammar nobody knows where
//! the next record begins: the file ends there with an error.

use memchr::memchr3;

use super::lines::{Found, KEPT_BYTES, too_large};
use super::place::Place;
use crate::FormatError;
use crate::error::{TO_UTF8, shown};

/// Arrays and objects that are open at once. Parsers of destinations have limits of this order, and each level costs
/// one byte of memory.
const MAX_DEPTH: usize = 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Splits one file after the other.
pub(crate) struct Elements {
    max_record_bytes: usize,
    /// The beginning of a record whose end has not come yet.
    pending: Vec<u8>,
    state: State,
    /// The arrays and objects that are open.
    open: Vec<Open>,
    /// Brackets that are open around a record: 1 in an array.
    around: usize,
    /// A record has begun, at `place`.
    in_record: bool,
    /// Records so far.
    count: u64,
    /// The place of the record, or of the next byte between two records.
    place: Place,
    /// Bytes of the byte order mark so far.
    mark: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Array,
    Object,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The document.
    Begin,
    /// The first element of an array, or its end.
    FirstElement,
    /// An element, behind a comma.
    Element,
    /// The first key of an object, or its end.
    FirstKey,
    /// A key, behind a comma.
    Key,
    /// The colon behind a key.
    Colon,
    /// The value of a key.
    Member,
    /// A comma, or the end of the array or object.
    Comma,
    /// The rest of a string.
    String { is_key: bool },
    /// The character behind a backslash in a string.
    Escape { is_key: bool },
    /// The rest of a number or a word.
    Token,
    /// The end of the file.
    End,
}

/// The outcome of a look at the bytes of a record.
enum Scan {
    /// The record has this many of the bytes.
    Ends(usize),
    /// The record goes on behind the bytes.
    More,
    /// The grammar is broken behind this many bytes.
    Broken(usize, Fault),
}

/// A place where the grammar is broken.
enum Fault {
    /// A byte that cannot come here.
    Unexpected(u8),
    /// A string that the line ends.
    OpenString,
    /// Too many brackets.
    TooDeep,
}

impl Elements {
    pub(crate) fn new(max_record_bytes: usize) -> Self {
        Self {
            max_record_bytes,
            pending: Vec::new(),
            state: State::Begin,
            open: Vec::new(),
            around: 0,
            in_record: false,
            count: 0,
            place: Place::BEGIN,
            mark: 0,
        }
    }

    /// Whether a text is one document.
    ///
    /// # Errors
    /// Of its grammar.
    pub(crate) fn check(text: &[u8], max_record_bytes: usize) -> Result<(), FormatError> {
        let mut elements = Self::new(max_record_bytes);
        elements.push(text, |_, _| Ok(true))?;
        elements.end_of_file()
    }

    pub(crate) fn begin_file(&mut self) {
        self.pending.clear();
        self.state = State::Begin;
        self.open.clear();
        self.around = 0;
        self.in_record = false;
        self.count = 0;
        self.place = Place::BEGIN;
        self.mark = 0;
    }

    /// Hands over the records that end in `bytes`, with their places, until one answers false; gives how many bytes
    /// were taken.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut on_record: impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<usize, FormatError> {
        let mut at = self.pass_mark(bytes);
        if at < bytes.len() && (1..BOM.len()).contains(&self.mark) {
            return Err(self.broken(&Fault::Unexpected(BOM[0]), self.place));
        }
        while let Some(byte) = bytes.get(at) {
            if !self.in_record {
                if self.begins_record(*byte)? {
                    self.in_record = true;
                } else {
                    self.place = self.place.after(&[*byte]);
                    at += 1;
                }
                continue;
            }
            let rest = &bytes[at..];
            let room = self.max_record_bytes.saturating_sub(self.pending.len());
            // One byte more than a record may have tells that it is too large.
            let (seen, is_cut) = match rest.get(..room.saturating_add(1)) {
                Some(seen) if seen.len() < rest.len() => (seen, true),
                _ => (rest, false),
            };
            let len = match self.scan(seen) {
                Scan::Ends(len) if len <= room => len,
                Scan::More if !is_cut && rest.len() <= room => {
                    self.keep(rest);
                    return Ok(bytes.len());
                }
                Scan::Broken(len, fault) if len <= room => {
                    let place = self.place.after(&self.pending).after(&rest[..len]);
                    return Err(self.broken(&fault, place));
                }
                _ => return Err(too_large(self.max_record_bytes, self.place.line)),
            };
            at += len;
            if !self.end_record(&rest[..len], &mut on_record)? {
                return Ok(at);
            }
        }
        Ok(bytes.len())
    }

    /// The file ends here.
    pub(crate) fn end_of_file(&mut self) -> Result<(), FormatError> {
        if self.state == State::End {
            return Ok(());
        }
        let place = match self.in_record {
            true => self.place.after(&self.pending),
            false => self.place,
        };
        let text = match self.state {
            State::Begin => "the file does not have a JSON document".to_owned(),
            _ => format!(
                "character {}: the file ends within the document",
                place.character()
            ),
        };
        let hint = "let its writer finish, and write [] for a file without rows";
        Err(FormatError::new("json_truncated", text)
            .hint(hint)
            .line(place.line))
    }

    /// Passes over the byte order mark at the beginning of the file; gives its bytes.
    fn pass_mark(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        while self.state == State::Begin
            && self.place == Place::BEGIN
            && self.mark < BOM.len()
            && bytes.get(passed) == Some(&BOM[self.mark])
        {
            self.mark += 1;
            passed += 1;
        }
        passed
    }

    /// Looks at a byte between two records. Answers whether a record begins with it; otherwise it is passed over.
    fn begins_record(&mut self, byte: u8) -> Result<bool, FormatError> {
        if is_space(byte) {
            return Ok(false);
        }
        match (self.state, byte) {
            (State::Begin, b'{') => return Ok(true),
            (State::Begin, b'[') => {
                self.open.push(Open::Array);
                self.around = 1;
                self.state = State::FirstElement;
            }
            (State::Begin, b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                let text = format!(
                    "character {}: the document is a single value, and not an object or an array of objects",
                    self.place.character()
                );
                let error = FormatError::new("json_not_rows", text);
                let hint = "write one object, or an array with an object for each row";
                return Err(error.hint(hint).line(self.place.line));
            }
            (State::FirstElement | State::Comma, b']') => {
                self.open.clear();
                self.state = State::End;
            }
            (State::Comma, b',') => self.state = State::Element,
            (State::FirstElement | State::Element, byte) if begins_value(byte) => return Ok(true),
            (_, byte) => return Err(self.broken(&Fault::Unexpected(byte), self.place)),
        }
        Ok(false)
    }

    /// Looks at the next bytes of a record.
    fn scan(&mut self, bytes: &[u8]) -> Scan {
        let mut at = 0;
        loop {
            match self.state {
                State::String { is_key } => {
                    let Some(found) = memchr3(b'"', b'\\', b'\n', &bytes[at..]) else {
                        return Scan::More;
                    };
                    at += found + 1;
                    self.state = match bytes[at - 1] {
                        b'"' if is_key => State::Colon,
                        b'"' => State::Comma,
                        b'\\' => State::Escape { is_key },
                        _ => return Scan::Broken(at - 1, Fault::OpenString),
                    };
                }
                State::Escape { is_key } => {
                    if at == bytes.len() {
                        return Scan::More;
                    }
                    at += 1;
                    self.state = State::String { is_key };
                }
                State::Token => {
                    let end = bytes[at..].iter().position(|byte| !is_of_token(*byte));
                    let Some(end) = end else {
                        return Scan::More;
                    };
                    at += end;
                    self.state = State::Comma;
                }
                _ => {
                    let Some(byte) = bytes.get(at) else {
                        return Scan::More;
                    };
                    if !is_space(*byte)
                        && let Err(fault) = self.take(*byte)
                    {
                        return Scan::Broken(at, fault);
                    }
                    // A number or a word has this byte, and perhaps no other.
                    at += 1;
                }
            }
            let is_over = matches!(self.state, State::Comma) && self.open.len() == self.around;
            if is_over {
                return Scan::Ends(at);
            }
        }
    }

    /// Takes a byte between the strings, numbers and words of a record.
    fn take(&mut self, byte: u8) -> Result<(), Fault> {
        let innermost = self.open.last().copied();
        self.state = match (self.state, byte) {
            (State::FirstKey | State::Key, b'"') => State::String { is_key: true },
            (State::Colon, b':') => State::Member,
            (State::Comma, b',') => match innermost {
                Some(Open::Object) => State::Key,
                _ => State::Element,
            },
            (State::FirstElement | State::Comma, b']') if innermost == Some(Open::Array) => {
                self.open.pop();
                State::Comma
            }
            (State::FirstKey | State::Comma, b'}') if innermost == Some(Open::Object) => {
                self.open.pop();
                State::Comma
            }
            (State::Begin | State::FirstElement | State::Element | State::Member, byte) => {
                match byte {
                    b'{' => self.open(Open::Object, State::FirstKey)?,
                    b'[' => self.open(Open::Array, State::FirstElement)?,
                    b'"' => State::String { is_key: false },
                    byte if begins_value(byte) => State::Token,
                    byte => return Err(Fault::Unexpected(byte)),
                }
            }
            (_, byte) => return Err(Fault::Unexpected(byte)),
        };
        Ok(())
    }

    fn open(&mut self, bracket: Open, next: State) -> Result<State, Fault> {
        if self.open.len() == MAX_DEPTH {
            return Err(Fault::TooDeep);
        }
        self.open.push(bracket);
        Ok(next)
    }

    /// Keeps the beginning of a record.
    fn keep(&mut self, bytes: &[u8]) {
        crate::rows::reserve_within(&mut self.pending, bytes.len(), self.max_record_bytes);
        self.pending.extend_from_slice(bytes);
    }

    /// Hands over a record that ends with these bytes. An error in an array says which element it is: all of them may be on
    /// one line.
    fn end_record(
        &mut self,
        rest: &[u8],
        on_record: &mut impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<bool, FormatError> {
        let place = self.place;
        self.in_record = false;
        self.count += 1;
        if self.around == 0 {
            self.state = State::End;
        }
        let (count, around) = (self.count, self.around);
        let on_record = &mut |found: Found<'_>, place: Place| {
            on_record(found, place).map_err(|error| match around {
                0 => error,
                _ => error.element(count),
            })
        };
        if self.pending.is_empty() {
            self.place = place.after(rest);
            return hand_over(rest, place, on_record);
        }
        self.keep(rest);
        let mut pending = std::mem::take(&mut self.pending);
        self.place = place.after(&pending);
        let go_on = hand_over(&pending, place, on_record)?;
        pending.clear();
        pending.shrink_to(KEPT_BYTES);
        self.pending = pending;
        Ok(go_on)
    }

    /// The error for a place that breaks the grammar.
    fn broken(&self, fault: &Fault, place: Place) -> FormatError {
        let byte = match fault {
            Fault::TooDeep => {
                let text = format!(
                    "character {}: more than {MAX_DEPTH} arrays and objects are inside each other",
                    place.character()
                );
                let error = FormatError::new("json_too_deep", text).line(place.line);
                return error.hint("write the inner part as a string");
            }
            Fault::OpenString => None,
            Fault::Unexpected(byte) => Some(*byte),
        };
        let found = match byte {
            None => "the line ends within a string".to_owned(),
            Some(byte) if byte.is_ascii() => {
                format!("expected {}, found {}", self.expected(), shown(&[byte]))
            }
            Some(_) => format!("expected {}", self.expected()),
        };
        let hint = match (self.state, byte) {
            (_, None) => "close the string with a quote, or write a line break in it as \\n",
            (State::Element, Some(b']')) | (State::Key, Some(b'}')) => {
                "remove the comma before the bracket"
            }
            (State::Element | State::FirstElement, Some(b',')) => "remove the comma",
            (State::Comma, Some(byte)) if begins_value(byte) => "put a comma between the values",
            (State::FirstKey | State::Key, Some(_)) => "write each key in double quotes",
            (State::End, Some(b'{' | b'[')) => {
                "one object on each line is JSON Lines: set format: jsonl, or send it as application/x-ndjson"
            }
            (State::End, Some(_)) => "remove everything behind the document",
            _ => "repair the document: nothing behind this place is read",
        };
        let text = format!("character {}: {found}", place.character());
        let error = FormatError::new("json_broken_document", text);
        error.hint(hint).line(place.line)
    }

    fn expected(&self) -> &'static str {
        match self.state {
            State::Begin => "an object or an array of objects",
            State::FirstElement => "a value or ]",
            State::Element | State::Member => "a value",
            State::FirstKey => "a key in double quotes or }",
            State::Key => "a key in double quotes",
            State::Colon => "a colon",
            State::Comma if self.open.last() == Some(&Open::Object) => "a comma or }",
            State::Comma => "a comma or ]",
            State::End => "the end of the document",
            State::String { .. } | State::Escape { .. } | State::Token => "the rest of a value",
        }
    }
}

fn hand_over(
    record: &[u8],
    place: Place,
    on_record: &mut impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
) -> Result<bool, FormatError> {
    match std::str::from_utf8(record) {
        Ok(text) => on_record(Ok(text), place),
        Err(error) => {
            let wrong = place.after(&record[..error.valid_up_to()]);
            let text = format!("character {}: not UTF-8", wrong.character());
            let error = FormatError::new("jsonl_bad_utf8", text);
            on_record(Err((record, error.hint(TO_UTF8).line(wrong.line))), place)
        }
    }
}

/// White space of JSON (RFC 8259, section 2).
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Whether a value may begin so. Words such as `NaN` are not JSON, but end like a number.
fn begins_value(byte: u8) -> bool {
    matches!(byte, b'{' | b'[' | b'"') || is_of_token(byte)
}

fn is_of_token(byte: u8) -> bool {
    matches!(byte, b'-' | b'+' | b'.' | b'_') || byte.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    type Records = Vec<(String, Place)>;

    /// The records of a file that comes in pieces of `cut` bytes, and perhaps its error.
    fn split(file: &[u8], cut: usize, max_record_bytes: usize) -> (Records, Option<FormatError>) {
        let mut elements = Elements::new(max_record_bytes);
        let mut records = Vec::new();
        elements.begin_file();
        for mut piece in file.chunks(cut) {
            while !piece.is_empty() {
                let pushed = elements.push(piece, |found, place| {
                    let text = found.map_err(|(_, error)| error)?;
                    records.push((text.to_owned(), place));
                    // As a full batch does.
                    Ok(records.len() % 3 != 0)
                });
                match pushed {
                    Ok(taken) => piece = &piece[taken..],
                    Err(error) => return (records, Some(error)),
                }
            }
            assert!(elements.pending.len() <= max_record_bytes);
        }
        let ended = elements.end_of_file().err();
        (records, ended)
    }

    fn error(file: &str) -> FormatError {
        let (_, error) = split(file.as_bytes(), usize::MAX, 1 << 20);
        error.unwrap_or_else(|| panic!("{file} is taken"))
    }

    #[test]
    fn elements_are_records_with_their_places() {
        let file = "\u{feff} [\n {\"a\": \"]}\\\"[\\\\\"},\r\n\t{\n\"b\": [[], {}]\n} , \"é\",{\"c\":1} ,\n-1.5e3\n ] \n";
        let expected = [
            ("{\"a\": \"]}\\\"[\\\\\"}", 2, 2),
            ("{\n\"b\": [[], {}]\n}", 3, 2),
            ("\"é\"", 5, 5),
            ("{\"c\":1}", 5, 9),
            ("-1.5e3", 6, 1),
        ];
        for cut in 1..file.len() {
            let (records, error) = split(file.as_bytes(), cut, 100);
            assert_eq!(error, None, "{cut}");
            let places = records.iter();
            let places = places.map(|(text, place)| (&**text, place.line, place.character()));
            assert_eq!(places.collect::<Vec<_>>(), expected, "{cut}");
        }
        for (file, records) in [("[]", 0), (" [ ]\n", 0), ("{}", 1), ("\n{\"a\":[1]}\n", 1)] {
            let (found, error) = split(file.as_bytes(), 1, 100);
            assert_eq!((found.len(), error), (records, None), "{file}");
        }
    }

    #[test]
    fn a_broken_document_ends_at_its_place() {
        for (file, code, line, text) in [
            ("", "json_truncated", 1, "does not have"),
            (" \n\u{feff}", "json_broken_document", 2, "character 1"),
            ("[{\"a\":1}\n,", "json_truncated", 2, "character 2"),
            ("[{\"a\":\n\"x", "json_truncated", 2, "character 3"),
            ("[1", "json_truncated", 1, "character 3"),
            ("[{\"a\":1},\n]", "json_broken_document", 2, "found \"]\""),
            ("[{\"a\":1,}]", "json_broken_document", 1, "character 9"),
            (
                "[{\"a\":1}\n {}]",
                "json_broken_document",
                2,
                "a comma or ]",
            ),
            ("[{\"a\" 1}]", "json_broken_document", 1, "a colon"),
            ("[{\"a\":}]", "json_broken_document", 1, "expected a value"),
            ("[{\"a\":[1}]", "json_broken_document", 1, "a comma or ]"),
            (
                "[{\"a\":{\"b\":1]}]",
                "json_broken_document",
                1,
                "a comma or }",
            ),
            ("[{a:1}]", "json_broken_document", 1, "double quotes"),
            ("[,{}]", "json_broken_document", 1, "character 2"),
            (
                "[{\"a\":\"x\ny\"}]",
                "json_broken_document",
                1,
                "within a string",
            ),
            (
                "{\"a\":1}\n{\"a\":2}",
                "json_broken_document",
                2,
                "the end of",
            ),
            ("[]]", "json_broken_document", 1, "character 3"),
            ("[{}]\n\nx", "json_broken_document", 3, "character 1"),
            (
                "/* */ []",
                "json_broken_document",
                1,
                "an object or an array",
            ),
            ("[{\"a\":é}]", "json_broken_document", 1, "character 7"),
            (" 5", "json_not_rows", 1, "character 2"),
            ("\"x\"", "json_not_rows", 1, "character 1"),
            ("null", "json_not_rows", 1, "character 1"),
        ] {
            let error = error(file);
            assert_eq!(
                (error.code, error.line),
                (code, Some(line)),
                "{file}: {error}"
            );
            assert!(error.message.contains(text), "{file}: {error}");
            assert!(error.hint.is_some(), "{file}: {error}");
        }
        assert!(
            error("{}{}")
                .hint
                .is_some_and(|hint| hint.contains("jsonl"))
        );
        let half = split(b"\xef\xbb[]", 1, 100).1.expect("an error");
        assert_eq!(half.code, "json_broken_document");
    }

    #[test]
    fn depth_and_records_have_limits_and_the_array_has_none() {
        let nested = |depth: usize| format!("[{}{}]", "[".repeat(depth), "]".repeat(depth));
        let (records, none) = split(nested(MAX_DEPTH - 1).as_bytes(), 7, 1 << 20);
        assert_eq!((records.len(), none), (1, None));
        assert_eq!(error(&nested(MAX_DEPTH)).code, "json_too_deep");
        let deep = "[".repeat(1 << 20);
        assert_eq!(error(&deep).code, "json_too_deep");
        for (len, is_taken) in [(10, true), (11, false)] {
            let record = format!("\"{}\"", "x".repeat(len - 2));
            let file = format!("[1,\n{record}, {record}]");
            for cut in 1..file.len() {
                let (records, error) = split(file.as_bytes(), cut, 10);
                match is_taken {
                    true => assert_eq!((records.len(), error), (3, None), "{cut}"),
                    false => {
                        let error = error.expect("an error");
                        assert_eq!((error.code, error.line), ("record_too_large", Some(2)));
                    }
                }
            }
        }
        let (records, error) = split(
            format!("[1{}]", ", 1".repeat(100_000)).as_bytes(),
            1 << 12,
            10,
        );
        assert_eq!((records.len(), error), (100_001, None));
    }

    /// Texts that are JSON, nearly JSON, and far from it.
    fn texts() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("-1.5e3".to_owned()),
            Just("\"\"".to_owned()),
            Just("\"]},{[:\\\" \\\\\"".to_owned()),
            Just("\"\\ud83d\\ude00 é\"".to_owned()),
            Just("NaN".to_owned()),
            Just("01".to_owned()),
            any::<String>().prop_map(|text| serde_json::Value::from(text).to_string()),
        ];
        let inner = leaf.prop_recursive(3, 20, 4, |inner| container(inner.boxed(), 0));
        prop_oneof![1 => inner.clone(), 9 => container(inner.boxed(), 1)]
    }

    /// An array or an object of at least `least` values.
    fn container(value: BoxedStrategy<String>, least: usize) -> BoxedStrategy<String> {
        let space = prop_oneof![Just(""), Just(" "), Just("\r\n\t")];
        let values = prop::collection::vec((value, space), least..5);
        let written = (values, any::<bool>()).prop_map(|(values, is_object)| {
            let values = values.iter().enumerate();
            let values = values.map(|(at, (value, space))| match is_object {
                true => format!("{space}\"k{at}\"{space}:{space}{value}"),
                false => format!("{space}{value}{space}"),
            });
            let inside = values.collect::<Vec<_>>().join(",");
            match is_object {
                true => format!("{{{inside}}}"),
                false => format!("[{inside}]"),
            }
        });
        written.boxed()
    }

    fn is_json(text: &str) -> bool {
        serde_json::from_str::<IgnoredAny>(text).is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// A document is JSON exactly if it is split and all of its records are JSON.
        #[test]
        fn it_does_not_matter_where_pieces_end(
            text in texts(),
            change in prop::option::of((any::<prop::sample::Index>(), prop::sample::select(&b"[]{},:\"\\ \n1ax"[..]), any::<bool>())),
            cut in 1_usize..20,
        ) {
            let mut bytes = text.into_bytes();
            if let Some((at, byte, inserts)) = change {
                let at = at.index(bytes.len());
                match inserts {
                    true => bytes.insert(at, byte),
                    false => bytes[at] = byte,
                }
            }
            let whole = split(&bytes, usize::MAX, 1 << 20);
            prop_assert_eq!(&split(&bytes, cut, 1 << 20), &whole);
            let Ok(text) = std::str::from_utf8(&bytes) else {
                return Ok(());
            };
            let (records, error) = whole;
            let is_split = error.is_none() && records.iter().all(|(record, _)| is_json(record));
            let has_rows = text.trim_start().starts_with(['[', '{']);
            prop_assert_eq!(is_split, has_rows && is_json(text), "{:?}: {:?}", text, error);
            if is_split && text.trim_start().starts_with('[') {
                let items: Vec<&serde_json::value::RawValue> = serde_json::from_str(text).expect("an array");
                let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
                let found: Vec<&str> = records.iter().map(|(record, _)| &**record).collect();
                prop_assert_eq!(found, items);
            }
        }
    }
}
