"""Every kind of value and every form of rows, through files and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import json
import typing
import uuid
from decimal import Decimal
from typing import NamedTuple

import rapidbyte as rb

from support import Folder, package


def back(path: str) -> list[dict]:
    return [row for batch in rb.read(path) for row in batch.to_pylist()]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Person:
    id: int
    name: str | None


class Pair(NamedTuple):
    id: int
    name: str


ROWS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": None}]
ZONE = dt.timezone(dt.timedelta(hours=2))


class Values(Folder):
    def test_each_kind_of_value_comes_back_as_it_was(self) -> None:
        rows = [
            {
                "flag": True,
                "number": -(2**63),
                "large": 10**30,
                "float": 0.1,
                "text": "ß\u0000😀",
                "bytes": b"\x00\xff",
                "day": dt.date(1969, 12, 31),
                "time": dt.time(23, 59, 59, 999999),
                "moment": dt.datetime(1, 1, 1, 0, 0, 0, 1),
                "zoned": dt.datetime(2026, 3, 29, 2, 30, tzinfo=ZONE),
                "span": dt.timedelta(days=-1, microseconds=7),
                "id": uuid.UUID(int=7),
                "price": Decimal("-12.345"),
                "tags": ["a", None, "b"],
                "nested": {"a": [1, {"b": None}], "day": dt.date(2026, 1, 2)},
                "colour": Colour.RED,
                "empty": None,
            },
            {"price": Decimal("1E+3"), "large": 5, "float": 3, "tags": []},
        ]
        report = rb.write(rows, "out/values.parquet")
        self.assertEqual(report.rows, 2)
        first, second = back("out/values.parquet")
        expected = {**rows[0], "colour": "red", "nested": {"a": [1, {"b": None}], "day": "2026-01-02"}}
        self.assertEqual(first, expected)
        self.assertEqual((second["price"], second["large"], second["float"], second["tags"]), (1000, 5, 3.0, []))
        self.assertIsInstance(second["float"], float)
        self.assertIsNone(second["flag"])

    def test_all_forms_of_rows_give_one_result(self) -> None:
        text = "\n".join(json.dumps(row) for row in ROWS)
        forms = {
            "list": ROWS,
            "generator": (row for row in ROWS),
            "dataclasses": [Person(1, "Ada"), Person(2, None)],
            "named tuples": [Pair(1, "Ada"), Pair(2, None)],  # type: ignore[arg-type]
            "ndjson": text,
            "ndjson bytes": text.encode(),
            "array": json.dumps(ROWS, indent=2),
            "lines": [json.dumps(row) for row in ROWS],
            "file": io.BytesIO(text.encode()),
            "text file": io.StringIO(text),
            "function": lambda: iter(ROWS),
            "memoryview": memoryview(text.encode()),
        }
        for name, rows in forms.items():
            with self.subTest(name):
                path = f"out/{name.replace(' ', '-')}.parquet"
                rb.write(rows, path)
                self.assertEqual(back(path), ROWS)

    def test_arrow_data_of_other_libraries_is_taken(self) -> None:
        pa, pl, pd = package("pyarrow"), package("polars"), package("pandas")
        table = pa.table({"id": [1, 2], "name": ["Ada", None]})
        forms = {
            "table": table,
            "batch": table.to_batches()[0],
            "reader": table.to_reader(),
            "batches": iter(table.to_batches()),
            "polars": pl.DataFrame(ROWS),
            "pandas": pd.DataFrame(ROWS),
            "dictionary": table.set_column(1, "name", table["name"].dictionary_encode()),
        }
        for name, rows in forms.items():
            with self.subTest(name):
                rb.write(rows, f"out/{name}.parquet")
                self.assertEqual(back(f"out/{name}.parquet"), ROWS)
        rb.write(pl.DataFrame({"a": [1], "n": [None]}), "out/null.parquet")
        self.assertEqual(back("out/null.parquet"), [{"a": 1, "n": None}])
        frame = pd.DataFrame({"n": [1, 2, 3]}, index=["x", "y", "z"])
        for name, rows, columns in [
            ("filtered", frame[frame["n"] > 1], ["n"]),
            ("named", frame.rename_axis("key"), ["key", "n"]),
            ("range", pd.DataFrame({"n": [1]}).rename_axis("key"), ["key", "n"]),
            ("levels", frame.set_index([pd.Index(["a", "b", "c"], name="key"), pd.Index([7, 8, 9])]), ["key", "n"]),
        ]:
            rb.write(rows, f"out/{name}.parquet")
            self.assertEqual([column for column, _ in rb.read(f"out/{name}.parquet").columns], columns)
        objects = pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)})
        periods = pd.DataFrame({"a": pd.period_range("2024-01", periods=2, freq="M")})
        for value in [objects, periods]:
            with self.subTest(type(value)), self.assertRaises(rb.ConfigError) as raised:
                rb.write(value, "out/wrong.parquet")
            self.assertEqual((raised.exception.code, raised.exception.column), ("unsupported_type", "a"))
        large = pa.table({"a": pa.array([Decimal("1200")], pa.decimal128(5, -2))})
        rb.write(large, "out/large.arrow")
        self.assertEqual(back("out/large.arrow"), [{"a": Decimal(1200)}])
        with rb.sink("out/sink.jsonl", mode="replace") as sink:
            sink.write([{"a": "x"}])
            sink.write(pd.DataFrame({"a": ["y"]}))
        self.assertEqual(back("out/sink.jsonl"), [{"a": "x"}, {"a": "y"}])
        texts = ['{"a": 1}', b'{"a": 2}', bytearray(b'{"a": 3}'), memoryview(b'{"a": 4}')]
        rb.write(iter(texts), "out/texts.parquet")
        self.assertEqual(back("out/texts.parquet"), [{"a": n} for n in range(1, 5)])
        with rb.sink("out/texts.jsonl") as sink:
            self.assertEqual(sum(sink.write([text]) for text in texts), 4)
        self.assertEqual(back("out/texts.jsonl"), [{"a": n} for n in range(1, 5)])
        rb.write('{"a": {"n": 12345678901234567890.123, "m": 0.1}}', "out/numbers.parquet")
        [row] = back("out/numbers.parquet")
        self.assertEqual(row["a"], {"n": Decimal("12345678901234567890.123"), "m": 0.1})
        for value in [pl.LazyFrame({"a": [1]}), pd.Series([1]), pa.array([1])]:
            with self.subTest(type(value)), self.assertRaises(rb.Error) as raised:
                rb.write(value, "out/wrong.parquet")
            self.assertIsNotNone(raised.exception.hint)
        read = rb.read("out/table.parquet")
        self.assertEqual(pa.table(read).to_pylist(), ROWS)
        self.assertEqual(pl.DataFrame(rb.read("out/table.parquet")).to_dicts(), ROWS)

    def test_extension_types_of_arrow_are_values_or_keep_their_storage(self) -> None:
        pa = package("pyarrow")
        number = uuid.UUID(int=7)
        bools = pa.array([2, 0, None], pa.int8()).cast(pa.bool8())
        table = pa.table(
            {
                "u": pa.array([number.bytes, None, number.bytes], pa.uuid()),
                "j": pa.array(['{"a": [1]}', None, "5"], pa.json_()),
                "b": bools,
                "l": pa.ListArray.from_arrays([0, 1, 1, 3], bools),
                "s": pa.StructArray.from_arrays([bools], ["b"]),
                "o": pa.array([b"x", None, b"y"], pa.opaque(pa.binary(), "point", "maps")),
            }
        )
        rb.write(table, "out/extensions.arrow")
        reader = rb.read("out/extensions.arrow")
        self.assertEqual(
            [kind for _, kind in reader.columns],
            ["uuid", "json", "bool", "list<bool>", "json", "binary as arrow.opaque"],
        )
        rows = [row for batch in reader for row in batch.to_pylist()]
        self.assertEqual([row["u"] for row in rows], [number, None, number])
        self.assertEqual([row["j"] for row in rows], [{"a": [1]}, None, 5])
        self.assertEqual([row["b"] for row in rows], [True, False, None])
        self.assertEqual([row["l"] for row in rows], [[True], [], [False, None]])
        self.assertEqual([row["s"] for row in rows], [{"b": True}, {"b": False}, {"b": None}])
        self.assertEqual([row["o"] for row in rows], [b"x", None, b"y"])

    def test_structs_are_documents_with_the_text_of_dicts(self) -> None:
        pa, pl = package("pyarrow"), package("polars")
        row = {
            "a": {
                "moment": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
                "zoned": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc),
                "day": dt.date(2026, 1, 2),
                "time": dt.time(1, 2),
                "price": Decimal("1.50"),
                "float": 0.1,
                "text": "ß\n",
                "flag": True,
                "inner": {"list": [1, None], "empty": []},
                "none": None,
            },
            "l": [{"n": 1}, None],
            "t": "x",
        }
        rb.write([row, {"t": "y"}], "out/dicts.jsonl")
        expected = (self.folder / "out/dicts.jsonl").read_text()
        forms = {"pyarrow": pa.Table.from_pylist([row, {"a": None, "l": None, "t": "y"}])}
        forms["polars"] = pl.DataFrame(forms["pyarrow"])
        forms["batches"] = iter(forms["pyarrow"].to_batches())
        for name, rows in forms.items():
            with self.subTest(name):
                rb.write(rows, f"out/{name}.jsonl")
                self.assertEqual((self.folder / f"out/{name}.jsonl").read_text(), expected)
        rb.write(forms["pyarrow"], "out/structs.parquet")
        self.assertEqual(rb.read("out/structs.parquet").columns, [("a", "json"), ("l", "json"), ("t", "string")])
        with rb.sink("out/sink.parquet") as sink:
            sink.write([{"a": {"n": 1}}])
            sink.write(pl.DataFrame({"a": [{"n": 2}]}))
        self.assertEqual(back("out/sink.parquet"), [{"a": {"n": 1}}, {"a": {"n": 2}}])
        kept = pa.table({"a": [{"n": 1}]})
        rb.write(kept, "out/kept.parquet", schema=kept.schema)
        self.assertEqual(rb.read("out/kept.parquet").columns, [("a", "struct<n: int64>")])

    def test_documents_in_structs_keep_their_digits(self) -> None:
        pa = package("pyarrow")
        texts = pa.array(['{"n": 1.10, "round": 1e2}', None], pa.string())
        documents = pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)
        table = pa.table({"a": pa.StructArray.from_arrays([documents], ["doc"])})
        rb.write(table, "out/digits.jsonl")
        expected = '{"a":{"doc":{"n":1.10,"round":100}}}\n{"a":{"doc":null}}\n'
        self.assertEqual((self.folder / "out/digits.jsonl").read_text(), expected)

    def test_a_document_in_a_struct_with_a_key_twice_is_refused(self) -> None:
        pa = package("pyarrow")
        for storage in [pa.string(), pa.large_string()]:
            texts = pa.array(['{"a": 1}', '[{"a": 1, "a": 2}]'], storage)
            documents = pa.ExtensionArray.from_storage(pa.json_(storage), texts)
            with self.assertRaises(rb.DataError) as raised:
                rb.write(pa.table({"s": pa.StructArray.from_arrays([documents], ["doc"])}), "out/twice.jsonl")
            error = raised.exception
            self.assertEqual((error.code, error.row, error.column), ("value_does_not_fit", 1, "s"))

    def test_a_struct_with_two_fields_of_one_name_is_refused(self) -> None:
        pa = package("pyarrow")
        struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
        for column in [struct, pa.array([[None]], pa.list_(struct.type))]:
            with self.assertRaises(rb.DataError) as raised:
                rb.write(pa.table({"a": column}), "out/twins.parquet")
            self.assertEqual((raised.exception.code, raised.exception.column), ("unsupported_type", "a"))

    def test_values_in_structs_are_refused_as_those_in_dicts(self) -> None:
        pa = package("pyarrow")
        nanos = pa.array([None, 1], pa.timestamp("ns"))
        cases = [[b"x"], [float("nan")], [dt.timedelta(1)]]
        arrays = [pa.array([None, *values]) for values in cases] + [nanos]
        for array in arrays:
            table = pa.table({"a": pa.StructArray.from_arrays([array], ["v"])})
            with self.subTest(array.type), self.assertRaises(rb.DataError) as raised:
                rb.write(table, "out/wrong.parquet")
            error = raised.exception
            self.assertEqual((error.code, error.row, error.column), ("value_does_not_fit", 1, "a"))
            self.assertIsNotNone(error.hint)

    def test_zones_and_deep_documents_are_values_or_errors(self) -> None:
        pa = package("pyarrow")
        moment = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
        for name, offset in [("+05:30", 330), ("-08:00", -480), ("+00:00", 0), ("Europe/Berlin", 60)]:
            rb.write(pa.table({"a": pa.array([moment], pa.timestamp("us", name))}), "out/zone.arrow", mode="replace")
            [row] = back("out/zone.arrow")
            self.assertEqual((row["a"], row["a"].utcoffset()), (moment, dt.timedelta(minutes=offset)))
        unknown = pa.table({"a": pa.array([moment], pa.timestamp("us", "Nowhere/City"))})
        rb.write(unknown, "out/unknown.arrow")
        rb.write('{"a": ' * 100_000 + "1" + "}" * 100_000, "out/deep.jsonl")
        deep: dict = {}
        for _ in range(3000):
            deep = {"a": deep}
        for call, code in [
            (lambda: back("out/unknown.arrow"), "unsupported_value"),
            (lambda: back("out/deep.jsonl"), "too_deep"),
            (lambda: rb.write([deep], "out/wrong.jsonl"), "too_deep"),
        ]:
            with self.assertRaises(rb.DataError) as raised:
                call()
            self.assertEqual((raised.exception.code, raised.exception.column), (code, "a"))
            self.assertIsNotNone(raised.exception.hint)

    def test_a_row_that_changes_while_it_is_read_is_refused(self) -> None:
        class Greedy:
            def keys(self):
                row["more"] = 1
                return []

            def __getitem__(self, name):
                raise KeyError(name)

        class Fickle(Greedy):
            def keys(self):
                row["other"] = row.pop("last", row.pop("other", 0))
                return []

        for value in [Greedy(), Fickle()]:
            row = {"id": 1, "value": value, "last": 2}
            try:
                rb.write([row], "out/rows.jsonl", mode="replace")
            except rb.DataError as error:
                self.assertEqual(error.code, "rows_changed")
            else:
                self.assertIsInstance(value, Fickle)

    def test_values_of_numpy_are_those_of_python_or_refused(self) -> None:
        np = package("numpy")
        row = {
            "a": np.int32(5),
            "b": np.float64(0.5),
            "c": np.datetime64("2026-01-02T03:04:05.000006", "ns"),
            "d": np.array([1, 2]),
            "e": np.array(["2026-01-02"], dtype="M8[ns]"),
            "f": np.timedelta64(5, "ms"),
            "g": np.datetime64("NaT"),
        }
        rb.write([row], "out/numpy.parquet")
        self.assertEqual(
            back("out/numpy.parquet"),
            [
                {
                    "a": 5,
                    "b": 0.5,
                    "c": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
                    "d": [1, 2],
                    "e": [dt.datetime(2026, 1, 2)],
                    "f": dt.timedelta(milliseconds=5),
                    "g": None,
                }
            ],
        )
        wrong = [
            np.datetime64("2026-01-01T00:00:00.000000001"),
            np.timedelta64(5, "M"),
            np.datetime64("20200-01-01"),
            np.datetime64("2020-01-01T00:00:00.000000000001"),
        ]
        for value in wrong:
            with self.subTest(value), self.assertRaises(rb.DataError) as raised:
                rb.write([{"v": value}], "out/wrong.parquet")
            self.assertEqual((raised.exception.code, raised.exception.row), ("value_does_not_fit", 0))

    def test_models_of_pydantic_are_rows_and_schemas(self) -> None:
        pydantic = package("pydantic")

        class Model(pydantic.BaseModel):
            id: int
            name: str | None = None

        rb.write([Model(id=1, name="Ada"), Model(id=2)], "out/models.parquet", schema=Model)
        self.assertEqual(back("out/models.parquet"), ROWS)
        self.assertEqual(rb.read("out/models.parquet").columns, [("id", "int64"), ("name", "string")])

    def test_models_of_pydantic_have_the_fields_of_model_dump(self) -> None:
        pydantic = package("pydantic")

        class Model(pydantic.BaseModel):
            model_config = {"extra": "allow"}
            id: int = pydantic.Field(alias="ID")
            secret: str = pydantic.Field("s", exclude=True)

        class Closed(pydantic.BaseModel):
            id: int
            secret: str = pydantic.Field("s", exclude=True)

        rows = [Model(ID=1, more=2), Model(ID=3)]
        rb.write(rows, "out/models.jsonl")
        dumped = [{"id": 1, "more": 2}, {"id": 3, "more": None}]
        self.assertEqual(back("out/models.jsonl"), dumped)
        self.assertEqual([row.model_dump() for row in rows], [dumped[0], {"id": 3}])
        rb.write([Closed(id=1)], "out/closed.parquet", schema=Closed)
        self.assertEqual(back("out/closed.parquet"), [Closed(id=1).model_dump()])

    def test_models_inside_models_are_those_that_are_declared(self) -> None:
        pydantic = package("pydantic")

        class Public(pydantic.BaseModel):
            name: str

        class Private(Public):
            password: str

        class Row(pydantic.BaseModel):
            user: Public
            users: list[Public]
            numbers: pydantic.RootModel[list[int]]

        row = Row(user=Private(name="a", password="p"), users=[Private(name="b", password="p")], numbers=[1, 2])
        rb.write([row], "out/models.jsonl")
        self.assertEqual(back("out/models.jsonl"), [row.model_dump()])
        self.assertNotIn("password", (self.folder / "out/models.jsonl").read_text())

    def test_class_variables_and_arguments_are_no_fields(self) -> None:
        @dataclasses.dataclass
        class Row:
            a: int
            shared: typing.ClassVar[int] = 4
            given: dataclasses.InitVar[int] = 7

        for rows in [[Row(1)], [{"a": 1}]]:
            rb.write(rows, "out/rows.jsonl", mode="replace", schema=Row)
            self.assertEqual(back("out/rows.jsonl"), [{"a": 1}])
        rb.write([{"row": Row(1)}], "out/rows.jsonl", mode="replace")
        self.assertEqual(back("out/rows.jsonl"), [{"row": {"a": 1}}])

    def test_fields_of_declared_structs_go_by_name(self) -> None:
        pa = package("pyarrow")
        schema = {"s": "struct<a: int64, b: int64>", "l": "list<struct<a: int64, b: int64>>"}
        for given, expected in [({"b": 1, "a": 2}, {"a": 2, "b": 1}), ({"b": 1}, {"a": None, "b": 1})]:
            table = pa.table({"s": [given], "l": [[given]]})
            rb.write(table, "out/structs.parquet", mode="replace", schema=schema)
            self.assertEqual(back("out/structs.parquet"), [{"s": expected, "l": [expected]}])
        with self.assertRaises(rb.DataError) as raised:
            rows = pa.table({"s": [None, {"a": 1, "b": 2, "c": 3}]})
            rb.write(rows, "out/structs.parquet", mode="replace", schema=schema)
        self.assertEqual((raised.exception.code, raised.exception.column), ("value_does_not_fit", "s"))
        self.assertIn('"c"', raised.exception.message)

    def test_bytes_and_text_of_frames_do_not_mix(self) -> None:
        pl = package("polars")
        for first, second in [("a", b"b"), (b"a", "b")]:
            with self.assertRaises(rb.DataError) as raised, rb.sink("out/rows.arrow") as sink:
                sink.write([{"v": first}])
                sink.write(pl.DataFrame({"v": [second]}))
            self.assertEqual((raised.exception.code, raised.exception.column), ("value_does_not_fit", "v"))

    def test_a_sink_that_replaces_by_nothing_is_refused(self) -> None:
        rb.write([{"id": 1}], "out/rows.jsonl")
        with self.assertRaises(rb.DataError) as raised, rb.sink("out/rows.jsonl", mode="replace") as sink:
            sink.write([])
        self.assertEqual(raised.exception.code, "no_columns")
        self.assertEqual(back("out/rows.jsonl"), [{"id": 1}])
        with rb.sink("out/rows.jsonl", mode="replace", schema={"id": "int64"}):
            pass
        self.assertEqual((self.folder / "out/rows.jsonl").read_text(), "")

    def test_what_is_no_type_is_refused_in_a_schema(self) -> None:
        for kind in [5, complex, [int]]:
            with self.subTest(kind=kind), self.assertRaises(rb.ConfigError) as raised:
                rb.write([{"id": 1}], "out/rows.jsonl", schema={"id": kind})
            self.assertEqual((raised.exception.code, raised.exception.column), ("invalid_schema", "id"))

    def test_columns_follow_the_first_rows(self) -> None:
        rows = [{"a": None}, {"a": 1}, {"a": 2.5, "b": [1]}, {"b": [None, 2.0]}]
        rb.write(rows, "out/follow.parquet")
        self.assertEqual(rb.read("out/follow.parquet").columns, [("a", "float64"), ("b", "list<float64>")])
        mixed = [{"a": 1}, {"a": "x"}, {"a": {"b": 2}}]
        rb.write(mixed, "out/mixed.parquet")
        self.assertEqual(back("out/mixed.parquet"), mixed)

    def test_an_error_names_row_and_column(self) -> None:
        def many(last: dict):
            for number in range(100_000):
                yield {"id": number, "name": "x" * 20}
            yield last

        cases = [
            (many({"id": "x"}), 100_000, "id", "value_does_not_fit"),
            (many({"more": 1}), 100_000, "more", "unknown_column"),
            ([{"a": 1}, {"a": object()}], 1, "a", "unsupported_value"),
            ([{"a": dt.date(2026, 1, 1)}, {"a": 1}], 1, "a", "mixed_types"),
            ([{"a": 1}, 5], 1, None, "not_a_row"),
            ([{"a": {1: 2}}], 0, "a", "invalid_key"),
            ([{"a": {"b": float("nan")}}], 0, "a", "value_does_not_fit"),
            ([{"a": Decimal("NaN")}], 0, "a", "value_does_not_fit"),
            ([{"a": 10**80}], None, "a", "value_does_not_fit"),
            (['{"a": 1}', '{"a": '], 1, None, "jsonl_broken_line"),
            (['{"a": 1}', b'{"a": 2}', "x"], 2, None, "jsonl_broken_line"),
            (['[{"a": 1}, {"a": 2}]', '{"a": 3}', '{"a": 4]'], 3, None, "jsonl_broken_line"),
            (['{"a": 1}', {"a": 2}], 1, None, "mixed_rows"),
            ('[{"a": 1} {"a": 2}]', 1, None, "jsonl_broken_line"),
        ]
        for number, (rows, row, column, code) in enumerate(cases):
            with self.subTest(code=code, number=number):
                with self.assertRaises(rb.DataError) as raised:
                    rb.write(rows, f"out/error{number}.parquet")
                error = raised.exception
                self.assertEqual((error.row, error.column, error.code), (row, column, code), error)
                self.assertFalse((self.folder / f"out/error{number}.parquet").exists())

    def test_a_declared_schema_decides(self) -> None:
        schema = {"id": "int32 not null", "price": "decimal(9, 2)", "at": "timestamp(ms)"}
        rows = [{"id": 1, "price": Decimal("1.5"), "at": dt.datetime(2026, 1, 1, 0, 0, 0, 1000)}]
        rb.write(rows, "out/declared.parquet", schema=schema)
        self.assertEqual(
            rb.read("out/declared.parquet").columns,
            [("id", "int32"), ("price", "decimal(9, 2)"), ("at", "timestamp(ms)")],
        )
        wrong = {"id": 2**40}, {"id": None}, {"id": 1, "other": 2}, {"id": 1, "price": Decimal("1.234")}
        for row in wrong:
            with self.subTest(row), self.assertRaises(rb.DataError) as raised:
                rb.write([row], "out/wrong.parquet", schema=schema)
            self.assertIsNotNone(raised.exception.column)
        with self.assertRaises(rb.ConfigError):
            rb.write(rows, "out/wrong.parquet", schema={"id": "int33"})
        for value in ["x", Decimal("123.4")]:
            with self.subTest(value), self.assertRaises(rb.DataError) as named:
                rb.write([{"a": value}], "out/wrong.parquet", schema={"a": "decimal(5, 3)"})
            self.assertIn("decimal(5, 3)", str(named.exception))
        for kind, form in [(Decimal, '"decimal(18, 2)"'), (dt.datetime, '"timestamptz"')]:
            with self.subTest(kind), self.assertRaises(rb.ConfigError) as unclear:
                rb.write([{"a": 1}], "out/wrong.parquet", schema={"a": kind})
            self.assertIn(form, str(unclear.exception.hint))

    def test_a_row_that_is_one_object_for_all_is_read_when_it_comes(self) -> None:
        def rows():
            row: dict = {}
            for number in [1, 2, 3.5]:
                row["a"] = number
                yield row

        rb.write(rows(), "out/one.parquet")
        self.assertEqual([row["a"] for row in back("out/one.parquet")], [1.0, 2.0, 3.5])

    def test_rows_are_needed_to_know_columns(self) -> None:
        self.assertEqual(rb.write([], "out/none.parquet").rows, 0)
        with self.assertRaises(rb.DataError) as raised:
            rb.write([], "out/none.parquet", mode="replace")
        self.assertEqual(raised.exception.code, "no_columns")
        with self.assertRaises(rb.DataError):
            rb.write([{}, {}], "out/none.parquet")
        for value in [5, None, object()]:
            with self.subTest(value), self.assertRaises(rb.ConfigError):
                rb.write(value, "out/none.parquet")
