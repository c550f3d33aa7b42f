"""Copies and syncs tables between databases, files and Python, with exact values, in bounded memory.

>>> import rapidbyte as rb
>>> report = rb.write([{"id": 1, "name": "Ada"}], "out/people.jsonl")
>>> report.rows
1
>>> [batch.to_pylist() for batch in rb.read("out/people.jsonl")]
[[{'id': 1, 'name': 'Ada'}]]
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _interpreter  # noqa: F401: it refuses subinterpreters before the engine is loaded
from . import _engine, _places
from ._engine import Batch, Cancel, Reader
from ._errors import (
    AuthError,
    BusyError,
    Cancelled,
    ConfigError,
    ConnectionError,
    DataError,
    EnvironmentError,
    Error,
    InternalError,
    RateLimitedError,
    SchemaError,
    SupersededError,
    TransientError,
)

if TYPE_CHECKING:
    from ._asyncio import aread, arun, awrite
    from ._results import Check, Column, Plan, Progress, Report, Stream, Verified

__version__ = _engine.version()

__all__ = [
    "AuthError",
    "Batch",
    "BusyError",
    "Cancel",
    "Cancelled",
    "Check",
    "Column",
    "ConfigError",
    "ConnectionError",
    "DataError",
    "EnvironmentError",
    "Error",
    "Input",
    "InternalError",
    "Plan",
    "Progress",
    "RateLimitedError",
    "Reader",
    "Report",
    "SchemaError",
    "Sink",
    "Stream",
    "SupersededError",
    "TransientError",
    "Verified",
    "aread",
    "arun",
    "awrite",
    "check",
    "close_idle",
    "discover",
    "plan",
    "read",
    "run",
    "sink",
    "transform",
    "verify",
    "write",
]

#: Modules that take long to import are imported at their first use.
_LATER = {
    "_asyncio": ("aread", "arun", "awrite"),
    "_results": ("Check", "Column", "Plan", "Progress", "Report", "Stream", "Verified"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


#: A pipeline: the path of a file, the text of one, or its document.
Pipeline = str | os.PathLike[str] | Mapping[str, Any]


class Input:
    """Rows for ``inputs=`` with a schema or a key.

    ``rows`` is what :func:`write` takes, or a function that returns it: then the run can read the rows again.
    """

    def __init__(self, rows: Any, *, schema: Any = None, key: str | Sequence[str] = ()) -> None:
        self.rows = rows
        self.schema = schema
        self.key = _names(key)


class transform:  # noqa: N801: it is used as a decorator
    """A function on batches as a transform: ``use: NAME`` in a pipeline, ``transforms={"NAME": …}`` in the call.

    The function gets a :class:`Batch`, which Arrow libraries take without a copy, and returns Arrow data: a record
    batch, a table or a DataFrame. It is called with a batch without rows first, to learn the columns that it makes.
    """

    def __init__(self, function: Callable[[Batch], Any]) -> None:
        self.function = function

    def __call__(self, batch: Batch) -> Any:
        return self.function(batch)


def run(
    pipeline: Pipeline,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    output: Callable[[Batch], Any] | None = None,
    transforms: Mapping[str, Callable[[Batch], Any]] | None = None,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    limit: int | None = None,
    full_refresh: bool = False,
    on_progress: Callable[[Progress], Any] | None = None,
    cancel: Cancel | None = None,
) -> Report:
    """Run a pipeline to its end.

    ``params`` are values for ``${NAME}``, before those of the environment. ``inputs`` are the streams of ``use: python``
    as a source, by name; ``output`` is called with each batch of ``use: python`` as a destination. ``on_progress`` is
    called about ten times a second. Functions are called on this thread.
    """
    given = _given(pipeline, params)
    if given["form"] == "value" and (inputs or output):
        given["content"] = json.dumps(_without_retries(json.loads(given["content"]), inputs, output))
    choice = _choice(select, exclude, limit, full_refresh)
    parts = _parts(inputs, output, transforms)
    return _result("report", _engine.run(given, parts, choice, given["form"] == "file", _watch(on_progress, cancel)))


def plan(
    pipeline: Pipeline,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    output: Callable[[Batch], Any] | None = None,
    transforms: Mapping[str, Callable[[Batch], Any]] | None = None,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    cancel: Cancel | None = None,
) -> Plan:
    """Plan a run: what it would move, into which types, by which statements. Nothing is written."""
    choice = _choice(select, exclude, None, False)
    parts = _parts(inputs, output, transforms)
    return _result("plan", _engine.plan(_given(pipeline, params), parts, choice, _watch(None, cancel)))


def check(
    pipeline: Pipeline,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    transforms: Mapping[str, Callable[[Batch], Any]] | None = None,
    cancel: Cancel | None = None,
) -> list[Check]:
    """Check everything that a run needs: servers, privileges, types."""
    # `use: python` as a destination is checked without its function.
    parts = _parts(inputs, lambda batch: None, transforms)
    return _result("checks", _engine.check(_given(pipeline, params), parts, _watch(None, cancel)))


def discover(
    pipeline: Pipeline,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    cancel: Cancel | None = None,
) -> list[Stream]:
    """List the streams that the source has, with their columns."""
    parts = _parts(inputs, None, None)
    return _result("streams", _engine.discover(_given(pipeline, params), parts, _watch(None, cancel)))


def verify(
    pipeline: Pipeline,
    *,
    params: Mapping[str, Any] | None = None,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    sample: float = 100,
    repair: bool = False,
    cancel: Cancel | None = None,
) -> Verified:
    """Compare the rows of targets with their sources. With ``repair`` rows that differ are moved again."""
    choice = _choice(select, exclude, None, False)
    watch = _watch(None, cancel)
    return _result("verified", _engine.verify(_given(pipeline, params), choice, float(sample), repair, watch))


def write(
    rows: Any,
    to: str | os.PathLike[str],
    *,
    table: str | None = None,
    mode: str = "append",
    key: str | Sequence[str] = (),
    schema: Any = None,
    config: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress], Any] | None = None,
    cancel: Cancel | None = None,
    **settings: Any,
) -> Report:
    """Write rows to a table or a file, in one commit.

    ``rows`` is a list or an iterator of dicts, dataclasses, Pydantic models or mappings; JSON text or a file of it; Arrow
    data (of pyarrow, polars, pandas, DuckDB); or a function that returns one of these, so that a transient error can be
    retried. ``to`` is a URL of PostgreSQL or MongoDB, the connection string of an account of Azure Cosmos DB, or an address of
    OpenSearch or Elasticsearch (``opensearch://``, ``elasticsearch://``), with ``table``; or the path of a file
    (``.parquet``, ``.csv``, ``.jsonl``, ``.arrow``). ``mode`` is ``append``, ``replace`` or ``upsert``, which needs ``key``; for
    documents also ``delete``, whose rows need the columns of ``key`` alone. ``config`` has further keys of the
    connector, such as ``{"bulk_rows": 5000}``, and ``settings`` are further keys of the pipeline, such as
    ``resources={"memory": "256mb"}``.

    Without rows and without ``schema`` nothing is known about the columns: then ``replace`` is refused, and the other modes
    do nothing.
    """
    document, params, name = _load(to, table, mode, key, config, settings)
    if not callable(rows):
        document.setdefault("retry", {"max_attempts": 1})
    given = _made(document, params)
    parts = _parts({name: Input(rows, schema=schema, key=key)}, None, None, _places.is_mongodb(to), _mark(mode))
    try:
        with _turn(to, table):
            done = _engine.run(given, parts, _choice((), (), None, False), False, _watch(on_progress, cancel))
    except DataError as error:
        if error.code == "no_columns" and error.row is None and mode != "replace":
            return _result("nothing", document["pipeline"])
        raise
    return _result("report", done)


class Sink:
    """A table or a file that takes rows as they come, and shows them all when it is closed. See :func:`sink`."""

    def __init__(self, inner: Any, name: str, mode: str) -> None:
        self._inner = inner
        self._name = name
        self._mode = mode
        #: The report, once the sink is closed.
        self.report: Report | None = None

    def write(self, rows: Any) -> int:
        """Take rows in any form of :func:`rapidbyte.write`, and return how many.

        The first rows decide the columns, unless ``schema`` does. After an error the sink takes further rows if nothing of
        this call was sent yet, which is so for less than a batch. Otherwise all of its rows are discarded, and ``close``
        fails.
        """
        return self._inner.write(rows)

    def close(self) -> Report:
        """Commit the rows."""
        if self.report is None:
            done = self._inner.close()
            if done is None and self._mode == "replace":
                raise DataError(
                    "no rows came, so the columns are not known, and the older rows stay",
                    code="no_columns",
                    hint="declare the columns with schema=: the sink then leaves an empty table",
                )
            self.report = _result("nothing", self._name) if done is None else _result("report", done)
        return self.report

    def abandon(self) -> None:
        """Discard the rows."""
        self._inner.abandon(False)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: object) -> None:
        if kind is not None:
            # After Ctrl-C and the like, nothing is waited for.
            self._inner.abandon(not issubclass(kind, Exception))
        elif not self._inner.is_closed:
            # After a write that failed, this is an error: its rows are lost, whether the caller caught that one or not.
            self.close()


def sink(
    to: str | os.PathLike[str],
    *,
    table: str | None = None,
    mode: str = "append",
    key: str | Sequence[str] = (),
    schema: Any = None,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Sink:
    """Open a table or a file for many small writes. All rows become visible in one commit, when it is closed.

    Used as a context manager, an exception discards the rows. The arguments are those of :func:`write`.
    """
    document, params, name = _load(to, table, mode, key, config, settings)
    document.setdefault("retry", {"max_attempts": 1})
    given = _made(document, params)
    inner = _engine.Sink(given, name, _names(key), _columns(schema), _places.is_mongodb(to), _mark(mode))
    return Sink(inner, document["pipeline"], mode)


def read(
    source: str | os.PathLike[str],
    *,
    table: str | None = None,
    query: str | None = None,
    columns: str | Sequence[str] | None = None,
    where: str | Mapping[str, Any] | None = None,
    limit: int | None = None,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Reader:
    """Read a table or a file, as a stream of batches in bounded memory.

    The result is an iterator of :class:`Batch`, and Arrow data: ``pyarrow.table(rb.read(…))``,
    ``polars.DataFrame(rb.read(…))``. ``source`` is a URL of PostgreSQL, with ``table`` or ``query``, a URL of MongoDB, with
    ``table``, the connection string of an account of Azure Cosmos DB, with ``table`` and perhaps ``query``, or the path of a
    file or of several (``*.parquet``). ``where`` is a condition in SQL, or for MongoDB a query document: a dict, or its text. ``config`` has further keys of the connector.
    """
    document, params = _extract(source, table, query, columns, where, config, settings)
    given = _made(document, params)
    return _engine.read(given, _choice((), (), limit, False))


def close_idle() -> int:
    """Close the connections that wait for another call, and return how many there were.

    Calls of :func:`write`, :func:`sink` and :func:`read` leave theirs open for some seconds, so that the next call with the
    same arguments does not connect, log in and start a connector again. They are closed by themselves when the program ends,
    and before it forks: a child has none.
    """
    return _engine.close_idle()


def _end() -> None:
    """End all calls before the interpreter does: a thread that comes back to it afterwards could crash the process."""
    refused = Cancelled(
        "the program has ended",
        code="program_ended",
        hint="join the threads that call rapidbyte before the main thread returns",
    )
    if _engine.end(refused, 1.0):
        # Code of the caller is at work that gives rows, and does not look whether its call is cancelled.
        _interrupt_callers()
        _engine.end(refused, 4.0)
    _engine.close_idle()


def _interrupt_callers() -> None:
    """Raise ``SystemExit`` in the threads that are in a call. One that waits outside of Python gets it afterwards."""
    import ctypes
    import traceback

    folder = os.path.dirname(__file__)
    for thread, frame in sys._current_frames().items():
        frames = (found for found, _ in traceback.walk_stack(frame))
        if thread != threading.get_ident() and any(os.path.dirname(one.f_code.co_filename) == folder for one in frames):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    # A connection in two processes is of no use to either of them.
    os.register_at_fork(before=_engine.close_idle)


def _names(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _given(pipeline: Pipeline, params: Mapping[str, Any] | None) -> dict[str, Any]:
    values = {name: str(value) for name, value in (params or {}).items()}
    if isinstance(pipeline, Mapping):
        form, content = "value", json.dumps(pipeline)
    elif isinstance(pipeline, str) and "\n" in pipeline:
        form, content = "text", pipeline
    else:
        form, content = "file", os.fspath(pipeline)
    return {"form": form, "content": content, "folder": os.getcwd(), "params": values}


def _made(document: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline that a call has made of its arguments: errors name these."""
    return {**_given(document, params), "form": "call"}


def _without_retries(document: dict[str, Any], inputs: Any, output: Any) -> dict[str, Any]:
    """The document with one attempt: a second one would have no rows to read, or give a function rows twice."""
    rows = [one.rows if isinstance(one, Input) else one for one in (inputs or {}).values()]
    if output or not all(callable(one) for one in rows):
        document.setdefault("retry", {"max_attempts": 1})
    return document


def _parts(
    inputs: Any, output: Any, transforms: Any, extended: bool = False, mark: str | None = None
) -> dict[str, Any]:
    streams = []
    for name, rows in (inputs or {}).items():
        one = rows if isinstance(rows, Input) else Input(rows)
        schema = _columns(one.schema)
        stream = {"name": name, "rows": one.rows, "schema": schema, "key": one.key, "extended": extended, "mark": mark}
        streams.append(stream)
    return {"inputs": streams, "output": output, "transforms": list((transforms or {}).items())}


def _result(maker: str, made: str) -> Any:
    # As a statement, a module that is there already is found at once.
    from . import _results

    return getattr(_results, maker)(made)


def _columns(schema: Any) -> Any:
    if schema is None:
        return None
    return importlib.import_module("._schema", __name__).columns(schema)


def _choice(select: Any, exclude: Any, limit: int | None, full_refresh: bool) -> dict[str, Any]:
    return {"select": _names(select), "exclude": _names(exclude), "limit": limit, "full_refresh": full_refresh}


def _watch(on_progress: Any, cancel: Cancel | None) -> dict[str, Any]:
    return {"on_progress": on_progress, "cancel": cancel}


_MODES = ("append", "replace", "upsert", "delete")
#: The column that says that a row is deleted, with `mode="delete"`.
_MARK = "_rapidbyte_deleted"


def _mark(mode: str) -> str | None:
    return _MARK if mode == "delete" else None


def _checked_mode(mode: str, key: str | Sequence[str], use: str) -> str:
    if mode == "create" and use == "dest-cosmos":
        # An id that is taken is refused by an append, too.
        return "append"
    if mode not in _MODES:
        raise ConfigError(f"mode={mode!r}", code="invalid_argument", hint=f"give one of {', '.join(_MODES)}")
    if mode in ("upsert", "delete") and not _names(key):
        raise ConfigError(f"mode={mode!r} needs key=", code="invalid_argument", hint="name the columns of the key")
    if mode == "delete" and use not in ("dest-cosmos", "dest-mongodb", "dest-opensearch"):
        text = "mode='delete' is for documents of MongoDB, Azure Cosmos DB and OpenSearch"
        hint = "run a pipeline with deleted_field, whose rows have all columns, or delete with the database's own client"
        raise ConfigError(text, code="invalid_argument", hint=hint)
    return mode


#: Writes to one place take turns: the engine would fence the earlier one.
_turns: dict[str, threading.RLock] = {}
_turns_guard = threading.Lock()


def _turn(to: str | os.PathLike[str], table: str | None) -> threading.RLock:
    with _turns_guard:
        return _turns.setdefault(f"{os.fspath(to)}\n{table}", threading.RLock())


def _load(
    to: str | os.PathLike[str],
    table: str | None,
    mode: str,
    key: str | Sequence[str],
    config: Mapping[str, Any] | None,
    settings: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, str], str]:
    """The pipeline that writes, its variables, and the name of its stream."""
    place = _places.target(to, table, config)
    stream: dict[str, Any] = {"name": _places.literal(place.stream)}
    mode = _checked_mode(mode, key, place.use)
    if mode in ("upsert", "delete"):
        stream["primary_key"] = [_places.literal(column) for column in _names(key)]
    if mode == "delete":
        mode, stream["deleted_field"] = "upsert", _MARK
    document = {
        "version": 1,
        "pipeline": _pipeline_name("write", place.stream),
        "source": {"use": "python", "streams": [stream]},
        "destination": {"use": place.use, "config": place.config, "write_mode": mode},
    }
    return _with(document, settings), place.params, place.stream


def _extract(
    source: str | os.PathLike[str],
    table: str | None,
    query: str | None,
    columns: str | Sequence[str] | None,
    where: str | Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
    settings: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The pipeline that reads, and its variables."""
    place = _places.origin(source, table, query, config)
    stream: dict[str, Any] = {"name": place.stream}
    # A query of Cosmos DB is a setting of the connector.
    if query is not None and place.use != "source-cosmos":
        stream["query"] = _places.literal(query)
    if columns is not None:
        stream["columns"] = [_places.literal(column) for column in _names(columns)]
    if where is not None:
        stream["where"] = _places.literal(_places.condition(source, where))
    document = {
        "version": 1,
        "pipeline": _pipeline_name("read", table or "rows"),
        "source": {"use": place.use, "config": place.config, "streams": [stream]},
        "destination": {"use": "python", "write_mode": "append"},
        # Rows that were given cannot be taken back.
        "retry": {"max_attempts": 1},
    }
    return _with(document, settings), place.params


def _with(document: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name in document:
            raise TypeError(f"{name}= is not a setting that can be given here")
    return {**document, **settings}


def _pipeline_name(verb: str, name: str) -> str:
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    return f"python-{verb}-{plain}"[:63].rstrip("-")
