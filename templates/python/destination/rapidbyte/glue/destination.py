"""The resources of the interface `destination`; componentize-py finds them by this module's name."""

import json
from typing import List

import wit_world.exports.destination as script
from wit_world.imports import types

from connector import Connector
from rapidbyte import Error, Plan, Rows, Target
from rapidbyte.host import described, errors


class Session(script.Session):
    """The connector, opened with one configuration."""

    def __init__(self, connector: Connector):
        self.connector = connector

    def check(self) -> List[types.CheckItem]:
        detail, problem = "", None
        with errors():
            try:
                detail = self.connector.check()
            except Error as error:
                problem = described(error)
        return [types.CheckItem(name="check", problem=problem, detail=detail)]

    def plan(self, target: script.Target) -> script.Plan:
        with errors(target.stream):
            plan = self.connector.plan(_target(target))
            if not isinstance(plan, Plan):
                text = f"`plan` returns {type(plan).__name__}, which is not a Plan"
                raise Error("internal", "not_a_plan", text, "return Plan(location, is_new)")
            return script.Plan(
                location=plan.location,
                is_new=plan.is_new,
                refused=[script.Refusal(column, why) for column, why in plan.refused.items()],
                notes=plan.notes,
            )

    def begin(self, target: script.Target) -> script.Writer:
        with errors(target.stream):
            target = _target(target)
            writer = self.connector.begin(target)
            if not hasattr(writer, "write"):
                text = f"`begin` returns {type(writer).__name__}, which has no `write`"
                raise Error("internal", "not_a_receipt", text, "return an object with write, commit and abort")
            return Writer(writer, target)


def _target(target: script.Target) -> Target:
    mode = target.write_mode.name.lower()
    return Target(target.stream, json.loads(target.columns), mode, target.primary_key)


class Writer(script.Writer):
    """One stream on its way: the object that `Connector.begin` gives."""

    def __init__(self, writer, target: Target):
        self.writer, self.target = writer, target
        self.names = list(target.columns)

    def write(self, rows: int, columns: List[bytes]) -> None:
        with errors(self.target.stream):
            values = map(json.loads, columns)
            self.writer.write(Rows(dict(zip(self.names, values)), rows))

    def commit(self) -> script.Receipt:
        with errors(self.target.stream):
            receipt = self.writer.commit()
            is_pair = isinstance(receipt, (list, tuple)) and [type(part) for part in receipt] == [str, int]
            if not is_pair or receipt[1] < 0:
                text = f"`commit` returns {receipt!r}, which is not a location and a number of bytes"
                raise Error("internal", "not_a_receipt", text, "return the location and the bytes, such as (path, 0)")
            return script.Receipt(bytes=receipt[1], location=receipt[0])

    def abort(self) -> None:
        with errors(self.target.stream):
            self.writer.abort()
