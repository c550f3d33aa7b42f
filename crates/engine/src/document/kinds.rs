//! The kinds of values in a pipeline file: how each is read, and its JSON Schema.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::core;
use super::declare::{Keys, Kind};
use super::error::code;
use super::node::{NodeValue, Scalar};
use super::read::{Spot, nearest};

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// Text with a `${…}`: a value of another type may also be one.
const VARIABLE: &str = r"\$\{.+\}";
/// As [`rapidbyte_wire::size::parse`] reads it.
const SIZE: &str = r"^[0-9]+ *([kKmMgG][iI]?[bB])?$";
/// A longer value is not repeated in a hint.
const MAX_HINT_BYTES: usize = 64;

/// A schema for one of `choices`, or a `${…}`.
pub(super) fn or_variable(mut choices: Vec<Value>) -> Value {
    choices.push(variable());
    json!({ "anyOf": choices })
}

pub(super) fn variable() -> Value {
    json!({ "type": "string", "pattern": VARIABLE })
}

/// A mapping with keys of its own.
pub(super) fn mapping<T: Keys + 'static>() -> Kind<T> {
    Kind::new(T::schema, T::read)
}

/// A mapping that is a connector's.
pub(super) fn object() -> Kind<Map<String, Value>> {
    Kind::new(|| json!({ "type": "object" }), |at| at.object())
}

/// Text that is not empty.
pub(super) fn name() -> Kind<String> {
    let schema = || json!({ "type": "string", "minLength": 1 });
    Kind::new(schema, |at| at.name())
}

/// Text, or a number as it is written.
pub(super) fn value() -> Kind<String> {
    let schema = || json!({ "anyOf": [(name().schema)(), { "type": "number" }] });
    Kind::new(schema, |at| match at.node.value {
        NodeValue::Scalar(_) => match at.text()?.text {
            text if text.is_empty() => at.name(),
            text => Ok(text),
        },
        _ => at.name(),
    })
}

/// A whole number from 1 to `most`.
pub(super) fn whole<T: TryFrom<u64> + 'static>(most: u64) -> Kind<T> {
    whole_from(1, most)
}

/// A whole number, also zero.
pub(super) fn count() -> Kind<u64> {
    whole_from(0, u64::MAX)
}

/// A whole number from `least` to `most`.
pub(super) fn whole_from<T: TryFrom<u64> + 'static>(least: u64, most: u64) -> Kind<T> {
    let schema = move || {
        let mut number = json!({ "type": "integer", "minimum": least });
        if most < u64::MAX {
            number["maximum"] = json!(most);
        }
        or_variable(vec![number])
    };
    Kind::new(schema, move |at| {
        let text = at.text()?;
        let number = text.text.parse::<u64>().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        if let Some(number) = number.and_then(|number| T::try_from(number).ok()) {
            return Ok(number);
        }
        let hint = match most {
            u64::MAX => format!("write a whole number, {least} or more"),
            most => format!("write a whole number from {least} to {most}"),
        };
        let message = format!("{at} cannot be {}", text.shown());
        Err(at.bad_value(message).hint(hint))
    })
}

/// A size in bytes between `least` and `most`.
pub(super) fn size(least: u64, most: u64) -> Kind<u64> {
    let schema = || {
        let number = json!({ "type": "integer", "minimum": 1 });
        or_variable(vec![number, json!({ "type": "string", "pattern": SIZE })])
    };
    Kind::new(schema, move |at| {
        let text = at.text()?;
        let problem = match rapidbyte_wire::size::parse(&text.text) {
            Some(bytes) if (least..=most).contains(&bytes) => return Ok(bytes),
            Some(bytes) if bytes < least => "is too small",
            Some(_) => "is too large",
            None => "is not a size",
        };
        let hint = format!(
            "write a whole number of bytes, or of kb, mb or gb, from {} to {}",
            show_size(least),
            show_size(most)
        );
        let message = format!("{at}: {} {problem}", text.shown());
        Err(at.bad_value(message).hint(hint))
    })
}

/// A size as it can be written in the file.
pub(super) fn show_size(bytes: u64) -> String {
    let units = [(GIB, "gb"), (MIB, "mb"), (KIB, "kb")];
    match units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) if bytes > 0 => format!("{}{name}", bytes / unit),
        _ => bytes.to_string(),
    }
}

/// An enum whose values are words in the file; `words!` declares one.
pub(super) trait Words: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

/// One of the words of an enum.
pub(super) fn word<T: Words>() -> Kind<T> {
    let names = || T::WORDS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let schema = move || or_variable(vec![json!({ "enum": names() })]);
    Kind::new(schema, move |at| {
        let text = at.text()?;
        if let Some((_, word)) = T::WORDS.iter().find(|(name, _)| *name == text.text) {
            return Ok(*word);
        }
        let error = at.bad_value(format!("{at} cannot be {}", text.shown()));
        Err(match nearest(&text.text, &names()) {
            Some(name) if !text.secret => error.hint(format!("did you mean {name:?}?")),
            _ => error.hint(format!("use one of: {}", names().join(", "))),
        })
    })
}

