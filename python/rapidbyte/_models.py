"""Pydantic models as rows, with the fields that ``model_dump`` has."""

from __future__ import annotations

from typing import Any


def names(kind: Any) -> list[str]:
    """The names of the fields that are not excluded."""
    return [name for name, field in kind.__pydantic_fields__.items() if not field.exclude]


def is_plain(kind: Any) -> bool:
    """Whether a model has just the values of its declared fields."""
    return kind.model_config.get("extra") != "allow" and len(names(kind)) == len(kind.__pydantic_fields__)


def fields(model: Any) -> dict[str, Any]:
    """The values of the fields, and of the extra ones that the model allows."""
    row = {name: getattr(model, name) for name in names(type(model)) if hasattr(model, name)}
    return {**row, **(model.__pydantic_extra__ or {})}
