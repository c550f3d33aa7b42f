"""Shared by the modules of `glue`: values as JSON, and errors in the contract's form."""

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


def _text(value):
    """Values that JSON does not have, as the component around this one reads them."""
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


def json_text(value, column: Optional[str] = None) -> str:
    """The value as JSON. `column`: the column that it belongs to, if it is no row."""
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


def rows_text(batch, says: str, asks: str, others: str = "") -> str:
    """A list of dicts as JSON Lines. `says`, `asks` and `others` complete the error for something else."""
    if not isinstance(batch, (list, tuple)) or not all(isinstance(row, dict) for row in batch):
        text = f"{says} {type(batch).__name__}, which is not a batch"
        raise Error("internal", "not_a_batch", text, f"{asks} a list of dicts{others} or Columns")
    return "\n".join([json_text(row) for row in batch])


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
            log.log(log.Level.ERROR, "".join(traceback.format_exception(error)))
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            hint = "the log above has the traceback"
            unforeseen = Error("internal", "python", text, hint, location=_place(error))
            raise Err(described(unforeseen, self.stream))
        return False


def _place(error: Exception) -> Optional[str]:
    """The connector's own line that it comes from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "rapidbyte/" not in frame.filename]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else None


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
        code=error.code,
        message=error.message,
        hint=error.hint,
        stream=error.stream or stream,
        column=error.column,
        location=error.location,
    )
