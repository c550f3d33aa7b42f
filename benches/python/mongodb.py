"""Documents into a server of MongoDB's protocol, and back into Arrow, beside drivers: `cargo xtask bench-python mongodb`.

Every competitor has an open client before its clock starts; rapidbyte connects, plans and commits within its own time.
Each has the write concern that it has by default.
"""

from __future__ import annotations

import datetime
from typing import Any

import rapidbyte as rb
from documents import document
from figures import Bench, missing
from support import MongoServer

SIZES = [10, 100, 1_000, 10_000, 50_000]
#: How often a program writes pieces of each size into an open sink.
OFTEN = {10: 1_000, 100: 200, 1_000: 20, 10_000: 5, 50_000: 2}
READ = 50_000
#: More documents in one call are refused by FerretDB, whatever it says.
MOST = 25_000
DATABASE = "bench"
COLLECTION = "rows"
#: Times as fast as MongoEngine, and as pymongo.
OF_MONGOENGINE = {10: 1.19, 100: 1.90, 1_000: 1.79, 10_000: 2.92, 50_000: 2.23}
OF_PYMONGO = {1_000: 1.0, 10_000: 1.0, 50_000: 1.0}
OURS, THEIRS, MAPPER = "rapidbyte.write", "pymongo insert_many", "MongoEngine insert"

TYPES = {
    "number": "int64",
    "name": "string",
    "amount": "float64",
    "active": "bool",
    "created_at": "timestamptz",
    "note": "string",
}


def row(n: int) -> dict[str, Any]:
    """Make the document of six fields, with a time that is one. MongoEngine keeps the name `id` for itself."""
    made = document(n)
    created_at = datetime.datetime.fromisoformat(made["created_at"])
    return {"number": made.pop("id"), **made, "created_at": created_at}


class Documents:
    """A collection, and rows for it."""

    def __init__(self, address: str | None) -> None:
        import mongoengine
        import pymongo

        # It runs for minutes, so that its compiler pays.
        self.url = address or MongoServer("-Xmx4g").url(DATABASE)
        self.client = pymongo.MongoClient(self.url)
        self.database = self.client.get_default_database()
        self.collection = self.database[COLLECTION]
        mongoengine.connect(host=self.url)

        class Row(mongoengine.Document):
            number = mongoengine.LongField()
            name = mongoengine.StringField()
            amount = mongoengine.FloatField()
            active = mongoengine.BooleanField()
            created_at = mongoengine.DateTimeField()
            note = mongoengine.StringField()
            meta = {"collection": COLLECTION}

        self.mapper = Row
        self.rows: list[Any] = []

    def empty(self) -> None:
        self.collection.drop()
        self.database.create_collection(COLLECTION)

    def fill(self, rows: list[dict[str, Any]]) -> None:
        """Empty the collection. The rows are copies: pymongo adds a key to each."""
        self.empty()
        self.rows = [dict(row) for row in rows]

    def expect(self, rows: int) -> None:
        found = self.collection.count_documents({})
        assert found == rows, f"{found} documents instead of {rows}"

    def write(self) -> None:
        rb.write(self.rows, self.url, table=COLLECTION)

    def insert_many(self, rows: list[Any] | None = None) -> None:
        rows = self.rows if rows is None else rows
        for at in range(0, len(rows), MOST):
            self.collection.insert_many(rows[at : at + MOST], ordered=False)

    def map(self, rows: list[Any] | None = None) -> None:
        rows = self.rows if rows is None else rows
        for at in range(0, len(rows), MOST):
            mapped = [self.mapper(**row) for row in rows[at : at + MOST]]
            self.mapper.objects.insert(mapped, load_bulk=False)


def mongodb(bench: Bench, address: str | None = None) -> None:
    if missing("MongoDB", "pymongo", "mongoengine", "pymongoarrow"):
        return
    documents = Documents(address)
    _insert(bench, documents)
    _insert_often(bench, documents)
    _insert_singly(bench, documents)
    _read(bench, documents)


