"""The errors of Rapidbyte, one class for each kind of the contract."""

from __future__ import annotations

import json
from typing import Any


class Error(Exception):
    """What went wrong, where, and what to do next.

    ``kind`` is the contract's name for the kind of the error, ``code`` is short and stable (``rapidbyte explain CODE`` has
    more), ``row`` counts from 0 in the rows that were given.
    """

    kind = "run"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str | None = None,
        stream: str | None = None,
        column: str | None = None,
        row: int | None = None,
        location: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.stream = stream
        self.column = column
        self.row = row
        self.location = location
        #: The failure as ``--output json`` of the command prints it, and the streams that were committed before.
        self.details = details or {}

    def __str__(self) -> str:
        place = [
            None if self.row is None else f"row {self.row}",
            None if self.stream is None else f"stream {self.stream}",
            None if self.column is None else f"column {self.column}",
            self.location,
        ]
        place = ", ".join(part for part in place if part)
        text = f"[{self.code}] " if self.code else ""
        text += f"{place}: {self.message}" if place else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Processes of a pool send errors to each other.
        fields = {name: value for name, value in self.__dict__.items() if name != "message"}
        return _restore, (type(self), self.message, fields)


def _restore(kind: type[Error], message: str, fields: dict[str, Any]) -> Error:
    return kind(message, **fields)


class ConfigError(Error):
    """The pipeline, a setting or an argument is wrong."""

    kind = "config"


class AuthError(Error):
    """A server refused the credentials."""

    kind = "auth"


class ConnectionError(Error):
    """A server cannot be reached, or a connection broke."""

    kind = "connection"


class EnvironmentError(Error):
    """Something outside is missing or denied, such as a disk."""

    kind = "environment"


class DataError(Error):
    """A value does not fit, or cannot be read."""

    kind = "data"


class SchemaError(Error):
    """Columns or types are not as they have to be."""

    kind = "schema"


class TransientError(Error):
    """A retry may succeed."""

    kind = "transient"


class RateLimitedError(Error):
    """A server asked for fewer requests."""

    kind = "rate_limited"


class SupersededError(Error):
    """A newer run has taken over."""

    kind = "superseded"


class BusyError(Error):
    """Another run of the pipeline is running."""

    kind = "busy"


class Cancelled(Error):
    """The call was cancelled."""

    kind = "cancelled"


class InternalError(Error):
    """A connector or the engine has a bug."""

    kind = "internal"


_KINDS = {
    kind.kind: kind
    for kind in (
        ConfigError,
        AuthError,
        ConnectionError,
        EnvironmentError,
        DataError,
        SchemaError,
        TransientError,
        RateLimitedError,
        SupersededError,
        BusyError,
        Cancelled,
        InternalError,
    )
}


def make(kind: str, message: str, details: str | None = None, **fields: Any) -> Error:
    """Makes the error of a kind. The engine calls it."""
    known = None if details is None else json.loads(details)
    return _KINDS.get(kind, Error)(message, details=known, **fields)
