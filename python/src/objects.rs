//! Columns back to values of Python.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};
use rapidbyte_formats::text::decimal::{write_i128, write_i256};
use rapidbyte_wire::types::{extension_name, is_json, is_uuid, type_name};

use crate::refusal::Refusal;

/// The rows of a batch as a list of dicts.
pub fn rows<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyAny>> {
    let makers = Makers::new(py)?;
    let schema = batch.schema();
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let name = PyString::new(py, field.name());
        let values = values(&makers, field, array).map_err(|error| named(py, error, field))?;
        columns.push((name, values));
    }
    let list = PyList::empty(py);
    for row in 0..batch.num_rows() {
        let dict = PyDict::new(py);
        for (name, values) in &columns {
            dict.set_item(name, &values[row])?;
        }
        list.append(dict)?;
    }
    Ok(list.into_any())
}

/// Makers of values of Python's library.
pub struct Makers<'py> {
    py: Python<'py>,
    decimal: Bound<'py, PyAny>,
    uuid: Bound<'py, PyAny>,
    loads: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
    /// 1970-01-01 as a date, as a datetime, and as a datetime in UTC.
    day: Bound<'py, PyAny>,
    epoch: Bound<'py, PyAny>,
    epoch_utc: Bound<'py, PyAny>,
    /// Makes the zone of a name.
    zone: Bound<'py, PyAny>,
}

pub type Values<'py> = Vec<Bound<'py, PyAny>>;

impl<'py> Makers<'py> {
    /// Of the values that rows have.
    pub fn new(py: Python<'py>) -> PyResult<Self> {
        Self::with(py, "loads")
    }

    /// Of values that are written as JSON: their documents keep all digits.
    pub fn of_documents(py: Python<'py>) -> PyResult<Self> {
        Self::with(py, "loads_digits")
    }

    fn with(py: Python<'py>, loads: &str) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.getattr("datetime")?.call1((1970, 1, 1))?;
        let zone = PyDict::new(py);
        zone.set_item("tzinfo", utc)?;
        Ok(Self {
            py,
            decimal: py.import("decimal")?.getattr("Decimal")?,
            uuid: py.import("uuid")?.getattr("UUID")?,
            loads: py.import("rapidbyte._json")?.getattr(loads)?,
            timedelta: datetime.getattr("timedelta")?,
            day: datetime.getattr("date")?.call1((1970, 1, 1))?,
            epoch_utc: epoch.call_method("replace", (), Some(&zone))?,
            epoch,
            zone: py.import("rapidbyte._zones")?.getattr("zone")?,
        })
    }

    /// Of digits; with a negative scale as many zeros follow.
    fn decimal(&self, mut text: Vec<u8>, scale: i8) -> PyResult<Bound<'py, PyAny>> {
        if scale < 0 {
            text.extend(format!("E{}", scale.unsigned_abs()).bytes());
        }
        self.decimal.call1((String::from_utf8_lossy(&text),))
    }

    fn delta(&self, micros: i64) -> PyResult<Bound<'py, PyAny>> {
        self.timedelta.call1((0, 0, micros))
    }
}

/// Microseconds of a column of times or durations.
fn micros(array: &ArrayRef) -> PyResult<PrimitiveArray<Int64Type>> {
    let (unit, numbers) = match array.data_type() {
        DataType::Time32(unit) => {
            let numbers = array.to_data().into_builder().data_type(DataType::Int32);
            let numbers = numbers
                .build()
                .map_err(|error| no_form(&error.to_string()))?;
            let numbers = PrimitiveArray::<Int32Type>::from(numbers);
            (*unit, numbers.unary(i64::from))
        }
        DataType::Time64(unit) | DataType::Timestamp(unit, _) | DataType::Duration(unit) => {
            let numbers = array.to_data().into_builder().data_type(DataType::Int64);
            let numbers = numbers
                .build()
                .map_err(|error| no_form(&error.to_string()))?;
            (*unit, PrimitiveArray::<Int64Type>::from(numbers))
        }
        other => return Err(no_form(&other.to_string()).into()),
    };
    let converted = numbers.try_unary(|number| match unit {
        TimeUnit::Second => number.checked_mul(1_000_000).ok_or(()),
        TimeUnit::Millisecond => number.checked_mul(1_000).ok_or(()),
        TimeUnit::Microsecond => Ok(number),
        TimeUnit::Nanosecond => match number % 1_000 {
            0 => Ok(number / 1_000),
            _ => Err(()),
        },
    });
    converted.map_err(|()| no_form("a time that microseconds do not hold").into())
}

