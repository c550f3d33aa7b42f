//! From text to a typed tree.

use rapidbyte_sdk::prelude::*;
use sqlparser::ast::{
    BinaryOperator, CastKind, CeilFloorKind, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, InTarget, TrimWhereField, UnaryOperator, Value,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::build::{
    arithmetic, boolean, case, cast, compare, distinct, in_common, known, logical, negated,
    negated_if, not,
};
use super::kind::Kind;
use super::tree::{Arithmetic, Call, Compare, Node, Typed};
use super::{call, literal};

/// Expressions in each other.
const MAX_DEPTH: usize = 40;
/// Bytes of an expression.
const MAX_BYTES: usize = 16 << 10;
/// Names and operators of an expression: each may be a level of the tree, and a walk over it is recursive.
const MAX_OPERATORS: usize = 300;

/// Reads an expression over the columns of `schema`.
///
/// # Errors
/// One sentence: what does not fit, and what to write.
pub fn parse(text: &str, schema: &Schema) -> Result<Typed, String> {
    if text.len() > MAX_BYTES {
        return Err(format!(
            "the expression is longer than {} KiB",
            MAX_BYTES >> 10
        ));
    }
    refuse_many(text)?;
    let wrong = |error: sqlparser::parser::ParserError| {
        let said = error.to_string();
        let said = said.strip_prefix("sql parser error: ").unwrap_or(&said);
        if said.contains("recursion limit") {
            return format!("the expression is nested deeper than {MAX_DEPTH} levels");
        }
        format!("not an expression: {said}")
    };
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(MAX_DEPTH)
        .try_with_sql(text)
        .map_err(wrong)?;
    let parsed = parser.parse_expr().map_err(wrong)?;
    match parser.peek_token().token {
        Token::EOF => Parsing { schema }.expression(&parsed),
        rest => Err(format!("not an expression: {rest} after its end")),
    }
}

fn refuse_many(text: &str) -> Result<(), String> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize();
    let tokens = tokens.map_err(|error| format!("not an expression: {error}"))?;
    let is_plain = |token: &&Token| {
        !matches!(
            token,
            Token::Comma
                | Token::Number(..)
                | Token::SingleQuotedString(_)
                | Token::LParen
                | Token::RParen
                | Token::Whitespace(_)
        )
    };
    match tokens.iter().filter(is_plain).count() {
        ..=MAX_OPERATORS => Ok(()),
        more => Err(format!(
            "the expression has {more} names and operators, above {MAX_OPERATORS}"
        )),
    }
}

struct Parsing<'a> {
    schema: &'a Schema,
}

