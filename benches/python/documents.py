"""Python's documents as rows: how long the interpreter is held, and what other threads get beside it."""

from __future__ import annotations

import datetime
import json
import threading
import time
from typing import Any

import pyarrow
import rapidbyte as rb
from figures import Bench

DOCUMENTS = 200_000
#: How long the threads of a round run beside each other.
SECONDS = 3.0
#: Rows a second of the sink beside which another thread computes.
RATE = 20_000

#: A destination that takes batches and does nothing with them, so that only the conversion is measured.
NOWHERE = {
    "version": 1,
    "pipeline": "bench",
    "source": {"use": "python", "streams": [{"name": "rows"}]},
    "destination": {"use": "python", "write_mode": "append"},
}


def document(n: int) -> dict[str, Any]:
    """Make six fields with values of JSON: three texts, an integer, a number and a boolean."""
    return {
        "id": n,
        "name": f"customer {n}",
        "amount": n * 0.37,
        "active": n % 3 == 0,
        "created_at": f"2026-11-{n % 28 + 1:02}T12:00:{n % 60:02}Z",
        "note": f"note {n * 7919 % 1_000_003}",
    }


def into_nothing(rows: Any) -> None:
    moved = []
    rb.run(NOWHERE, inputs={"rows": rows}, output=lambda batch: moved.append(batch.num_rows))
    assert sum(moved) == DOCUMENTS, f"{sum(moved)} of {DOCUMENTS} documents arrived"


def convert(bench: Bench) -> None:
    dicts = [document(n) for n in range(DOCUMENTS)]
    texts = [json.dumps(one) for one in dicts]
    whole = "\n".join(texts)
    moments = [{**one, "created_at": datetime.datetime.fromisoformat(one["created_at"])} for one in dicts]
    work = {
        "dict": lambda: into_nothing(dicts),
        "dict with a datetime": lambda: into_nothing(moments),
        "JSON string each": lambda: into_nothing(texts),
        "NDJSON in one string": lambda: into_nothing(whole),
        "json.loads, then dict": lambda: into_nothing([json.loads(text) for text in texts]),
    }
    micros = 1e6 / DOCUMENTS
    group = f"{DOCUMENTS} documents of six fields, wall time"
    figures = bench.in_turn(group, work, unit="µs each", scale=micros)
    bench.compare(figures, "dict", {"JSON string each": 1.5})
    bench.compare(figures, "JSON string each", {"json.loads, then dict": 2.0})
    # All code that holds the interpreter runs on this thread, which waits without it. JSON text is read without it.
    of_dicts = {name: one for name, one in work.items() if name.startswith("dict")}
    group = "the same, CPU time of the thread with the interpreter"
    of_dicts["pyarrow's from_pylist"] = lambda: pyarrow.Table.from_pylist(dicts)
    held = bench.in_turn(group, of_dicts, clock=time.thread_time, unit="µs each", scale=micros)
    # That is 0.3 µs on a machine on which pyarrow takes 0.456 µs.
    bench.compare(held, "dict", {"pyarrow's from_pylist": 1.5})


def threads(bench: Bench) -> None:
    """Compare how much another thread computes alone and beside a sink with a steady rate."""
    from tables import Tables

    tables = Tables(10)
    alone, beside = [], []
    for _ in range(bench.rounds):
        alone.append(_computed(lambda until: time.sleep(until - time.perf_counter())))
        beside.append(_computed(lambda until: _send(tables.url, until)))
    shares = [100 * ours / theirs for ours, theirs in zip(beside, alone, strict=True)]
    bench.figure(
        f"another thread beside a sink of {RATE} rows a second", "speed it loses", "%", [100 - one for one in shares], 10.0
    )
    # The thread that writes holds the interpreter when it computes.
    rows = [document(n) for n in range(DOCUMENTS)]
    held = []
    for _ in range(bench.rounds):
        tables.sql("TRUNCATE events")
        wall, thread = time.perf_counter(), time.thread_time()
        rb.write(rows, tables.url, table="events")
        held.append(100 * (time.thread_time() - thread) / (time.perf_counter() - wall))
    bench.figure(f"interpreter held while {DOCUMENTS} dicts are written to PostgreSQL", "of the wall time", "%", held, 10.0)


def _send(url: str, until: float) -> None:
    rows = [document(n) for n in range(RATE // 10)]
    with rb.sink(url, table="events") as sink:
        due = time.perf_counter()
        while due < until:
            sink.write(rows)
            due += 0.1
            time.sleep(max(0.0, due - time.perf_counter()))


def _computed(work: Any) -> int:
    """How often another thread gets round its loop while this one works."""
    until = time.perf_counter() + SECONDS
    turns = 0

    def compute() -> None:
        nonlocal turns
        while time.perf_counter() < until:
            sum(range(1000))
            turns += 1

    thread = threading.Thread(target=compute)
    thread.start()
    work(until)
    thread.join()
    return turns
