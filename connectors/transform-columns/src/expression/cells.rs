//! Columns of values while an expression is computed.

use std::sync::Arc;

use rapidbyte_sdk::prelude::arrow_array::builder::PrimitiveBuilder;
use rapidbyte_sdk::prelude::arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use rapidbyte_sdk::prelude::*;

use super::kind::Kind;
use super::rows::{Misfit, Rows};

/// The values of one expression for the rows of a batch.
#[derive(Debug, Clone)]
pub struct Cells {
    pub values: Values,
    /// There is one value, which all rows have.
    pub is_constant: bool,
}

/// Values by the form in which they are computed with.
#[derive(Debug, Clone)]
pub enum Values {
    Bool(BooleanArray),
    /// Integers, days since 1970-01-01, microseconds since then.
    Int(Int64Array),
    /// A `real` is one that `f32` can hold.
    Float(Float64Array),
    /// In units of the type's scale.
    Decimal(Decimal128Array),
    Text(StringArray),
}

impl Rows<'_> {
    /// Computes the value of each wanted row; of one row alone, which stands for all, if `is_constant`.
    fn each<T>(
        &self,
        is_constant: bool,
        of: impl Fn(usize) -> Result<Option<T>, String>,
        mut put: impl FnMut(Option<T>),
    ) -> Result<(), Misfit> {
        let rows = if is_constant {
            1
        } else {
            self.batch.num_rows()
        };
        let none_wanted = || {
            self.wanted
                .is_some_and(|wanted| wanted.count_set_bits() == 0)
        };
        if is_constant && none_wanted() {
            put(None);
            return Ok(());
        }
        for row in 0..rows {
            if !is_constant && !self.is_wanted(row) {
                put(None);
                continue;
            }
            put(of(row).map_err(|reason| Misfit { row, reason })?);
        }
        Ok(())
    }

    fn primitive<P: ArrowPrimitiveType>(
        &self,
        is_constant: bool,
        of: impl Fn(usize) -> Result<Option<P::Native>, String>,
    ) -> Result<PrimitiveArray<P>, Misfit> {
        let mut builder = PrimitiveBuilder::<P>::with_capacity(self.batch.num_rows());
        self.each(is_constant, of, |value| builder.append_option(value))?;
        Ok(builder.finish())
    }

    pub fn bools(
        &self,
        is_constant: bool,
        of: impl Fn(usize) -> Result<Option<bool>, String>,
    ) -> Result<Cells, Misfit> {
        let mut builder = arrow_array::builder::BooleanBuilder::new();
        self.each(is_constant, of, |value| builder.append_option(value))?;
        Ok(Cells::new(Values::Bool(builder.finish()), is_constant))
    }

    pub fn ints(
        &self,
        is_constant: bool,
        of: impl Fn(usize) -> Result<Option<i64>, String>,
    ) -> Result<Cells, Misfit> {
        let array = self.primitive::<Int64Type>(is_constant, of)?;
        Ok(Cells::new(Values::Int(array), is_constant))
    }

    pub fn floats(
        &self,
        is_constant: bool,
        of: impl Fn(usize) -> Result<Option<f64>, String>,
    ) -> Result<Cells, Misfit> {
        let array = self.primitive::<Float64Type>(is_constant, of)?;
        Ok(Cells::new(Values::Float(array), is_constant))
    }

    pub fn decimals(
        &self,
        is_constant: bool,
        of: impl Fn(usize) -> Result<Option<i128>, String>,
    ) -> Result<Cells, Misfit> {
        let array = self.primitive::<Decimal128Type>(is_constant, of)?;
        Ok(Cells::new(Values::Decimal(array), is_constant))
    }

    /// Writes the text of each row into a buffer; false for NULL.
    pub fn texts(
        &self,
        is_constant: bool,
        of: impl Fn(usize, &mut String) -> Result<bool, String>,
    ) -> Result<Cells, Misfit> {
        let mut builder = arrow_array::builder::StringBuilder::new();
        let text = std::cell::RefCell::new(String::new());
        let filled = |row| {
            let text = &mut *text.borrow_mut();
            text.clear();
            Ok(of(row, text)?.then_some(()))
        };
        self.each(is_constant, filled, |value| match value {
            Some(()) => builder.append_value(&*text.borrow()),
            None => builder.append_null(),
        })?;
        Ok(Cells::new(Values::Text(builder.finish()), is_constant))
    }
}

