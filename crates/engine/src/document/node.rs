//! YAML text to a tree in which every node knows its place.
//!
//! The events of `saphyr-parser` carry a position and the quoting style of each node, so that
//! every later mistake can be located. This module refuses what a pipeline file may not use:
//! several documents, tags, keys that are not text, duplicate keys; it fills in merge keys (`<<`), and
//! bounds what aliases can unfold to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::core;
use super::error::{DocumentError, Location, code};
use super::path::{self, OwnedStep, Step};

/// A pipeline of a thousand streams has some ten thousand nodes.
pub(super) const MAX_NODES: usize = 100_000;
/// Text in all scalars and keys together, aliases unfolded.
pub(super) const MAX_TEXT_BYTES: usize = 16 << 20;
/// Mappings and lists in each other. Walks over the tree are recursive.
pub(super) const MAX_DEPTH: usize = 64;

/// A value and its place. An alias shares the node that it names, with the place of that node.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) value: NodeValue,
    pub(super) at: Location,
    /// This node and all below it, aliases unfolded.
    nodes: usize,
    text_bytes: usize,
    depth: usize,
}

#[derive(Debug)]
pub(super) enum NodeValue {
    Scalar(Scalar),
    Sequence(Vec<Arc<Node>>),
    Mapping(Vec<Entry>),
}

impl Default for NodeValue {
    fn default() -> Self {
        Self::Mapping(Vec::new())
    }
}

/// Text as it is in the file, without quotes and escapes, before interpolation.
#[derive(Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Quoted or a block: it is text, whatever it looks like.
    pub(super) quoted: bool,
}

/// A key and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The place of the key.
    pub(super) at: Location,
    pub(super) value: Arc<Node>,
    /// The place of the merge key that brought it from another mapping.
    pub(super) merged: Option<Location>,
}

impl Node {
    /// The place of what `path` leads to, or of the last step towards it that is there.
    ///
    /// A mapping or a list has the place of its key.
    pub(super) fn locate(&self, path: &str) -> Option<Location> {
        let (mut node, mut best, mut rest) = (self, None, path);
        while let Some((step, after)) = path::split_first(rest) {
            let (next, place) = match (&node.value, step) {
                (NodeValue::Mapping(entries), OwnedStep::Key(key)) => {
                    let Some(entry) = entries.iter().find(|entry| entry.key == key) else {
                        break;
                    };
                    (&entry.value, entry.value.place(entry.at))
                }
                (NodeValue::Sequence(items), OwnedStep::Index(index)) => {
                    let Some(item) = items.get(index) else { break };
                    (item, item.at)
                }
                _ => break,
            };
            (node, best, rest) = (next, Some(place), after);
        }
        best
    }

    /// Of a key that a merge key brought to where `path` leads: the places of the merge key and of the key.
    pub(super) fn merged(&self, path: &str) -> Option<(Location, Location)> {
        let (mut node, mut rest) = (self, path);
        while let Some((step, after)) = path::split_first(rest) {
            node = match (&node.value, step) {
                (NodeValue::Mapping(entries), OwnedStep::Key(key)) => {
                    let entry = entries.iter().find(|entry| entry.key == key)?;
                    if after.is_empty() {
                        return Some((entry.merged?, entry.at));
                    }
                    &entry.value
                }
                (NodeValue::Sequence(items), OwnedStep::Index(index)) => items.get(index)?,
                _ => return None,
            };
            rest = after;
        }
        None
    }

    /// Where a mistake in it is shown: a scalar's own place, a collection's key.
    pub(super) fn place(&self, key_at: Location) -> Location {
        match self.value {
            NodeValue::Scalar(_) => self.at,
            _ => key_at,
        }
    }

    /// Nothing is written there.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.value, NodeValue::Scalar(scalar) if scalar.is_empty())
    }

    /// The kind of the node, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            NodeValue::Sequence(_) => "a list",
            NodeValue::Mapping(_) => "a mapping",
            NodeValue::Scalar(scalar) if scalar.is_empty() => "empty",
            NodeValue::Scalar(_) => "a single value",
        }
    }
}

