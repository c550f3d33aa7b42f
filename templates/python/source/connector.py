"""{{name}}: a source that counts. Replace the numbers with the rows of your system."""

from rapidbyte import Checkpoint, Columns, Error, Stream

STREAM = "numbers"
BATCH_ROWS = 2_000
# About what a row has, in bytes: a batch has no more rows than the host asks bytes for.
ROW_BYTES = 32


class Connector:
    name = "{{name}}"
    version = "0.1.0"
    description = "Counts"
    # The keys of `config:`, as a JSON Schema; other keys are refused.
    # The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
    # else in `__init__`.
    config = {
        "properties": {
            "rows": {"type": "integer", "minimum": 0, "description": "The number of rows."}
        },
        "required": ["rows"],
    }
    # `read` can resume after a checkpoint.
    incremental = True

    def __init__(self, config):
        self.rows = config["rows"]

    def streams(self):
        columns = {"n": "int64 not null", "label": "string"}
        return [
            Stream(STREAM, columns, primary_key=["n"], cursor_fields=["n"], estimated_rows=self.rows)
        ]

    def read(self, request):
        at = begin(request)
        size = max(1, min(BATCH_ROWS, request.batch_bytes // ROW_BYTES))
        while at < self.rows:
            numbers = range(at, min(at + size, self.rows))
            # Rows as dicts would do as well: yield [{"n": n, "label": f"number {n}"} for n in numbers]
            yield Columns(n=list(numbers), label=[f"number {n}" for n in numbers])
            at = numbers.stop
            if request.is_incremental:
                yield Checkpoint(at - 1)


def begin(request):
    """The first number: after the checkpoint, or at the start that the operator chose."""
    if request.cursor is not None:
        if type(request.cursor) is not int:
            raise Error("config", "invalid_cursor", f"{request.cursor!r} is not a checkpoint of this source")
        return request.cursor + 1
    if request.initial:
        try:
            return int(request.initial[0])
        except ValueError:
            text = f"{request.initial[0]!r} is not a number"
            raise Error("config", "invalid_cursor", text, "set cursor_initial to an integer")
    return 0
