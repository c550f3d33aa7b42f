"""DataFrames of polars as Arrow data that other libraries take."""

from __future__ import annotations

from typing import Any


def plain(frame: Any) -> Any:
    """The frame, with strings in columns that have no value at all. Polars gives those with a buffer too many."""
    # A LazyFrame has them, too, and is refused later.
    if not hasattr(frame, "with_columns") or hasattr(frame, "collect"):
        return frame
    import polars

    empty = [name for name, kind in frame.schema.items() if kind == polars.Null]
    return frame.with_columns(polars.col(empty).cast(polars.String)) if empty else frame
