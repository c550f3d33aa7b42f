"""The parts of a Rapidbyte connector in Python.

`connector.py` has a class `Connector`; this package makes it implement `rapidbyte/wit`. Nothing
here needs Arrow: rows are dicts or lists of values. An adapter that `rapidbyte connector build` puts
around the connector converts between rows and Arrow batches.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional

__all__ = [
    "Checkpoint",
    "Columns",
    "Error",
    "Idle",
    "Plan",
    "Relation",
    "Request",
    "Rows",
    "Stream",
    "Target",
    "checked_config",
]


class Error(Exception):
    """An error, for the person who reads it.

    `kind` says who must act: `config` and `auth` (the operator), `connection`, `transient` and
    `rate-limited` (a retry; the last one after `retry_after_ms`), `data` and `schema` (the owner of
    the data), `internal` (you). `code` is stable and short, `message` a lower-case fragment, `hint`
    what to do next.
    """

    KINDS = ("config", "auth", "connection", "transient", "rate-limited", "data", "schema", "internal")

    def __init__(
        self,
        kind: str,
        code: str,
        message: str,
        hint: Optional[str] = None,
        stream: Optional[str] = None,
        column: Optional[str] = None,
        location: Optional[str] = None,
        retry_after_ms: Optional[int] = None,
    ):
        if kind not in self.KINDS:
            raise ValueError(f"an error has one of the kinds {', '.join(self.KINDS)}")
        if not isinstance(code, str) or not isinstance(message, str):
            raise ValueError("the code and the message of an error are strings")
        if retry_after_ms is not None and not (isinstance(retry_after_ms, int) and 0 <= retry_after_ms < 1 << 63):
            raise ValueError("retry_after_ms is a number of whole milliseconds, 0 or more")
        super().__init__(f"{code}: {message}")
        self.kind, self.code, self.message = kind, code, message
        # A line number is a place, too.
        others = (hint, stream, column, location)
        self.hint, self.stream, self.column, self.location = (None if one is None else str(one) for one in others)
        self.retry_after_ms = retry_after_ms


@dataclass
class Stream:
    """A table, a file or another collection of rows with one schema.

    `columns` are names and types in order, `{"id": "int64 not null", "name": "string"}`; the types
    are those of `docs/connectors/types.md`.
    """

    name: str
    columns: Dict[str, str]
    primary_key: List[str] = field(default_factory=list)
    cursor_fields: List[str] = field(default_factory=list)
    estimated_rows: Optional[int] = None
    notes: List[str] = field(default_factory=list)


@dataclass
class Request:
    """The request for one read."""

    stream: str
    """The names of the selected columns in order. Rows may have other columns of the stream, too."""
    columns: List[str]
    """In an incremental read: the columns that order it."""
    cursor_fields: Optional[List[str]] = None
    """In an incremental read: the last checkpoint, as the connector gave it."""
    cursor: Any = None
    """In an incremental read without a cursor: the values to start with, as the operator wrote them."""
    initial: Optional[List[str]] = None
    """The target size of a batch in bytes."""
    batch_bytes: int = 1 << 20
    """Larger records are refused."""
    max_record_bytes: int = 64 << 20

    @property
    def is_incremental(self) -> bool:
        return self.cursor_fields is not None


class Columns(dict):
    """A batch as columns: for each column's name the list of its values. This is the fastest form."""


@dataclass
class Checkpoint:
    """A place to resume: with this value (as JSON), a read can resume after everything yielded before."""

    cursor: Any


class Idle:
    """No rows arrived in time; the host asks again."""


@dataclass
class Target:
    """The target of a write. `columns` have the form of `Stream.columns`."""

    stream: str
    columns: Dict[str, str]
    """`append` or `replace`: one of `Connector.write_modes`."""
    write_mode: str = "replace"
    primary_key: List[str] = field(default_factory=list)


@dataclass
class Plan:
    """The plan for one stream."""

    """The table or file for the rows."""
    location: str
    """Whether `location` does not exist yet."""
    is_new: bool = True
    """The columns that cannot be written, each with its reason."""
    refused: Dict[str, str] = field(default_factory=dict)
    notes: List[str] = field(default_factory=list)


@dataclass
class Relation:
    """The rows of a stream before or behind a transform. `columns` have the form of `Stream.columns`."""

    stream: str
    columns: Dict[str, str]
    primary_key: List[str] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)


class Rows:
    """Rows to write, or to transform. Iteration gives dicts; `columns` has a list of values for each name."""

    def __init__(self, columns: Dict[str, List[Any]], count: int):
        self.columns, self.count = columns, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        names = list(self.columns)
        for values in zip(*self.columns.values()):
            yield dict(zip(names, values))


def checked_config(schema: Dict[str, Any], config: Dict[str, Any]) -> Dict[str, Any]:
    """Refuses unknown keys, missing keys and values that `type`, `enum`, `minimum`, `maximum`, `pattern` (a regular
    expression of Python) or `items` forbids; adds defaults. Other keywords of JSON Schema are not checked."""
    properties = schema.get("properties", {})
    for key in config:
        if key not in properties:
            known = ", ".join(properties) or "none"
            raise Error("config", "unknown_key", f"unknown key `{key}`", f"use one of these keys: {known}", location=f"config.{key}")
    for key in schema.get("required", []):
        if key not in config:
            raise Error("config", "missing_key", f"the key `{key}` is missing", location=f"config.{key}")
    for key, value in config.items():
        problem = _problem(value, properties[key])
        if problem is not None:
            raise Error("config", "invalid_config", f"`{key}` {problem}", location=f"config.{key}")
    defaults = {k: p["default"] for k, p in properties.items() if "default" in p}
    return {**defaults, **config}


def _problem(value: Any, wanted: Dict[str, Any]) -> Optional[str]:
    """Why a value is refused, without the value: it may be a secret."""
    if not _has_type(value, wanted.get("type")):
        return f"is not of type {wanted['type']}"
    if _has_type(value, "number"):
        minimum, maximum = wanted.get("minimum"), wanted.get("maximum")
        if minimum is not None and value < minimum:
            return f"is less than {minimum}"
        if maximum is not None and value > maximum:
            return f"is more than {maximum}"
    # To Python `True` is 1.
    allowed = wanted.get("enum")
    if allowed is not None and (value, type(value) is bool) not in [(one, type(one) is bool) for one in allowed]:
        return f"is none of {', '.join(map(json.dumps, allowed))}"
    pattern = wanted.get("pattern")
    if pattern is not None and isinstance(value, str) and re.search(pattern, value) is None:
        return f"does not match the pattern {pattern}"
    if isinstance(wanted.get("items"), dict) and isinstance(value, list):
        for number, item in enumerate(value, 1):
            problem = _problem(item, wanted["items"])
            if problem is not None:
                return f"has an item (number {number}) that {problem}"
    return None


def _has_type(value: Any, wanted: Any) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, list):
        return any(_has_type(value, one) for one in wanted)
    if value is None:
        return wanted == "null"
    if isinstance(value, bool):
        return wanted == "boolean"
    types = {"integer": int, "number": (int, float), "string": str, "array": list, "object": dict}
    return wanted in types and isinstance(value, types[wanted])
