//! One value of Python: its type, and its form in a column.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
    PyType,
};
use rapidbyte_formats::text::number::write_float;

use crate::extended;
use crate::refusal::{Refusal, Result};

/// Values nested deeper are refused: a list may contain itself.
const MAX_DEPTH: usize = 64;
/// A longer string is refused. Arrow's offsets would not reach its end.
const MAX_TEXT_BYTES: usize = 1 << 30;
const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// A value, sorted by the types that columns distinguish.
pub enum Found<'a, 'py> {
    Null,
    Bool(bool),
    Int(i64),
    /// The digits of a decimal number, or of an integer beyond 64 bits.
    Decimal(String),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 1970, without a zone.
    Timestamp(i64),
    /// Microseconds since 1970 in UTC.
    Zoned(i64),
    /// Microseconds.
    Duration(i64),
    Uuid([u8; 16]),
    /// An ObjectId of MongoDB, as 24 hexadecimal digits.
    ObjectId(String),
    List(&'a Bound<'py, PyAny>),
    Dict(&'a Bound<'py, PyDict>),
    /// Another value stands for this one.
    Instead(Bound<'py, PyAny>),
}

/// How nested values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Documents {
    /// As JSON, which every destination takes.
    Json,
    /// As Extended JSON, which keeps the types that JSON lacks, for MongoDB. Structs of Arrow data stay as they are.
    Extended,
}

impl Documents {
    /// Whether they are Extended JSON, as the package says it.
    pub fn of(extended: bool) -> Self {
        match extended {
            true => Self::Extended,
            false => Self::Json,
        }
    }
}

/// Types and values of Python's library.
pub struct Known {
    /// How nested values are written.
    pub documents: Documents,
    datetime: Py<PyAny>,
    date: Py<PyAny>,
    time: Py<PyAny>,
    timedelta: Py<PyAny>,
    decimal: Py<PyAny>,
    uuid: Py<PyAny>,
    enumeration: Py<PyAny>,
    mapping: Py<PyAny>,
    /// How `dataclasses.fields` knows a field.
    dataclass_field: Py<PyAny>,
    /// 1970-01-01T00:00:00 without a zone, and in UTC.
    epoch: Py<PyAny>,
    epoch_utc: Py<PyAny>,
    utc: Py<PyAny>,
    /// The type of the last Pydantic model, and whether its fields are all columns: rows have one type as a rule.
    last_model: Mutex<Option<(Py<PyType>, bool)>>,
}

