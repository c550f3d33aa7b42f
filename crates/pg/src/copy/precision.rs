//! Values that are finer than the column of the target: the server would round them, and say nothing.
//!
//! The description of a column says how fine its values are. One that came with a file may be wrong, because a program
//! has changed the values since.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

use crate::builtin::{INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, TIMETZ};
use crate::model::Column;
use crate::types::datetime::{
    ALL_PARTS, DAY, HOUR, Limits, MAX_DIGITS, MINUTE, MONTH, SECOND, YEAR,
};

/// What each value has to be a multiple of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Precision {
    months: i32,
    /// Whether there may be days.
    days: bool,
    /// Of the time, in nanoseconds. 0: there may be none.
    nanos: i64,
}

/// The precision of a column whose server rounds values. `None` for any other column.
pub(super) fn of(column: &Column) -> Option<Precision> {
    let (ty, typmod) = column.stripped();
    let ty = ty.element();
    // Of a second; `None` if the server keeps all digits.
    let nanos = |digits: i32| {
        let is_coarse = (0..MAX_DIGITS).contains(&digits);
        is_coarse.then(|| 10_i64.pow(9 - digits.unsigned_abs()))
    };
    if [TIME.oid, TIMETZ.oid, TIMESTAMP.oid, TIMESTAMPTZ.oid].contains(&ty.oid) {
        return Some(Precision {
            months: 1,
            days: true,
            nanos: nanos(typmod)?,
        });
    }
    if ty.oid != INTERVAL.oid {
        return None;
    }
    let Limits { parts, digits } = Limits::of(typmod)?;
    let has = |part: i32| parts & part != 0;
    // The server cuts everything below the last part.
    let (months, days, nanos) = if parts == ALL_PARTS || has(SECOND) {
        (1, true, nanos(digits?)?)
    } else if has(MINUTE) {
        (1, true, 60_000_000_000)
    } else if has(HOUR) {
        (1, true, 3_600_000_000_000)
    } else if has(DAY) {
        (1, true, 0)
    } else if has(MONTH) {
        (1, false, 0)
    } else if has(YEAR) {
        (12, false, 0)
    } else {
        return None;
    };
    Some(Precision {
        months,
        days,
        nanos,
    })
}

impl Precision {
    /// The first row with a finer value. None for values that are not of times.
    pub(super) fn finer(self, array: &ArrayRef) -> Option<usize> {
        let first = |is_finer: &dyn Fn(usize) -> bool| {
            (0..array.len()).find(|row| array.is_valid(*row) && is_finer(*row))
        };
        match array.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                let values = array.as_primitive::<TimestampMicrosecondType>().values();
                first(&|row| self.cuts_time(i128::from(values[row]) * 1000))
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                let values = array.as_primitive::<Time64MicrosecondType>().values();
                first(&|row| self.cuts_time(i128::from(values[row]) * 1000))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let values = array.as_primitive::<IntervalMonthDayNanoType>().values();
                first(&|row| {
                    let value = values[row];
                    value.months % self.months != 0
                        || !self.days && value.days != 0
                        || self.cuts_time(value.nanoseconds.into())
                })
            }
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                first(&|row| self.finer(&lists.value(row)).is_some())
            }
            _ => None,
        }
    }

    fn cuts_time(self, nanos: i128) -> bool {
        match self.nanos {
            0 => nanos != 0,
            step => nanos % i128::from(step) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{ListBuilder, TimestampMicrosecondBuilder};
    use arrow_array::{
        IntervalMonthDayNanoArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    };
    use arrow_buffer::IntervalMonthDayNano;

    use super::*;
    use crate::builtin::{INT8, TEXT};

    fn column(of: crate::builtin::Builtin, typmod: i32) -> Column {
        Column {
            typmod,
            ..of.column("c")
        }
    }

    fn interval(parts: i32, digits: i32) -> Precision {
        of(&column(INTERVAL, parts << 16 | digits)).unwrap()
    }

    #[test]
    fn a_value_that_the_server_would_round_is_found() {
        for unlimited in [
            column(TIMESTAMP, -1),
            column(TIMESTAMP, 6),
            column(INTERVAL, -1),
            column(INT8, -1),
            column(TEXT, 5),
        ] {
            assert_eq!(of(&unlimited), None, "{unlimited:?}");
        }
        let stamps: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![
            Some(-5_000_000),
            None,
            Some(1_250_000),
            Some(1_250_100),
        ]));
        for (digits, row) in [
            (0, Some(2)),
            (1, Some(2)),
            (2, Some(3)),
            (3, Some(3)),
            (4, None),
            (5, None),
        ] {
            assert_eq!(
                of(&column(TIMESTAMPTZ, digits)).unwrap().finer(&stamps),
                row,
                "{digits}"
            );
        }
        let times: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![0, 86_399_999_999]));
        assert_eq!(of(&column(TIME, 0)).unwrap().finer(&times), Some(1));
        let mut lists = ListBuilder::new(TimestampMicrosecondBuilder::new());
        for values in [vec![Some(1_000_000)], vec![None, Some(1)]] {
            lists.append_value(values);
        }
        let lists: ArrayRef = Arc::new(lists.finish());
        let array = Column {
            typmod: 0,
            ..Column::new(
                "c",
                crate::model::type_of(TIMESTAMP.array).unwrap(),
                "timestamp(0)[]",
            )
        };
        assert_eq!(of(&array).unwrap().finer(&lists), Some(1));
    }

    #[test]
    fn an_interval_has_no_part_below_the_last_one() {
        let one = |months, days, nanos| -> ArrayRef {
            let value = IntervalMonthDayNano::new(months, days, nanos);
            Arc::new(IntervalMonthDayNanoArray::from(vec![value]))
        };
        let (hour, minute, second) = (3_600_000_000_000, 60_000_000_000, 1_000_000_000);
        for (parts, fits, finer) in [
            (YEAR, one(24, 0, 0), one(23, 0, 0)),
            (YEAR | MONTH, one(23, 0, 0), one(23, 1, 0)),
            (DAY, one(1, 2, 0), one(1, 2, second)),
            (DAY | HOUR, one(1, 2, -hour), one(1, 2, minute)),
            (HOUR | MINUTE, one(0, 0, minute), one(0, 0, second)),
            (MINUTE | SECOND, one(0, 0, second), one(0, 0, 1_000)),
            (ALL_PARTS, one(1, 1, second), one(1, 1, 1_000)),
        ] {
            let precision = interval(parts, 0);
            assert_eq!(precision.finer(&fits), None, "{parts}");
            assert_eq!(precision.finer(&finer), Some(0), "{parts}");
        }
    }
}
