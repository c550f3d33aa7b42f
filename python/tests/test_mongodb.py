"""Rows into and out of a server of MongoDB's protocol."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import uuid
from decimal import Decimal
from typing import Any

import rapidbyte as rb

from support import Folder, MongoServer, package

_databases = itertools.count()
UTC = dt.timezone.utc


class MongoDb(Folder):
    def setUp(self) -> None:
        super().setUp()
        self.url = MongoServer.get().url(f"test_{next(_databases)}")

    def documents(self, table: str) -> list[dict[str, Any]]:
        """Whole documents in canonical Extended JSON, which names the type of each value, in the order of `n`."""
        config = {"documents": "json", "json": "canonical"}
        with rb.read(self.url, table=table, columns="document", config=config) as reader:
            found = [row["document"] for batch in reader for row in batch.to_pylist()]
        return sorted(found, key=lambda document: int(next(iter(document.get("n", {"": 0}).values()))))

    def test_documents_are_deleted_by_their_key(self) -> None:
        rb.write([{"n": n, "v": str(n)} for n in range(5)], self.url, table="keyed", mode="upsert", key="n")
        with rb.sink(self.url, table="keyed", mode="delete", key="n") as sink:
            sink.write([{"n": 1}, {"n": 9}])
            sink.write('{"n": 3}')
        self.assertEqual([document["v"] for document in self.documents("keyed")], ["0", "2", "4"])
        for rows, key, code in [([{"n": 0}], (), "invalid_argument"), ([{"_rapidbyte_deleted": 1}], "n", "invalid_name")]:
            with self.assertRaises(rb.ConfigError) as raised:
                rb.write([{"n": 0, **rows[0]}], self.url, table="keyed", mode="delete", key=key)
            self.assertEqual(raised.exception.code, code)
        for place in ["out/t.parquet", "postgres://h/d"]:
            table = None if place.endswith("parquet") else "t"
            for mode in ["delete", "create"]:
                with self.assertRaises(rb.ConfigError) as raised:
                    rb.write([{"n": 0}], place, table=table, mode=mode, key="n")
                self.assertEqual(raised.exception.code, "invalid_argument")

    def test_values_have_their_types_in_columns_and_in_documents(self) -> None:
        moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
        one = uuid.UUID("12345678-1234-5678-1234-567812345678")
        values = {
            "text": "ü",
            "flag": True,
            "float": 1.0,
            "moment": moment,
            "local": moment.replace(tzinfo=None),
            "day": dt.date(1969, 12, 31),
            "exact": Decimal("1.10"),
            "bytes": b"\x00\xff",
            "uuid": one,
            "list": [1.5, None],
            "nothing": None,
        }
        expected = {
            "text": "ü",
            "flag": True,
            "float": {"$numberDouble": "1.0"},
            "moment": {"$date": {"$numberLong": "1767323045678"}},
            "local": {"$date": {"$numberLong": "1767323045678"}},
            "day": {"$date": {"$numberLong": "-86400000"}},
            "exact": {"$numberDecimal": "1.10"},
            "bytes": {"$binary": {"base64": "AP8=", "subType": "00"}},
            "uuid": {"$binary": {"base64": "EjRWeBI0VngSNFZ4EjRWeA==", "subType": "04"}},
            "list": [{"$numberDouble": "1.5"}, None],
            "nothing": None,
        }
        nested = {**values, "not a number": float("nan"), "far": float("-inf"), "inner": {"list": [moment, {"x": 1}]}}
        rb.write([{"n": 1, **values, "nested": nested}], self.url, table="values")
        [found] = self.documents("values")
        self.assertEqual({name: found[name] for name in values}, expected)
        self.assertEqual({name: found["nested"][name] for name in values}, expected)
        self.assertEqual(found["nested"]["not a number"], {"$numberDouble": "NaN"})
        self.assertEqual(found["nested"]["far"], {"$numberDouble": "-Infinity"})
        self.assertEqual(found["nested"]["inner"], {"list": [expected["moment"], {"x": {"$numberInt": "1"}}]})
        # What the package bson makes of them is what it made before.
        rb.write(rb.read(self.url, table="values", columns=["n", "nested"]), self.url, table="again")
        [again] = self.documents("again")
        self.assertEqual(again["nested"], found["nested"])

    def test_object_ids_are_values_texts_or_documents(self) -> None:
        digits = "65a1b2c3d4e5f60718293a4b"
        rows = [{"_id": {"$oid": digits}, "n": 1}, {"_id": {"$oid": digits[::-1]}, "n": 2}]
        rb.write(rows, self.url, table="ids", mode="upsert", key="_id")
        self.assertEqual([found["_id"] for found in self.documents("ids")], [row["_id"] for row in rows])
        reader = rb.read(self.url, table="ids", where={"_id": {"$oid": digits}})
        self.assertEqual(reader.columns[0], ("_id", "string"))
        self.assertEqual([row["_id"] for batch in reader for row in batch.to_pylist()], [digits])
        # Arrow data that was read says that its strings are ObjectIds.
        rb.write(rb.read(self.url, table="ids", columns=["_id", "n"]), self.url, table="ids", mode="upsert", key="_id")
        self.assertEqual([found["_id"] for found in self.documents("ids")], [row["_id"] for row in rows])
        with rb.sink(self.url, table="texts") as sink:
            sink.write([{"_id": digits, "n": 1}])
        self.assertEqual([found["_id"] for found in self.documents("texts")], [digits])

    def test_classes_of_bson_are_values(self) -> None:
        bson = package("bson")
        decimal128 = package("bson.decimal128")
        first, second = bson.ObjectId(), bson.ObjectId()
        rows = [
            {"_id": first, "n": 1, "other": second, "price": decimal128.Decimal128("1.50"), "big": bson.Int64(5)},
            {"_id": second, "n": 2, "other": None, "price": None, "big": None, "raw": bson.Binary(b"x")},
        ]
        with rb.sink(self.url, table="classes", key="_id", mode="upsert") as sink:
            for row in rows:
                sink.write([{"raw": b"", **row, "nested": {"id": row["_id"]}}])
        found = self.documents("classes")
        self.assertEqual([one["_id"] for one in found], [{"$oid": str(first)}, {"$oid": str(second)}])
        self.assertEqual([one["nested"]["id"] for one in found], [{"$oid": str(first)}, {"$oid": str(second)}])
        self.assertEqual(found[0]["price"], {"$numberDecimal": "1.50"})
        self.assertEqual(found[1]["raw"], {"$binary": {"base64": "eA==", "subType": "00"}})
        with self.assertRaises(rb.DataError) as raised:
            rb.write([{"raw": bson.Binary(b"x", 5)}], self.url, table="binary")
        self.assertEqual((raised.exception.code, raised.exception.column), ("unsupported_value", "raw"))
        # A driver finds what was written.
        client = package("pymongo").MongoClient(self.url)
        self.addCleanup(client.close)
        self.assertEqual(client.get_default_database()["classes"].find_one({"_id": first})["other"], second)

    def test_rows_in_every_form(self) -> None:
        @dataclasses.dataclass
        class Point:
            n: int
            at: dict[str, Any]

        rb.write([Point(1, {"x": 1})], self.url, table="forms")
        rb.write('{"n": 2, "at": {"x": 1}}', self.url, table="forms")
        rb.write(lambda: iter([{"n": 3, "at": {"x": 1}}]), self.url, table="forms")
        self.assertEqual([found["at"] for found in self.documents("forms")], [{"x": {"$numberInt": "1"}}] * 3)

    def test_models_and_frames(self) -> None:
        pydantic, pa, pl, pd = package("pydantic"), package("pyarrow"), package("polars"), package("pandas")

        class Inner(pydantic.BaseModel):
            at: dt.datetime

        class Row(pydantic.BaseModel):
            n: int
            inner: list[Inner]

        moment = dt.datetime(2026, 1, 2, tzinfo=UTC)
        rows = [{"n": n, "inner": [{"at": moment}]} for n in range(1, 5)]
        rb.write([Row(**rows[0])], self.url, table="frames")
        rb.write(pl.DataFrame(rows[1:2]), self.url, table="frames")
        rb.write(pa.Table.from_pylist(rows[2:3]), self.url, table="frames")
        rb.write(pd.DataFrame.from_records(rows[3:4]), self.url, table="frames")
        expected = [{"at": {"$date": {"$numberLong": str(int(moment.timestamp() * 1000))}}}]
        self.assertEqual([found["inner"] for found in self.documents("frames")], [expected] * 4)
        table = pa.table(rb.read(self.url, table="frames", columns=["n"], where='{"n": {"$gte": 3}}'))
        self.assertEqual(sorted(table["n"].to_pylist()), [3, 4])
        self.assertEqual(pl.DataFrame(rb.read(self.url, table="frames", columns=["n"])).height, 4)

    def test_modes(self) -> None:
        rows = [{"id": n, "n": n, "v": "a"} for n in range(3)]
        report = rb.write(rows, self.url, table="modes", mode="upsert", key="id")
        self.assertEqual((report.rows, report.streams[0].location), (3, f"{self.url.rpartition('/')[2]}.modes"))
        rb.write([{"id": 2, "n": 2, "v": "b"}, {"id": 3, "n": 3, "v": "b"}], self.url, table="modes", mode="upsert", key="id")
        self.assertEqual([found["v"] for found in self.documents("modes")], ["a", "a", "b", "b"])
        rb.write(rows[:1], self.url, table="modes", mode="replace", key="id")
        self.assertEqual([found["_id"] for found in self.documents("modes")], [{"$numberLong": "0"}])
        rb.write(rows[:2], self.url, table="modes")
        self.assertEqual(len(self.documents("modes")), 3)
        keys = [{"a": 1, "b": "x", "n": 1}]
        rb.write(keys, self.url, table="keys", mode="upsert", key=["a", "b"])
        self.assertEqual(self.documents("keys")[0]["_id"], {"a": {"$numberLong": "1"}, "b": "x"})

    def test_a_sink_shows_its_rows_at_its_end(self) -> None:
        with rb.sink(self.url, table="clicks") as sink:
            for n in range(50):
                self.assertEqual(sink.write([{"n": n, "more": {"at": [n]}}]), 1)
            with self.assertRaises(rb.Error):
                self.documents("clicks")
        assert sink.report
        self.assertEqual(sink.report.rows, 50)
        # Small writes are sent together.
        self.assertEqual(sink.report.raw["streams"][0]["batches"], 1)
        self.assertEqual([int(found["n"]["$numberLong"]) for found in self.documents("clicks")], list(range(50)))

    def test_a_write_into_a_sink_whose_run_failed_says_why(self) -> None:
        with self.assertRaises(rb.Error) as raised, rb.sink("mongodb://127.0.0.1:1/shop", table="t") as sink:
            while True:
                sink.write([{"n": 1}])
        self.assertEqual(raised.exception.code, "connect_failed")

    def test_a_sink_that_fails_leaves_nothing(self) -> None:
        rb.write([{"n": 0}], self.url, table="kept")
        with self.assertRaises(ZeroDivisionError), rb.sink(self.url, table="kept") as sink:
            sink.write({"n": n} for n in range(200_000))
            raise ZeroDivisionError
        self.assertEqual([int(found["n"]["$numberLong"]) for found in self.documents("kept")], [0])
        rb.write([{"n": 1}], self.url, table="kept")
        self.assertEqual([int(found["n"]["$numberLong"]) for found in self.documents("kept")], [0, 1])

    def test_a_write_whose_rows_raise_leaves_nothing(self) -> None:
        def rows() -> Any:
            yield from ({"n": n} for n in range(100_000))
            raise ZeroDivisionError

        rb.write([{"n": 0}], self.url, table="raised")
        with self.assertRaises(ZeroDivisionError):
            rb.write(rows(), self.url, table="raised")
        self.assertEqual(len(self.documents("raised")), 1)

    def test_many_rows_come_back(self) -> None:
        rows = 30_000
        rb.write(({"n": n, "name": f"name {n}"} for n in range(rows)), self.url, table="many")
        reader = rb.read(self.url, table="many", columns=["n", "name"])
        found = {row["n"]: row["name"] for batch in reader for row in batch.to_pylist()}
        self.assertEqual(found, {n: f"name {n}" for n in range(rows)})
        part = rb.read(self.url, table="many", columns="n", where={"n": {"$lt": 5}})
        self.assertEqual(sorted(row["n"] for batch in part for row in batch.to_pylist()), [0, 1, 2, 3, 4])

    def test_a_query_document_has_values_of_python(self) -> None:
        first = dt.datetime(2026, 1, 1, tzinfo=UTC)
        rows = [{"n": n, "at": first + dt.timedelta(days=n), "sum": Decimal("0.5") * n} for n in range(4)]
        rb.write(rows, self.url, table="dated")
        for where in [{"at": {"$gt": rows[1]["at"]}}, {"sum": {"$gte": Decimal("1.0")}}]:
            reader = rb.read(self.url, table="dated", columns=["n", "at"], where=where)
            found = sorted((row["n"], row["at"]) for batch in reader for row in batch.to_pylist())
            self.assertEqual(found, [(row["n"], row["at"]) for row in rows[2:]])

    def test_a_collection_with_points_in_its_name(self) -> None:
        rb.write([{"n": 1, "v": "${HOME}"}], self.url, table="shop.orders.old")
        self.assertEqual([found["v"] for found in self.documents("shop.orders.old")], ["${HOME}"])
        rb.write([{"n": 2}], self.url, table="orders")
        self.assertEqual(len(self.documents("orders")), 1)

    def test_settings_of_the_connector(self) -> None:
        fine = [{"n": 1, "at": dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "none": None}]
        with self.assertRaises(rb.DataError) as raised:
            rb.write(fine, self.url, table="fine")
        error = raised.exception
        self.assertEqual((error.code, error.column), ("value_does_not_fit", "at"))
        self.assertIn('config={"sub_millisecond": "cut"}', str(error.hint))
        rb.write(fine, self.url, table="fine", config={"sub_millisecond": "cut", "nulls": "omit"})
        [found] = self.documents("fine")
        self.assertEqual(found["at"], {"$date": {"$numberLong": "1767225600000"}})
        self.assertNotIn("none", found)
        with self.assertRaises(rb.DataError) as nested:
            rb.write([{"n": 0}, {"n": 1, "in": {"at": fine[0]["at"]}}], self.url, table="nested")
        self.assertEqual((nested.exception.row, nested.exception.column), (1, "in"))

    def test_errors_name_arguments(self) -> None:
        rb.write([{"n": 1}], self.url, table="named")
        nowhere = "mongodb://me:geheim@127.0.0.1:1/shop"
        without = self.url.rpartition("/")[0]
        row = [{"n": 1}]
        cases = [
            (lambda: rb.write(row, self.url), None, "no_table"),
            (lambda: rb.read(self.url), None, "no_table"),
            (lambda: rb.read(self.url, query="select 1"), None, "invalid_argument"),
            (lambda: rb.read(self.url, table="n*"), None, "invalid_argument"),
            (lambda: rb.write(row, without, table="t"), "argument to=", "invalid_setting"),
            (lambda: rb.write(row, f"{self.url}?more=1", table="t"), "argument to=", "invalid_url"),
            (lambda: rb.write(row, self.url.replace("mongodb", "mongodb+srv"), table="t"), "argument to=", "invalid_url"),
            (lambda: rb.write(row, self.url, table="t", config={"bulk_rows": 0}), "argument config=", "invalid_setting"),
            (lambda: rb.write(row, self.url, table="t", config={"url": "x"}), None, "invalid_argument"),
            (lambda: rb.write(row, self.url, table="_rapidbyte_checkpoint"), None, "invalid_name"),
            (lambda: rb.write(row, self.url, table="a$b"), "argument table=", "invalid_name"),
            (lambda: rb.read(self.url, table="absent"), "argument table=", "mongo_no_collections"),
            (lambda: rb.read(self.url, table="named", where="{"), "argument where=", "invalid_where"),
            (lambda: rb.read("named.parquet", where={"n": 1}), None, "invalid_argument"),
            (lambda: rb.write(row, nowhere, table="t"), None, "connect_failed"),
            (lambda: rb.read(nowhere, table="t"), None, "connect_failed"),
        ]
        for number, (call, location, code) in enumerate(cases):
            with self.subTest(code, number=number), self.assertRaises(rb.Error) as raised:
                call()
            error = raised.exception
            self.assertEqual(error.code, code)
            if location:
                self.assertEqual(error.location, location)
            self.assertNotIn("geheim", str(error))
            self.assertNotIn("pipeline", f"{error.message} {error.hint}")
        with self.assertRaises(rb.SchemaError) as raised:
            rb.write([{"_id": 1, "id": 2}], self.url, table="hinted", mode="upsert", key="id")
        self.assertEqual(raised.exception.hint, 'set key="_id", or leave the column out')

    def test_other_destinations_take_text_for_object_ids(self) -> None:
        class ObjectId:
            binary = bytes.fromhex("65a1b2c3d4e5f60718293a4b")

        rb.write([{"id": ObjectId(), "nested": {"id": ObjectId()}}], "ids.jsonl")
        digits = ObjectId.binary.hex()
        with open("ids.jsonl") as file:
            self.assertEqual(json.load(file), {"id": digits, "nested": {"id": digits}})
