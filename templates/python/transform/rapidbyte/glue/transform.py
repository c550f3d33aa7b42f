"""The resources of the interface `transform`; componentize-py finds them by this module's name."""

import json
from typing import Dict, List

import wit_world.exports.transform as script

from connector import Connector
from rapidbyte import Columns, Error, Relation, Rows
from rapidbyte.host import columns_text, errors, rows_text


class Session(script.Session):
    """The connector, opened with one configuration."""

    def __init__(self, connector: Connector):
        self.connector = connector

    def plan(self, input: script.Relation) -> script.Plan:
        with errors(input.stream):
            plan = self._planned(input)
            return script.Plan(json.dumps(plan.columns), plan.primary_key, plan.notes)

    def begin(self, input: script.Relation, columns: List[str]) -> script.Transformer:
        with errors(input.stream):
            # The plan depends on the configuration and on the relation alone.
            return Transformer(self.connector, _relation(input), columns, self._planned(input).columns)

    def _planned(self, input: script.Relation) -> Relation:
        plan = self.connector.plan(_relation(input))
        if not isinstance(plan, Relation):
            text = f"`plan` returns {type(plan).__name__}, which is not a Relation"
            raise Error("internal", "not_a_plan", text, "return the relation, or another one")
        if plan.stream != input.stream:
            hint = "a transform keeps the name of the stream; `target:` in the pipeline file gives the target another one"
            raise Error("internal", "not_a_plan", f"`plan` returns the stream {plan.stream!r}", hint)
        columns = plan.columns.items() if isinstance(plan.columns, dict) else [(None, None)]
        if not _are_texts([text for column in columns for text in column]):
            raise Error("internal", "not_a_plan", "`plan` returns columns that are not a dict of names and types")
        for name, value in [("primary_key", plan.primary_key), ("notes", plan.notes)]:
            if not _are_texts(value):
                raise Error("internal", "not_a_plan", f"`plan` returns {name} that is not a list of strings")
        return plan


def _are_texts(values) -> bool:
    return isinstance(values, (list, tuple)) and all(isinstance(value, str) for value in values)


def _relation(input: script.Relation) -> Relation:
    return Relation(input.stream, json.loads(input.columns), input.primary_key)


class Transformer(script.Transformer):
    """Transforms one stream, batch by batch."""

    def __init__(self, connector: Connector, relation: Relation, behind: List[str], types: Dict[str, str]):
        self.connector, self.relation, self.types = connector, relation, types
        self.before, self.behind = list(relation.columns), behind

    def transform(self, rows: int, columns: List[bytes]) -> script.Rows:
        with errors(self.relation.stream):
            values = map(json.loads, columns)
            given = Rows(dict(zip(self.before, values)), rows)
            result = self.connector.transform(self.relation, given)
            # Text, not bytes: componentize-py 0.25 never frees bytes that it hands over.
            if not isinstance(result, Columns):
                return script.Rows_ObjectsText(rows_text(result, self.types, "`transform` returns", "return"))
            return script.Rows_ColumnsText(columns_text(result, self.behind, self.types, "`transform` returns"))