impl Scalar {
    /// Nothing is written there.
    pub(super) fn is_empty(&self) -> bool {
        !self.quoted && core::is_null(&self.text)
    }
}

/// Reads one YAML document; nothing if there is none in the text.
pub(super) fn parse(text: &str, file: &str) -> Result<Option<Arc<Node>>, DocumentError> {
    refuse_nul(text, file)?;
    let mut builder = Builder {
        file,
        frames: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        documents: 0,
        nodes: 0,
        text_bytes: 0,
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| syntax_error(file, text, &error))?;
        builder.event(event, location(&span.start))?;
    }
    Ok(builder.root)
}

/// The parser takes a NUL for the end of the text, or complains of something else.
fn refuse_nul(text: &str, file: &str) -> Result<(), DocumentError> {
    let Some(at) = text.find('\0') else {
        return Ok(());
    };
    let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (line, before) = match text[..at].rfind('\n') {
        Some(end) => (text[..end].matches('\n').count() + 2, &text[end + 1..at]),
        None => (1, &text[..at]),
    };
    let place = Location {
        line: clamp(line),
        column: clamp(before.chars().count() + 1),
    };
    let message = "not valid YAML: a NUL character (a byte of value 0)";
    let error = DocumentError::whole(code::YAML_SYNTAX, file, message).at(place);
    Err(error.hint("remove the NUL character; or save the file as UTF-8 text"))
}

fn location(marker: &Marker) -> Location {
    let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Location {
        line: clamp(marker.line()),
        column: clamp(marker.col().saturating_add(1)),
    }
}

fn syntax_error(file: &str, text: &str, error: &ScanError) -> DocumentError {
    let info = error.info();
    let place = location(error.marker());
    let place = first_tab(text, place, info).unwrap_or(place);
    let message = format!("not valid YAML: {info}");
    let plain = DocumentError::whole(code::YAML_SYNTAX, file, message).at(place);
    let line = text
        .lines()
        .nth((place.line as usize).saturating_sub(1))
        .unwrap_or("");
    match syntax_hint(info, line) {
        Some(hint) => plain.hint(hint),
        None => plain,
    }
}

/// The tab that indents a line, where the parser complains of one. It names the start of the
/// scalar before.
fn first_tab(text: &str, from: Location, info: &str) -> Option<Location> {
    if !info.contains("tab") {
        return None;
    }
    let lines = (from.line..).zip(text.lines().skip((from.line as usize).saturating_sub(1)));
    lines.into_iter().find_map(|(line, text)| {
        let indent = text.chars().take_while(|c| c.is_whitespace());
        let column = indent.zip(1..).find(|(c, _)| *c == '\t')?.1;
        Some(Location { line, column })
    })
}

/// Likely causes of a parser's message, by words in the message; the first match counts.
const SYNTAX_HINTS: &[(&str, &str)] = &[
    ("tab", "indent with spaces, not with tabs"),
    (
        "mapping values are not allowed",
        "put a value that contains \": \" in quotes; or check the indentation, and the line \
             before for a missing colon",
    ),
    ("quoted scalar, found unexpected", QUOTE_NOT_CLOSED),
    ("in quoted scalar", QUOTE_NOT_CLOSED),
    (
        "trailing content after",
        "put the whole value in quotes; inside single quotes, write '' for a single quote",
    ),
    (
        "unknown escape",
        "use single quotes to keep the backslash: in double quotes it starts an escape",
    ),
    ("unknown anchor", STAR_OR_AND),
    ("scanning an anchor or alias", STAR_OR_AND),
    (
        "unexpected character",
        "put a value that begins with this character in quotes",
    ),
    ("expected ',' or", BRACKET),
    ("misplaced bracket", BRACKET),
    ("illegal placement of ':'", BRACKET),
    ("in flow construct", BRACKET),
    ("expected key", INDENTATION),
    ("indentation", INDENTATION),
    ("simple key", INDENTATION),
    ("'-' indicator", INDENTATION),
];