fn exact_micros(nanos: i64, what: &str) -> PyResult<i64> {
    match nanos % 1_000 {
        0 => Ok(nanos / 1_000),
        _ => Err(no_form(&format!("{what} with nanoseconds")).into()),
    }
}

fn no_form(what: &str) -> Refusal {
    Refusal::data("unsupported_value", format!("{what} has no form in Python"))
        .hint("read the batch with an Arrow library, such as pyarrow or polars")
}

/// An error of the library of Python, such as a date before the year 1, with its column.
fn named(py: Python<'_>, error: PyErr, field: &Field) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(py) || error.is_instance_of::<PyValueError>(py) {
        return no_form(&format!("a value of {} ({error})", type_name(field)))
            .in_column(field.name())
            .into();
    }
    let value = error.value(py);
    if value.getattr("column").is_ok_and(|column| column.is_none()) {
        // The error matters more than its place.
        let _ = value.setattr("column", field.name());
    }
    error
}

/// The values of a column, in order.
pub fn values<'py>(makers: &Makers<'py>, field: &Field, array: &ArrayRef) -> PyResult<Values<'py>> {
    let py = makers.py;
    let none = || py.None().into_bound(py);
    /// Of an array whose values one expression makes.
    macro_rules! each {
        ($array:expr, |$value:ident| $make:expr) => {
            $array
                .iter()
                .map(|value| match value {
                    Some($value) => $make,
                    None => Ok(none()),
                })
                .collect::<PyResult<Values<'py>>>()
        };
    }
    macro_rules! plain {
        ($array:expr) => {
            each!($array, |value| Ok(value
                .into_pyobject(py)?
                .to_owned()
                .into_any()))
        };
    }
    match field.data_type() {
        _ if is_uuid(field) => each!(array.as_fixed_size_binary(), |value| {
            let bytes = PyBytes::new(py, value);
            makers.uuid.call1((py.None(), bytes))
        }),
        _ if is_json(field) && *field.data_type() == DataType::Utf8 => {
            each!(array.as_string::<i32>(), |value| makers
                .loads
                .call1((value,)))
        }
        _ if is_json(field) && *field.data_type() == DataType::LargeUtf8 => {
            each!(array.as_string::<i64>(), |value| makers
                .loads
                .call1((value,)))
        }
        _ if is_bool8(field) => {
            each!(array.as_primitive::<Int8Type>(), |value| Ok(PyBool::new(
                py,
                value != 0
            )
            .to_owned()
            .into_any()))
        }
        DataType::Null => Ok((0..array.len()).map(|_| none()).collect()),
        DataType::Boolean => plain!(array.as_boolean()),
        DataType::Int8 => plain!(array.as_primitive::<Int8Type>()),
        DataType::Int16 => plain!(array.as_primitive::<Int16Type>()),
        DataType::Int32 => plain!(array.as_primitive::<Int32Type>()),
        DataType::Int64 => plain!(array.as_primitive::<Int64Type>()),
        DataType::UInt8 => plain!(array.as_primitive::<UInt8Type>()),
        DataType::UInt16 => plain!(array.as_primitive::<UInt16Type>()),
        DataType::UInt32 => plain!(array.as_primitive::<UInt32Type>()),
        DataType::UInt64 => plain!(array.as_primitive::<UInt64Type>()),
        DataType::Float32 => plain!(array.as_primitive::<Float32Type>()),
        DataType::Float64 => plain!(array.as_primitive::<Float64Type>()),
        DataType::Utf8 => plain!(array.as_string::<i32>()),
        DataType::LargeUtf8 => plain!(array.as_string::<i64>()),
        DataType::Binary => each!(array.as_binary::<i32>(), |value| {
            Ok(PyBytes::new(py, value).into_any())
        }),
        DataType::LargeBinary => each!(array.as_binary::<i64>(), |value| {
            Ok(PyBytes::new(py, value).into_any())
        }),
        DataType::FixedSizeBinary(_) => each!(array.as_fixed_size_binary(), |value| {
            Ok(PyBytes::new(py, value).into_any())
        }),
        DataType::Decimal128(_, scale) => {
            each!(array.as_primitive::<Decimal128Type>(), |value| {
                let mut text = Vec::new();
                write_i128(value, (*scale).max(0), &mut text);
                makers.decimal(text, *scale)
            })
        }
        DataType::Decimal256(_, scale) => {
            each!(array.as_primitive::<Decimal256Type>(), |value| {
                let mut text = Vec::new();
                write_i256(value, (*scale).max(0), &mut text)
                    .map_err(|why| PyErr::from(Refusal::data("value_does_not_fit", why)))?;
                makers.decimal(text, *scale)
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            each!(array.as_primitive::<IntervalMonthDayNanoType>(), |value| {
                let micros = exact_micros(value.nanoseconds, "an interval")?;
                match value.months {
                    0 => makers.timedelta.call1((value.days, 0, micros)),
                    _ => Err(no_form("an interval with months").into()),
                }
            })
        }
        DataType::Date32 => each!(array.as_primitive::<Date32Type>(), |value| {
            makers.day.add(makers.timedelta.call1((value,))?)
        }),
        DataType::Time32(_) | DataType::Time64(_) => each!(micros(array)?, |value| {
            let moment = makers.epoch.add(makers.delta(value)?)?;
            moment.call_method0("time")
        }),
        DataType::Timestamp(_, None) => each!(micros(array)?, |value| {
            makers.epoch.add(makers.delta(value)?)
        }),
        DataType::Timestamp(_, Some(zone)) => {
            let zone = match &**zone {
                "UTC" | "+00:00" | "Etc/UTC" => None,
                name => Some(makers.zone.call1((name,))?),
            };
            each!(micros(array)?, |value| {
                let moment = makers.epoch_utc.add(makers.delta(value)?)?;
                match &zone {
                    Some(zone) => moment.call_method1("astimezone", (zone,)),
                    None => Ok(moment),
                }
            })
        }
        DataType::Duration(_) => each!(micros(array)?, |value| makers.delta(value)),
        DataType::List(item) => each!(array.as_list::<i32>(), |value| {
            Ok(PyList::new(py, values(makers, item, &value)?)?.into_any())
        }),
        DataType::LargeList(item) => each!(array.as_list::<i64>(), |value| {
            Ok(PyList::new(py, values(makers, item, &value)?)?.into_any())
        }),
        DataType::Struct(fields) => {
            let columns = array.as_struct();
            let mut parts = Vec::with_capacity(fields.len());
            for (field, column) in fields.iter().zip(columns.columns()) {
                parts.push((field.name(), values(makers, field, column)?));
            }
            let rows = (0..array.len()).map(|row| {
                if array.is_null(row) {
                    return Ok(none());
                }
                let dict = PyDict::new(py);
                for (name, values) in &parts {
                    dict.set_item(name.as_str(), &values[row])?;
                }
                Ok(dict.into_any())
            });
            rows.collect()
        }
        _ => {
            let text = format!(
                "values of the type {} have no form in Python",
                type_name(field)
            );
            Err(Refusal::config("unsupported_type", text)
                .in_column(field.name())
                .hint("read the batch with an Arrow library, such as pyarrow or polars")
                .into())
        }
    }
}

/// Whether bytes are booleans ("8-bit Boolean" in the Arrow documentation).
pub fn is_bool8(field: &Field) -> bool {
    *field.data_type() == DataType::Int8 && extension_name(field) == Some("arrow.bool8")
}
