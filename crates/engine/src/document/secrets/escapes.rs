//! Texts with a layer of escapes removed. Each byte of such a text keeps its place in the text that is shown.

use memchr::memmem::Finder;

/// A text, as it is or unescaped.
pub(super) struct View {
    bytes: Vec<u8>,
    /// The start and the end of each byte in the text that is shown.
    places: Vec<(usize, usize)>,
}

/// An escape: its length in a view, and the bytes that it stands for.
struct Escape {
    len: usize,
    means: Vec<u8>,
}

/// Reads an escape at the start of the bytes. `None` if they start with none.
type Reader = fn(&[u8]) -> Option<Escape>;

impl View {
    pub fn of(text: &str) -> Self {
        Self {
            bytes: text.as_bytes().to_vec(),
            places: (0..text.len()).map(|at| (at, at + 1)).collect(),
        }
    }

    /// Adds the parts of the shown text in which a finder finds its needle.
    pub fn find(&self, finders: &[Finder<'static>], found: &mut Vec<(usize, usize)>) {
        for finder in finders {
            let len = finder.needle().len();
            for at in finder.find_iter(&self.bytes) {
                found.push(self.place(at, at + len));
            }
        }
    }

    /// The bytes that end before a place of the shown text.
    pub fn before(&self, place: usize) -> &[u8] {
        let len = self.places.partition_point(|(_, end)| *end <= place);
        &self.bytes[..len]
    }

    /// The bytes that start at a place of the shown text or behind it, and how many are before them.
    pub fn behind(&self, place: usize) -> (usize, &[u8]) {
        let at = self.places.partition_point(|(_, end)| *end <= place);
        (at, &self.bytes[at..])
    }

    /// The part of the shown text that these bytes stand for; they are not empty.
    pub fn place(&self, from: usize, to: usize) -> (usize, usize) {
        (self.places[from].0, self.places[to - 1].1)
    }

    /// The text without its white space.
    pub fn squeezed(&self) -> Self {
        let both = self.bytes.iter().zip(&self.places);
        let (bytes, places) = both
            .filter(|(byte, _)| !byte.is_ascii_whitespace())
            .map(|(byte, place)| (*byte, *place))
            .unzip();
        Self { bytes, places }
    }

    /// The text unescaped in each known way, for each way that changes it.
    pub fn unescaped(&self) -> impl Iterator<Item = Self> {
        let readers: [(u8, Reader); 7] = [
            (b'%', percent),
            (b'+', plus),
            (b'&', entity),
            (b'\\', backslash),
            (b'\\', backslash_of_bytes),
            (b'\'', doubled),
            (b'"', doubled),
        ];
        readers
            .into_iter()
            .filter_map(move |(sign, read)| self.without(sign, read))
    }

    /// Every long enough word of base64 letters, decoded. `None` if the text has no such word.
    pub fn of_base64(&self) -> Option<Self> {
        let mut plain = Self {
            bytes: Vec::new(),
            places: Vec::new(),
        };
        let mut at = 0;
        while at < self.bytes.len() {
            let word = self.bytes[at..]
                .iter()
                .take_while(|b| sextet(**b).is_some());
            let len = word.count();
            if len >= MIN_BASE64 {
                self.decode(at, at + len, &mut plain);
            }
            // The byte after the word is not a letter of base64.
            at += len + 1;
        }
        (!plain.bytes.is_empty()).then_some(plain)
    }

    /// Decodes a word of base64, and adds a NUL after it: no secret contains a NUL, so none stretches over two words.
    fn decode(&self, from: usize, to: usize, plain: &mut Self) {
        for start in (from..to).step_by(4) {
            let end = (start + 4).min(to);
            let place = (self.places[start].0, self.places[end - 1].1);
            let letters = self.bytes[start..end].iter();
            let sextets = letters.filter_map(|byte| sextet(*byte));
            let bits = sextets.fold(0_u32, |bits, sextet| bits << 6 | u32::from(sextet));
            let bits = bits << (6 * (4 - (end - start)));
            let bytes = (end - start) * 6 / 8;
            plain.bytes.extend(&bits.to_be_bytes()[1..=bytes]);
            plain.places.resize(plain.places.len() + bytes, place);
        }
        plain.bytes.push(0);
        plain
            .places
            .push((self.places[from].0, self.places[to - 1].1));
    }

    /// The text with the escapes that `read` finds at each `sign` replaced. `None` if there are none.
    fn without(&self, sign: u8, read: Reader) -> Option<Self> {
        let first =
            memchr::memchr_iter(sign, &self.bytes).find(|at| read(&self.bytes[*at..]).is_some())?;
        let mut plain = Self {
            bytes: self.bytes[..first].to_vec(),
            places: self.places[..first].to_vec(),
        };
        let mut at = first;
        while at < self.bytes.len() {
            let escape = match self.bytes[at] == sign {
                true => read(&self.bytes[at..]),
                false => None,
            };
            let Some(Escape { len, means }) = escape else {
                plain.bytes.push(self.bytes[at]);
                plain.places.push(self.places[at]);
                at += 1;
                continue;
            };
            let place = (self.places[at].0, self.places[at + len - 1].1);
            plain.places.resize(plain.places.len() + means.len(), place);
            plain.bytes.extend(means);
            at += len;
        }
        Some(plain)
    }
}

/// The shortest secret has 4 bytes. With the name of a user before it, its base64 has at least this many letters.
const MIN_BASE64: usize = 8;

/// The value of a letter of base64 or base64url (RFC 4648, 4 and 5).
fn sextet(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

fn means(len: usize, byte: u8) -> Option<Escape> {
    Some(Escape {
        len,
        means: vec![byte],
    })
}

fn is_char(len: usize, code: u32) -> Option<Escape> {
    let means = char::from_u32(code)?.to_string().into_bytes();
    Some(Escape { len, means })
}

/// The number that the digits write. `None` if one of them is not a digit.
fn number(digits: Option<&[u8]>, radix: u32) -> Option<u32> {
    let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_alphanumeric))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// `%2F` of a URL.
fn percent(at: &[u8]) -> Option<Escape> {
    means(3, u8::try_from(number(at.get(1..3), 16)?).ok()?)
}

/// `+`, the blank in the body of a form.
fn plus(_: &[u8]) -> Option<Escape> {
    means(1, b' ')
}

/// `''` of SQL, `""` of CSV.
fn doubled(at: &[u8]) -> Option<Escape> {
    (at.get(1) == at.first()).then(|| means(2, at[0]))?
}

/// `&amp;` and `&#x27;` of HTML.
fn entity(at: &[u8]) -> Option<Escape> {
    /// The longest is `&#x10FFFF;`.
    const MOST: usize = 10;
    let end = at.iter().take(MOST).position(|byte| *byte == b';')?;
    let len = end + 1;
    match &at[1..end] {
        b"amp" => means(len, b'&'),
        b"lt" => means(len, b'<'),
        b"gt" => means(len, b'>'),
        b"quot" => means(len, b'"'),
        b"apos" => means(len, b'\''),
        [b'#', b'x' | b'X', digits @ ..] => is_char(len, number(Some(digits), 16)?),
        [b'#', digits @ ..] => is_char(len, number(Some(digits), 10)?),
        _ => None,
    }
}

/// `\n`, `\u00e4`, `\u{e4}` and `\xe4` of Rust, JSON, JavaScript and Python.
fn backslash(at: &[u8]) -> Option<Escape> {
    match at.get(1)? {
        b'n' => means(2, b'\n'),
        b'r' => means(2, b'\r'),
        b't' => means(2, b'\t'),
        b'b' => means(2, 8),
        b'f' => means(2, 12),
        b'v' => means(2, 11),
        b'a' => means(2, 7),
        b'0' => means(2, 0),
        b'x' => is_char(4, number(at.get(2..4), 16)?),
        b'U' => is_char(10, number(at.get(2..10), 16)?),
        b'u' if at.get(2) == Some(&b'{') => {
            let end = at.iter().take(10).position(|byte| *byte == b'}')?;
            is_char(end + 1, number(at.get(3..end), 16)?)
        }
        b'u' => {
            let first = number(at.get(2..6), 16)?;
            if !(0xd800..0xdc00).contains(&first) {
                return is_char(6, first);
            }
            // A surrogate pair (RFC 8259, 7).
            let second = at.get(6..8).filter(|sign| *sign == b"\\u");
            let second = second.and_then(|_| number(at.get(8..12), 16))?;
            let second = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            is_char(12, 0x10000 + ((first - 0xd800) << 10) + second)
        }
        sign if sign.is_ascii_punctuation() => means(2, *sign),
        _ => None,
    }
}

/// Like [`backslash`], but `\xc3` is a byte, as in Python's bytes.
fn backslash_of_bytes(at: &[u8]) -> Option<Escape> {
    match at.get(1)? {
        b'x' => means(4, u8::try_from(number(at.get(2..4), 16)?).ok()?),
        _ => backslash(at),
    }
}
