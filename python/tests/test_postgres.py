"""Writing to and reading from a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import rapidbyte as rb

from support import Folder, Server, package


class Postgres(Folder):
    def setUp(self) -> None:
        super().setUp()
        self.server = Server.get()
        self.url = self.server.url

    def rows(self, query: str) -> list[dict]:
        return [row for batch in rb.read(self.url, query=query) for row in batch.to_pylist()]

    def test_rows_are_appended_replaced_and_upserted(self) -> None:
        rb.write([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo"}], self.url, table="crew", mode="replace")
        rb.write([{"id": 3, "name": "Cy"}], self.url, table="crew")
        rb.write([{"id": 9, "name": "only"}], self.url, table="other", mode="upsert", key="id")
        rb.write([{"id": 9, "name": "new"}, {"id": 8, "name": "more"}], self.url, table="other", mode="upsert", key="id")
        self.assertEqual(
            [row["name"] for row in self.rows("select * from public.crew order by id")], ["Ada", "Bo", "Cy"]
        )
        self.assertEqual([row["name"] for row in self.rows("select * from public.other order by id")], ["more", "new"])

    def test_an_existing_table_keeps_its_types(self) -> None:
        types = {"a": "int32", "b": "float64", "c": "decimal(5, 2)", "d": "float32", "e": "string", "f": "int16"}
        rb.write([], self.url, table="typed", mode="replace", schema=types)
        row = {"a": 1, "b": 2, "c": 3.25, "d": 0.1, "e": "x", "f": 7}
        rb.write([row], self.url, table="typed")
        rb.write('{"a": 2, "e": {"n": [1]}}', self.url, table="typed")
        with rb.sink(self.url, table="typed") as sink:
            sink.write([{"a": 3, "c": 4}])
        rows = self.rows("select a, b, c, d::text as d, e, f from public.typed order by a")
        self.assertEqual(rows[0], {**row, "b": 2.0, "c": Decimal("3.25"), "d": "0.1"})
        self.assertEqual((rows[1]["e"], rows[2]["c"]), ('{"n": [1]}', Decimal("4.00")))
        wrong = [{"a": 2**31}, {"b": 2**53 + 1}, {"c": 0.125}, {"d": 0.1234567890123}, {"a": 1.5}]
        wrong += [{"c": float("nan")}, {"d": 1e39}]
        for row in wrong:
            with self.subTest(row), self.assertRaises(rb.DataError) as raised:
                rb.write([{"e": "y"}, row], self.url, table="typed")
            self.assertEqual((raised.exception.row, raised.exception.column), (1, next(iter(row))))
        self.assertEqual(len(self.rows("select * from public.typed")), 3)
        rb.write([{"d": float("nan")}, {"d": 0.1}, {}, {"d": float("-inf")}], self.url, table="typed")
        rows = self.rows("select d::text as d from public.typed where a is null and e is null")
        self.assertEqual(sorted(str(row["d"]) for row in rows), ["-Infinity", "0.1", "NaN", "None"])
        reader = rb.read(self.url, table="typed")
        self.assertEqual([kind for _, kind in reader.columns], list(types.values()))

    def test_text_does_not_become_bytes(self) -> None:
        pl = package("polars")
        schema = {"id": "int64", "b": "binary", "all": "list<binary>"}
        rb.write([{"id": 1, "b": b"AB", "all": [b"A"]}], self.url, table="blobs", mode="replace", schema=schema)
        forms = {
            "rows": [{"b": None}, {"b": "\\x4142"}],
            "json": '{"b": null} {"b": "\\\\x4142"}',
            "frame": pl.DataFrame({"b": [None, "abc"]}),
            "documents": [{"b": None}, {"b": {"x": 1}}],
            "lists": [{"all": None}, {"all": ["\\x41"]}],
        }
        for name, rows in forms.items():
            with self.subTest(name), self.assertRaises(rb.DataError) as raised:
                rb.write(rows, self.url, table="blobs")
            error = raised.exception
            column = "all" if name == "lists" else "b"
            self.assertEqual((error.code, error.row, error.column), ("value_does_not_fit", 1, column))
            self.assertIn("bytes", str(error.hint))
        with self.assertRaises(rb.SchemaError) as refused:
            rb.write([{"b": "\\x4142"}], self.url, table="blobs", schema={"b": "string"})
        self.assertEqual(refused.exception.column, "b")
        rb.write('{"id": 2, "b": "\\\\x4143"}', self.url, table="blobs", schema=schema)
        rows = self.rows("select b from public.blobs order by id")
        self.assertEqual([row["b"] for row in rows], [b"AB", b"AC"])

    def test_bytes_do_not_become_text(self) -> None:
        rb.write([{"id": 1}], self.url, table="texts", mode="replace", schema={"id": "int64", "t": "string", "j": "json"})
        for column in ["t", "j"]:
            with self.subTest(column), self.assertRaises(rb.DataError) as raised:
                rb.write([{"id": 2}, {column: b"abc"}], self.url, table="texts")
            self.assertEqual((raised.exception.row, raised.exception.column), (1, column))
        schema = {"id": "int64", "all": "list<binary>"}
        rb.write([{"id": 1, "all": []}], self.url, table="lists", mode="replace", schema=schema)
        rb.write([{"id": 2, "all": []}, {"id": 3, "all": [None]}], self.url, table="lists")
        rows = self.rows('select "all" from public.lists order by id')
        self.assertEqual([row["all"] for row in rows], [[], [], [None]])

    def test_real_takes_its_own_values(self) -> None:
        rb.write([{"v": 0.5}], self.url, table="reals", mode="replace", schema={"v": "float32"})
        rb.write([{"v": 0.1}, {"v": 16777216.0}, {"v": float("inf")}], self.url, table="reals")
        held = self.rows("select v from public.reals where v <> 0.5")
        rb.write(held, self.url, table="reals")
        found = [row["v"] for row in self.rows("select v, count(*) as n from public.reals group by v having count(*) = 2")]
        self.assertEqual(sorted(found), sorted(row["v"] for row in held))
        with self.assertRaises(rb.DataError) as raised:
            rb.write([{"v": 0.5}, {"v": 16777217.0}], self.url, table="reals")
        self.assertEqual((raised.exception.row, raised.exception.column), (1, "v"))
        with self.assertRaises(rb.DataError):
            rb.write([{"v": 123456790}], self.url, table="reals")
        rb.write([{"v": 123456792}], self.url, table="reals")

    def test_lists_of_real_take_their_own_values(self) -> None:
        self.server.execute("create table real_lists (id int, v real[])")
        given = [[0.1, None, 16777216.0, float("inf")], [], None, [0.5]]
        rb.write([{"id": row, "v": value} for row, value in enumerate(given)], self.url, table="real_lists")
        held = self.rows("select * from public.real_lists order by id")
        self.assertEqual([row["v"] for row in held], [[0.10000000149011612, None, 16777216.0, float("inf")], *given[1:]])
        rb.write(held, self.url, table="real_lists", mode="replace")
        self.assertEqual(self.rows("select * from public.real_lists order by id"), held)
        rows = [{"id": 0, "v": [1.5, 2.5]}, {"id": 1, "v": []}, {"id": 2, "v": [0.5, 16777217.0]}]
        with self.assertRaises(rb.DataError) as raised:
            rb.write(rows, self.url, table="real_lists")
        self.assertEqual((raised.exception.row, raised.exception.column), (2, "v"))
        rows[2]["v"] = [0.5, 16777217]
        with self.assertRaises(rb.DataError):
            rb.write(rows, self.url, table="real_lists")
        pa = package("pyarrow")
        for kind in [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float32())]:
            table = pa.table({"id": pa.array([row["id"] for row in held], pa.int32()), "v": pa.array([row["v"] for row in held], kind)})
            rb.write(table, self.url, table="real_lists", mode="replace")
            self.assertEqual(self.rows("select * from public.real_lists order by id"), held)

    def test_a_name_of_a_table_is_no_pattern(self) -> None:
        rb.write([{"id": 1}], self.url, table="gab", mode="replace")
        with self.assertRaises(rb.ConfigError) as raised:
            rb.read(self.url, table="g*")
        self.assertEqual(raised.exception.code, "invalid_argument")

    def test_times_go_exactly_into_columns_with_fewer_digits(self) -> None:
        whole = dt.datetime(2026, 1, 2, 3, 4, 5)
        zoned = whole.replace(tzinfo=dt.timezone.utc)
        cases = [
            ("timestamp(0)", whole, dt.timedelta(microseconds=500_000)),
            ("timestamp(3)", whole + dt.timedelta(milliseconds=7), dt.timedelta(microseconds=1)),
            ("timestamptz(0)", zoned, dt.timedelta(microseconds=1)),
        ]
        for number, (kind, exact, more) in enumerate(cases):
            table = f"coarse{number}"
            self.server.execute(f"create table {table} (id bigint, v {kind}, l {kind}[], t time(0))")
            with self.subTest(kind):
                row = {"id": 1, "v": exact, "l": [exact, None], "t": dt.time(1, 2, 3)}
                rb.write([row], self.url, table=table)
                self.assertEqual(self.rows(f"select * from public.{table}"), [row])
                for column, value in [("v", exact + more), ("l", [exact + more]), ("t", dt.time(1, 2, 3, 4))]:
                    with self.assertRaises(rb.DataError) as raised:
                        rb.write([row, {column: value}], self.url, table=table)
                    error = raised.exception
                    self.assertEqual((error.code, error.row, error.column), ("value_does_not_fit", 1, column))
                self.assertEqual(len(self.rows(f"select id from public.{table}")), 1)

    def test_structs_of_frames_are_documents_as_dicts_are(self) -> None:
        pa, pl, pd = package("pyarrow"), package("polars"), package("pandas")
        rows = [{"id": 1, "s": {"a": 1, "l": [{"b": None}]}, "n": [[1, 2], [3]]}, {"id": 2, "s": None, "n": []}]
        forms = {
            "rows": rows,
            "pyarrow": pa.Table.from_pylist(rows),
            "polars": pl.DataFrame(rows),
            "pandas": pd.DataFrame(rows),
        }
        for name, given in forms.items():
            with self.subTest(name):
                schema = {"id": "int64", "s": "json", "n": "json"}
                rb.write(given, self.url, table="documents", mode="replace", schema=schema)
                self.assertEqual(self.rows("select * from public.documents order by id"), rows)
                with self.assertRaises(rb.DataError) as raised:
                    rb.write(given, self.url, table=f"uneven_{name}")
                self.assertEqual(raised.exception.column, "n")

    def test_a_table_is_read_in_part(self) -> None:
        made = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
        rows = [{"id": n, "total": Decimal("1.10") * n, "at": made, "more": {"n": n}} for n in range(10)]
        rb.write(rows, self.url, table="parcels", mode="replace")
        reader = rb.read(self.url, table="parcels", columns=["id", "more"], where="id >= 8")
        self.assertEqual(reader.columns, [("id", "int64"), ("more", "json")])
        self.assertEqual(
            sorted((row["id"], row["more"]["n"]) for batch in reader for row in batch.to_pylist()), [(8, 8), (9, 9)]
        )
        first = self.rows("select total, at from public.parcels where id = 1")
        self.assertEqual(first, [{"total": Decimal("1.10"), "at": made}])

    def test_a_sink_shows_its_rows_at_its_end(self) -> None:
        with rb.sink(self.url, table="clicks", key="id", mode="upsert") as sink:
            self.assertEqual(sink.write([{"id": 1, "name": "a"}]), 1)
            self.assertEqual(sink.write('{"id": 2, "name": "b"}\n{"name": null, "id": 3}'), 2)
            with self.assertRaises(rb.DataError):
                sink.write([{"id": "x"}])
            self.assertEqual(sink.write([{"id": 4}]), 1)
        assert sink.report
        self.assertEqual(sink.report.rows, 4)
        self.assertEqual(len(self.rows("select * from public.clicks")), 4)
        with self.assertRaises(rb.ConfigError):
            sink.write([{"id": 5}])

    def test_a_sink_that_fails_shows_nothing(self) -> None:
        rb.write([{"id": 1}], self.url, table="kept", mode="replace")
        with self.assertRaises(ZeroDivisionError), rb.sink(self.url, table="kept") as sink:
            sink.write({"id": number} for number in range(100_000))
            raise ZeroDivisionError
        self.assertEqual(len(self.rows("select * from public.kept")), 1)

    def test_errors_of_the_server_say_what_happened(self) -> None:
        cases = [
            (self.url.replace("/postgres", "/missing"), rb.Error, "missing"),
            ("postgres://rapid@127.0.0.1:1/postgres", rb.ConnectionError, "127.0.0.1:1"),
        ]
        for url, kind, text in cases:
            with self.subTest(url), self.assertRaises(kind) as raised:
                rb.write([{"id": 1}], url, table="t")
            self.assertIn(text, str(raised.exception))
        for url in ["Postgres://me:geheim@localhost/x", " postgres://me:geheim@localhost/x", "mysql:/me:geheim@x"]:
            with self.subTest(url), self.assertRaises(rb.ConfigError) as raised:
                rb.write([{"id": 1}], url, table="t")
            self.assertEqual(raised.exception.code, "unknown_place")
            self.assertNotIn("geheim", str(raised.exception))
        with self.assertRaises(rb.ConfigError) as raised:
            rb.write([{"id": 1}], self.url, table="t", mode="upsert", key="missing")
        self.assertIn("id", str(raised.exception))
        with self.assertRaises(rb.ConfigError) as raised:
            rb.write([{"id": 1}], self.url)
        self.assertEqual(raised.exception.code, "no_table")
        with self.assertRaises(rb.Error) as secret:
            rb.write([{"id": 1}], "postgres://rapid:geheim-geheim@127.0.0.1:1/x", table="t")
        self.assertNotIn("geheim", str(secret.exception))

    def test_errors_of_calls_name_their_arguments(self) -> None:
        rb.write([{"id": 1}], self.url, table="named", mode="replace")
        rb.write([{"id": 1}], "out/named.parquet")

        def sink() -> None:
            with rb.sink("out/other.parquet", mode="upsert", key="id") as sink:
                sink.write([{"id": 1}])

        cases = [
            (lambda: rb.read(self.url, table="named", columns=["x"]), "columns", "unknown_column"),
            (lambda: rb.read(self.url, table="named", columns=[]), "columns", "invalid_value"),
            (lambda: rb.read(self.url, table="named", where="x = 1"), "where", "invalid_where"),
            (lambda: rb.read("out/named.parquet", where="id = 1"), "where", "unsupported_where"),
            (lambda: rb.read(self.url, query="selec 1"), "query", "invalid_query"),
            (lambda: rb.read(self.url, table="absent"), "table", "unknown_stream"),
            (lambda: rb.read("out/absent.parquet"), "source", "no_file_matches"),
            (lambda: rb.write([{"id": 1}], "out/named.parquet"), "to", "file_exists"),
            (lambda: rb.write([{"id": 1}], "out/a.parquet", mode="upsert", key="id"), "mode", "unsupported_write_mode"),
            (lambda: rb.write([{"id": 1}], self.url, table="t", resources={"memory": "x"}), "resources", "invalid_value"),
            (lambda: rb.write([{"id": 1}], self.url, table="t", more=1), "more", "unknown_key"),
            (sink, "mode", "unsupported_write_mode"),
        ]
        for number, (call, argument, code) in enumerate(cases):
            with self.subTest(code, number=number), self.assertRaises(rb.Error) as raised:
                call()
            error = raised.exception
            self.assertEqual((error.location, error.code), (f"argument {argument}=", code))
            for word in ["pipeline", "write_mode", "columns:", "where:", "streams["]:
                self.assertNotIn(word, f"{error.message} {error.hint}")
        with self.assertRaises(rb.Error) as raised:
            rb.write([{"id": 1}, {"id": 1}], self.url, table="twice", mode="replace", key="id")
        self.assertIn('mode="upsert"', str(raised.exception))
        self.assertEqual(rb.read(self.url, table="named", columns="id").columns, [("id", "int64")])

    def test_hints_of_calls_name_arguments(self) -> None:
        server = Server.get()
        server.execute("CREATE TABLE hinted (id bigint PRIMARY KEY, code text UNIQUE)")
        server.execute("INSERT INTO hinted VALUES (1, 'a')")

        def write(**arguments: Any) -> Callable[[], Any]:
            rows = arguments.pop("rows", [{"id": 1, "code": "a"}])
            return lambda: rb.write(rows, self.url, **{"table": "hinted", **arguments})

        twice = [{"id": 2, "code": "b"}, {"id": 2, "code": "c"}]
        key = {"mode": "upsert", "key": "id"}
        cases = [
            (write(), "pg_23505", ['mode="upsert" with key=', 'mode="replace"']),
            (write(rows=twice, mode="replace"), "pg_23505", ['mode="upsert" with them as key=']),
            (write(rows=[{"id": 2, "code": "a"}], **key), "pg_23505", ["name them as key=, because"]),
            (write(rows=[{"id": None, "code": "b"}]), "pg_23502", ["the rows have NULL"]),
            (
                write(rows=[{"id": 3, "code": "c", "more": 1}], schema_changes={"new_column": "fail"}),
                "column_refused",
                ["leave it out"],
            ),
            (
                write(rows=[{"id": 3}], schema_changes={"dropped_column": "fail"}),
                "column_dropped",
                ['set "dropped_column": "keep"'],
            ),
            (
                write(rows=[{"id": 3, "code": "1" * 3_000_000}], resources={"max_record_bytes": "2mb"}),
                "record_too_large",
                ['raise "max_record_bytes" of resources='],
            ),
        ]
        for number, (call, code, words) in enumerate(cases):
            with self.subTest(code, number=number), self.assertRaises(rb.Error) as raised:
                call()
            error = raised.exception
            self.assertEqual(error.code, code)
            for word in words:
                self.assertIn(word, str(error.hint))
            for word in ["primary_key", "write_mode", "where", "columns:", "columns=", "stream", "the source", "resources."]:
                self.assertNotIn(word, f"{error.message} {error.hint}")

    def test_texts_of_the_caller_have_no_variables(self) -> None:
        rb.write([{"v": "${HOME}", "a$b": 1}], self.url, table="money$", mode="upsert", key="a$b")
        self.assertEqual(self.rows("select v from public.\"money$\" where v = '${HOME}'"), [{"v": "${HOME}"}])
        reader = rb.read(self.url, table="money$", columns=["a$b"], where="v = '${HOME}'")
        self.assertEqual([batch.to_pylist() for batch in reader], [[{"a$b": 1}]])

    def test_threads_that_write_to_one_table_take_turns(self) -> None:
        failed = []

        def write(number: int) -> None:
            try:
                rb.write([{"id": number}], self.url, table="turns")
            except rb.Error as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(len(self.rows("select * from public.turns")), 6)

    def test_a_reader_is_closed_by_another_thread(self) -> None:
        reader = rb.read(self.url, query="select pg_sleep(600)::text as v")
        thread = threading.Timer(0.3, reader.close)
        thread.start()
        with self.assertRaises(rb.Cancelled):
            list(reader)
        thread.join()

    def test_spans_come_back(self) -> None:
        rows = [{"v": dt.timedelta(days=1, microseconds=5)}, {"v": None}]
        rb.write(rows, self.url, table="spans", mode="replace")
        self.assertEqual(self.rows("select v from public.spans order by v nulls last"), rows)
        with self.assertRaises(rb.DataError) as raised:
            self.rows("select interval '1 month' as v")
        self.assertEqual(raised.exception.column, "v")

    def test_tables_are_verified(self) -> None:
        rb.write([{"id": n, "name": str(n)} for n in range(100)], self.url, table="source", mode="replace", key="id")
        pipeline = {
            "version": 1,
            "pipeline": "verified",
            "source": {"use": "source-postgres", "config": {"url": "${URL}"}, "streams": ["public.source"]},
            "destination": {
                "use": "dest-postgres",
                "config": {"url": "${URL}", "schema": "copied"},
                "write_mode": "replace",
            },
        }
        rb.run(pipeline, params={"URL": self.url})
        self.assertTrue(rb.verify(pipeline, params={"URL": self.url}).equal)
        rb.write([{"id": 7, "name": "x"}], self.url, table="copied.source", mode="upsert", key="id")
        verified = rb.verify(pipeline, params={"URL": self.url})
        self.assertFalse(verified.equal)
        self.assertEqual(len(verified.streams[0].rows), 1)
