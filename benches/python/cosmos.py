"""Documents into a server of Azure Cosmos DB's protocol, and back, beside its driver: `cargo xtask bench-python cosmos`.

The driver has an open client before its clock starts; rapidbyte connects, plans and commits within its own time. The
driver's `create_item` and the like send one document a request; its transactional batches have up to 100 documents of one
partition. Requests that were made before the clock starts say what the server alone needs.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import bare
import rapidbyte as rb
from documents import document
from figures import Bench, missing
from support import CosmosServer

DOCUMENTS = 500
TENANTS = 5
#: Documents of a batch of the driver.
BATCH = 100
DATABASE = "bench"
#: Each document is a partition of its own, or a fifth of them is one.
KEYS = ["/id", "/tenant"]
#: Times as fast as the driver's single requests.
GOALS = {"create": 1.82, "upsert": 2.86, "replace": 3.95, "delete": 2.06, "query": 3.21, "read": 1.07}
OF_TEXTS = 1.53
QUERY = "SELECT * FROM c WHERE c.number >= 100"
OURS, THEIRS, BATCHES, RAW = "rapidbyte.sink", "azure-cosmos", "azure-cosmos, batches", "rapidbyte.sink, JSON strings"
ALONE = "the server, by single requests"


def row(n: int) -> dict[str, Any]:
    made = document(n)
    return {"id": f"d{made.pop('id'):06}", "tenant": f"t{n % TENANTS}", "number": n, **made}


class Container:
    """A container, which is a new one each round, and rows for it."""

    def __init__(self, server: CosmosServer, database: Any, key: str) -> None:
        self.account = server.account()
        self.port = server.port
        self.config = {"database": DATABASE}
        self.database = database
        self.key = key
        self.numbers = itertools.count()
        self.rows: list[dict[str, Any]] = []
        self.container: Any = None
        self.name = ""

    def make(self, filled: bool) -> None:
        from azure.cosmos import PartitionKey

        if self.container is not None:
            self.database.delete_container(self.name)
        # The checkpoint of a container is by its name.
        self.name = f"c{self.key[1:]}{next(self.numbers)}"
        self.container = self.database.create_container(self.name, PartitionKey(self.key))
        self.rows = [row(n) for n in range(DOCUMENTS)]
        if filled:
            rb.write(self.rows, self.account, table=self.name, config=self.config)

    def expect(self, documents: int, **fields: Any) -> None:
        found = list(self.container.read_all_items())
        assert len(found) == documents, f"{len(found)} documents instead of {documents}"
        for name, value in fields.items():
            assert all(one[name] == value for one in found), name

    def sink(self, mode: str, rows: list[Any] | None = None) -> None:
        key = () if mode == "create" else "id"
        with rb.sink(self.account, table=self.name, mode=mode, key=key, config=self.config) as sink:
            sink.write(self.rows if rows is None else rows)

    def partition(self, row: dict[str, Any]) -> str:
        return row[self.key[1:]]

    def create_in_batches(self) -> None:
        parts: dict[str, list[Any]] = {}
        for row in self.rows:
            parts.setdefault(self.partition(row), []).append(("create", (row,)))
        for partition, operations in parts.items():
            for at in range(0, len(operations), BATCH):
                self.container.execute_item_batch(operations[at : at + BATCH], partition_key=partition)

    def bare(self, mode: str) -> Callable[[], None]:
        """The requests of the driver without the driver."""
        path = f"/dbs/{DATABASE}/colls/{self.name}/docs"
        made = []
        for row in self.rows:
            headers = {"x-ms-documentdb-partitionkey": json.dumps([self.partition(row)])}
            if mode == "upsert":
                headers["x-ms-documentdb-is-upsert"] = "True"
            method = {"replace": "PUT", "delete": "DELETE"}.get(mode, "POST")
            of_one = f"{path}/{row['id']}" if method != "POST" else path
            made.append(bare.request(method, of_one, headers, None if mode == "delete" else row))
        return lambda: bare.send(self.port, made)

    def bare_query(self) -> None:
        headers = {
            "content-type": "application/query+json",
            "x-ms-documentdb-isquery": "True",
            "x-ms-documentdb-query-enablecrosspartition": "True",
        }
        path = f"/dbs/{DATABASE}/colls/{self.name}/docs"
        bare.send(self.port, [bare.request("POST", path, headers, {"query": QUERY, "parameters": []})])

    def create(self) -> None:
        for row in self.rows:
            self.container.create_item(row)

    def upsert(self) -> None:
        for row in self.rows:
            self.container.upsert_item(row)

    def replace(self) -> None:
        for row in self.rows:
            self.container.replace_item(row["id"], row)

    def delete(self) -> None:
        for row in self.rows:
            self.container.delete_item(row["id"], self.partition(row))

    def read_items(self) -> int:
        return sum(1 for row in self.rows if self.container.read_item(row["id"], self.partition(row)))

    def read(self, query: str | None = None) -> int:
        with rb.read(self.account, table=self.name, query=query, config=self.config) as reader:
            return sum(len(batch.to_pylist()) for batch in reader)


def cosmos(bench: Bench) -> None:
    if missing("Azure Cosmos DB", "azure.cosmos"):
        return
    from azure.cosmos import CosmosClient

    server = CosmosServer()
    server.make(DATABASE)
    # The server names an address with TLS, which it does not speak.
    client = CosmosClient(f"http://127.0.0.1:{server.port}/", CosmosServer.KEY, enable_endpoint_discovery=False)
    database = client.get_database_client(DATABASE)
    for key in KEYS:
        container = Container(server, database, key)
        _write(bench, container)
        _texts(bench, container)
        _read(bench, container)


def _write(bench: Bench, container: Container) -> None:
    for mode in ["create", "upsert", "replace", "delete"]:
        alone: list[Callable[[], None]] = []
        work: dict[str, Callable[[], Any]] = {
            OURS: lambda mode=mode: container.sink(mode),
            THEIRS: getattr(container, mode),
            ALONE: lambda alone=alone: alone[0](),
        }
        # The server takes the driver's batches only with documents that are new.
        if container.key != "/id" and mode == "create":
            work[BATCHES] = container.create_in_batches

        def prepare(mode: str = mode, alone: list[Callable[[], None]] = alone) -> None:
            container.make(filled=mode != "create")
            for row in container.rows:
                row["note"] = mode
            alone[:] = [container.bare(mode)]

        def check(_: Any, mode: str = mode) -> None:
            container.expect(0 if mode == "delete" else DOCUMENTS, note=mode)

        group = f"{mode} {DOCUMENTS} documents by {container.key}"
        wall, cpu = bench.wall_and_cpu(group, work, before=prepare, after=check)
        bench.compare(wall, OURS, {THEIRS: GOALS[mode], BATCHES: None, ALONE: None})
        bench.compare(cpu, OURS, {THEIRS: None, BATCHES: None})


def _texts(bench: Bench, container: Container) -> None:
    """Rows that come as texts of JSON: the driver takes dicts alone."""
    texts: list[str] = []

    def prepare() -> None:
        container.make(filled=True)
        texts[:] = map(json.dumps, container.rows)

    def loads() -> None:
        for text in texts:
            container.container.upsert_item(json.loads(text))

    work: dict[str, Callable[[], Any]] = {
        OURS: lambda: container.sink("upsert"),
        RAW: lambda: container.sink("upsert", texts),
        f"{THEIRS}, JSON strings": loads,
    }
    group = f"upsert {DOCUMENTS} JSON strings by {container.key}"
    wall, cpu = bench.wall_and_cpu(group, work, before=prepare, after=lambda _: container.expect(DOCUMENTS))
    for figures, goal in [(wall, OF_TEXTS), (cpu, None)]:
        bench.compare(figures, RAW, {f"{THEIRS}, JSON strings": goal, OURS: None})


def _read(bench: Bench, container: Container) -> None:
    container.make(filled=True)
    query = {
        "rapidbyte.read": lambda: container.read(QUERY),
        THEIRS: lambda: len(list(container.container.query_items(QUERY, enable_cross_partition_query=True))),
        ALONE: container.bare_query,
    }
    ids = ", ".join(repr(row["id"]) for row in container.rows).replace("'", '"')
    by_id = {
        "rapidbyte.read": lambda: container.read(f"SELECT * FROM c WHERE c.id IN ({ids})"),
        THEIRS: container.read_items,
    }
    whole = {
        "rapidbyte.read": container.read,
        THEIRS: lambda: len(list(container.container.read_all_items())),
    }
    for name, work, rows in [("query", query, DOCUMENTS - 100), ("read", by_id, DOCUMENTS), ("read all", whole, DOCUMENTS)]:

        def check(found: int | None, rows: int = rows) -> None:
            assert found in (rows, None), f"{found} documents instead of {rows}"

        wall, cpu = bench.wall_and_cpu(f"{name} {rows} documents by {container.key}", work, after=check)
        bench.compare(wall, "rapidbyte.read", {THEIRS: GOALS.get(name), ALONE: None})
        bench.compare(cpu, "rapidbyte.read", {THEIRS: None})
