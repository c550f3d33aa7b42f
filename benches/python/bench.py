"""What the Python package costs, beside other packages: `cargo xtask bench-python`.

Each group of figures has its competitors measured in turn, round by round, so that a busy moment meets all of them. A
competitor that is not installed is left out by name. The table has medians and ratios of medians; every value goes to a
line of the file that `--log` names.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python" / "tests"))

import cosmos  # noqa: E402
import documents  # noqa: E402
import mongodb  # noqa: E402
import small  # noqa: E402
import tables  # noqa: E402
from figures import Bench  # noqa: E402

GROUPS: dict[str, Callable[[Bench], None]] = {
    "write": tables.write,
    "read": tables.read,
    "documents": documents.convert,
    "threads": documents.threads,
    "small": small.small,
    "mongodb": mongodb.mongodb,
    "cosmos": cosmos.cosmos,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="cargo xtask bench-python", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the tables (default: 1000000)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, after one to warm up (default: 9)")
    parser.add_argument("--mongodb", metavar="URL", help="database of MongoDB (default: mongo-java-server is started)")
    parser.add_argument("--log", type=pathlib.Path, help="folder for the file with every value")
    chosen = parser.parse_args()
    if unknown := set(chosen.groups) - set(GROUPS):
        parser.error(f"no group is called {', '.join(sorted(unknown))}: the groups are {', '.join(GROUPS)}")
    if chosen.rows < 10 or chosen.rounds < 1:
        parser.error("--rows takes 10 or more, --rounds 1 or more")
    bench = Bench(chosen.rows, chosen.rounds)
    for name in chosen.groups or GROUPS:
        if name == "mongodb":
            mongodb.mongodb(bench, chosen.mongodb)
        else:
            GROUPS[name](bench)
    bench.print()
    if chosen.log:
        chosen.log.mkdir(parents=True, exist_ok=True)
        file = chosen.log / f"python-{int(time.time())}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in bench.lines()))
        print(f"every value: {file.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
