//! What a family of types says of them.

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};

use crate::builtin::Builtin;
use crate::decision::Decision;
use crate::decode::Decode;
use crate::encode::Values;
use crate::model::{Column, PgType};

/// A family: the compiler names a field that is missing.
pub(crate) struct Family {
    /// Its types.
    pub types: &'static [Type],
    /// The column to create for a field, without its name.
    pub column: fn(&Field) -> Option<Column>,
    /// How a field from a type gets into a column of another; `None` if only into the same.
    pub into: fn(&Field, from: &PgType, to: Builtin, typmod: i32) -> Option<Decision>,
    /// The values of an array whose Arrow type is the family's own, as that type is on the line.
    pub encode: fn(&ArrayRef) -> Option<Values<'_>>,
}

/// Types that their family treats alike.
pub(crate) struct Type {
    pub of: &'static [Builtin],
    /// `None`: no type of Arrow is like it.
    pub held: Option<Held>,
    /// `None`: it has none, or nobody knows what it means.
    pub modifier: Option<Modifier>,
    /// Which texts a cast accepts.
    pub spelling: Spelling,
}

/// The effect of a type's modifiers.
pub(crate) struct Modifier {
    /// Why the target's modifier would change a value of the source's, or refuse it.
    pub fits: Fits,
    /// Equal values may be written differently, as 1.2 and 1.20 are.
    pub by_value: bool,
}

/// How Arrow holds the values of a type.
pub(crate) struct Held {
    /// It holds every value, so that nobody needs the native form.
    pub exact: bool,
    /// The Arrow type for a modifier; `None` if the modifier lets through what no Arrow type holds.
    pub data_type: fn(typmod: i32) -> Option<DataType>,
    /// The extension type's name.
    pub extension: Option<&'static str>,
    /// Collects values of `data_type`.
    pub decode: fn(&DataType) -> Box<dyn Decode>,
}

pub(crate) type Fits = fn(from: i32, to: i32) -> Result<(), &'static str>;

/// Equal values of the type are written differently.
pub(super) const fn by_value(fits: Fits) -> Option<Modifier> {
    let by_value = true;
    Some(Modifier { fits, by_value })
}

/// Equal values of the type are written alike.
pub(super) const fn by_text(fits: Fits) -> Option<Modifier> {
    let by_value = false;
    Some(Modifier { fits, by_value })
}

/// Arrow holds every value.
pub(super) const fn exactly(
    data_type: fn(i32) -> Option<DataType>,
    decode: fn(&DataType) -> Box<dyn Decode>,
) -> Option<Held> {
    Some(Held {
        exact: true,
        data_type,
        extension: None,
        decode,
    })
}

/// Arrow holds most values.
pub(super) const fn partly(
    data_type: fn(i32) -> Option<DataType>,
    decode: fn(&DataType) -> Box<dyn Decode>,
) -> Option<Held> {
    Some(Held {
        exact: false,
        data_type,
        extension: None,
        decode,
    })
}

/// Which texts a type holds without a loss.
#[derive(Clone, Copy)]
pub(crate) enum Spelling {
    /// All that the server reads.
    Any,
    /// The type's own output, and texts that meet a condition on the text and the value.
    Also(fn(text: &str, value: &str) -> String),
    /// The type's own output, and texts that match a pattern: case-insensitive, and as a whole but for blanks around.
    Pattern(fn() -> String),
    /// The type's own output alone.
    Own,
}
