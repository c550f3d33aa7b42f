"""{{name}}: a destination that writes each stream as a file of JSON Lines, complete or not at all.
Replace the file with your system."""

import json

from rapidbyte import Plan
from rapidbyte.files import Output, exists, probe

ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Connector:
    name = "{{name}}"
    version = "0.1.0"
    description = "Writes JSON Lines"
    # The keys of `config:`, as a JSON Schema; other keys are refused.
    # The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
    # else in `__init__`.
    config = {
        "properties": {
            "path": {
                "type": "string",
                "x-grant": "write",
                "description": "The file of each stream; `{stream}` stands for its name. The connector can write no other file.",
            }
        },
        "required": ["path"],
    }
    # The other mode is `append`: a new file for each run, with `{part}` in `path` for its number, begun by
    # `Output.create_new`, so that two runs at once cannot replace each other's file.
    write_modes = ["replace"]

    def __init__(self, config):
        self.path = config["path"]

    def check(self):
        """Checks what a run needs; returns what it checked."""
        probe(self.file("check"))
        return "a file can be created"

    def plan(self, target):
        path = self.file(target.stream)
        return Plan(location=path, is_new=not exists(path))

    def begin(self, target):
        return Writer(self.file(target.stream))

    def file(self, stream):
        return self.path.replace("{stream}", stream)


class Writer:
    """Writes one stream. Nothing of it is visible before `commit`."""

    def __init__(self, path):
        self.file = Output(path)

    def write(self, rows):
        # Rows are dicts; `rows.columns` has the same values as a list for each column.
        self.file.write("".join(ENCODE(row) + "\n" for row in rows))

    def commit(self):
        """Makes all rows visible in one step. Returns the place and the number of bytes."""
        self.file.commit()
        return self.file.path, self.file.bytes

    def abort(self):
        """Removes everything that was written."""
        self.file.abort()
