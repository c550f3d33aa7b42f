"""The resources of the interface `source`; componentize-py finds them by this module's name."""

import json
from typing import List

import wit_world.exports.source as script

from connector import Connector
from rapidbyte import Checkpoint, Columns, Error, Idle, Request
from rapidbyte.host import encode, errors, json_text, rows_text


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
        self.declared = streams[request.stream].columns.keys()
        self.steps = iter(connector.read(request))

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
            self._check_names(step)
            return script.Step_ColumnsText([json_text(step[name], name) for name in self.request.columns])
        return script.Step_RowsText(rows_text(step, "`read` yields", "yield", ", Checkpoint(cursor), Idle()"))

    def _check_names(self, columns: Columns) -> None:
        for name in self.request.columns:
            if not isinstance(columns.get(name), (list, tuple)):
                text = f"a batch without a list of values for {name!r}"
                hint = "give a list for each of `request.columns`"
                raise Error("internal", "no_column", text, hint, column=name)
        for name in columns.keys() - self.declared:
            text = f"a batch with the column {name!r}, which `streams` does not declare"
            raise Error("internal", "no_column", text, "declare the column, or remove it from the batch", column=name)
