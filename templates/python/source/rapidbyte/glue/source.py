"""The resources of the interface `source`; componentize-py finds them by this module's name."""

import json
from typing import List

import wit_world.exports.source as script

from connector import Connector
from rapidbyte import Checkpoint, Columns, Error, Idle, Request
from rapidbyte.host import columns_text, encode, errors, rows_text


class Session(script.Session):
    """The connector, opened with one configuration."""

    def __init__(self, connector: Connector):
        self.connector = connector

    def streams(self) -> List[script.Stream]:
        with errors():
            return [
                script.Stream(
                    name=stream.name,
                    columns=json.dumps(stream.columns),
                    primary_key=stream.primary_key,
                    cursor_fields=stream.cursor_fields,
                    estimated_rows=stream.estimated_rows,
                    notes=stream.notes,
                )
                for stream in self.connector.streams()
            ]

    def read(self, request: script.Request) -> script.Reader:
        with errors(request.stream):
            asked = Request(
                stream=request.stream,
                columns=request.columns,
                batch_bytes=request.batch_bytes,
                max_record_bytes=request.max_record_bytes,
            )
            if increment := request.increment:
                streams = {stream.name: stream for stream in self.connector.streams()}
                asked.cursor_fields = streams[request.stream].cursor_fields
                asked.initial = increment.initial
                asked.cursor = None if increment.cursor is None else json.loads(increment.cursor)
            return Reader(self.connector, asked)

    def acknowledge(self, stream: str, cursor: str) -> None:
        with errors(stream):
            known = getattr(self.connector, "acknowledge", None)
            if known is not None:
                known(stream, json.loads(cursor))


class Reader(script.Reader):
    """One read of a stream: the generator that `Connector.read` is."""

    def __init__(self, connector: Connector, request: Request):
        self.request = request
        streams = {stream.name: stream for stream in connector.streams()}
        self.declared = streams[request.stream].columns
        steps = connector.read(request)
        if not hasattr(steps, "__iter__"):
            text = f"`read` returns {type(steps).__name__}, which gives no batches"
            raise Error("internal", "not_a_receipt", text, "make it a generator: yield each batch")
        self.steps = iter(steps)

    def next(self, wait_ms: int) -> script.Step:
        with errors(self.request.stream):
            step = next(self.steps, self)
            if step is self:
                return script.Step_End()
            if isinstance(step, Checkpoint):
                return script.Step_Checkpoint(encode(step.cursor))
            if isinstance(step, Idle):
                return script.Step_Idle()
            return self._batch(step)

    def _batch(self, step) -> script.Step:
        # Text, not bytes: componentize-py 0.25 never frees bytes that it hands over.
        if isinstance(step, Columns):
            return script.Step_ColumnsText(columns_text(step, self.request.columns, self.declared, "a batch with"))
        return script.Step_RowsText(rows_text(step, self.declared, "`read` yields", "yield", ", Checkpoint(cursor), Idle()"))