impl Known {
    /// Imports them once for the process. Nested values are JSON.
    pub fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static KNOWN: PyOnceLock<Known> = PyOnceLock::new();
        KNOWN.get_or_try_init(py, || Self::import(py, Documents::Json))
    }

    /// The same for a destination that takes nested values in this form.
    pub fn with(py: Python<'_>, documents: Documents) -> PyResult<&'static Self> {
        static EXTENDED: PyOnceLock<Known> = PyOnceLock::new();
        match documents {
            Documents::Json => Self::get(py),
            Documents::Extended => EXTENDED.get_or_try_init(py, || Self::import(py, documents)),
        }
    }

    fn import(py: Python<'_>, documents: Documents) -> PyResult<Self> {
        let module = py.import("datetime")?;
        let datetime = module.getattr("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.call1((1970, 1, 1))?;
        let zone = PyDict::new(py);
        zone.set_item("tzinfo", &utc)?;
        let epoch_utc = epoch.call_method("replace", (), Some(&zone))?;
        let of = |module: &str, name: &str| -> PyResult<Py<PyAny>> {
            Ok(py.import(module)?.getattr(name)?.unbind())
        };
        Ok(Self {
            documents,
            datetime: datetime.unbind(),
            date: of("datetime", "date")?,
            time: of("datetime", "time")?,
            timedelta: of("datetime", "timedelta")?,
            decimal: of("decimal", "Decimal")?,
            uuid: of("uuid", "UUID")?,
            enumeration: of("enum", "Enum")?,
            mapping: of("collections.abc", "Mapping")?,
            dataclass_field: of("dataclasses", "_FIELD")?,
            epoch: epoch.unbind(),
            epoch_utc: epoch_utc.unbind(),
            utc: utc.unbind(),
            last_model: Mutex::new(None),
        })
    }

    /// Whether all declared fields of a Pydantic model are columns, and the model has only declared fields.
    fn is_plain_model(&self, kind: &Bound<'_, PyType>) -> PyResult<bool> {
        let last = || {
            self.last_model
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((known, is_plain)) = &*last()
            && kind.is(known)
        {
            return Ok(*is_plain);
        }
        let models = kind.py().import("rapidbyte._models")?;
        let is_plain = models.call_method1("is_plain", (kind,))?.extract()?;
        let before = last().replace((kind.clone().unbind(), is_plain));
        // This may run code of the caller, so the lock is free.
        drop(before);
        Ok(is_plain)
    }
}

/// Finds the type of a value.
pub fn look<'a, 'py>(value: &'a Bound<'py, PyAny>, known: &Known) -> Result<Found<'a, 'py>> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        return characters(text).map(Found::Text);
    }
    if let Ok(number) = value.cast_exact::<PyInt>() {
        return int(number);
    }
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(Found::Float(number.value()));
    }
    if value.is_none() {
        return Ok(Found::Null);
    }
    if let Ok(flag) = value.cast_exact::<PyBool>() {
        return Ok(Found::Bool(flag.is_true()));
    }
    if value.is_exact_instance_of::<PyList>() || value.is_exact_instance_of::<PyTuple>() {
        return Ok(Found::List(value));
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        return Ok(Found::Dict(dict));
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return bytes_of(bytes.as_bytes());
    }
    let kind = value.get_type();
    if kind.is(&known.datetime) {
        return datetime(value, known);
    }
    if kind.is(&known.date) {
        return date(value);
    }
    if kind.is(&known.decimal) {
        return decimal(value);
    }
    if kind.is(&known.uuid) {
        return uuid(value);
    }
    of_other_type(value, known)
}

/// Subclasses, and types beyond the library.
fn of_other_type<'a, 'py>(value: &'a Bound<'py, PyAny>, known: &Known) -> Result<Found<'a, 'py>> {
    let py = value.py();
    let is = |kind: &Py<PyAny>| value.is_instance(kind.bind(py));
    if is(&known.enumeration)? {
        return Ok(Found::Instead(value.getattr(intern!(py, "value"))?));
    }
    let name = value.get_type().name()?.to_string();
    if name == "ObjectId"
        && let Some(digits) = object_id(value)?
    {
        return Ok(Found::ObjectId(digits));
    }
    // The missing values of pandas; the first is an instance of `datetime`.
    if matches!(name.as_str(), "NaTType" | "NAType") {
        return Ok(Found::Null);
    }
    if is(&known.datetime)? {
        return datetime(value, known);
    }
    if is(&known.date)? {
        return date(value);
    }
    if is(&known.time)? {
        return time(value);
    }
    if is(&known.timedelta)? {
        return Ok(Found::Duration(micros(value, known)?));
    }
    if is(&known.decimal)? {
        return decimal(value);
    }
    if is(&known.uuid)? {
        return uuid(value);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return characters(text).map(Found::Text);
    }
    if let Ok(number) = value.cast::<PyInt>() {
        return int(number);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(Found::Float(number.value()));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Found::Dict(dict));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return Ok(Found::List(value));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return of_bson_binary(value, bytes);
    }
    if name == "Decimal128" && value.hasattr(intern!(py, "to_decimal"))? {
        let plain = value.call_method0(intern!(py, "to_decimal"))?;
        return Ok(Found::Instead(plain));
    }
    if value.is_instance_of::<PyByteArray>() || name == "memoryview" {
        let bytes = py.get_type::<PyBytes>().call1((value,))?;
        return Ok(Found::Instead(bytes));
    }
    if let Some(dict) = fields(value, known)? {
        return Ok(Found::Instead(dict.into_any()));
    }
    if let Some(plain) = of_numpy(value)? {
        return Ok(Found::Instead(plain));
    }
    let text = format!("a value of the type {name}, for which there is no column type");
    Err(Refusal::data("unsupported_value", text)
        .hint("convert it first: docs/python.md lists the types that are taken"))
}

