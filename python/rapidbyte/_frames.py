"""DataFrames of polars and pandas as Arrow data that other libraries take."""

from __future__ import annotations

from typing import Any


def plain(frame: Any) -> Any:
    """The frame without what is not a column, or not a column of a type."""
    if type(frame).__module__.partition(".")[0] == "pandas":
        return _without_numbers(frame) if hasattr(frame, "columns") else frame
    # A LazyFrame has them, too, and is refused later.
    if not hasattr(frame, "with_columns") or hasattr(frame, "collect"):
        return frame
    return _with_types(frame)


def _with_types(frame: Any) -> Any:
    """Strings in columns that have no value at all: polars gives those with a buffer too many."""
    import polars

    empty = [name for name, kind in frame.schema.items() if kind == polars.Null]
    return frame.with_columns(polars.col(empty).cast(polars.String)) if empty else frame


def _without_numbers(frame: Any) -> Any:
    """Without the parts of the index that have no name. pandas would give them as columns such as `__index_level_0__`."""
    nameless = [at for at, name in enumerate(frame.index.names) if name is None]
    if not nameless:
        return frame
    every = len(nameless) == frame.index.nlevels
    return frame.reset_index(level=None if every else nameless, drop=True)
