//! How the keys of a pipeline file are declared, each once.
//!
//! `keys!` declares a mapping of the file as a struct. A field is a key: its documentation is the
//! key's description, and its value says how the key is read:
//!
//! ```ignore
//! keys! {
//!     /// `retry`: how to retry a run or a stream after a transient error.
//!     #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
//!     pub struct Retry: Default {
//!         /// Plan a run, and try a stream, at most this many times (default 4).
//!         pub max_attempts: u32 = whole(100).or(4),
//!     }
//! }
//! ```
//!
//! The reader, the lists of known keys in hints, the JSON Schema and `docs/reference.md` follow
//! from this.
//!
//! **To add a key**, add a field, and describe it in `docs/pipeline.md`. To add a mapping, declare
//! its struct with `keys!`, and add a field that reads it with `mapping()`. `words!` declares an
//! enum with the words of its values. A rule about several keys is a function that [`Kind::then`]
//! adds to their mapping.
//!
//! - A [`Kind`] reads a value and knows its schema; `kinds.rs` has them all.
//! - `.or(value)`, `.optional()` or `.required(hint)` makes it a [`Key`], which may or must be in
//!   the file.
//! - `as "use"` gives a field another name in the file.
//! - The first paragraph of a field's documentation is the description, without its backticks.
//! - `: Default` implements `Default`, with the values of an empty mapping.
//! - `struct Limits of T` has only optional keys of the type `T`; `given()` iterates over the values
//!   in the file.
//! - Fields after a `;` are not keys of the file; they start with the default of their type.

use std::any::TypeId;

use serde_json::{Value, json};

use super::error::{DocumentError, Location, Result, code};
use super::keys::Document;
use super::node::Entry;
use super::path::{self, Step};
use super::read::{Spot, nearest};
use super::streams::Stream;