/// The digits of an ObjectId of the package `bson`. `None` for another class of this name.
fn object_id(value: &Bound<'_, PyAny>) -> Result<Option<String>> {
    let Ok(bytes) = value.getattr(intern!(value.py(), "binary")) else {
        return Ok(None);
    };
    let bytes = bytes.extract::<[u8; 12]>().ok();
    Ok(bytes.map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// A subclass of `bytes`. The class `Binary` of the package `bson` has a subtype, which a column cannot keep.
fn of_bson_binary<'a, 'py>(
    value: &Bound<'py, PyAny>,
    bytes: &'a Bound<'py, PyBytes>,
) -> Result<Found<'a, 'py>> {
    let subtype = value.getattr(intern!(value.py(), "subtype"));
    match subtype.and_then(|subtype| subtype.extract::<u8>()) {
        Ok(subtype) if subtype != 0 => {
            let text = format!("bytes of the BSON subtype {subtype}");
            Err(Refusal::data("unsupported_value", text).hint(
                "give bytes, which have the subtype 0, or a uuid.UUID, which has the subtype 4",
            ))
        }
        _ => bytes_of(bytes.as_bytes()),
    }
}

/// The value of Python for a scalar or an array of NumPy. `None` for other values.
fn of_numpy<'py>(value: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    let Ok(kind) = value
        .getattr(intern!(py, "dtype"))
        .and_then(|kind| kind.getattr("kind"))
    else {
        return Ok(None);
    };
    let is_array = value.hasattr(intern!(py, "__len__"))?;
    let is_moment = matches!(kind.extract::<String>().as_deref(), Ok("M" | "m"));
    let plain = match (is_array, is_moment) {
        // `tolist` would make numbers of times.
        (true, true) => {
            PyList::new(py, value.try_iter()?.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        (true, false) => value.call_method0(intern!(py, "tolist"))?,
        (false, true) => return moment_of_numpy(value).map(Some),
        (false, false) => value.call_method0(intern!(py, "item"))?,
    };
    // A type that Python does not have returns itself.
    Ok((!plain.get_type().is(value.get_type())).then_some(plain))
}

/// The `datetime`, `date` or `timedelta` for one of NumPy, which has a unit of its own.
fn moment_of_numpy<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = value.py();
    let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
    let refused = |why: &str| -> Result<Bound<'py, PyAny>> {
        let text = format!("{}, {why}", value.repr()?);
        Err(Refusal::data("value_does_not_fit", text).hint(
            "convert it first, for example to datetime64[us], or send the rows as a DataFrame",
        ))
    };
    if !value.eq(value)? {
        // NaT, which is not equal to itself.
        return Ok(py.None().into_bound(py));
    }
    let name = if kind == "M" {
        "datetime64"
    } else {
        "timedelta64"
    };
    let micros = match value.call_method1("astype", (format!("{name}[us]"),)) {
        Ok(micros) => micros,
        Err(_) => return refused("whose unit has no fixed length"),
    };
    match micros.eq(value) {
        Ok(true) => {}
        // A number that does not fit wraps around.
        Ok(false) => return refused("which microseconds do not hold"),
        Err(_) => return refused("whose unit has no fixed length"),
    }
    let plain = micros.call_method0(intern!(py, "item"))?;
    match plain.is_instance_of::<PyInt>() {
        true => refused("which is beyond the years of Python"),
        false => Ok(plain),
    }
}

/// The fields of a mapping, a dataclass, a Pydantic model or a named tuple. `None` for other values.
pub fn fields<'py>(value: &Bound<'py, PyAny>, known: &Known) -> Result<Option<Bound<'py, PyDict>>> {
    let py = value.py();
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Some(dict.clone()));
    }
    let kind = value.get_type();
    if let Ok(fields) = kind.getattr(intern!(py, "__dataclass_fields__")) {
        let fields = fields.cast_into::<PyDict>().map_err(PyErr::from)?;
        let dict = PyDict::new(py);
        for (name, field) in fields {
            let name = name.cast::<PyString>().map_err(PyErr::from)?;
            // Class variables and arguments of the constructor are declared among the fields.
            let is_field = field
                .getattr(intern!(py, "_field_type"))?
                .is(&known.dataclass_field);
            if let (true, Ok(field)) = (is_field, value.getattr(name)) {
                dict.set_item(name, field)?;
            }
        }
        return Ok(Some(dict));
    }
    if let Ok(names) = kind.getattr(intern!(py, "__pydantic_fields__")) {
        return of_model(value, names.len()?, known).map(Some);
    }
    if value.is_instance_of::<PyTuple>() && value.hasattr(intern!(py, "_asdict"))? {
        let dict = value.call_method0(intern!(py, "_asdict"))?;
        return Ok(Some(dict.cast_into::<PyDict>().map_err(PyErr::from)?));
    }
    let is_mapping =
        value.cast::<PyMapping>().is_ok() || value.is_instance(known.mapping.bind(py))?;
    // Rows of sqlite3 have keys, but are not mappings.
    if is_mapping || value.hasattr(intern!(py, "keys"))? {
        let dict = py.get_type::<PyDict>().call1((value,))?;
        return Ok(Some(dict.cast_into::<PyDict>().map_err(PyErr::from)?));
    }
    Ok(None)
}