const QUOTE_NOT_CLOSED: &str = "close the quote that opens here";
const STAR_OR_AND: &str = "put a value that begins with * or & in quotes: '*'";
const BRACKET: &str = "check for a bracket that is not closed or not opened, or for a missing \
     comma";
const INDENTATION: &str = "check the indentation of this line and the one before: the keys of a \
     mapping start in the same column, and a colon and a space follow each key";

fn syntax_hint(info: &str, line: &str) -> Option<&'static str> {
    if info.contains("flow") && line.contains("${") {
        return Some("put a value with ${…} between { } or [ ] in quotes: { url: \"${URL}\" }");
    }
    let mut hints = SYNTAX_HINTS.iter();
    hints
        .find(|(words, _)| info.contains(words))
        .map(|(_, hint)| *hint)
}

/// The merge key of YAML 1.1, without quotes.
const MERGE: &str = "<<";

struct Builder<'a> {
    file: &'a str,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Arc<Node>>,
    root: Option<Arc<Node>>,
    documents: usize,
    nodes: usize,
    text_bytes: usize,
}

/// A collection that is not complete yet.
struct Frame {
    at: Location,
    anchor: usize,
    open: Open,
}

enum Open {
    Sequence(Vec<Arc<Node>>),
    Mapping {
        entries: Vec<Entry>,
        /// The line of each key.
        lines: HashMap<String, u32>,
        /// A key whose value comes next.
        key: Option<(String, Location)>,
        /// That key is a merge key.
        merges: bool,
        /// The merge key with its value.
        merge: Option<Entry>,
    },
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, at: Location) -> Result<(), DocumentError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self
                        .syntax(at, "a second YAML document starts here")
                        .hint("move it to its own file: a pipeline file holds one document"));
                }
                Ok(())
            }
            Event::Alias(anchor) => self.alias(anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), at)?;
                if self.expects_key() {
                    return self.key(&text, style, at);
                }
                self.scalar(&text, style, anchor, at)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), at)?;
                self.open(anchor, at, Open::Sequence(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), at)?;
                let open = Open::Mapping {
                    entries: Vec::new(),
                    lines: HashMap::new(),
                    key: None,
                    merges: false,
                    merge: None,
                };
                self.open(anchor, at, open)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
        }
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.frames.last(),
            Some(Frame {
                open: Open::Mapping { key: None, .. },
                ..
            })
        )
    }

    fn key(&mut self, text: &str, style: ScalarStyle, at: Location) -> Result<(), DocumentError> {
        let quoted = style != ScalarStyle::Plain;
        if let Some(error) = self.cut_at_comma(text, quoted) {
            return Err(error);
        }
        if !quoted && !core::is_text(text) {
            return Err(self
                .syntax(at, format!("the key {text:?} is not a string"))
                .hint("put it in quotes"));
        }
        self.spend(at, 1, text.len())?;
        let earlier = match self.frames.last_mut().map(|frame| &mut frame.open) {
            Some(Open::Mapping {
                lines, key, merges, ..
            }) => {
                let earlier = lines.insert(text.to_owned(), at.line);
                *key = Some((text.to_owned(), at));
                *merges = !quoted && text == MERGE;
                earlier
            }
            _ => None,
        };
        let Some(line) = earlier else { return Ok(()) };
        let message = format!("the key {:?} is already in line {line}", path::shown(text));
        Err(
            DocumentError::whole(code::DUPLICATE_KEY, self.file, message)
                .at(at)
                .path(self.path())
                .hint("remove one of them"),
        )
    }

    /// `{ total: decimal(10,2) }` holds the keys `total` and `2)`: YAML ends a value at a comma.
    fn cut_at_comma(&self, key: &str, quoted: bool) -> Option<DocumentError> {
        let Some(Open::Mapping { entries, .. }) = self.frames.last().map(|frame| &frame.open)
        else {
            return None;
        };
        if quoted || !key.contains(')') || key.contains('(') {
            return None;
        }
        let (mut whole, mut first) = (key.to_owned(), None);
        for entry in entries.iter().rev() {
            let NodeValue::Scalar(value) = &entry.value.value else {
                return None;
            };
            if !value.quoted && value.text.contains('(') && !value.text.contains(')') {
                whole = format!("{},{whole}", value.text);
                first = Some(entry);
                break;
            }
            if !value.is_empty() {
                return None;
            }
            whole = format!("{},{whole}", entry.key);
        }
        let entry = first?;
        let message = format!("YAML splits {:?} at its comma", path::shown(&whole));
        let error = self.syntax(entry.value.at, message);
        Some(error.hint(format!("put it in quotes: {}: \"{whole}\"", entry.key)))
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        at: Location,
    ) -> Result<(), DocumentError> {
        self.spend(at, 1, text.len())?;
        let quoted = style != ScalarStyle::Plain;
        // The parser puts a value that is not there at the next thing that is.
        let key_at = match self.frames.last().map(|frame| &frame.open) {
            Some(Open::Mapping { key, .. }) => key.as_ref().map(|(_, at)| *at),
            _ => None,
        };
        let at = match key_at {
            Some(key_at) if text.is_empty() && !quoted => key_at,
            _ => at,
        };
        let node = Node {
            value: NodeValue::Scalar(Scalar {
                text: text.to_owned(),
                quoted,
            }),
            at,
            nodes: 1,
            text_bytes: text.len(),
            depth: 0,
        };
        self.finish(Arc::new(node), anchor);
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Location) -> Result<(), DocumentError> {
        if self.expects_key() {
            return Err(self.syntax(at, "an alias cannot be a key"));
        }
        let Some(node) = self.anchors.get(&anchor).map(Arc::clone) else {
            return Err(self
                .syntax(at, "this alias is inside the value that it names")
                .hint("write the value instead of the alias"));
        };
        self.spend(at, node.nodes, node.text_bytes)?;
        self.check_depth(at, node.depth)?;
        self.finish(node, 0);
        Ok(())
    }

    fn open(&mut self, anchor: usize, at: Location, open: Open) -> Result<(), DocumentError> {
        if self.expects_key() {
            return Err(self
                .syntax(at, "a mapping or a list cannot be a key")
                .hint("put a string that begins with { or [ in quotes"));
        }
        self.check_depth(at, 1)?;
        self.spend(at, 1, 0)?;
        self.frames.push(Frame { at, anchor, open });
        Ok(())
    }

    fn close(&mut self, at: Location) -> Result<(), DocumentError> {
        let Some(mut frame) = self.frames.pop() else {
            return Err(self.syntax(at, "a collection ends without a start"));
        };
        if let Open::Mapping { entries, merge, .. } = &mut frame.open
            && let Some(merge) = merge.take()
        {
            self.merge(entries, merge)?;
        }
        let value = match frame.open {
            Open::Sequence(items) => NodeValue::Sequence(items),
            Open::Mapping { entries, .. } => NodeValue::Mapping(entries),
        };
        let (mut nodes, mut text_bytes, mut depth) = (1, 0, 1);
        let mut count = |below: &Node, key_bytes: usize| {
            nodes += below.nodes + usize::from(key_bytes > 0);
            text_bytes += below.text_bytes + key_bytes;
            depth = depth.max(below.depth + 1);
        };
        match &value {
            NodeValue::Sequence(items) => items.iter().for_each(|item| count(item, 0)),
            NodeValue::Mapping(entries) => entries
                .iter()
                .for_each(|entry| count(&entry.value, entry.key.len())),
            NodeValue::Scalar(_) => {}
        }
        let node = Node {
            value,
            at: frame.at,
            nodes,
            text_bytes,
            depth,
        };
        self.finish(Arc::new(node), frame.anchor);
        Ok(())
    }

    /// Adds the entries of the mappings that `<<` names, with their places. A key of the mapping itself wins, then
    /// one of the first mapping that has it.
    fn merge(&self, entries: &mut Vec<Entry>, merge: Entry) -> Result<(), DocumentError> {
        let wrong = || {
            let text = "the merge key << takes a mapping, or a list of mappings";
            self.syntax(merge.at, text).hint(
                "write `<<: *base`, where another mapping begins with `&base`; to use << \
                     as a plain key, put it in quotes",
            )
        };
        let bases = match &merge.value.value {
            NodeValue::Mapping(_) => std::slice::from_ref(&merge.value),
            NodeValue::Sequence(items) => items,
            NodeValue::Scalar(_) => return Err(wrong()),
        };
        let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
        for base in bases {
            let NodeValue::Mapping(added) = &base.value else {
                return Err(wrong());
            };
            for entry in added {
                if known.insert(entry.key.clone()) {
                    entries.push(Entry {
                        key: entry.key.clone(),
                        at: entry.at,
                        value: Arc::clone(&entry.value),
                        merged: Some(merge.at),
                    });
                }
            }
        }
        Ok(())
    }

    /// Puts a complete node where it belongs.
    fn finish(&mut self, node: Arc<Node>, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        match self.frames.last_mut().map(|frame| &mut frame.open) {
            None => self.root = Some(node),
            Some(Open::Sequence(items)) => items.push(node),
            Some(Open::Mapping {
                entries,
                key,
                merges,
                merge,
                ..
            }) => {
                if let Some((key, at)) = key.take() {
                    let value = node;
                    let entry = Entry {
                        key,
                        at,
                        value,
                        merged: None,
                    };
                    match std::mem::take(merges) {
                        true => *merge = Some(entry),
                        false => entries.push(entry),
                    }
                }
            }
        }
    }

    fn spend(&mut self, at: Location, nodes: usize, bytes: usize) -> Result<(), DocumentError> {
        self.nodes += nodes;
        self.text_bytes += bytes;
        if self.nodes > MAX_NODES || self.text_bytes > MAX_TEXT_BYTES {
            let limit = MAX_TEXT_BYTES >> 20;
            let message = format!(
                "the file has more than {MAX_NODES} values or {limit} MiB of text, with \
                     aliases written out"
            );
            return Err(self.syntax(at, message));
        }
        Ok(())
    }

    fn check_depth(&self, at: Location, more: usize) -> Result<(), DocumentError> {
        if self.frames.len() + more > MAX_DEPTH {
            let message = format!(
                "mappings and lists are nested more than {MAX_DEPTH} levels \
                 deep"
            );
            return Err(self.syntax(at, message));
        }
        Ok(())
    }

    fn refuse_tag(&self, tagged: bool, at: Location) -> Result<(), DocumentError> {
        if tagged {
            return Err(self
                .syntax(at, "tags such as !name are not supported")
                .hint("put a string that begins with \"!\" in quotes"));
        }
        Ok(())
    }

    fn syntax(&self, at: Location, message: impl Into<String>) -> DocumentError {
        DocumentError::whole(code::YAML_SYNTAX, self.file, message)
            .at(at)
            .path(self.path())
    }

    /// Where the next value goes.
    fn path(&self) -> String {
        let mut text = String::new();
        for frame in &self.frames {
            match &frame.open {
                Open::Sequence(items) => path::push(&mut text, &Step::Index(items.len())),
                Open::Mapping { key, .. } => {
                    if let Some((key, _)) = key {
                        path::push(&mut text, &Step::Key(key));
                    }
                }
            }
        }
        text
    }
}
