//! Types that hold all values of two types, and values as values of such a type.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, LargeBinaryArray, LargeStringArray, PrimitiveArray, new_null_array,
};
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DataType, TimeUnit};

/// The digits of the largest decimal type that is carried in 128 and in 256 bits.
const DIGITS_128: u8 = 38;
const DIGITS_256: u8 = 76;

/// The type that holds all values of two different types exactly. `None` if there is none.
pub(crate) fn widest(a: &DataType, b: &DataType) -> Option<DataType> {
    match (a, b) {
        (DataType::Null, other) | (other, DataType::Null) => return Some(other.clone()),
        (DataType::Timestamp(unit, zone), DataType::Timestamp(other, b_zone)) => {
            let finer = if per_second(*unit) < per_second(*other) {
                *other
            } else {
                *unit
            };
            // Nanoseconds end in the year 2262.
            let holds_both = zone == b_zone && finer != TimeUnit::Nanosecond;
            return holds_both.then(|| DataType::Timestamp(finer, zone.clone()));
        }
        (DataType::Utf8, DataType::LargeUtf8) | (DataType::LargeUtf8, DataType::Utf8) => {
            return Some(DataType::LargeUtf8);
        }
        (DataType::Binary, DataType::LargeBinary) | (DataType::LargeBinary, DataType::Binary) => {
            return Some(DataType::LargeBinary);
        }
        _ => {}
    }
    if let (Some((a_front, a_behind)), Some((b_front, b_behind))) = (digits(a), digits(b)) {
        let behind = a_behind.max(b_behind);
        return decimal(a_front.max(b_front) + behind, behind);
    }
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => whole_type(a, b),
        (Some((_, bits)), None) if is_float(b) && bits <= 32 => Some(DataType::Float64),
        (None, Some((_, bits))) if is_float(a) && bits <= 32 => Some(DataType::Float64),
        _ => (is_float(a) && is_float(b)).then_some(DataType::Float64),
    }
}

fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::Float32 | DataType::Float64)
}

/// Whether a type of whole numbers has a sign, and its bits.
fn whole(ty: &DataType) -> Option<(bool, usize)> {
    let is_whole = ty.is_signed_integer() || ty.is_unsigned_integer();
    let bytes = ty.primitive_width().filter(|_| is_whole)?;
    Some((ty.is_signed_integer(), 8 * bytes))
}

fn whole_type(
    (a_signed, a_bits): (bool, usize),
    (b_signed, b_bits): (bool, usize),
) -> Option<DataType> {
    let bits = match (a_signed, b_signed) {
        (true, false) => a_bits.max(2 * b_bits),
        (false, true) => b_bits.max(2 * a_bits),
        _ => a_bits.max(b_bits),
    };
    Some(match (a_signed || b_signed, bits) {
        (true, 16) => DataType::Int16,
        (true, 32) => DataType::Int32,
        (true, 64) => DataType::Int64,
        (false, 16) => DataType::UInt16,
        (false, 32) => DataType::UInt32,
        (false, 64) => DataType::UInt64,
        _ => return None,
    })
}

/// The digits of a decimal type in front of and behind the point. Negative scales have no wider type.
fn digits(ty: &DataType) -> Option<(u8, u8)> {
    let (DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale)) = ty
    else {
        return None;
    };
    let behind = u8::try_from(*scale).ok()?;
    Some((precision.saturating_sub(behind), behind))
}

