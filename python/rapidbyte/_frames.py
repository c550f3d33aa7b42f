"""DataFrames of polars and pandas as Arrow data that other libraries take."""

from __future__ import annotations

from typing import Any

from ._errors import ConfigError


def plain(frame: Any) -> Any:
    """The frame with what Arrow's libraries take. Columns whose values would become others are refused."""
    if type(frame).__module__.partition(".")[0] == "pandas":
        return _of_pandas(frame) if hasattr(frame, "columns") else frame
    # A LazyFrame has columns, too, and is refused later.
    if not hasattr(frame, "with_columns") or hasattr(frame, "collect"):
        return frame
    return _of_polars(frame)


def _of_polars(frame: Any) -> Any:
    import polars

    for name, kind in frame.schema.items():
        if kind == polars.Object:
            # It would give the addresses of the objects.
            raise _refused(name, "a column of Python objects", "cast it, or give frame.to_dicts()")
    # Polars gives those without any value with a buffer too many, also inside lists and structs.
    filled = {name: _filled(kind) for name, kind in frame.schema.items()}
    changed = {name: kind for name, kind in filled.items() if kind != frame.schema[name]}
    return frame.cast(changed) if changed else frame


def _filled(kind: Any) -> Any:
    """The type with strings for the type without values."""
    import polars

    if kind == polars.Null:
        return polars.String
    if isinstance(kind, polars.List):
        return polars.List(_filled(kind.inner))
    if isinstance(kind, polars.Struct):
        return polars.Struct({field.name: _filled(field.dtype) for field in kind.fields})
    return kind


def _of_pandas(frame: Any) -> Any:
    for name, kind in frame.dtypes.items():
        if getattr(kind, "name", "").startswith("period["):
            # It would give the numbers of the periods.
            raise _refused(str(name), "a column of periods", "convert it with .dt.to_timestamp() or .astype(str)")
    # pandas would give parts of the index without a name as columns such as `__index_level_0__`, and a range not at all.
    nameless = [at for at, name in enumerate(frame.index.names) if name is None]
    if len(nameless) == frame.index.nlevels:
        return frame.reset_index(drop=True)
    return (frame.reset_index(level=nameless, drop=True) if nameless else frame).reset_index()


def _refused(column: str, message: str, hint: str) -> ConfigError:
    return ConfigError(message, code="unsupported_type", column=column, hint=hint)
