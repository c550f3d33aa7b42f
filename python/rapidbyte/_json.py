"""Documents of ``json`` columns as values of Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ._errors import DataError


def loads(text: str) -> Any:
    """The value of a document. Numbers that a float would round become a ``Decimal``."""
    return _loads(text, _number)


def loads_digits(text: str) -> Any:
    """The value of a document, to be written again: numbers with a point or an exponent are a ``Decimal``, and a key that
    comes twice is an error, because a dict would lose its first value."""
    return _loads(text, Decimal, _distinct)


def _distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) < len(members):
        raise DataError(
            "a document inside a struct has a key twice",
            code="value_does_not_fit",
            hint="give the document a column of its own, which keeps its text",
        )
    return made


def _loads(text: str, parse_float: Callable[[str], Any], pairs: Callable[..., Any] | None = None) -> Any:
    try:
        return json.loads(text, parse_float=parse_float, object_pairs_hook=pairs)
    except RecursionError:
        raise DataError(
            "a document nested too deeply for Python",
            code="too_deep",
            hint="read the batch with an Arrow library, such as pyarrow or polars: the column is text there",
        ) from None


def _number(text: str) -> float | Decimal:
    made = float(text)
    exact = Decimal(text)
    return made if Decimal(repr(made)) == exact else exact