fn decimal(precision: u8, behind: u8) -> Option<DataType> {
    let scale = i8::try_from(behind).ok()?;
    match precision {
        0..=DIGITS_128 => Some(DataType::Decimal128(precision, scale)),
        _ if precision <= DIGITS_256 => Some(DataType::Decimal256(precision, scale)),
        _ => None,
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// The values in the wider type. `None` if [`widest`] does not lead from one type to the other. Errors: a timestamp that
/// the finer unit does not hold.
pub(crate) fn widen(array: &ArrayRef, to: &DataType) -> Result<Option<ArrayRef>, ArrowError> {
    if widest(array.data_type(), to).as_ref() != Some(to) {
        return Ok(None);
    }
    Ok(Some(match (array.data_type(), to) {
        (DataType::Null, _) => new_null_array(to, array.len()),
        (_, DataType::LargeUtf8) => Arc::new(
            array
                .as_string::<i32>()
                .iter()
                .collect::<LargeStringArray>(),
        ),
        (_, DataType::LargeBinary) => Arc::new(
            array
                .as_binary::<i32>()
                .iter()
                .collect::<LargeBinaryArray>(),
        ),
        (_, DataType::Int16) => wholes::<Int16Type>(array)?,
        (_, DataType::Int32) => wholes::<Int32Type>(array)?,
        (_, DataType::Int64) => wholes::<Int64Type>(array)?,
        (_, DataType::UInt16) => wholes::<UInt16Type>(array)?,
        (_, DataType::UInt32) => wholes::<UInt32Type>(array)?,
        (_, DataType::UInt64) => wholes::<UInt64Type>(array)?,
        (DataType::Float32, DataType::Float64) => {
            let floats = array.as_primitive::<Float32Type>();
            Arc::new(floats.unary::<_, Float64Type>(f64::from))
        }
        (_, DataType::Float64) => {
            let wholes = wholes::<Int64Type>(array)?;
            let wholes = wholes.as_primitive::<Int64Type>();
            // 32 bits at most.
            Arc::new(wholes.unary::<_, Float64Type>(|value| value as f64))
        }
        (_, DataType::Decimal128(precision, scale)) => {
            let from = array.as_primitive::<Decimal128Type>();
            let factor = 10_i128.pow(u32::from(added_digits(array.data_type(), *scale)));
            let made: PrimitiveArray<Decimal128Type> = from.try_unary(|value: i128| {
                value.checked_mul(factor).ok_or_else(|| too_large(value))
            })?;
            Arc::new(made.with_precision_and_scale(*precision, *scale)?)
        }
        (from, DataType::Decimal256(precision, scale)) => {
            let long: PrimitiveArray<Decimal256Type> = match from {
                DataType::Decimal128(..) => array
                    .as_primitive::<Decimal128Type>()
                    .unary(i256::from_i128),
                _ => array.as_primitive::<Decimal256Type>().clone(),
            };
            let factor = i256::from_i128(10)
                .checked_pow(u32::from(added_digits(from, *scale)))
                .unwrap_or(i256::ONE);
            let made: PrimitiveArray<Decimal256Type> = long.try_unary(|value: i256| {
                value.checked_mul(factor).ok_or_else(|| too_large(value))
            })?;
            Arc::new(made.with_precision_and_scale(*precision, *scale)?)
        }
        (DataType::Timestamp(unit, _), DataType::Timestamp(finer, zone)) => {
            let factor = per_second(*finer) / per_second(*unit);
            let ticks = match unit {
                TimeUnit::Second => ticks::<TimestampSecondType>(array, factor),
                _ => ticks::<TimestampMillisecondType>(array, factor),
            }?;
            let zone = zone.clone();
            match finer {
                TimeUnit::Microsecond => Arc::new(
                    ticks
                        .reinterpret_cast::<TimestampMicrosecondType>()
                        .with_timezone_opt(zone),
                ),
                _ => Arc::new(
                    ticks
                        .reinterpret_cast::<TimestampMillisecondType>()
                        .with_timezone_opt(zone),
                ),
            }
        }
        _ => return Ok(None),
    }))
}

fn too_large(value: impl std::fmt::Display) -> ArrowError {
    ArrowError::CastError(format!(
        "{value} does not fit into the type of the other files"
    ))
}

/// How many digits a decimal gets behind its point.
fn added_digits(from: &DataType, scale: i8) -> u8 {
    let behind = digits(from).map_or(0, |(_, behind)| behind);
    u8::try_from(scale)
        .unwrap_or_default()
        .saturating_sub(behind)
}

fn ticks<T: ArrowPrimitiveType<Native = i64>>(
    array: &ArrayRef,
    factor: i64,
) -> Result<PrimitiveArray<Int64Type>, ArrowError> {
    let from = array.as_primitive::<T>();
    from.try_unary(|value| value.checked_mul(factor).ok_or_else(|| too_large(value)))
}

/// Whole numbers in a type that holds all of them.
fn wholes<T: ArrowPrimitiveType>(array: &ArrayRef) -> Result<ArrayRef, ArrowError>
where
    T::Native: TryFrom<i128>,
{
    match array.data_type() {
        DataType::Int8 => wholes_of::<Int8Type, T>(array),
        DataType::Int16 => wholes_of::<Int16Type, T>(array),
        DataType::Int32 => wholes_of::<Int32Type, T>(array),
        DataType::UInt8 => wholes_of::<UInt8Type, T>(array),
        DataType::UInt16 => wholes_of::<UInt16Type, T>(array),
        DataType::UInt32 => wholes_of::<UInt32Type, T>(array),
        DataType::UInt64 => wholes_of::<UInt64Type, T>(array),
        _ => wholes_of::<Int64Type, T>(array),
    }
}

fn wholes_of<F: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
) -> Result<ArrayRef, ArrowError>
where
    F::Native: Into<i128>,
    T::Native: TryFrom<i128>,
{
    let from = array.as_primitive::<F>();
    let made: PrimitiveArray<T> = from.try_unary(|value| {
        let value: i128 = value.into();
        T::Native::try_from(value).map_err(|_| too_large(value))
    })?;
    Ok(Arc::new(made))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Decimal128Array, Int8Array, NullArray, TimestampSecondArray, UInt32Array};

    use super::*;

    fn seconds(zone: Option<&str>) -> DataType {
        DataType::Timestamp(TimeUnit::Second, zone.map(Into::into))
    }

    #[test]
    fn the_wider_type_holds_all_values_of_both() {
        use DataType::{
            Decimal128, Decimal256, Float32, Float64, Int8, Int16, Int32, Int64, Null, UInt8,
            UInt16, UInt32, UInt64, Utf8,
        };
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (a, b, expected) in [
            (Int8, Int16, Some(Int16)),
            (Int32, Int64, Some(Int64)),
            (UInt8, UInt32, Some(UInt32)),
            (UInt8, Int8, Some(Int16)),
            (UInt32, Int8, Some(Int64)),
            (UInt16, Int64, Some(Int64)),
            (UInt64, Int64, None),
            (Float32, Float64, Some(Float64)),
            (Int32, Float32, Some(Float64)),
            (UInt16, Float64, Some(Float64)),
            (Int64, Float64, None),
            (Decimal128(5, 2), Decimal128(6, 4), Some(Decimal128(7, 4))),
            (
                Decimal128(38, 0),
                Decimal128(10, 9),
                Some(Decimal256(47, 9)),
            ),
            (Decimal256(76, 0), Decimal128(10, 9), None),
            (Decimal128(5, -2), Decimal128(6, 2), None),
            (seconds(None), micros.clone(), Some(micros.clone())),
            (micros.clone(), nanos, None),
            (Utf8, DataType::LargeUtf8, Some(DataType::LargeUtf8)),
            (seconds(Some("UTC")), micros, None),
            (Null, Utf8, Some(Utf8)),
            (Utf8, Int32, None),
        ] {
            assert_eq!(widest(&a, &b), expected, "{a} and {b}");
            assert_eq!(widest(&b, &a), expected, "{b} and {a}");
        }
    }

    #[test]
    fn values_stay_exact_in_the_wider_type() {
        let widen = |array: ArrayRef, to: DataType| widen(&array, &to).map(Option::unwrap);
        let wide = widen(
            Arc::new(Int8Array::from(vec![Some(-128), None])),
            DataType::Int64,
        );
        let expected = PrimitiveArray::<Int64Type>::from(vec![Some(-128), None]);
        assert_eq!(wide.unwrap().as_primitive::<Int64Type>(), &expected);
        let wide = widen(
            Arc::new(UInt32Array::from(vec![u32::MAX])),
            DataType::Float64,
        );
        assert_eq!(
            wide.unwrap().as_primitive::<Float64Type>().value(0),
            4_294_967_295.0
        );
        let short = Decimal128Array::from(vec![-123, 99_999]);
        let short: ArrayRef = Arc::new(short.with_precision_and_scale(5, 2).unwrap());
        let wide = widen(short.clone(), DataType::Decimal128(7, 4)).unwrap();
        assert_eq!(
            wide.as_primitive::<Decimal128Type>().values()[..],
            [-12_300, 9_999_900]
        );
        let wide = widen(short, DataType::Decimal256(47, 9)).unwrap();
        assert_eq!(
            wide.as_primitive::<Decimal256Type>().value_as_string(0),
            "-1.230000000"
        );
        let nulls = widen(Arc::new(NullArray::new(3)), DataType::Utf8).unwrap();
        assert_eq!((nulls.len(), nulls.null_count()), (3, 3));
    }

    /// The types of a file that the engine does not carry.
    #[test]
    fn values_of_other_widths_are_widened_from_their_portable_form() {
        use arrow_array::{Decimal32Array, Float16Array};
        let short = Decimal32Array::from(vec![-123]);
        let short: ArrayRef = Arc::new(short.with_precision_and_scale(5, 2).unwrap());
        let wide = crate::portable::convert_rows(&short, &DataType::Decimal128(7, 4)).unwrap();
        assert_eq!(
            wide.as_primitive::<Decimal128Type>().value_as_string(0),
            "-1.2300"
        );
        let halves: ArrayRef = Arc::new(Float16Array::from(vec![Some(Default::default())]));
        let wide = crate::portable::convert_rows(&halves, &DataType::Float64).unwrap();
        assert_eq!(wide.as_primitive::<Float64Type>().value(0), 0.0);
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![5]));
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let wide = crate::portable::convert_rows(&seconds, &micros).unwrap();
        assert_eq!(
            wide.as_primitive::<TimestampMicrosecondType>().value(0),
            5_000_000
        );
    }

    #[test]
    fn a_time_that_the_finer_unit_does_not_hold_is_refused() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let times = |seconds| -> ArrayRef {
            Arc::new(TimestampSecondArray::from(vec![seconds]).with_timezone("UTC"))
        };
        let made = widen(&times(5), &micros).unwrap().unwrap();
        assert_eq!(made.data_type(), &micros);
        assert_eq!(
            made.as_primitive::<TimestampMicrosecondType>().value(0),
            5_000_000
        );
        assert!(widen(&times(i64::MAX / 1000), &micros).is_err());
    }
}
