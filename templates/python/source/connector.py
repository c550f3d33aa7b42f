"""{{name}}: a source that counts. Replace the numbers by the rows of your system."""

from rapidbyte import Checkpoint, Columns, Error, Stream

STREAM = "numbers"
BATCH_ROWS = 2_000


class Connector:
    name = "{{name}}"
    version = "0.1.0"
    description = "Counts"
    # What stands under `config:`, as a JSON Schema; other keys are refused.
    config = {
        "properties": {
            "rows": {"type": "integer", "minimum": 0, "description": "How many numbers there are."}
        },
        "required": ["rows"],
    }
    # `read` goes on behind a checkpoint.
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
        while at < self.rows:
            numbers = range(at, min(at + BATCH_ROWS, self.rows))
            # Rows as dicts would do as well: yield [{"n": n, "label": f"number {n}"} for n in numbers]
            yield Columns(n=list(numbers), label=[f"number {n}" for n in numbers])
            at = numbers.stop
            if request.is_incremental:
                yield Checkpoint(at - 1)


def begin(request):
    """The first number: behind the checkpoint, or at the start that the operator chose."""
    if request.cursor is not None:
        if type(request.cursor) is not int:
            raise Error("config", "invalid_cursor", f"{request.cursor!r} is no checkpoint of this source")
        return request.cursor + 1
    if request.initial:
        try:
            return int(request.initial[0])
        except ValueError:
            text = f"{request.initial[0]!r} is no number"
            raise Error("config", "invalid_cursor", text, "cursor_initial takes a whole number")
    return 0
