"""The results of calls."""

from __future__ import annotations

import functools
import html
import json
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")


@functools.cache
def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(one.name for one in fields(kind))


def _of(kind: type[T], values: dict[str, Any]) -> T:
    """The known members of a document. Others are in its ``raw``."""
    known = _names(kind)
    return kind(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class Warning:
    """Something that is not as expected, although the run succeeded."""

    stream: str
    message: str


@dataclass(frozen=True)
class StreamReport:
    """One stream of a run."""

    name: str
    #: Where its rows are now.
    location: str
    #: Rows that were committed.
    rows: int
    bytes: int = 0
    #: Records that were kept as rejects.
    rejected: int = 0


@dataclass(frozen=True)
class Report:
    """A run that succeeded."""

    pipeline: str
    run_id: str | None
    rows: int
    bytes: int
    total_secs: float
    streams: list[StreamReport]
    warnings: list[Warning]
    #: Seconds by phase, summed over all streams.
    timing: dict[str, float] = field(repr=False)
    #: The report as ``rapidbyte run --output json`` prints it.
    raw: dict[str, Any] = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        head = "<tr><th>stream</th><th>rows</th><th>rejected</th><th>location</th></tr>"
        rows = "".join(
            f"<tr><td>{html.escape(stream.name)}</td><td style='text-align:right'>{stream.rows:,}</td>"
            f"<td style='text-align:right'>{stream.rejected:,}</td><td>{html.escape(stream.location)}</td></tr>"
            for stream in self.streams
        )
        warnings = "".join(
            f"<li>{html.escape(warning.stream)}: {html.escape(warning.message)}</li>" for warning in self.warnings
        )
        speed = f", {self.rows / self.total_secs:,.0f} rows/s" if self.total_secs > 0 else ""
        return (
            f"<div><b>{html.escape(self.pipeline)}</b>: {self.rows:,} rows in {self.total_secs:.2f} s{speed}"
            f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
            + (f"<ul>{warnings}</ul>" if warnings else "")
            + "</div>"
        )


@dataclass(frozen=True)
class Column:
    """A column of a stream."""

    name: str
    #: As a pipeline writes it, such as ``decimal(18, 2)``.
    type: str
    source_type: str = ""
    nullable: bool = True


@dataclass(frozen=True)
class Stream:
    """A stream that a source has."""

    name: str
    columns: list[Column]
    primary_key: list[str]
    cursor_fields: list[str]
    estimated_rows: int | None
    estimated_bytes: int | None


@dataclass(frozen=True)
class PlannedColumn:
    """A column on its way to the target."""

    name: str
    source_type: str
    type: str
    target_type: str
    #: Whether values keep everything: ``exact`` and others.
    fit: str
    note: str | None = None


@dataclass(frozen=True)
class PlannedStream:
    """The plan of one stream of a run."""

    name: str
    sync_mode: str
    write_mode: str
    location: str
    columns: list[PlannedColumn]
    #: The statements that the run will execute before it loads.
    statements: list[str]
    notes: list[str]
    estimated_rows: int | None = None


@dataclass(frozen=True)
class Plan:
    """The plan of a run."""

    pipeline: str
    streams: list[PlannedStream]
    #: The plan as ``rapidbyte plan --output json`` prints it.
    raw: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Check:
    """One thing that a run needs."""

    side: str
    name: str
    detail: str
    #: The failure, or ``None`` if it is well.
    problem: dict[str, Any] | None

    @property
    def ok(self) -> bool:
        """Whether it is well."""
        return self.problem is None


@dataclass(frozen=True)
class VerifiedStream:
    """The comparison of a stream with its target."""

    stream: str
    location: str
    equal: bool
    source: dict[str, Any]
    target: dict[str, Any]
    #: Rows that differ, at most as many as one comparison shows.
    rows: list[dict[str, Any]]
    has_more: bool
    repaired: list[dict[str, Any]]


@dataclass(frozen=True)
class Verified:
    """The receipt of a comparison."""

    streams: list[VerifiedStream]
    failures: list[dict[str, Any]]
    raw: dict[str, Any] = field(repr=False, compare=False)

    @property
    def equal(self) -> bool:
        """Whether all streams were compared, and all rows are equal."""
        return not self.failures and all(stream.equal for stream in self.streams)


@dataclass(frozen=True)
class StreamProgress:
    """How far a stream is."""

    name: str
    rows: int
    bytes: int
    estimated_rows: int | None
    #: ``waiting``, ``running``, ``done`` or ``failed``.
    state: str


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    run_id: str
    streams: list[StreamProgress]

    @property
    def rows(self) -> int:
        """Rows that the destination has taken. A retry may take some of them back."""
        return sum(stream.rows for stream in self.streams)

    @property
    def bytes(self) -> int:
        """Bytes of Arrow data of these rows."""
        return sum(stream.bytes for stream in self.streams)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(stream.name)}</td><td>{html.escape(stream.state)}</td>"
            f"<td style='text-align:right'>{stream.rows:,}{_total(stream.estimated_rows)}</td></tr>"
            for stream in self.streams
        )
        return f"<table><thead><tr><th>stream</th><th></th><th>rows</th></tr></thead><tbody>{rows}</tbody></table>"


def _total(estimated: int | None) -> str:
    return "" if estimated is None else f" of about {estimated:,}"


def progress(run_id: str, streams: list[tuple[Any, ...]]) -> Progress:
    """Makes the progress of a run. The engine calls it."""
    return Progress(run_id, [StreamProgress(*stream) for stream in streams])


def report(text: str) -> Report:
    raw = json.loads(text)
    return _of(
        Report,
        {
            **raw,
            "streams": [_of(StreamReport, stream) for stream in raw["streams"]],
            "warnings": [_of(Warning, warning) for warning in raw["warnings"]],
            "raw": raw,
        },
    )


def nothing(pipeline: str) -> Report:
    """The report of a write without rows: nothing was done."""
    return Report(pipeline, None, 0, 0, 0.0, [], [], {}, {})


def plan(text: str) -> Plan:
    raw = json.loads(text)
    streams = [
        _of(PlannedStream, {**stream, "columns": [_of(PlannedColumn, column) for column in stream["columns"]]})
        for stream in raw["streams"]
    ]
    return Plan(raw["pipeline"], streams, raw)


def checks(text: str) -> list[Check]:
    return [_of(Check, check) for check in json.loads(text)]


def streams(text: str) -> list[Stream]:
    return [
        _of(Stream, {**stream, "columns": [_of(Column, column) for column in stream["columns"]]})
        for stream in json.loads(text)
    ]


def verified(text: str) -> Verified:
    raw = json.loads(text)
    return Verified([_of(VerifiedStream, stream) for stream in raw["streams"]], raw["failures"], raw)
