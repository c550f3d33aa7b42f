//! An expression as a tree.

use super::cells::Cells;
use super::kind::Kind;

/// An expression whose type is known.
#[derive(Debug, Clone)]
pub struct Typed {
    pub kind: Kind,
    /// False if no row can give NULL.
    pub is_nullable: bool,
    pub node: Node,
}

#[derive(Debug, Clone)]
pub enum Node {
    /// A column by its position.
    Column(usize),
    /// The text of a column whose type is not a `Kind`.
    TextOfColumn(usize),
    /// A column of numeric without digits, with the digits of this expression's type.
    Numeric(usize),
    /// Whether the first value is among the others; all have one type.
    OneOf(Box<Typed>, Vec<Typed>),
    /// A value; text may be of any type until it meets one.
    Constant(Cells),
    Cast(Box<Typed>),
    Negate(Box<Typed>),
    Arithmetic(Arithmetic, Box<Typed>, Box<Typed>),
    /// Both sides have one type.
    Compare(Compare, Box<Typed>, Box<Typed>),
    /// `IS [NOT] DISTINCT FROM`; true for distinct values.
    Distinct(Box<Typed>, Box<Typed>),
    And(Box<Typed>, Box<Typed>),
    Or(Box<Typed>, Box<Typed>),
    Not(Box<Typed>),
    IsNull(Box<Typed>),
    /// Whether a column of any type is NULL.
    IsNullColumn(usize),
    Like {
        text: Box<Typed>,
        pattern: Box<Typed>,
        folds_case: bool,
    },
    /// Conditions with their results, and the result for all other rows.
    Case(Vec<(Typed, Typed)>, Option<Box<Typed>>),
    Coalesce(Vec<Typed>),
    Call(Call, Vec<Typed>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A function that is computed for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Abs,
    Ceil,
    Concat,
    Floor,
    Greatest,
    /// `||`
    Join,
    Least,
    Left,
    Length,
    Lower,
    NullIf,
    Replace,
    Right,
    Round,
    SplitPart,
    StartsWith,
    Substring,
    Trim,
    TrimEnd,
    TrimStart,
    Upper,
}
