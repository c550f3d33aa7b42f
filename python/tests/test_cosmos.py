"""Rows into and out of a server that speaks the protocol of Azure Cosmos DB."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from decimal import Decimal
from typing import Any

import rapidbyte as rb

from support import CosmosServer, Folder

_databases = itertools.count()


class Cosmos(Folder):
    def setUp(self) -> None:
        super().setUp()
        server = CosmosServer.get()
        database = f"python_{next(_databases)}"
        server.make(database)
        self.account, self.config = server.account(), {"database": database}

    def rows(self, table: str, **more: Any) -> list[dict[str, Any]]:
        with rb.read(self.account, table=table, config=self.config, **more) as reader:
            found = [row for batch in reader for row in batch.to_pylist()]
        return sorted(found, key=lambda row: row["id"])

    def test_rows_come_back_as_they_went(self) -> None:
        people = [
            {"id": "1", "name": "Ada", "born": dt.date(1815, 12, 10), "likes": {"tea": True}, "age": 36},
            {"id": "2", "name": None, "born": None, "likes": None, "age": 7},
        ]
        report = rb.write(people, self.account, table="people", mode="upsert", key="id", config=self.config)
        self.assertEqual(report.rows, 2)
        changed = [{"id": "2", "name": "Bo", "age": 8}]
        rb.write(changed, self.account, table="people", mode="upsert", key="id", config=self.config)
        first, second = self.rows("people")
        self.assertEqual((first["name"], first["born"], first["age"]), ("Ada", "1815-12-10", 36))
        self.assertEqual((second["name"], second["age"]), ("Bo", 8))
        older = self.rows("people", query="SELECT c.id FROM c WHERE c.age > 20")
        self.assertEqual([row["id"] for row in older], ["1"])
        self.assertEqual([row["id"] for row in self.rows("people", where="c.age < 20")], ["2"])

    def test_a_sink_writes_in_one_commit(self) -> None:
        with rb.sink(self.account, table="events", config=self.config) as sink:
            for n in range(300):
                sink.write([{"n": n}])
        numbers = sorted(row["n"] for row in self.rows("events"))
        self.assertEqual(numbers, list(range(300)))

    def test_create_takes_new_documents_and_delete_removes_them(self) -> None:
        config = {**self.config, "partition_key": "/tenant"}
        rows = [{"id": str(n), "tenant": f"t{n % 2}", "n": n} for n in range(6)]
        texts = [json.dumps(row) for row in rows]
        with rb.sink(self.account, table="orders", mode="create", config=config) as sink:
            sink.write(texts[:3])
            sink.write(rows[3:])
        self.assertEqual([row["n"] for row in self.rows("orders")], list(range(6)))
        with self.assertRaises(rb.DataError) as raised:
            rb.write([{"id": "1", "tenant": "t1", "n": 7}], self.account, table="orders", mode="create", config=config)
        self.assertEqual(raised.exception.code, "cosmos_conflict")
        gone = [{"id": "1", "tenant": "t1"}, {"id": "2", "tenant": "t0"}, {"id": "9", "tenant": "t1"}]
        with rb.sink(self.account, table="orders", mode="delete", key="id", config=config) as sink:
            sink.write(gone)
        self.assertEqual([row["id"] for row in self.rows("orders")], ["0", "3", "4", "5"])
        # In another partition there is no such document.
        elsewhere = lambda: iter([{"id": "3", "tenant": "t0"}])  # noqa: E731
        rb.write(elsewhere, self.account, table="orders", mode="delete", key="id", config=config)
        rb.write('{"id": "4", "tenant": "t0"}', self.account, table="orders", mode="delete", key="id", config=config)
        self.assertEqual([row["id"] for row in self.rows("orders")], ["0", "3", "5"])

    def test_a_text_that_is_not_json_is_named_by_its_row(self) -> None:
        with self.assertRaises(rb.DataError) as raised:
            rb.write(['{"id": "1"}', '{"id": "2"'], self.account, table="texts", config=self.config)
        self.assertEqual((raised.exception.row, raised.exception.code), (1, "jsonl_broken_line"))

    def test_a_read_looks_at_its_container_alone(self) -> None:
        rb.write([{"id": str(n), "v": n} for n in range(7)], self.account, table="many", config=self.config)
        # Pages of the sample are not read twice, and none is left out.
        config = {**self.config, "page_items": 2, "sample_documents": 3}
        with rb.read(self.account, table="many", config=config) as reader:
            found = [row["v"] for batch in reader for row in batch.to_pylist()]
        self.assertEqual(sorted(found), list(range(7)))
        with self.assertRaises(rb.Error) as raised:
            self.rows("nowhere")
        self.assertEqual(raised.exception.code, "cosmos_not_found")

    def test_what_json_does_not_hold_is_refused_by_name(self) -> None:
        for value, code in [(2**53 + 1, "value_not_exact"), (Decimal("1.10"), "column_refused")]:
            with self.assertRaises(rb.Error) as caught:
                rb.write([{"v": value}], self.account, table="exact", config=self.config)
            self.assertEqual((caught.exception.code, caught.exception.column), (code, "v"))
        kept = {**self.config, "decimals": "text"}
        rb.write([{"v": Decimal("1.10")}], self.account, table="exact", config=kept)
        self.assertEqual([row["v"] for row in self.rows("exact")], ["1.10"])

    def test_a_wrong_connection_string_is_refused_without_its_key(self) -> None:
        endpoint, key, _ = self.account.split(";")
        for account, config, code in [
            (endpoint, self.config, "invalid_place"),
            (f"{endpoint};{key};Other=secret", self.config, "invalid_place"),
            (self.account, None, "no_database"),
        ]:
            with self.assertRaises(rb.Error) as caught:
                rb.write([{"v": 1}], account, table="t", config=config)
            self.assertEqual(caught.exception.code, code)
            text = f"{caught.exception} {caught.exception.hint}"
            self.assertNotIn(CosmosServer.KEY, text)
            self.assertNotIn("secret", text)
