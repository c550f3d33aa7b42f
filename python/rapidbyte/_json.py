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
    """The value of a document, to be written again: numbers with a point or an exponent are a ``Decimal``."""
    return _loads(text, Decimal)


def _loads(text: str, parse_float: Callable[[str], Any]) -> Any:
    try:
        return json.loads(text, parse_float=parse_float)
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
