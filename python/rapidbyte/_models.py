"""Pydantic models as rows, with the fields that ``model_dump`` has."""

from __future__ import annotations

import functools
import typing
from typing import Any


def names(kind: Any) -> list[str]:
    """The names of the fields that are not excluded."""
    return [name for name, field in kind.__pydantic_fields__.items() if not field.exclude]


def is_plain(kind: Any) -> bool:
    """Whether a model has just the values of its declared fields."""
    fields = kind.__pydantic_fields__
    return kind.model_config.get("extra") != "allow" and len(names(kind)) == len(fields) and not _nested(kind)


def fields(model: Any) -> dict[str, Any]:
    """The values of the fields, and of the extra ones that the model allows."""
    kind = type(model)
    row = {name: getattr(model, name) for name in names(kind) if hasattr(model, name)}
    if nested := _nested(kind) & row.keys():
        # A model may be a subclass of the declared one, with fields that are not for others.
        row.update(model.model_dump(include=nested))
    return {**row, **(model.__pydantic_extra__ or {})}


# Rows have few types, and it is asked for each row.
@functools.lru_cache(maxsize=16)
def _nested(kind: Any) -> frozenset[str]:
    """The fields with models inside."""
    fields = kind.__pydantic_fields__.items()
    return frozenset(name for name, field in fields if _has_models(field.annotation))


def _has_models(annotation: Any) -> bool:
    if hasattr(annotation, "__pydantic_fields__"):
        return True
    return any(map(_has_models, typing.get_args(annotation)))
