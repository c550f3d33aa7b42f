"""The resources of the interface `source`; componentize-py finds them by this module's name."""

import struct
from typing import List

import wit_world.exports.source as contract
from componentize_py_types import Err
from wit_world.imports import phase, types

import messages

STREAM = "numbers"


class Session(contract.Session):
    """The connector, opened with one configuration."""

    def __init__(self, batches: int):
        self.batches = batches

    def check(self) -> List[types.CheckItem]:
        return [types.CheckItem(name="count", problem=None, detail=f"{self.batches} batches")]

    def discover(self, forms: List[str]) -> List[types.Stream]:
        rows = self.batches * messages.ROWS
        return [
            types.Stream(
                name=STREAM,
                schema=messages.SCHEMA,
                source_types=["int"],
                primary_key=["n"],
                cursor_fields=[],
                estimated_rows=rows,
                estimated_bytes=rows * 8,
                inferred=[],
                notes=[],
            )
        ]

    def describe_query(self, stream: str, query: str, forms: List[str]) -> types.Stream:
        raise NotImplementedError("the host asks sources with supports_queries only")

    def digest_limits(self, stream, snapshot):
        raise NotImplementedError("the host asks sources with digest_forms only")

    def digest(self, stream, snapshot, recipe, limits, within, bits):
        raise NotImplementedError("the host asks sources with digest_forms only")

    def digest_rows(self, stream, snapshot, recipe, limits, rows, max):
        raise NotImplementedError("the host asks sources with digest_forms only")

    def snapshot(self, streams: List[contract.Selection]) -> str:
        return ""

    def read(self, requests: List[contract.ReadRequest]) -> contract.Reader:
        # The spec does not say `reads_together`.
        (request,) = requests
        if request.stream != STREAM:
            raise Err(schema_error(f"no stream `{request.stream}`", request.stream))
        if request.columns not in (None, ["n"]):
            raise Err(schema_error("the only column is `n`", request.stream))
        return Reader(self.batches)


class Reader(contract.Reader):
    """One read of the stream."""

    def __init__(self, batches: int):
        self.batches = batches
        self.given = 0

    def schemas(self) -> List[bytes]:
        return [messages.SCHEMA]

    def next(self, wait_ms: int) -> contract.Event:
        if self.given == self.batches:
            return contract.Event_End()
        before = phase.enter(phase.Kind.ARROW_ENCODE)
        first = self.given * messages.ROWS
        message = bytearray(messages.BATCH)
        numbers = range(first, first + messages.ROWS)
        struct.pack_into(f"<{messages.ROWS}q", message, messages.VALUES_AT, *numbers)
        self.given += 1
        phase.enter(before)
        batch = types.Batch(data=bytes(message), rows=messages.ROWS)
        return contract.Event_Batch((0, batch))

    def acknowledge(self, positions: List[contract.Position]) -> None:
        pass


def schema_error(message: str, stream: str) -> types.Error:
    """The error for a stream or a column that does not exist."""
    return types.Error(
        kind=types.ErrorKind_Schema(),
        code="schema_unknown",
        message=message,
        hint="`rapidbyte discover` shows what there is",
        stream=stream,
        column=None,
        location=None,
    )