def _insert(bench: Bench, documents: Documents) -> None:
    for size in SIZES:
        rows = [row(n) for n in range(size)]
        work = {OURS: documents.write, THEIRS: documents.insert_many, MAPPER: documents.map}
        group = f"insert {size} dicts"
        wall, cpu = bench.wall_and_cpu(
            group, work, before=lambda rows=rows: documents.fill(rows), after=lambda _, size=size: documents.expect(size)
        )
        bench.compare(wall, OURS, {THEIRS: OF_PYMONGO.get(size), MAPPER: OF_MONGOENGINE[size]})
        bench.compare(cpu, OURS, {THEIRS: 3.0 if size >= 10_000 else None, MAPPER: None})


def _insert_often(bench: Bench, documents: Documents) -> None:
    """Write pieces in a row, by a call each, and into a sink, which commits once. The sink opens and commits in its time."""
    for size, writes in OFTEN.items():
        pieces = [[row(n) for n in range(size * at, size * (at + 1))] for at in range(writes)]

        def sink() -> None:
            with rb.sink(documents.url, table=COLLECTION) as sink:
                for piece in documents.rows:
                    sink.write(piece)

        def write() -> None:
            for piece in documents.rows:
                rb.write(piece, documents.url, table=COLLECTION)

        def insert_many() -> None:
            for piece in documents.rows:
                documents.insert_many(piece)

        def map_often() -> None:
            for piece in documents.rows:
                documents.map(piece)

        def fill(pieces: list[Any] = pieces) -> None:
            documents.empty()
            documents.rows = [[dict(row) for row in piece] for piece in pieces]

        work = {"rapidbyte.sink": sink, OURS: write, THEIRS: insert_many, MAPPER: map_often}
        group = f"{writes} × {size} dicts"
        wall, cpu = bench.wall_and_cpu(
            group, work, before=fill, after=lambda _, rows=writes * size: documents.expect(rows)
        )
        bench.compare(wall, "rapidbyte.sink", {THEIRS: 0.8, MAPPER: OF_MONGOENGINE[size]})
        bench.compare(cpu, "rapidbyte.sink", {THEIRS: 3.0})
        bench.compare(wall, OURS, {THEIRS: None, MAPPER: OF_MONGOENGINE[size]})
        bench.compare(cpu, OURS, {THEIRS: 3.0 if size >= 1_000 else None})


def _insert_singly(bench: Bench, documents: Documents) -> None:
    """One document a write, beside the default."""
    size = 10_000
    rows = [row(n) for n in range(size)]

    def singly() -> None:
        rb.write(documents.rows, documents.url, table=COLLECTION, config={"bulk_rows": 1})

    work = {OURS: documents.write, "bulk_rows: 1": singly}
    wall = bench.in_turn(
        f"insert {size} dicts in bulk", work, before=lambda: documents.fill(rows), after=lambda _: documents.expect(size)
    )
    bench.compare(wall, OURS, {"bulk_rows: 1": 50.0})


def _read(bench: Bench, documents: Documents) -> None:
    import pyarrow as pa
    import pymongoarrow.api

    documents.fill([row(n) for n in range(READ)])
    documents.insert_many()
    kinds = {
        "number": pa.int64(),
        "name": pa.string(),
        "amount": pa.float64(),
        "active": pa.bool_(),
        "created_at": pa.timestamp("ms"),
        "note": pa.string(),
    }
    schema = pymongoarrow.api.Schema(kinds)
    declared = {"streams": {COLLECTION: {"schema": TYPES, "unknown_keys": "ignore"}}}
    ours, theirs = "rapidbyte.read, schema", "pymongoarrow, schema"
    inferred, found = "rapidbyte.read", "pymongoarrow"
    work = {
        ours: lambda: pa.table(rb.read(documents.url, table=COLLECTION, config=declared)),
        theirs: lambda: pymongoarrow.api.find_arrow_all(documents.collection, {}, schema=schema),
        inferred: lambda: pa.table(rb.read(documents.url, table=COLLECTION)),
        found: lambda: pymongoarrow.api.find_arrow_all(documents.collection, {}),
    }

    def check(table: Any) -> None:
        assert table.num_rows == READ

    wall, cpu = bench.wall_and_cpu(f"read {READ} documents into Arrow", work, after=check)
    bench.compare(wall, ours, {theirs: 1.5})
    bench.compare(wall, inferred, {found: 1.5})
    bench.compare(cpu, ours, {theirs: None})