type Read<T> = dyn Fn(&Spot<'_>) -> Result<T>;

/// How a value is read, and its JSON Schema.
pub(super) struct Kind<T> {
    pub(super) read: Box<Read<T>>,
    pub(super) schema: Box<dyn Fn() -> Value>,
}

impl<T: 'static> Kind<T> {
    pub(super) fn new(
        schema: impl Fn() -> Value + 'static,
        read: impl Fn(&Spot<'_>) -> Result<T> + 'static,
    ) -> Self {
        Self {
            read: Box::new(read),
            schema: Box::new(schema),
        }
    }

    /// A rule about what was read.
    pub(super) fn then<U: 'static>(
        self,
        rule: impl Fn(&Spot<'_>, T) -> Result<U> + 'static,
    ) -> Kind<U> {
        let Self { read, schema } = self;
        Kind::new(schema, move |at| rule(at, read(at)?))
    }

    /// Says what is expected, with an example, where the value has another type.
    pub(super) fn expecting(self, expected: &'static str, example: &'static str) -> Self {
        let Self { read, schema } = self;
        Self::new(schema, move |at| {
            read(at).map_err(|error| {
                if error.code != code::WRONG_TYPE || error.path != at.path() {
                    return error;
                }
                let error = at.wrong_type(expected);
                error.hint(format!("write {example}"))
            })
        })
    }

    /// Adds a member to the schema.
    pub(super) fn with(self, member: &'static str, value: impl Into<Value>) -> Self {
        let Self { read, schema } = self;
        let value = value.into();
        let schema = move || {
            let mut schema = schema();
            schema[member] = value.clone();
            schema
        };
        Self::new(schema, read)
    }

    /// Without the key, `value` holds.
    pub(super) fn or(self, value: T) -> Key<T> {
        Key {
            kind: self,
            given: None,
            absent: Some(value),
            missing: None,
        }
    }

    pub(super) fn optional(self) -> Key<Option<T>> {
        self.then(|_, value| Ok(Some(value))).or(None)
    }

    /// The key must be there. `hint` says how to add it.
    pub(super) fn required(self, hint: &'static str) -> Key<T> {
        Key {
            kind: self,
            given: None,
            absent: None,
            missing: Some(hint),
        }
    }
}

/// A key while its mapping is read.
pub(super) struct Key<T> {
    kind: Kind<T>,
    given: Option<T>,
    /// The value without the key.
    pub(super) absent: Option<T>,
    /// The key must be there; the hint says how to add it.
    missing: Option<&'static str>,
}

impl<T> Key<T> {
    /// The key must be in a file; a value that a program makes may have the default.
    pub(super) fn required(self, hint: &'static str) -> Self {
        Self {
            missing: Some(hint),
            ..self
        }
    }

    pub(super) fn read(&mut self, at: &Spot<'_>) -> Result<()> {
        self.given = Some((self.kind.read)(at)?);
        Ok(())
    }

    /// Its value, once all keys of the mapping at `at` are read.
    pub(super) fn take(self, at: &Spot<'_>, key: &str) -> Result<T> {
        match (self.given, self.missing, self.absent) {
            (Some(value), ..) | (None, None, Some(value)) => Ok(value),
            (None, hint, _) => Err(at.missing(key, hint.unwrap_or_default())),
        }
    }

    /// This one key of a mapping, whatever else is in it.
    pub(super) fn read_from(mut self, at: &Spot<'_>, key: &str) -> Result<T> {
        if let Some(below) = at.key(key) {
            self.read(&below)?;
        }
        self.take(at, key)
    }

    /// Its place in the schema of a mapping. The first paragraph of `docs` is the description.
    pub(super) fn property(&self, key: &'static str, docs: &[&str]) -> Property {
        let lines = docs.iter().map(|line| line.trim());
        let lines = lines.skip_while(|line| line.is_empty());
        let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let mut schema = json!({ "description": lines.join(" ").replace('`', "") });
        if let (Some(all), Value::Object(own)) = (schema.as_object_mut(), (self.kind.schema)()) {
            all.extend(own);
        }
        (key, schema, self.missing.is_some())
    }
}

/// The name of a key, its schema, and whether it is required.
pub(super) type Property = (&'static str, Value, bool);

/// A mapping with keys of its own.
pub(super) trait Keys: Sized {
    const KEYS: &'static [&'static str];

    fn read(at: &Spot<'_>) -> Result<Self>;

    fn properties() -> Vec<Property>;

    /// The value of an empty mapping, unless a key has no default.
    fn absent() -> Option<Self>;

    fn schema() -> Value {
        let mut schema = json!({ "type": "object", "additionalProperties": false });
        let properties = Self::properties();
        let required = properties.iter().filter(|(.., is_required)| *is_required);
        let required: Vec<&str> = required.map(|(key, ..)| *key).collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let properties = properties
            .into_iter()
            .map(|(key, schema, _)| (key.to_owned(), schema));
        schema["properties"] = properties.collect();
        schema
    }
}

/// Declares a mapping: see the top of this file.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(: $default:ident)? {
            $(
                $(#[$($attr:tt)*])*
                $field_vis:vis $field:ident $(as $key:literal)?: $type:ty = $value:expr,
            )*
            $(; $( $(#[$own_meta:meta])* $own_vis:vis $own:ident: $own_type:ty, )*)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(
                $(#[$($attr)*])*
                $(#[serde(rename = $key)])?
                $field_vis $field: $type,
            )*
            $($( $(#[$own_meta])* $own_vis $own: $own_type, )*)?
        }

        const _: () = {
            struct Slots {
                $($field: super::declare::Key<$type>,)*
            }

            fn slots() -> Slots {
                Slots { $($field: $value,)* }
            }

            impl super::declare::Keys for $name {
                const KEYS: &'static [&'static str] =
                    &[$(super::declare::key!($field $($key)?)),*];

                fn read(
                    at: &super::read::Spot<'_>,
                ) -> super::error::Result<Self> {
                    let mut slots = slots();
                    for entry in at.mapping()? {
                        let below = at.below(entry);
                        match entry.key.as_str() {
                            $(super::declare::key!($field $($key)?) => {
                                slots.$field.read(&below)?;
                            })*
                            _ => return Err(super::declare::unknown::<Self>(entry, &below)),
                        }
                    }
                    Ok(Self {
                        $($field: {
                            let key = super::declare::key!($field $($key)?);
                            slots.$field.take(at, key)?
                        },)*
                        $($($own: Default::default(),)*)?
                    })
                }

                fn properties() -> Vec<super::declare::Property> {
                    let slots = slots();
                    vec![$(slots.$field.property(
                        super::declare::key!($field $($key)?),
                        &[$(super::declare::documentation!($($attr)*)),*],
                    )),*]
                }

                fn absent() -> Option<Self> {
                    let slots = slots();
                    Some(Self {
                        $($field: slots.$field.absent?,)*
                        $($($own: Default::default(),)*)?
                    })
                }
            }
        };

        $(impl $default for $name {
            fn default() -> Self {
                super::declare::Keys::absent().expect("every key has a default")
            }
        })?
    };
    (
        struct $name:ident of $type:ty {
            $( $(#[$($attr:tt)*])* $field:ident = $value:expr, )*
        }
    ) => {
        super::declare::keys! {
            struct $name: Default {
                $( $(#[$($attr)*])* $field: Option<$type> = $value.optional(), )*
            }
        }

        impl $name {
            fn given(self) -> impl Iterator<Item = $type> {
                [$(self.$field),*].into_iter().flatten()
            }
        }
    };
}

/// The name of a field in the file.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// A line of documentation; nothing of another attribute.
macro_rules! documentation {
    (doc = $line:literal) => {
        $line
    };
    ($($other:tt)*) => {
        ""
    };
}

/// Declares an enum by its words in the file.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $word:literal $(| $also:literal)?, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
        $vis enum $name {
            $(
                $(#[$variant_meta])*
                #[serde(rename = $word)]
                $variant,
            )*
        }

        impl $name {
            /// The word in a pipeline file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl super::kinds::Words for $name {
            const WORDS: &'static [(&'static str, Self)] =
                &[$(($word, Self::$variant), $(($also, Self::$variant),)?)*];
        }
    };
}

pub(super) use {documentation, key, keys, words};

/// Settings of bundled destinations that are often looked for at a stream.
const OF_ALL_STREAMS: &[&str] = &["partition_by", "split"];

/// Every mapping with keys of its own: how a hint calls it, and its keys.
pub(super) fn mappings() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    gather(&Document::schema(), "the top level", "", &mut found);
    found
}

/// Adds the mappings in `schema`, whose own is called `name`; `path` leads to its keys.
fn gather(schema: &Value, name: &str, path: &str, found: &mut Vec<(String, Vec<String>)>) {
    if let Some(properties) = schema["properties"].as_object() {
        found.push((name.to_owned(), properties.keys().cloned().collect()));
        for (key, below) in properties {
            let mut path = path.to_owned();
            path::push(&mut path, &Step::Key(key));
            gather(below, &path, &path, found);
        }
    }
    for choice in schema["anyOf"].as_array().into_iter().flatten() {
        gather(choice, name, path, found);
    }
    if let Some(items) = schema.get("items") {
        gather(items, &format!("an entry of {path}"), "", found);
    }
}

/// The message for an unknown key that a merge key brought from `at`.
pub(super) fn merged_key(key: &str, at: Location) -> String {
    format!("unknown key {key:?}, which << takes from line {}", at.line)
}

/// The error about a key that the mapping `T` does not know.
pub(super) fn unknown<T: Keys + 'static>(entry: &Entry, at: &Spot<'_>) -> DocumentError {
    let key = entry.key.as_str();
    let known = T::KEYS;
    let is_stream = TypeId::of::<T>() == TypeId::of::<Stream>();
    let is_elsewhere = |(_, keys): &(_, Vec<String>)| keys.iter().any(|known| known == key);
    let hint = if key == "late_rows" && known.contains(&"change_detection") {
        "late_rows has a new name: write change_detection: cursor for lag, or change_detection: \
         xmin for exact"
            .to_owned()
    } else if let Some(name) = nearest(key, known) {
        format!("did you mean {name:?}?")
    } else if OF_ALL_STREAMS.contains(&key) && is_stream {
        format!(
            "{key} is a setting of the destination: write it under destination.config, where it \
                 applies to every stream; use a second pipeline for streams that differ"
        )
    } else if let Some((mapping, _)) = mappings()
        .into_iter()
        .filter(is_elsewhere)
        // The mapping with the fewest dots holds for most.
        .min_by_key(|(mapping, _)| mapping.matches('.').count())
    {
        format!("move it to {mapping}")
    } else {
        format!("use one of these keys: {}", known.join(", "))
    };
    let shown = path::shown(key);
    let (place, message) = match entry.merged {
        Some(merge) => (merge, merged_key(&shown, entry.at)),
        None => (entry.at, format!("unknown key {shown:?}")),
    };
    at.error(code::UNKNOWN_KEY, message).at(place).hint(hint)
}