/// Reads values by rows. A constant has the same one for each row.
macro_rules! reader {
    ($life:lifetime $name:ident, $variant:ident, $value:ty) => {
        pub fn $name<$life>(&$life self) -> impl Fn(usize) -> Option<$value> + $life {
            let array = match &self.values {
                Values::$variant(array) => Some(array),
                _ => None,
            };
            let step = usize::from(!self.is_constant);
            move |row| {
                let array = array?;
                let at = row * step;
                array.is_valid(at).then(|| array.value(at))
            }
        }
    };
}

impl Cells {
    pub fn new(values: Values, is_constant: bool) -> Self {
        Self {
            values,
            is_constant,
        }
    }

    reader!('a bools, Bool, bool);
    reader!('a ints, Int, i64);
    reader!('a floats, Float, f64);
    reader!('a decimals, Decimal, i128);
    reader!('a texts, Text, &'a str);

    fn array(&self) -> &dyn Array {
        match &self.values {
            Values::Bool(array) => array,
            Values::Int(array) => array,
            Values::Float(array) => array,
            Values::Decimal(array) => array,
            Values::Text(array) => array,
        }
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.array().is_null(if self.is_constant { 0 } else { row })
    }

    /// The values as a column of `rows` rows.
    pub fn into_column(self, kind: Kind, rows: usize) -> Result<ArrayRef, Misfit> {
        let values = match self.is_constant {
            true => self.repeated(rows),
            false => self.values,
        };
        let narrow = "integers were checked when they were computed";
        Ok(match (values, kind) {
            (Values::Int(array), Kind::Int2) => {
                Arc::new(array.unary::<_, arrow_array::types::Int16Type>(|v| v as i16))
            }
            (Values::Int(array), Kind::Int4) => {
                Arc::new(array.unary::<_, arrow_array::types::Int32Type>(|v| v as i32))
            }
            (Values::Int(array), Kind::Date) => {
                Arc::new(array.unary::<_, arrow_array::types::Date32Type>(|v| v as i32))
            }
            (Values::Int(array), Kind::Timestamp | Kind::Timestamptz) => {
                let array =
                    array.reinterpret_cast::<arrow_array::types::TimestampMicrosecondType>();
                match kind {
                    Kind::Timestamptz => Arc::new(array.with_timezone("UTC")),
                    _ => Arc::new(array),
                }
            }
            (Values::Int(array), _) => Arc::new(array),
            (Values::Float(array), Kind::Float4) => {
                Arc::new(array.unary::<_, arrow_array::types::Float32Type>(|v| v as f32))
            }
            (Values::Float(array), _) => Arc::new(array),
            (Values::Decimal(array), Kind::Decimal(precision, scale)) => {
                let array = array.with_precision_and_scale(precision, scale as i8);
                Arc::new(array.map_err(|_| Misfit {
                    row: 0,
                    reason: narrow.to_owned(),
                })?)
            }
            (Values::Decimal(array), _) => Arc::new(array),
            (Values::Bool(array), _) => Arc::new(array),
            (Values::Text(array), _) => Arc::new(array),
        })
    }

    fn repeated(&self, rows: usize) -> Values {
        let all = || 0..rows;
        match &self.values {
            Values::Bool(_) => Values::Bool(all().map(self.bools()).collect()),
            Values::Int(_) => Values::Int(all().map(self.ints()).collect()),
            Values::Float(_) => Values::Float(all().map(self.floats()).collect()),
            Values::Decimal(_) => Values::Decimal(all().map(self.decimals()).collect()),
            Values::Text(_) => Values::Text(all().map(self.texts()).collect()),
        }
    }
}
