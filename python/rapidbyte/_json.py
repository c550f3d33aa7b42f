"""Documents of ``json`` columns as values of Python."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def loads(text: str) -> Any:
    """The value of a document. Numbers that a float would round become a ``Decimal``."""
    return json.loads(text, parse_float=_number)


def _number(text: str) -> float | Decimal:
    made = float(text)
    exact = Decimal(text)
    return made if Decimal(repr(made)) == exact else exact
