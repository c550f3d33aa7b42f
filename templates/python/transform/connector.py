"""{{name}}: a transform that hides the text of a column. Replace it with your own step."""

from rapidbyte import Error


class Connector:
    name = "{{name}}"
    version = "0.1.0"
    description = "Hides the text of a column"
    # The keys of `config:`, as a JSON Schema; other keys are refused.
    # The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
    # else in `__init__`.
    config = {
        "properties": {
            "column": {"type": "string", "description": "The text column to hide."},
        },
        "required": ["column"],
    }

    def __init__(self, config):
        self.column = config["column"]

    def plan(self, relation):
        """The columns and the key behind the transform. The answer must depend on the configuration and on the relation
        alone. A column that keeps its name and type also keeps the type that it has in the source."""
        if relation.columns.get(self.column) not in ("string", "string not null"):
            text = f"there is no text column {self.column}"
            raise Error("schema", "unknown_column", text, "name a column of the type string", column=self.column)
        return relation

    def transform(self, relation, rows):
        """The rows that come of some rows: as many as you like, and of these rows alone, because the host gives the same
        rows again when it retries a stream. `rows.columns` has the same values as a list for each column; returning
        `Columns` with lists is faster than returning dicts."""
        return [{**row, self.column: None if row[self.column] is None else "***"} for row in rows]
