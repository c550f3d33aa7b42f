"""The times that a program waits for the import, and for a few rows."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import rapidbyte as rb
from documents import document
from figures import Bench
from tables import Tables

WRITES = 200


def small(bench: Bench) -> None:
    modules = {"nothing": "pass", "rapidbyte": "import rapidbyte"}

    def start(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    work = {name: lambda code=code: start(code) for name, code in modules.items()}
    figures = bench.in_turn("import in a new interpreter", work, unit="ms", scale=1e3)
    own = [with_it - without for with_it, without in zip(figures["rapidbyte"].values, figures["nothing"].values, strict=True)]
    bench.figure("import in a new interpreter", "rapidbyte alone", "ms", own, 50.0)

    tables = Tables(10)
    rows = [document(n) for n in range(10)]
    writes, whole = [], []
    for _ in range(bench.rounds):
        begun = time.perf_counter()
        with rb.sink(tables.url, table="events") as sink:
            each = []
            for _ in range(WRITES):
                before = time.perf_counter()
                sink.write(rows)
                each.append(1e3 * (time.perf_counter() - before))
        writes.append(statistics.median(each))
        whole.append(1e3 * (time.perf_counter() - begun))
    bench.figure("10 rows through an open sink", "sink.write", "ms", writes, 5.0)
    bench.figure("10 rows through an open sink", f"opening, {WRITES} writes, closing", "ms", whole)
    by_hand = "INSERT by psycopg"
    statement = "INSERT INTO events VALUES (%s, %s, %s, %s, %s, %s)"

    def insert() -> None:
        import psycopg

        with psycopg.connect(tables.url) as connection, connection.cursor() as cursor:
            cursor.executemany(statement, [tuple(row.values()) for row in rows])

    work = {"rapidbyte.write": lambda: rb.write(rows, tables.url, table="events"), by_hand: insert}
    figures = bench.in_turn("10 rows, with connection and commit", work, unit="ms", scale=1e3)
    bench.compare(figures, "rapidbyte.write", {by_hand: None})
