"""The resources of the interface `source`; componentize-py finds them by this module's name."""

import datetime
import decimal
import json
import traceback
import uuid
from typing import List

import wit_world.exports.source as contract
from componentize_py_types import Err
from wit_world.imports import encode, log, phase, types

from connector import Connector
from rapidbyte import Checkpoint, Columns, Error, Idle, Request, Stream


def _text(value):
    """Values that JSON does not have, as the component for rows reads them."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")


# Compact. NaN is refused here, as JSON has none.
_ENCODE = json.JSONEncoder(
    check_circular=False, allow_nan=False, separators=(",", ":"), default=_text
).encode


def config_schema() -> dict:
    """The JSON Schema of the configuration: `Connector.config`, closed."""
    return {"type": "object", "additionalProperties": False, **Connector.config}


class errors:
    """Errors of the connector as those of the contract; what was not foreseen is the author's."""

    def __init__(self, stream: str = None):
        self.stream = stream

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if isinstance(error, Error):
            raise Err(_error(error, self.stream))
        # `Err` is the contract's own already.
        if isinstance(error, Exception) and not isinstance(error, Err):
            log.log(log.Level.ERROR, "".join(traceback.format_exception(error)))
            text = f"{type(error).__name__}: {error}"
            raise Err(_error(Error("internal", "python", text), self.stream))
        return False


def _error(error: Error, stream: str) -> types.Error:
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


class Session(contract.Session):
    """The connector, opened with one configuration."""

    def __init__(self, connector: Connector):
        self.connector = connector

    def check(self) -> List[types.CheckItem]:
        with errors():
            detail = f"{len(self.connector.streams())} streams"
            return [types.CheckItem(name="discover", problem=None, detail=detail)]

    def discover(self, forms: List[str]) -> List[types.Stream]:
        with errors():
            return [_described(stream) for stream in self.connector.streams()]

    def snapshot(self, streams: List[contract.Selection]) -> str:
        with errors():
            for selection in streams:
                self._asked(selection.stream, selection.columns, selection.increment, selection.cursor)
            return ""

    def read(self, request: contract.ReadRequest) -> contract.Reader:
        with errors(request.stream):
            stream, asked = self._asked(
                request.stream, request.columns, request.increment, request.cursor
            )
            asked.batch_bytes = request.batch_bytes
            asked.max_record_bytes = request.max_record_bytes
            return Reader(self.connector, stream, asked)

    def acknowledge(self, stream: str, cursor: str) -> None:
        with errors(stream):
            known = getattr(self.connector, "acknowledge", None)
            if known is not None:
                known(stream, json.loads(cursor))

    def _asked(self, name, columns, increment, cursor) -> (Stream, Request):
        stream = next((s for s in self.connector.streams() if s.name == name), None)
        if stream is None:
            raise Error("schema", "unknown_stream", f"there is no stream `{name}`", stream=name)
        for column in columns or []:
            if column not in stream.columns:
                text = f"there is no column `{column}`"
                raise Error("schema", "unknown_column", text, stream=name, column=column)
        asked = Request(stream=name, columns=list(stream.columns) if columns is None else columns)
        if increment is not None:
            if increment.cursor_fields != stream.cursor_fields or not _is_plain(increment):
                text = f"reads go on behind {', '.join(stream.cursor_fields) or 'nothing'}, without lag and late_rows"
                raise Error("config", "increment_not_possible", text, stream=name)
            asked.cursor_fields = increment.cursor_fields
            asked.initial = increment.initial
            asked.cursor = None if cursor is None else json.loads(cursor)
        return stream, asked


def _is_plain(increment: contract.Increment) -> bool:
    late = increment.late_rows
    return isinstance(late, contract.LateRows_Lag) and late.value is None


def _encoder(stream: Stream, wanted, max_record_bytes: int) -> encode.Encoder:
    return encode.Encoder.open(json.dumps(stream.columns), wanted, max_record_bytes)


def _described(stream: Stream) -> types.Stream:
    encoder = _encoder(stream, None, 1)
    return types.Stream(
        name=stream.name,
        schema=encoder.schema(),
        source_types=encoder.types(),
        primary_key=stream.primary_key,
        cursor_fields=stream.cursor_fields,
        estimated_rows=stream.estimated_rows,
        estimated_bytes=None,
        notes=stream.notes,
    )


class Reader(contract.Reader):
    """One read of a stream: the generator that `Connector.read` is."""

    def __init__(self, connector: Connector, stream: Stream, request: Request):
        self.stream, self.request = stream, request
        self.encoder = _encoder(stream, request.columns, request.max_record_bytes)
        self.steps = iter(connector.read(request))
        self.ended = False

    def schema(self) -> bytes:
        return self.encoder.schema()

    def next(self, wait_ms: int) -> contract.Event:
        with errors(self.stream.name):
            while not self.ended:
                phase.enter(phase.Kind.DECODE)
                step = next(self.steps, self)
                if step is self:
                    self.ended = True
                elif isinstance(step, Checkpoint):
                    return contract.Event_Checkpoint(_ENCODE(step.cursor))
                elif isinstance(step, Idle):
                    return contract.Event_Idle()
                elif batch := self._batch(step):
                    return contract.Event_Batch(batch)
            return contract.Event_End()

    def _batch(self, step):
        """Rows or columns as a batch; none of an empty step."""
        # Text, not bytes: componentize-py 0.25 never frees bytes that it hands over.
        try:
            if isinstance(step, Columns):
                columns = [_ENCODE(step[name]) for name in self.request.columns]
                phase.enter(phase.Kind.ARROW_ENCODE)
                return self.encoder.columns_text(columns) if columns[0] != "[]" else None
            if not step:
                return None
            lines = "\n".join(map(_ENCODE, step))
            phase.enter(phase.Kind.ARROW_ENCODE)
            return self.encoder.rows_text(lines)
        except Err as error:
            error.value.stream = self.stream.name
            raise
        except (TypeError, ValueError, KeyError) as error:
            text = f"a batch that cannot be written as JSON: {type(error).__name__}: {error}"
            raise Error("data", "not_json", text)