/// The fields of a Pydantic model that declares this many.
fn of_model<'py>(
    value: &Bound<'py, PyAny>,
    declared: usize,
    known: &Known,
) -> Result<Bound<'py, PyDict>> {
    let py = value.py();
    // Attributes that are not fields, such as cached properties, are not columns.
    let own = value
        .getattr(intern!(py, "__dict__"))?
        .cast_into::<PyDict>();
    if let Ok(own) = own
        && own.len() == declared
        && known.is_plain_model(&value.get_type())?
    {
        return Ok(own);
    }
    let fields = py.import("rapidbyte._models")?.getattr("fields")?;
    let fields = fields.call1((value,))?.cast_into::<PyDict>();
    Ok(fields.map_err(PyErr::from)?)
}

/// The characters of a string.
pub fn characters<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str> {
    let text = text.to_str().map_err(|_| {
        Refusal::data(
            "not_unicode",
            "a string with half a surrogate pair, which is not Unicode",
        )
        .hint("decode the bytes with errors=\"replace\", or send bytes")
    })?;
    ensure_small(text.len())?;
    Ok(text)
}

fn bytes_of<'a, 'py>(bytes: &'a [u8]) -> Result<Found<'a, 'py>> {
    ensure_small(bytes.len())?;
    Ok(Found::Bytes(bytes))
}

fn ensure_small(bytes: usize) -> Result<()> {
    if bytes <= MAX_TEXT_BYTES {
        return Ok(());
    }
    let text = format!("a value of {bytes} bytes, above {MAX_TEXT_BYTES}");
    Err(Refusal::data("record_too_large", text))
}

