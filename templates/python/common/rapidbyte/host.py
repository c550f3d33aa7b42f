"""Shared by the modules of `glue`: values as JSON, and errors in the contract's form."""

import builtins
import datetime
import decimal
import json
import os
import traceback
import uuid
from typing import Optional

from componentize_py_types import Err
from wit_world.imports import log, types

from rapidbyte import Error


# The columns of these types take values that JSON does not have, each in its form.
_FORMS = [
    (datetime.date, ("date", "time")),
    (datetime.time, ("time",)),
    (decimal.Decimal, ("decimal",)),
    (uuid.UUID, ("uuid",)),
    ((bytes, bytearray), ("binary", "fixed_binary")),
]
_has_text = False


def _text(value):
    """Values that JSON does not have, as the component around this one reads them."""
    global _has_text
    _has_text = True
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")


# Compact. NaN is refused here, as JSON has none.
encode = json.JSONEncoder(
    check_circular=False, allow_nan=False, separators=(",", ":"), default=_text
).encode


def _check_forms(values, column: str, type: str) -> None:
    """Refuses values in a column of another type: as its text, `b"a"` would be `\\x61`."""
    if "<" in type:
        return
    for value in values:
        for kinds, types_ in _FORMS:
            if isinstance(value, kinds) and not type.startswith(types_):
                text = f"a value of type {builtins.type(value).__name__} in a column of the type {type}"
                hint = "convert it first, for example with str(value) or value.decode()"
                raise Error("data", "value_does_not_fit", text, hint, column=column)


def columns_text(columns: dict, names, kinds: dict, says: str) -> list:
    """The columns of a batch, each as the text of its values. `names` are the columns that are due, `kinds` the types
    of all columns that may come. `says` begins the messages."""
    for name in columns:
        if name not in kinds:
            text = f"{says} the column {name!r}, which nobody declared"
            raise Error("internal", "no_column", text, "declare the column, or leave it out", column=str(name))
    texts = []
    for name in names:
        values = columns.get(name)
        if not isinstance(values, (list, tuple)):
            text = f"{says} no list of values for {name!r}"
            raise Error("internal", "no_column", text, "give a list for each column", column=name)
        texts.append(json_text(values, name))
        if _has_text:
            _check_forms(values, name, kinds[name])
    return texts


def json_text(value, column: Optional[str] = None) -> str:
    """The value as JSON. `column`: the column that it belongs to, if it is not a row."""
    global _has_text
    _has_text = False
    try:
        return encode(value)
    except (TypeError, ValueError) as error:
        text = f"a value that JSON does not have: {error}"
        hint = "write None for NaN and infinities, and str(value) for values that JSON cannot hold"
        raise Error("data", "not_json", text, hint, column=column or _culprit(value))


def _culprit(row: dict) -> Optional[str]:
    """The column whose value cannot be written."""
    for name, value in row.items():
        try:
            encode(value)
        except (TypeError, ValueError):
            return name
    return None


def rows_text(batch, kinds: dict, says: str, asks: str, others: str = "") -> str:
    """A list of dicts as JSON Lines. `kinds` are the types of the columns. `says`, `asks` and `others` complete the
    error for something else."""
    is_list = isinstance(batch, (list, tuple))
    if not is_list or not all(isinstance(row, dict) for row in batch):
        other = next((row for row in batch if not isinstance(row, dict)), None) if is_list else batch
        what = f"a list with a value of type {type(other).__name__}" if is_list else type(other).__name__
        text = f"{says} {what}, which is not a batch"
        raise Error("internal", "not_a_batch", text, f"{asks} a list of dicts{others} or Columns")
    return "\n".join([_row_text(row, kinds) for row in batch])


def _row_text(row: dict, kinds: dict) -> str:
    text = json_text(row)
    if _has_text:
        for name, value in row.items():
            _check_forms([value], name, kinds.get(name, "<"))
    return text


def config_schema(connector: type) -> dict:
    """The JSON Schema of the configuration: `Connector.config`, closed."""
    return {"type": "object", "additionalProperties": False, **connector.config}


class errors:
    """Turns the connector's errors into the contract's; an unexpected exception is the author's fault."""

    def __init__(self, stream: str = None):
        self.stream = stream

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if isinstance(error, Error):
            raise Err(described(error, self.stream))
        # `Err` is the contract's own already.
        # `SystemExit` would end the component.
        if isinstance(error, BaseException) and not isinstance(error, (Err, GeneratorExit)):
            if isinstance(error, MemoryError):
                hint = "set resources.memory to a larger value, or give fewer rows at once"
                raise Err(described(Error("internal", "memory_limit", "the connector is out of memory", hint), self.stream))
            log.log(log.Level.ERROR, _plain("".join(traceback.format_exception(error))))
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            hint = "the log above has the traceback"
            unforeseen = Error("internal", "python", text, hint, location=_place(error))
            raise Err(described(unforeseen, self.stream))
        return False


def _place(error: Exception) -> Optional[str]:
    """The connector's own line that it comes from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "rapidbyte/" not in frame.filename]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else None


def _plain(text: Optional[str]) -> Optional[str]:
    """The text without halves of surrogate pairs, which UTF-8 does not have."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def described(error: Error, stream: str = None) -> types.Error:
    kinds = {
        "config": types.ErrorKind_Config,
        "auth": types.ErrorKind_Auth,
        "connection": types.ErrorKind_Connection,
        "transient": types.ErrorKind_Transient,
        "data": types.ErrorKind_Data,
        "schema": types.ErrorKind_Schema,
        "internal": types.ErrorKind_Internal,
    }
    if error.kind == "rate-limited":
        kind = types.ErrorKind_RateLimited(error.retry_after_ms)
    else:
        kind = kinds[error.kind]()
    return types.Error(
        kind=kind,
        code=_plain(error.code),
        message=_plain(error.message),
        hint=_plain(error.hint),
        stream=_plain(error.stream or stream),
        column=_plain(error.column),
        location=_plain(error.location),
    )
