//! Regular expressions of checks that came with a column ("Regular Expression Details" of the PostgreSQL manual): whether
//! the server compares each text with them in a short time.
//!
//! Measured on PostgreSQL 15 with texts of 1 KB: `^(.*)(.*)(.*)\1\2\3c$` takes minutes, because the server tries every
//! length of each part, and `(a?b?){255}c` takes seconds to compile. Nested `*` and `+`, and bounds of single characters are
//! fast. Lookaround is, too, behind `^`: elsewhere the server looks from each character on, and `x(?=.*y)` takes half an hour
//! for 1 MB.

/// The parts of a pattern when its bounds are written out.
const MAX_PARTS: usize = 5_000;
/// The same of groups that may be empty and have bounds: compiling takes time that grows with the cube.
const MAX_EMPTY_PARTS: usize = 50;
/// `*`, `+`, `?` and bounds, and `%` of SIMILAR TO.
const MAX_QUANTIFIERS: usize = 100;
/// Options at the beginning that leave the syntax as it is, and `^` at the begin of the whole text.
pub(crate) const OPTIONS: &[u8] = b"cis";

/// Why the server may take long for a pattern. `None` if it does not.
pub(crate) fn problem(pattern: &str) -> Option<&'static str> {
    Reader::new(pattern).read().err()
}

/// What was read of a group since its last `|`, and of the branches before.
#[derive(Debug, Clone, Copy)]
struct Group {
    parts: usize,
    /// A branch before may be empty.
    has_empty_branch: bool,
    /// The open branch may be empty.
    is_empty: bool,
    /// Lookaround takes no characters.
    takes_nothing: bool,
}

/// The last part: what a quantifier behind it repeats.
#[derive(Debug, Clone, Copy)]
struct Part {
    parts: usize,
    may_be_empty: bool,
}

struct Reader<'a> {
    rest: &'a [u8],
    open: Vec<Group>,
    last: Option<Part>,
    empty_parts: usize,
    quantifiers: usize,
    head: Head,
}

/// What was read outside of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Nothing,
    /// `^`, and perhaps lookaround.
    Anchor,
    More,
}

impl<'a> Reader<'a> {
    fn new(pattern: &'a str) -> Self {
        Self {
            rest: pattern.as_bytes(),
            open: vec![Group::new(false)],
            last: None,
            empty_parts: 0,
            quantifiers: 0,
            head: Head::Nothing,
        }
    }