impl Parsing<'_> {
    fn expression(&self, parsed: &Expr) -> Result<Typed, String> {
        match parsed {
            Expr::Nested(inner) => self.expression(inner),
            Expr::Identifier(name) => self.column(&name.value),
            Expr::Value(value) => constant(&value.value, parsed),
            Expr::TypedString(typed) => {
                let kind = Kind::of_sql(&typed.data_type)?;
                let value = constant(&typed.value.value, parsed)?;
                cast(value, kind)
            }
            Expr::UnaryOp { op, expr } => self.unary(*op, expr, parsed),
            Expr::BinaryOp { left, op, right } => {
                self.binary(self.expression(left)?, op, self.expression(right)?, parsed)
            }
            Expr::IsNull(inner) => self.is_null(inner),
            Expr::IsNotNull(inner) => Ok(not(self.is_null(inner)?)),
            Expr::IsTrue(inner) => self.is(inner, true),
            Expr::IsFalse(inner) => self.is(inner, false),
            Expr::IsNotTrue(inner) => Ok(not(self.is(inner, true)?)),
            Expr::IsNotFalse(inner) => Ok(not(self.is(inner, false)?)),
            Expr::IsUnknown(inner) => self.is_null(inner),
            Expr::IsNotUnknown(inner) => Ok(not(self.is_null(inner)?)),
            Expr::IsDistinctFrom(left, right) => self.distinct(left, right),
            Expr::IsNotDistinctFrom(left, right) => Ok(not(self.distinct(left, right)?)),
            Expr::In {
                expr,
                target: InTarget::List(list),
                negated,
                ..
            } => self.is_one_of(expr, list, *negated),
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let value = || self.expression(expr);
                let above = compare(Compare::GreaterOrEqual, value()?, self.expression(low)?)?;
                let below = compare(Compare::LessOrEqual, value()?, self.expression(high)?)?;
                Ok(negated_if(*negated, logical(Node::And, above, below)))
            }
            Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => self.like(expr, pattern, *negated, false),
            Expr::ILike {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => self.like(expr, pattern, *negated, true),
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
            } => self.cast(expr, Kind::of_sql(data_type)?),
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => {
                let mut branches = Vec::new();
                for branch in conditions {
                    let condition = self.expression(&branch.condition)?;
                    let condition = match operand {
                        Some(operand) => {
                            compare(Compare::Equal, self.expression(operand)?, condition)?
                        }
                        None => boolean(condition)?,
                    };
                    branches.push((condition, self.expression(&branch.result)?));
                }
                let rest = else_result.as_ref().map(|rest| self.expression(rest));
                case(branches, rest.transpose()?)
            }
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => {
                let from = match substring_from {
                    Some(from) => self.expression(from)?,
                    None => literal::number("1")?,
                };
                let count = substring_for.as_ref().map(|count| self.expression(count));
                let first = [self.expression(expr)?, from].into_iter();
                call::typed(Call::Substring, first.chain(count.transpose()?).collect())
            }
            Expr::Trim {
                trim_where,
                trim_what,
                expr,
                trim_characters: None,
            } => {
                let side = match trim_where {
                    Some(TrimWhereField::Leading) => Call::TrimStart,
                    Some(TrimWhereField::Trailing) => Call::TrimEnd,
                    _ => Call::Trim,
                };
                let what = trim_what.as_ref().map(|what| self.expression(what));
                let first = [self.expression(expr)?].into_iter();
                call::typed(side, first.chain(what.transpose()?).collect())
            }
            Expr::Floor { expr, field } => self.rounded(Call::Floor, expr, field),
            Expr::Ceil { expr, field } => self.rounded(Call::Ceil, expr, field),
            Expr::Function(function) => self.function(function),
            other => Err(unsupported(other)),
        }
    }

    fn column(&self, name: &str) -> Result<Typed, String> {
        let (index, field) = self.find(name)?;
        let kind = Kind::of(field).ok_or_else(|| {
            let plain = format!(
                "the column {name} of type {} cannot be computed with",
                rapidbyte_sdk::types::type_name(field)
            );
            if crate::native::is_numeric(field) {
                format!("{plain}: CAST({name} AS numeric(38, 10)) gives it digits")
            } else if crate::columns::spelled(field).is_ok() {
                format!("{plain}: CAST({name} AS text) gives its text")
            } else {
                plain
            }
        })?;
        Ok(Typed {
            kind,
            is_nullable: field.is_nullable(),
            node: Node::Column(index),
        })
    }

    fn find(&self, name: &str) -> Result<(usize, &Field), String> {
        let found = self.schema.fields().find(name);
        found
            .map(|(index, field)| (index, &**field))
            .ok_or_else(|| crate::columns::unknown(name, self.schema))
    }

    /// The column that an expression is, whatever its type.
    fn bare_column(&self, parsed: &Expr) -> Result<Option<(usize, &Field)>, String> {
        match parsed {
            Expr::Nested(inner) => self.bare_column(inner),
            Expr::Identifier(name) => self.find(&name.value).map(Some),
            _ => Ok(None),
        }
    }

    fn is_null(&self, parsed: &Expr) -> Result<Typed, String> {
        let node = match self.bare_column(parsed)? {
            Some((index, _)) => Node::IsNullColumn(index),
            None => Node::IsNull(Box::new(self.expression(parsed)?)),
        };
        Ok(known(Kind::Bool, node))
    }

    fn is(&self, parsed: &Expr, value: bool) -> Result<Typed, String> {
        let inner = boolean(self.expression(parsed)?)?;
        Ok(not(distinct(inner, literal::bool(value))?))
    }

    fn distinct(&self, left: &Expr, right: &Expr) -> Result<Typed, String> {
        distinct(self.expression(left)?, self.expression(right)?)
    }

    fn is_one_of(&self, parsed: &Expr, list: &[Expr], negated: bool) -> Result<Typed, String> {
        if list.is_empty() {
            return Err("IN needs a list of values".into());
        }
        let all = std::iter::once(parsed).chain(list);
        let all = all
            .map(|one| self.expression(one))
            .collect::<Result<_, _>>()?;
        let mut all = in_common(all)?;
        let value = all.remove(0);
        let all = Typed {
            kind: Kind::Bool,
            is_nullable: value.is_nullable || all.iter().any(|one| one.is_nullable),
            node: Node::OneOf(Box::new(value), all),
        };
        Ok(negated_if(negated, all))
    }

    fn like(
        &self,
        text: &Expr,
        pattern: &Expr,
        negated: bool,
        folds_case: bool,
    ) -> Result<Typed, String> {
        let (text, pattern) = (self.expression(text)?, self.expression(pattern)?);
        for side in [&text, &pattern] {
            if side.kind != Kind::Text {
                return Err(format!("LIKE compares text, and this is {}", side.kind));
            }
        }
        let like = Typed {
            kind: Kind::Bool,
            is_nullable: text.is_nullable || pattern.is_nullable,
            node: Node::Like {
                text: Box::new(text),
                pattern: Box::new(pattern),
                folds_case,
            },
        };
        Ok(negated_if(negated, like))
    }

    fn cast(&self, parsed: &Expr, kind: Kind) -> Result<Typed, String> {
        if let (Kind::Text, Some((index, field))) = (kind, self.bare_column(parsed)?)
            && Kind::of(field).is_none()
        {
            crate::columns::spelled(field)?;
            return Ok(Typed {
                kind,
                is_nullable: field.is_nullable(),
                node: Node::TextOfColumn(index),
            });
        }
        if let (Kind::Decimal(..), Some((index, field))) = (kind, self.bare_column(parsed)?)
            && crate::native::is_numeric(field)
        {
            return Ok(Typed {
                kind,
                is_nullable: field.is_nullable(),
                node: Node::Numeric(index),
            });
        }
        cast(self.expression(parsed)?, kind)
    }

    fn unary(&self, op: UnaryOperator, inner: &Expr, whole: &Expr) -> Result<Typed, String> {
        // PostgreSQL reads the sign of a number with its digits.
        if let (UnaryOperator::Minus, Expr::Value(value)) = (op, inner)
            && let Value::Number(text, _) = &value.value
        {
            return literal::number(&format!("-{text}"));
        }
        let typed = self.expression(inner)?;
        match op {
            UnaryOperator::Not => Ok(not(boolean(typed)?)),
            UnaryOperator::Plus if typed.kind.is_number() => Ok(typed),
            UnaryOperator::Minus if typed.kind.is_number() => Ok(negated(typed)),
            UnaryOperator::Plus | UnaryOperator::Minus => {
                Err(format!("{whole}: {} has no sign", typed.kind))
            }
            _ => Err(unsupported(whole)),
        }
    }

    fn binary(
        &self,
        left: Typed,
        op: &BinaryOperator,
        right: Typed,
        whole: &Expr,
    ) -> Result<Typed, String> {
        let operation = match op {
            BinaryOperator::Plus => Arithmetic::Add,
            BinaryOperator::Minus => Arithmetic::Subtract,
            BinaryOperator::Multiply => Arithmetic::Multiply,
            BinaryOperator::Divide => Arithmetic::Divide,
            BinaryOperator::Modulo => Arithmetic::Remainder,
            BinaryOperator::Eq => return compare(Compare::Equal, left, right),
            BinaryOperator::NotEq => return compare(Compare::NotEqual, left, right),
            BinaryOperator::Lt => return compare(Compare::Less, left, right),
            BinaryOperator::LtEq => return compare(Compare::LessOrEqual, left, right),
            BinaryOperator::Gt => return compare(Compare::Greater, left, right),
            BinaryOperator::GtEq => return compare(Compare::GreaterOrEqual, left, right),
            BinaryOperator::And => return Ok(logical(Node::And, boolean(left)?, boolean(right)?)),
            BinaryOperator::Or => return Ok(logical(Node::Or, boolean(left)?, boolean(right)?)),
            BinaryOperator::StringConcat => {
                if left.kind != Kind::Text && right.kind != Kind::Text {
                    return Err(format!("{whole}: || joins texts: cast one side to text"));
                }
                return call::typed(
                    Call::Join,
                    vec![cast(left, Kind::Text)?, cast(right, Kind::Text)?],
                );
            }
            _ => return Err(unsupported(whole)),
        };
        arithmetic(operation, left, right).map_err(|reason| format!("{whole}: {reason}"))
    }

    fn rounded(&self, call: Call, inner: &Expr, field: &CeilFloorKind) -> Result<Typed, String> {
        match field {
            CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime) => {
                call::typed(call, vec![self.expression(inner)?])
            }
            _ => Err("floor and ceil take one number".into()),
        }
    }

    fn function(&self, function: &Function) -> Result<Typed, String> {
        let name = function.name.to_string().to_lowercase();
        let plain = function.filter.is_none()
            && function.over.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty();
        let FunctionArguments::List(list) = &function.args else {
            return Err(call::unknown(&name));
        };
        if !plain || !list.clauses.is_empty() || list.duplicate_treatment.is_some() {
            return Err(format!("{function}: aggregates and windows cannot be used"));
        }
        let mut arguments = Vec::new();
        for argument in &list.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
                return Err(format!("{function}: {argument} cannot be an argument"));
            };
            arguments.push(self.expression(argument)?);
        }
        call::named(&name, arguments)
    }
}

fn constant(value: &Value, whole: &Expr) -> Result<Typed, String> {
    match value {
        Value::Number(text, _) => literal::number(text),
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
            Ok(literal::text(text))
        }
        Value::Boolean(value) => Ok(literal::bool(*value)),
        Value::Null => Ok(literal::null(Kind::Text)),
        _ => Err(unsupported(whole)),
    }
}

fn unsupported(parsed: &Expr) -> String {
    let mut shown = parsed.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(59).chain(['…']).collect();
    }
    format!("{shown} is not part of the expressions that rows can be computed with")
}