/// `true` or `false`.
pub(super) fn flag() -> Kind<bool> {
    let schema = || or_variable(vec![json!({ "type": "boolean" })]);
    Kind::new(schema, |at| {
        let text = at.text()?;
        match text.text.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => {
                let error = at.bad_value(format!("{at} cannot be {}", text.shown()));
                Err(error.hint("use one of: true, false"))
            }
        }
    })
}

/// Names, each once.
pub(super) fn names(example: &'static str) -> Kind<Vec<String>> {
    let distinct = Distinct {
        name: String::clone,
        code: code::BAD_VALUE,
        what: "",
    };
    list(name(), example, Some(distinct)).with("uniqueItems", true)
}

/// The items of a list have different names: an item is a name, or has the key `name`.
pub(super) struct Distinct<T> {
    pub(super) name: fn(&T) -> String,
    /// The code of the error about a name that is there twice.
    pub(super) code: &'static str,
    /// The text before the name in the error's message.
    pub(super) what: &'static str,
}

/// A list that is not empty; `example` is one in a hint.
pub(super) fn list<T: 'static>(
    item: Kind<T>,
    example: &'static str,
    distinct: Option<Distinct<T>>,
) -> Kind<Vec<T>> {
    let Kind { read, schema } = item;
    let schema = move || json!({ "type": "array", "minItems": 1, "items": schema() });
    Kind::new(schema, move |at| {
        let problem = match &at.node.value {
            NodeValue::Sequence(items) if !items.is_empty() => None,
            NodeValue::Sequence(_) => Some(at.bad_value(format!("{at} is an empty list"))),
            _ => Some(at.wrong_type("a list")),
        };
        if let Some(problem) = problem {
            let one = distinct.as_ref().and_then(|_| in_brackets(at, example));
            let example = one.unwrap_or_else(|| example.to_owned());
            return Err(problem.hint(format!("write {example}")));
        }
        let (mut values, mut lines) = (Vec::new(), HashMap::new());
        for item in at.items() {
            let value = read(&item)?;
            if let Some(distinct) = &distinct {
                let name = (distinct.name)(&value);
                let at = item.key("name");
                let at = at.as_ref().unwrap_or(&item);
                if let Some(line) = lines.insert(name, at.node.at.line) {
                    let shown = at.text()?.shown();
                    let message = format!("{}{shown} is already in line {line}", distinct.what);
                    let error = item.error(distinct.code, message).at(at.place());
                    return Err(error.hint("remove one of them"));
                }
            }
            values.push(value);
        }
        Ok(values)
    })
}

/// One plain name where a list is due, as a list with the key of `example`.
fn in_brackets(at: &Spot<'_>, example: &str) -> Option<String> {
    let (key, _) = example.split_once(':')?;
    let NodeValue::Scalar(Scalar { text, .. }) = &at.node.value else {
        return None;
    };
    let is_plain = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let fits = text.len() <= MAX_HINT_BYTES && text.chars().all(is_plain) && core::is_text(text);
    fits.then(|| format!("{key}: [{text}]"))
}

/// One value, or a list.
pub(super) fn one_or_more<T: 'static>(one: Kind<T>, more: Kind<Vec<T>>) -> Kind<Vec<T>> {
    let schema = move || json!({ "anyOf": [(one.schema)(), (more.schema)()] });
    Kind::new(schema, move |at| match at.node.value {
        NodeValue::Sequence(_) => (more.read)(at),
        _ => Ok(vec![(one.read)(at)?]),
    })
}

/// The word `none`, or another value.
pub(super) fn none_or<T: 'static>(other: Kind<T>) -> Kind<Option<T>> {
    let Kind { read, schema } = other;
    let schema = move || json!({ "anyOf": [{ "const": "none" }, schema()] });
    Kind::new(schema, move |at| match &at.node.value {
        NodeValue::Scalar(scalar) if scalar.text == "none" => Ok(None),
        _ => read(at).map(Some),
    })
}

/// A mapping of names to names, each value once.
pub(super) fn pairs() -> Kind<Vec<(String, String)>> {
    let schema = || json!({ "type": "object", "additionalProperties": (name().schema)() });
    Kind::new(schema, |at| {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for entry in at.mapping()? {
            let at = at.below(entry);
            let to = at.name()?;
            if pairs.iter().any(|(_, other)| *other == to) {
                let shown = at.text()?.shown();
                let message = format!("{at}: another column is also renamed to {shown}");
                return Err(at.bad_value(message));
            }
            pairs.push((entry.key.clone(), to));
        }
        Ok(pairs)
    })
}