    fn read(mut self) -> Result<(), &'static str> {
        if self.rest.starts_with(b"***") {
            return Err("it begins with ***");
        }
        if let Some(options) = self.rest.strip_prefix(b"(?")
            && options.first().is_some_and(u8::is_ascii_alphabetic)
        {
            let end = options.iter().position(|byte| *byte == b')');
            let end = end.ok_or("it is not complete")?;
            if options[..end]
                .iter()
                .any(|option| !OPTIONS.contains(option))
            {
                return Err("it has options that change the syntax");
            }
            self.rest = &options[end + 1..];
        }
        while let Some((first, rest)) = self.rest.split_first() {
            self.rest = rest;
            match first {
                b'\\' => self.escape()?,
                b'[' => self.bracket()?,
                b'(' => self.open_group()?,
                b')' => self.close_group()?,
                b'|' => {
                    self.settle()?;
                    self.goes_on();
                    if let Some(group) = self.open.last_mut() {
                        group.has_empty_branch |= group.is_empty;
                        group.is_empty = true;
                    }
                }
                b'*' | b'+' | b'?' => self.repeat(usize::from(*first == b'+'), 1)?,
                b'{' if rest.first().is_some_and(u8::is_ascii_digit) => self.bounds()?,
                b'^' if self.open.len() == 1 && self.head == Head::Nothing => {
                    self.part(true)?;
                    self.head = Head::Anchor;
                }
                b'^' | b'$' => self.part(true)?,
                b'%' => {
                    self.part(true)?;
                    self.count_quantifier()?;
                }
                _ => self.part(false)?,
            }
        }
        self.settle()
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        let (escaped, rest) = self.rest.split_first().ok_or("it is not complete")?;
        self.rest = rest;
        match escaped {
            b'1'..=b'9' => Err("it has a back reference"),
            // Places, not characters.
            b'A' | b'm' | b'M' | b'y' | b'Y' | b'Z' => self.part(true),
            _ => self.part(false),
        }
    }

    /// `[…]`, with classes such as `[:alpha:]` in it.
    fn bracket(&mut self) -> Result<(), &'static str> {
        let rest = self.rest;
        let mut at = usize::from(rest.first() == Some(&b'^'));
        // The first one is a character.
        at += usize::from(rest.get(at) == Some(&b']'));
        loop {
            match (rest.get(at), rest.get(at + 1)) {
                (Some(b']'), _) => break,
                (Some(b'\\'), Some(_)) => at += 2,
                (Some(b'['), Some(kind @ (b':' | b'.' | b'='))) => {
                    let ends = |pair: &[u8]| pair[0] == *kind && pair[1] == b']';
                    let end = rest[at + 2..].windows(2).position(ends);
                    at += 4 + end.ok_or("it is not complete")?;
                }
                (Some(_), _) => at += 1,
                (None, _) => return Err("it is not complete"),
            }
        }
        self.rest = &rest[at + 1..];
        self.part(false)
    }

    fn open_group(&mut self) -> Result<(), &'static str> {
        self.settle()?;
        let kinds: [(&[u8], bool); 6] = [
            (b"?:", false),
            (b"?=", true),
            (b"?!", true),
            (b"?<=", true),
            (b"?<!", true),
            (b"", false),
        ];
        for (begin, takes_nothing) in kinds {
            if let Some(rest) = self.rest.strip_prefix(begin) {
                self.rest = rest;
                let is_at_begin = self.open.len() == 1 && self.head == Head::Anchor;
                match takes_nothing {
                    true if !is_at_begin => return Err("it has lookaround that is not behind ^"),
                    true => {}
                    false => self.goes_on(),
                }
                self.open.push(Group::new(takes_nothing));
                return Ok(());
            }
        }
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), &'static str> {
        self.settle()?;
        if self.open.len() == 1 {
            return Err("it is not complete");
        }
        let group = self.open.pop().ok_or("it is not complete")?;
        self.last = Some(Part {
            parts: group.parts.max(1),
            may_be_empty: group.takes_nothing || group.has_empty_branch || group.is_empty,
        });
        Ok(())
    }

    /// `{m}`, `{m,}` and `{m,n}`; the first bracket is read.
    fn bounds(&mut self) -> Result<(), &'static str> {
        let end = self.rest.iter().position(|byte| *byte == b'}');
        let end = end.ok_or("it is not complete")?;
        let text = std::str::from_utf8(&self.rest[..end]).unwrap_or_default();
        self.rest = &self.rest[end + 1..];
        let number = |text: &str| text.parse::<u8>().map_err(|_| "its bounds are not numbers");
        let (least, most) = match text.split_once(',') {
            None => (number(text)?, number(text)?),
            Some((least, "")) => (number(least)?, number(least)?.saturating_add(1)),
            Some((least, most)) => (number(least)?, number(most)?),
        };
        self.repeat(usize::from(least), usize::from(most.max(1)))
    }

    fn repeat(&mut self, least: usize, most: usize) -> Result<(), &'static str> {
        // It prefers few.
        if let Some(rest) = self.rest.strip_prefix(b"?") {
            self.rest = rest;
        }
        self.count_quantifier()?;
        self.goes_on();
        let Some(last) = &mut self.last else {
            return Err("nothing stands before *, +, ? or {");
        };
        last.parts = last.parts.saturating_mul(most);
        if most > 1 && last.may_be_empty {
            self.empty_parts = self.empty_parts.saturating_add(last.parts);
        }
        last.may_be_empty |= least == 0;
        match self.empty_parts > MAX_EMPTY_PARTS {
            true => Err("it repeats what may be empty too often"),
            false => Ok(()),
        }
    }

    fn count_quantifier(&mut self) -> Result<(), &'static str> {
        self.quantifiers += 1;
        match self.quantifiers > MAX_QUANTIFIERS {
            true => Err("it has too many of *, +, ? and {"),
            false => Ok(()),
        }
    }

    /// Outside of groups, something follows that is no anchor.
    fn goes_on(&mut self) {
        if self.open.len() == 1 {
            self.head = Head::More;
        }
    }

    fn part(&mut self, may_be_empty: bool) -> Result<(), &'static str> {
        self.settle()?;
        self.goes_on();
        self.last = Some(Part {
            parts: 1,
            may_be_empty,
        });
        Ok(())
    }

    /// Adds the last part to its group: no quantifier follows.
    fn settle(&mut self) -> Result<(), &'static str> {
        let (Some(last), Some(group)) = (self.last.take(), self.open.last_mut()) else {
            return Ok(());
        };
        group.parts = group.parts.saturating_add(last.parts);
        group.is_empty &= last.may_be_empty;
        match group.parts > MAX_PARTS {
            true => Err("it has too many parts"),
            false => Ok(()),
        }
    }
}