fn int<'a, 'py>(number: &Bound<'py, PyInt>) -> Result<Found<'a, 'py>> {
    match number.extract::<i64>() {
        Ok(number) => Ok(Found::Int(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => {
            Ok(Found::Decimal(digits(number)?))
        }
        Err(error) => Err(error.into()),
    }
}

/// The digits of an integer. Python refuses to write more than a few thousand.
fn digits(number: &Bound<'_, PyInt>) -> Result<String> {
    let plain = number.py().get_type::<PyInt>().call1((number,))?;
    match plain.str() {
        Ok(digits) => Ok(digits.to_str()?.to_owned()),
        Err(_) => Err(Refusal::data(
            "value_does_not_fit",
            "an integer of thousands of digits",
        )),
    }
}

fn decimal<'a, 'py>(value: &Bound<'py, PyAny>) -> Result<Found<'a, 'py>> {
    let py = value.py();
    if !value.call_method0(intern!(py, "is_finite"))?.is_truthy()? {
        let text = format!("Decimal({:?}) is not a number", value.str()?.to_string());
        return Err(Refusal::data("value_does_not_fit", text).hint("send None, or a float"));
    }
    // Without an exponent.
    let exponent = value
        .call_method0(intern!(py, "adjusted"))?
        .extract::<i64>()?;
    if exponent.abs() > 1000 {
        let text = format!(
            "Decimal({:?}) has too many digits",
            value.str()?.to_string()
        );
        return Err(Refusal::data("value_does_not_fit", text));
    }
    let digits = value.call_method1(intern!(py, "__format__"), (intern!(py, "f"),))?;
    Ok(Found::Decimal(digits.extract()?))
}

fn uuid<'a, 'py>(value: &Bound<'py, PyAny>) -> Result<Found<'a, 'py>> {
    let bytes = value.getattr(intern!(value.py(), "bytes"))?;
    Ok(Found::Uuid(bytes.extract()?))
}

fn date<'a, 'py>(value: &Bound<'py, PyAny>) -> Result<Found<'a, 'py>> {
    /// The ordinal of 1970-01-01.
    const EPOCH: i32 = 719_163;
    let ordinal: i32 = value
        .call_method0(intern!(value.py(), "toordinal"))?
        .extract()?;
    Ok(Found::Date(ordinal - EPOCH))
}

fn time<'a, 'py>(value: &Bound<'py, PyAny>) -> Result<Found<'a, 'py>> {
    let py = value.py();
    if !value.getattr(intern!(py, "tzinfo"))?.is_none() {
        return Err(
            Refusal::data("value_does_not_fit", "a time of day with a time zone")
                .hint("send it without tzinfo, or as a datetime"),
        );
    }
    let part = |name| -> Result<i64> { Ok(value.getattr(name)?.extract()?) };
    let seconds = (part(intern!(py, "hour"))? * 60 + part(intern!(py, "minute"))?) * 60
        + part(intern!(py, "second"))?;
    let micros = part(intern!(py, "microsecond"))?;
    Ok(Found::Time(seconds * MICROS_PER_SECOND + micros))
}

fn datetime<'a, 'py>(value: &Bound<'py, PyAny>, known: &Known) -> Result<Found<'a, 'py>> {
    let py = value.py();
    let since = |epoch: &Py<PyAny>| -> Result<i64> { micros(&value.sub(epoch)?, known) };
    let zone = value.getattr(intern!(py, "tzinfo"))?;
    if zone.is_none() {
        return Ok(Found::Timestamp(since(&known.epoch)?));
    }
    // A zone that gives no offset makes a datetime without a zone.
    if !zone.is(&known.utc) && value.call_method0(intern!(py, "utcoffset"))?.is_none() {
        let text = "a datetime whose tzinfo has no offset from UTC";
        return Err(Refusal::data("value_does_not_fit", text)
            .hint("send it without tzinfo, or with a zone"));
    }
    Ok(Found::Zoned(since(&known.epoch_utc)?))
}

/// The microseconds of a `timedelta`.
fn micros(delta: &Bound<'_, PyAny>, known: &Known) -> Result<i64> {
    let py = delta.py();
    let part = |name| -> Result<i64> { Ok(delta.getattr(name)?.extract()?) };
    let days = part(intern!(py, "days"))?;
    let seconds = part(intern!(py, "seconds"))?;
    let micros = part(intern!(py, "microseconds"))?;
    // A timedelta of pandas has nanoseconds, too.
    if !delta.get_type().is(&known.timedelta)
        && let Ok(nanos) = delta.getattr(intern!(py, "nanoseconds"))
        && nanos.extract::<i64>()? != 0
    {
        let text = "a time with nanoseconds, and columns of Python values have microseconds";
        return Err(Refusal::data("value_does_not_fit", text)
            .hint("round it, or send the rows as a DataFrame"));
    }
    let whole = days
        .checked_mul(SECONDS_PER_DAY)
        .and_then(|whole| whole.checked_add(seconds)?.checked_mul(MICROS_PER_SECOND))
        .and_then(|whole| whole.checked_add(micros));
    whole.ok_or_else(|| Refusal::data("value_does_not_fit", "a timedelta beyond 292,000 years"))
}

/// Writes a value as JSON. Numbers keep their digits. Dates, times and UUIDs become strings, or have their types in
/// Extended JSON.
pub fn write_json(value: &Bound<'_, PyAny>, known: &Known, out: &mut Vec<u8>) -> Result<()> {
    write_json_at(value, known, out, 0)
}

fn write_json_at(
    value: &Bound<'_, PyAny>,
    known: &Known,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        let text = format!("a value nested deeper than {MAX_DEPTH}");
        return Err(Refusal::data("too_deep", text).hint("give fewer levels, or a string of JSON"));
    }
    let found = look(value, known)?;
    if known.documents == Documents::Extended && extended::write(&found, out)? {
        return ensure_small(out.len());
    }
    match found {
        Found::Null => out.extend_from_slice(b"null"),
        Found::Bool(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        Found::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Found::Decimal(digits) => out.extend_from_slice(digits.as_bytes()),
        Found::Float(number) if number.is_finite() => write_float(number, out),
        Found::Float(number) => {
            let text = format!("{number} in a nested value: JSON has no such number");
            return Err(Refusal::data("value_does_not_fit", text).hint("send None"));
        }
        Found::Text(text) => string(text, out)?,
        Found::Bytes(_) => {
            let text = "bytes in a nested value: JSON has only text";
            return Err(Refusal::data("value_does_not_fit", text)
                .hint("encode them, for example with base64, or give them a column"));
        }
        Found::Date(_) | Found::Time(_) | Found::Timestamp(_) | Found::Zoned(_) => {
            let text = value.call_method0(intern!(value.py(), "isoformat"))?;
            string(&text.extract::<String>()?, out)?;
        }
        Found::Duration(_) => {
            let text = "a timedelta in a nested value: JSON has no type for it";
            return Err(Refusal::data("value_does_not_fit", text)
                .hint("send its seconds, or give it a column"));
        }
        Found::Uuid(_) => string(&value.str()?.to_string(), out)?,
        Found::ObjectId(digits) => string(&digits, out)?,
        Found::List(items) => {
            out.push(b'[');
            for (at, item) in items.try_iter()?.enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json_at(&item?, known, out, depth + 1)?;
            }
            out.push(b']');
        }
        Found::Dict(dict) => {
            out.push(b'{');
            for (at, member) in members(dict).enumerate() {
                let (key, item) = member?;
                if at > 0 {
                    out.push(b',');
                }
                string(key_text(&key)?, out)?;
                out.push(b':');
                write_json_at(&item, known, out, depth + 1)?;
            }
            out.push(b'}');
        }
        Found::Instead(plain) => write_json_at(&plain, known, out, depth + 1)?,
    }
    ensure_small(out.len())
}

/// A key and its value.
type Member<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The members of a dictionary, or an error if it changes meanwhile: code of the caller may run for a value, or in another
/// thread.
pub fn members<'py>(dict: &Bound<'py, PyDict>) -> impl Iterator<Item = Result<Member<'py>>> {
    let (dict, len) = (dict.clone(), dict.len());
    let mut items = dict.iter();
    // The iterator would panic at one more item if keys were exchanged.
    (0..len).map_while(move |_| match dict.len() == len {
        true => items.next().map(Ok),
        false => Some(Err(changed())),
    })
}

/// The error for a row that changes while it is read.
pub fn changed() -> Refusal {
    Refusal::data("rows_changed", "a row changed while it was read")
        .hint("give copies of rows that another thread or their own values change")
}

/// The name that a key of a dictionary gives to a column or to a member of a JSON object.
pub fn key_text<'a>(key: &'a Bound<'_, PyAny>) -> Result<&'a str> {
    let text = key.cast::<PyString>().ok().map(|key| key.to_str());
    match text {
        Some(Ok(text)) => Ok(text),
        Some(Err(_)) => Err(Refusal::data("not_unicode", "a key that is not Unicode")),
        None => {
            let text = format!("the key {} is not a string", key.repr()?);
            Err(Refusal::data("invalid_key", text).hint("name columns and members by strings"))
        }
    }
}

fn string(text: &str, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, text).map_err(|error| PyTypeError::new_err(error.to_string()).into())
}
