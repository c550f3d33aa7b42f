//! YAML text to a tree in which every node knows its line and column.
//!
//! The only module that names the YAML library. A later error can so be located whoever finds it.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::Number;

use super::{DocumentError, Interpolate};

/// A value and where it begins (both counted from 1).
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub line: usize,
    pub column: usize,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: String,
    pub line: usize,
    pub column: usize,
    pub node: Node,
}

/// Nodes of one document, those behind aliases counted each time: no file of a person is larger,
/// and a file that grows by aliases ends here.
const MAX_NODES: usize = 100_000;
const MAX_DEPTH: usize = 64;

/// Reads one document; scalars are interpolated before plain ones get their type.
pub(crate) fn parse(
    text: &str,
    file: &str,
    interpolate: &mut dyn Interpolate,
) -> Result<Node, DocumentError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        file,
        anchors: HashMap::new(),
        nodes: 0,
        path: Vec::new(),
        interpolate,
    };
    let root = loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (Event::StreamEnd, _) => return Err(empty(file)),
            (event, span) => break reader.node(event, span, 0)?,
        }
    };
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentEnd | Event::Nothing, _) => {}
            (_, span) => {
                return Err(DocumentError::new(
                    file,
                    "yaml_syntax",
                    "a second document in one file",
                )
                .at(span.start.line(), span.start.col() + 1)
                .hint("put each pipeline into a file of its own"));
            }
        }
    }
}

pub(crate) fn empty(file: &str) -> DocumentError {
    DocumentError::new(file, "yaml_syntax", "the file is empty")
        .hint("a pipeline begins with `version: 1`")
}

struct Reader<'a, 'i> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    file: &'a str,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    path: Vec<String>,
    interpolate: &'i mut dyn Interpolate,
}

impl<'a> Reader<'a, '_> {
    fn next(&mut self) -> Result<(Event<'a>, Span), DocumentError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let at = error.marker();
                Err(DocumentError::new(self.file, "yaml_syntax", error.info())
                    .at(at.line(), at.col() + 1)
                    .hint("check the indentation, the colons and the quotes above this place"))
            }
            None => Err(empty(self.file)),
        }
    }

    fn error(&self, span: Span, code: &'static str, message: impl ToString) -> DocumentError {
        DocumentError::new(self.file, code, message)
            .at(span.start.line(), span.start.col() + 1)
            .on(&self.path.join("."))
    }

    fn count(&mut self, span: Span, more: usize, depth: usize) -> Result<(), DocumentError> {
        self.nodes += more;
        if self.nodes > MAX_NODES {
            return Err(self.error(span, "yaml_syntax", format!("more than {MAX_NODES} values")));
        }
        if depth > MAX_DEPTH {
            return Err(self.error(
                span,
                "yaml_syntax",
                format!("nested deeper than {MAX_DEPTH}"),
            ));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, DocumentError> {
        self.count(span, 1, depth)?;
        let (line, column) = (span.start.line(), span.start.col() + 1);
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => (self.scalar(&text, style, span)?, anchor),
            Event::SequenceStart(anchor, _) => (self.sequence(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.mapping(depth)?, anchor),
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.error(span, "yaml_syntax", "an alias without its anchor"));
                };
                self.count(span, size(&node), depth)?;
                (node.value, 0)
            }
            other => {
                return Err(self.error(span, "yaml_syntax", format!("unexpected {other:?}")));
            }
        };
        let node = Node {
            line,
            column,
            value,
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, DocumentError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Sequence(items)),
                (event, span) => {
                    let index = format!("[{}]", items.len());
                    let last = self.path.last_mut();
                    let before = last.as_ref().map(|last| last.len());
                    if let Some(last) = last {
                        last.push_str(&index);
                    }
                    items.push(self.node(event, span, depth + 1)?);
                    if let (Some(last), Some(before)) = (self.path.last_mut(), before) {
                        last.truncate(before);
                    }
                }
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, DocumentError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(Value::Mapping(entries)),
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(self.error(span, "yaml_syntax", "a key must be a plain text")),
            };
            let (line, column) = (span.start.line(), span.start.col() + 1);
            self.path.push(key.clone());
            if let Some(before) = seen.insert(key.clone(), line) {
                let text = format!("{key:?} stands here again, after line {before}");
                return Err(self
                    .error(span, "duplicate_key", text)
                    .hint("remove one of the two"));
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            self.path.pop();
            entries.push(Entry {
                key,
                line,
                column,
                node,
            });
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        span: Span,
    ) -> Result<Value, DocumentError> {
        let text = self.interpolate.scalar(text).map_err(|mistake| {
            let mut error = self.error(span, mistake.code, mistake.message);
            error.hint = mistake.hint;
            error
        })?;
        if style == ScalarStyle::Plain {
            self.plain(text, span)
        } else {
            Ok(Value::String(text))
        }
    }

    /// The core schema of YAML 1.2: no `yes`, no `no`, no octal by a leading zero.
    fn plain(&self, text: String, span: Span) -> Result<Value, DocumentError> {
        let value = match text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            _ => {
                let digits = text.strip_prefix(['-', '+']).unwrap_or(&text);
                let starts = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
                let integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                let signed = text.strip_prefix('+').unwrap_or(&text);
                if integer {
                    let number = signed.parse::<i64>().map(Number::from);
                    match number.or_else(|_| signed.parse::<u64>().map(Number::from)) {
                        Ok(number) => Value::Number(number),
                        Err(_) => {
                            let text = format!("{text} does not fit 64 bits");
                            return Err(self
                                .error(span, "bad_value", text)
                                .hint("quote it if it is meant as a text"));
                        }
                    }
                } else if let (true, Ok(float)) = (starts, signed.parse::<f64>()) {
                    Number::from_f64(float).map_or(Value::String(text), Value::Number)
                } else {
                    Value::String(text)
                }
            }
        };
        Ok(value)
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Sequence(items) => items.iter().map(size).sum(),
        Value::Mapping(entries) => entries.iter().map(|entry| size(&entry.node)).sum(),
        _ => 0,
    }
}

impl Node {
    /// The kind of value, for a message.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// The same value for a connector.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => number.clone().into(),
            Value::String(text) => text.clone().into(),
            Value::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Value::Mapping(entries) => serde_json::Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.node.to_json()))
                    .collect(),
            ),
        }
    }
}