impl Group {
    fn new(takes_nothing: bool) -> Self {
        Self {
            parts: 0,
            has_empty_branch: false,
            is_empty: true,
            takes_nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_patterns_are_fast() {
        for pattern in [
            "",
            "^[0-9]{3}$",
            r"^\d{5}(-\d{4})?$",
            "(a+)+$",
            "^[]x^-]+[^]]$",
            "^[[:alpha:]][[:alnum:]_]{0,62}$",
            "(?i)^[a-f0-9]{8}-([a-f0-9]{4}-){3}[a-f0-9]{12}$",
            "^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$",
            "^(([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\\.){3}([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])$",
            "(([0-9a-fA-F]{1,4}:){7,7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|[0-9a-fA-F]{1,4}:((:[0-9a-fA-F]{1,4}){1,6})|:((:[0-9a-fA-F]{1,4}){1,7}|:))",
            "^(?=.*[a-z])(?=.*[A-Z])(?!.*\\s).{8,255}$",
            "^(?!.*--)[a-z-]+$",
            "^(EUR|USD|GBP)$",
            "^ä{1,255}$",
            "a{,3}",
            "[A-Z]%",
            r"\\1",
            r"[\w.]+?x*?",
        ] {
            assert_eq!(problem(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_take_long_are_refused() {
        for (pattern, says) in [
            (r"^(.*)(.*)\1\2c$", "back reference"),
            (r"(a)\\\1", "back reference"),
            (r"[\]](x)\1", "back reference"),
            (r"[[:alpha:]](x)\1", "back reference"),
            ("(a?b?){255}c", "empty"),
            ("(a|){255}", "empty"),
            ("((a?){100}){3}", "empty"),
            ("(a?){150}(b*){150}", "empty"),
            ("((a{0,20}){0,20}){0,20}b", "empty"),
            ("((?=a)){255}", "lookaround"),
            ("x(?=.*y)", "lookaround"),
            ("(?!.*y)x$", "lookaround"),
            ("^(?=.*a).*(?=.*y)", "lookaround"),
            ("^(?=.*(?!.*y)x)", "lookaround"),
            ("^?(?=.*y)", "lookaround"),
            ("^a|^(?=.*y)", "lookaround"),
            ("(?n)^(?=.*y)", "options"),
            ("(^$){255}", "empty"),
            ("((a{1,255}){1,255}){1,255}", "parts"),
            (&".?".repeat(200), "many"),
            (&"%".repeat(200), "many"),
            ("***:(a)", "***"),
            ("(?e)a", "options"),
            ("(?x)a", "options"),
            ("a{3", "complete"),
            ("a{999}", "numbers"),
            ("[a", "complete"),
            ("(?i", "complete"),
            ("a)", "complete"),
            ("\\", "complete"),
            ("*", "nothing"),
        ] {
            let problem = problem(pattern);
            assert!(
                problem.is_some_and(|why| why.contains(says)),
                "{pattern}: {problem:?}"
            );
        }
    }
}
