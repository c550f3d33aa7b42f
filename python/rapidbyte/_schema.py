"""Columns as people declare them: a dict, an Arrow schema, a dataclass or a Pydantic model."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import importlib
import types
import typing
import uuid
from typing import Any

from ._errors import ConfigError

_TYPES = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    bytes: "binary",
    bytearray: "binary",
    datetime.date: "date",
    datetime.time: "time",
    datetime.timedelta: "duration(us)",
    uuid.UUID: "uuid",
}

_UNCLEAR = {
    datetime.datetime: '"timestamp" for times without a zone, or "timestamptz"',
    decimal.Decimal: 'its digits, such as "decimal(18, 2)"',
}


def columns(schema: Any) -> Any:
    """The columns as the engine takes them: a dict of types, or an object with an Arrow schema."""
    if hasattr(schema, "__arrow_c_schema__"):
        return schema
    if isinstance(schema, dict):
        return {name: kind if isinstance(kind, str) else _column(name, kind) for name, kind in schema.items()}
    if not isinstance(schema, type):
        raise ConfigError(
            f"schema= is a {type(schema).__name__}",
            code="invalid_schema",
            hint="give a dict of columns and types, a dataclass, a Pydantic model, or an Arrow schema",
        )
    if not (dataclasses.is_dataclass(schema) or hasattr(schema, "model_fields")):
        raise ConfigError(
            f"{schema.__name__} is neither a dataclass nor a Pydantic model", code="invalid_schema"
        )
    try:
        hints = typing.get_type_hints(schema, include_extras=True)
    except NameError as error:
        raise ConfigError(f"the annotations of {schema.__name__}: {error}", code="invalid_schema") from error
    names = (
        [one.name for one in dataclasses.fields(schema)]
        if dataclasses.is_dataclass(schema)
        else importlib.import_module("._models", __package__).names(schema)
    )
    return {name: _column(name, hints[name]) for name in names}


def _column(name: str, hint: Any) -> str:
    hint, nullable = _without_none(hint)
    kind = _type(name, hint)
    if kind.endswith(" not null"):
        return kind
    return kind if nullable else f"{kind} not null"


def _without_none(hint: Any) -> tuple[Any, bool]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        rest = [one for one in typing.get_args(hint) if one is not type(None)]
        nullable = len(rest) < len(typing.get_args(hint))
        return (rest[0] if len(rest) == 1 else Any), nullable
    return hint, hint is Any


def _type(name: str, hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        # Annotated[Decimal, "decimal(18, 2)"] says what the type alone does not.
        texts = [one for one in arguments[1:] if isinstance(one, str)]
        return texts[0] if texts else _type(name, arguments[0])
    if origin in (list, tuple, set, frozenset) and arguments:
        item, _ = _without_none(arguments[0])
        kind = _type(name, item)
        return "json" if kind == "json" else f"list<{kind}>"
    if origin is typing.Literal:
        kinds = {_type(name, type(one)) for one in arguments}
        return kinds.pop() if len(kinds) == 1 else "json"
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            kinds = {_type(name, type(member.value)) for member in hint}
            return kinds.pop() if len(kinds) == 1 else "json"
        if hint in _UNCLEAR:
            raise ConfigError(
                f"{hint.__name__} leaves the type of the column open",
                code="invalid_schema",
                column=name,
                hint=f'write {_UNCLEAR[hint]}; in a class, Annotated[{hint.__name__}, "TYPE"]',
            )
        for known in hint.__mro__:
            if known in _TYPES:
                return _TYPES[known]
        if issubclass(hint, complex):
            raise _invalid(name, hint)
    elif hint is not Any and origin is None and not isinstance(hint, typing.TypeVar):
        raise _invalid(name, hint)
    # Everything else is a document.
    return "json"


def _invalid(name: str, hint: Any) -> ConfigError:
    return ConfigError(
        f"{hint!r} is not the type of a column",
        code="invalid_schema",
        column=name,
        hint='give the name of a type, such as "int64", or a type of Python, such as int',
    )
