"""Runs of pipelines from Python: events, errors, cancelling, threads and processes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest.mock

import rapidbyte as rb

from support import Folder, package

COPY = {
    "version": 1,
    "pipeline": "copy",
    "source": {"use": "source-file", "config": {"path": "in.csv"}, "streams": ["in"]},
    "destination": {"use": "dest-file", "config": {"path": "out/{stream}.jsonl"}, "write_mode": "replace"},
}


def generated(rows: int, to: dict) -> dict:
    source = {"use": "source-generate", "config": {"preset": "narrow", "rows": rows}, "streams": ["*"]}
    return {"version": 1, "pipeline": "made", "source": source, "destination": to}


def written(number: int) -> int:
    return rb.write([{"id": number}], f"out/{number}.jsonl").rows


class Runs(Folder):
    def setUp(self) -> None:
        super().setUp()
        (self.folder / "in.csv").write_text("id,name\n1,Ada\n2,Bo\n")

    def test_a_pipeline_is_planned_checked_and_run(self) -> None:
        plan = rb.plan(COPY)
        self.assertEqual([column.type for column in plan.streams[0].columns], ["int64", "string"])
        self.assertTrue(all(check.ok for check in rb.check(COPY)))
        self.assertEqual(rb.discover(COPY)[0].columns[0], rb.Column("id", "int64", "csv text", True))
        seen: list[rb.Progress] = []
        report = rb.run(COPY, on_progress=seen.append)
        self.assertEqual((report.rows, report.streams[0].name, seen[-1].rows), (2, "in", 2))
        self.assertIn("2 rows", report._repr_html_())

    def test_a_file_and_a_text_are_pipelines_with_params(self) -> None:
        text = textwrap.dedent("""\
            version: 1
            pipeline: copy
            source: { use: source-file, config: { path: "${WHERE}.csv" }, streams: [in] }
            destination: { use: dest-file, config: { path: "out/{stream}.jsonl" }, write_mode: replace }
            """)
        self.assertEqual(rb.run(text, params={"WHERE": "in"}).rows, 2)
        (self.folder / "copy.yaml").write_text(text)
        self.assertEqual(rb.run("copy.yaml", params={"WHERE": "in"}).rows, 2)
        with self.assertRaises(rb.ConfigError) as raised:
            rb.run("copy.yaml")
        self.assertEqual(raised.exception.code, "unset_variable")
        self.assertIn("copy.yaml:3:", raised.exception.location)

    def test_python_is_source_transform_and_destination(self) -> None:
        pa = package("pyarrow")
        threads = set()
        taken = []

        def doubled(batch: rb.Batch):
            threads.add(threading.get_ident())
            table = pa.table(batch)
            return table.set_column(0, "id", pa.array([2 * one.as_py() for one in table["id"]], pa.int64()))

        def rows():
            threads.add(threading.get_ident())
            yield from ({"id": number} for number in range(3))

        pipeline = {
            "version": 1,
            "pipeline": "all",
            "source": {"use": "python", "streams": [{"name": "numbers", "transforms": [{"use": "double"}]}]},
            "destination": {"use": "python", "write_mode": "append"},
        }
        rb.run(
            pipeline,
            inputs={"numbers": rows},
            transforms={"double": rb.transform(doubled)},
            output=lambda batch: taken.append((batch.stream, batch.to_pylist())),
        )
        self.assertEqual(taken, [("numbers", [{"id": 0}, {"id": 2}, {"id": 4}])])
        self.assertEqual(threads, {threading.get_ident()})

    def test_a_missing_part_of_a_pipeline_is_named(self) -> None:
        pipeline = {
            "version": 1,
            "pipeline": "parts",
            "source": {"use": "python", "streams": [{"name": "numbers", "transforms": [{"use": "double"}]}]},
            "destination": {"use": "python", "write_mode": "append"},
        }
        parts = {"inputs": {"numbers": [{"id": 1}]}, "output": print, "transforms": {"double": lambda batch: batch}}
        for left_out in parts:
            given = {name: part for name, part in parts.items() if name != left_out}
            with self.subTest(left_out), self.assertRaises(rb.ConfigError) as raised:
                rb.run(pipeline, **given)
            self.assertIn(f"{left_out}=", str(raised.exception.hint))
        with self.assertRaises(rb.ConfigError) as raised:
            rb.run(pipeline)
        self.assertIn("inputs=", str(raised.exception.hint))
        del parts["output"]
        self.assertTrue(all(check.ok for check in rb.check(pipeline, **parts)))

    def test_a_transform_that_returns_rows_is_refused_with_what_to_return(self) -> None:
        pipeline = {
            "version": 1,
            "pipeline": "rows",
            "source": {"use": "python", "streams": [{"name": "numbers", "transforms": [{"use": "rows"}]}]},
            "destination": {"use": "python", "write_mode": "append"},
        }
        with self.assertRaises(rb.DataError) as raised:
            rb.run(
                pipeline,
                inputs={"numbers": [{"id": 1}]},
                transforms={"rows": lambda batch: batch.to_pylist()},
                output=print,
            )
        self.assertEqual(raised.exception.code, "no_batch")
        self.assertIn("list", str(raised.exception))
        self.assertIn("polars.DataFrame(rows", str(raised.exception.hint))

    def test_a_transform_gives_values_of_the_planned_types_or_is_refused(self) -> None:
        pa = package("pyarrow")
        taken = []

        def run(values, kind) -> None:
            def half(batch: rb.Batch):
                if batch.num_rows == 0:
                    return pa.table({"id": pa.array([], pa.int64()), "half": pa.array([], pa.int64())})
                return pa.table({"half": pa.array(values, kind), "id": pa.table(batch)["id"]})

            pipeline = {
                "version": 1,
                "pipeline": "halves",
                "source": {"use": "python", "streams": [{"name": "numbers", "transforms": [{"use": "half"}]}]},
                "destination": {"use": "python", "write_mode": "append"},
            }
            rb.run(
                pipeline,
                inputs={"numbers": [{"id": 1}, {"id": 2}]},
                transforms={"half": half},
                output=lambda batch: taken.extend(batch.to_pylist()),
            )

        run([7, None], pa.int32())
        self.assertEqual(taken, [{"id": 1, "half": 7}, {"id": 2, "half": None}])
        with self.assertRaises(rb.DataError) as raised:
            run([7.0, None], pa.float64())
        error = raised.exception
        self.assertEqual((error.code, error.column, error.row), ("value_does_not_fit", "half", None))
        self.assertIn("row 0 of a batch that the transform returned", str(error))
        self.assertIn("cast its columns", str(error.hint))

    def test_an_exception_of_the_callers_code_comes_out_and_nothing_stays(self) -> None:
        def rows():
            yield from ({"id": number} for number in range(200_000))
            raise LookupError("gone")

        with self.assertRaisesRegex(LookupError, "gone"):
            rb.write(rows(), "out/rows.jsonl")
        self.assertFalse((self.folder / "out/rows.jsonl").exists())

    def test_an_exception_in_any_function_ends_the_run_whatever_waits(self) -> None:
        def raising(batch: rb.Batch):
            if batch.num_rows and batch.to_pylist()[0]["id"] == 2:
                raise LookupError("gone")
            return batch

        pipeline = {
            "version": 1,
            "pipeline": "raising",
            "source": {"use": "python", "streams": [{"name": "numbers", "transforms": [{"use": "f"}]}]},
            "destination": {"use": "python", "write_mode": "append"},
        }
        batches = [self.batch(number) for number in range(4)]
        for transform, output in [(raising, len), (lambda batch: batch, raising)] * 10:
            with self.assertRaisesRegex(LookupError, "gone"):
                rb.run(pipeline, inputs={"numbers": lambda: iter(batches)}, transforms={"f": transform}, output=output)

    def batch(self, number: int):
        rb.write([{"id": number}], f"out/{number}.arrow")
        [batch] = rb.read(f"out/{number}.arrow")
        return batch

    def test_a_slow_iterator_does_not_keep_a_call_from_its_end(self) -> None:
        taken = []

        def rows():
            while True:
                taken.append(1)
                if len(taken) == 3:
                    cancel.cancel()
                yield {"id": 1}

        forms = {"dicts": rows, "texts": lambda: ('{"id": 1}' for _ in rows())}
        for form, schema in itertools.product(forms.values(), [{"id": "int64"}, None]):
            cancel = rb.Cancel()
            taken.clear()
            with self.assertRaises(rb.Cancelled) as raised:
                rb.write(form(), "out/rows.jsonl", schema=schema, cancel=cancel)
            self.assertEqual(raised.exception.code, "cancelled")
            self.assertLess(len(taken), 10)

    def test_an_iterator_that_has_ended_is_not_asked_again(self) -> None:
        for count in [3, 70_000]:
            asked = []

            class Ended:
                def __iter__(self) -> Ended:
                    return self

                def __next__(self, count: int = count, asked: list[int] = asked) -> dict[str, int]:
                    asked.append(len(asked))
                    if asked[-1] >= count:
                        raise StopIteration
                    return {"n": asked[-1]}

            report = rb.write(Ended(), "ended.jsonl", mode="replace")
            self.assertEqual((report.rows, len(asked)), (count, count + 1))

    def test_an_exception_of_the_last_progress_does_not_hide_the_report(self) -> None:
        told = []

        def raising(progress: rb.Progress) -> None:
            if all(stream.state == "done" for stream in progress.streams):
                raise LookupError("gone")

        with unittest.mock.patch("sys.unraisablehook", told.append):
            self.assertEqual(rb.write([{"id": 1}], "out/rows.jsonl", on_progress=raising).rows, 1)
        self.assertEqual({one.exc_type for one in told}, {LookupError})

    def test_a_sink_whose_write_failed_does_not_end_well(self) -> None:
        def rows():
            yield from ({"id": number} for number in range(100_000))
            raise LookupError("gone")

        with self.assertRaises(rb.DataError) as raised:
            with rb.sink("out/rows.jsonl") as sink:
                sink.write([{"id": -1}])
                with self.assertRaises(LookupError):
                    sink.write(rows())
        self.assertEqual(raised.exception.code, "sink_failed")
        self.assertFalse((self.folder / "out/rows.jsonl").exists())

    def test_keys_of_the_connector_are_given_by_config(self) -> None:
        rb.write([{"id": 1, "name": "a"}], "out/rows.csv", config={"delimiter": ";"})
        with open("out/rows.csv") as file:
            self.assertEqual(file.read(), "id;name\n1;a\n")
        with rb.sink("out/more.csv", config={"delimiter": "|"}) as sink:
            sink.write([{"id": 2, "name": "b"}])
        reader = rb.read("out/more.csv", config={"delimiter": "|"})
        self.assertEqual([batch.to_pylist() for batch in reader], [[{"id": 2, "name": "b"}]])
        cases = [({"path": "x.csv"}, "invalid_argument", None), ({"nothing": 1}, "unknown_key", "argument config=")]
        for config, code, location in cases:
            with self.subTest(code), self.assertRaises(rb.ConfigError) as raised:
                rb.write([{"id": 1}], "out/other.csv", config=config)
            self.assertEqual((raised.exception.code, raised.exception.location), (code, location))

    def test_the_log_goes_to_logging(self) -> None:
        to = {"use": "dest-file", "config": {"path": "out/rows.csv"}, "write_mode": "replace"}
        with self.assertLogs("rapidbyte", logging.DEBUG) as logs:
            rb.run(generated(10, to))
        self.assertTrue(any("committed" in line for line in logs.output), logs.output)

    def test_a_call_is_cancelled_from_another_thread(self) -> None:
        cancel = rb.Cancel()
        to = {"use": "python", "write_mode": "append"}
        with self.assertRaises(rb.Cancelled):
            rb.run(generated(10**12, to), output=lambda batch: cancel.cancel(), cancel=cancel)
        self.assertTrue(cancel.is_cancelled)

    def test_a_task_is_cancelled(self) -> None:
        to = {"use": "dest-file", "config": {"path": "out/rows.csv"}, "write_mode": "replace"}
        begun = threading.Event()

        async def main() -> None:
            run = asyncio.create_task(rb.arun(generated(10**12, to), on_progress=lambda _: begun.set()))
            await asyncio.to_thread(begun.wait)
            run.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await run
            self.assertEqual((await rb.arun(COPY)).rows, 2)
            self.assertEqual([len(batch) async for batch in rb.aread("in.csv")], [2])

        asyncio.run(main())
        self.assertFalse((self.folder / "out/rows.csv").exists())

    def test_ctrl_c_ends_a_run_and_nothing_stays(self) -> None:
        program = textwrap.dedent("""\
            import rapidbyte as rb
            def rows():
                number = 0
                while True:
                    yield {"id": number}
                    number += 1
                    if number == 300_000:
                        print("begun", flush=True)
            try:
                rb.write(rows(), "out/rows.jsonl")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert process.stdout
        self.assertEqual(process.stdout.readline(), "begun\n")
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate()
        self.assertEqual((told, process.returncode), ("interrupted\n", 0))
        self.assertFalse((self.folder / "out/rows.jsonl").exists())

    def test_a_connector_that_traps_is_an_error_also_with_faulthandler(self) -> None:
        kit = os.environ.get("RAPIDBYTE_TESTKIT")
        if not kit:
            self.skipTest("RAPIDBYTE_TESTKIT does not name the components of the tests")
        program = textwrap.dedent(f"""\
            import faulthandler
            faulthandler.enable()
            import rapidbyte as rb
            for how in ["trap", "stack", "panic"]:
                pipeline = {{
                    "version": 1,
                    "pipeline": "trap",
                    "source": {{
                        "use": {os.path.join(kit, "source-misbehave.wasm")!r},
                        "config": {{"how": how}},
                        "streams": ["rows"],
                    }},
                    "destination": {{"use": "python", "write_mode": "append"}},
                }}
                try:
                    rb.run(pipeline, output=lambda batch: None)
                except rb.InternalError as error:
                    print(error.code)
            """)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((done.stdout.split(), done.returncode), (["trapped", "trapped", "panicked"], 0), done.stderr)

    def test_memory_is_bounded_and_nothing_leaks(self) -> None:
        program = textwrap.dedent("""\
            import resource
            import rapidbyte as rb

            def rows(count):
                return ({"id": number, "text": "x" * 1000} for number in range(count))

            def most():
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

            rb.write(rows(1000), "out/small.csv")
            before = most()
            rb.write(rows(200_000), "out/large.csv", resources={"memory": "64mb"})
            print(most() - before)
            before = most()
            for _ in range(100):
                rb.write(rows(1), "out/one.jsonl", mode="replace")
                list(rb.read("out/one.jsonl"))
            print(most() - before)
            """)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        grown, leaked = map(int, done.stdout.split())
        # 200 MB of rows went through.
        self.assertLess(grown, 64)
        self.assertLess(leaked, 16)

    def test_threads_and_processes_run_at_the_same_time(self) -> None:
        numbers: list[int] = []
        threads = [threading.Thread(target=lambda n=n: numbers.append(written(n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(numbers, [1] * 8)
        for method in ["fork", "spawn"]:
            with self.subTest(method):
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    made = pool.map(written, range(10, 14))
                self.assertEqual(made, [1] * 4)
                for number in range(10, 14):
                    (self.folder / f"out/{number}.jsonl").unlink()

    def test_errors_are_pickled(self) -> None:
        with self.assertRaises(rb.Error) as raised:
            rb.run({**COPY, "version": 2})
        error = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((type(error), str(error)), (type(raised.exception), str(raised.exception)))

    def test_a_reader_that_is_left_ends_its_run(self) -> None:
        rb.write([{"id": number} for number in range(300_000)], "out/rows.parquet")
        before = threading.active_count()
        with rb.read("out/rows.parquet") as reader:
            self.assertGreater(len(next(reader)), 0)
        self.assertEqual(list(reader), [])
        del reader
        reader = rb.read("out/rows.parquet")
        next(reader)
        del reader
        self.assertEqual(threading.active_count(), before)
        self.assertEqual(sum(len(batch) for batch in rb.read("out/rows.parquet")), 300_000)
        with self.assertRaises(rb.Error) as raised:
            rb.read("out/missing.parquet")
        self.assertIn("missing.parquet", str(raised.exception))

    def test_other_subinterpreters_are_refused_by_name(self) -> None:
        try:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:
            import _interpreters as interpreters  # type: ignore[import-not-found]
        interpreter = interpreters.create()
        program = textwrap.dedent(f"""\
            import sys
            sys.path[:] = {sys.path!r}
            try:
                import rapidbyte
            except ImportError as error:
                open({os.fspath(self.folder / "told")!r}, "w").write(str(error))
            """)
        interpreters.run_string(interpreter, program)
        interpreters.destroy(interpreter)
        self.assertIn("subinterpreter", (self.folder / "told").read_text())

    def test_importing_is_quick_and_needs_no_other_package(self) -> None:
        program = "import sys; before = set(sys.modules); import rapidbyte; print(*(set(sys.modules) - before))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        packages = {name.split(".")[0] for name in done.stdout.split()}
        self.assertFalse(packages & {"numpy", "pandas", "polars", "pyarrow", "pydantic"}, packages)

    def test_the_interpreter_is_free_while_rows_move(self) -> None:
        turns = 0
        ended = threading.Event()

        def turn() -> None:
            nonlocal turns
            while not ended.is_set():
                turns += 1
                time.sleep(0)

        thread = threading.Thread(target=turn)
        thread.start()
        to = {"use": "dest-file", "config": {"path": "out/rows.csv"}, "write_mode": "replace"}
        rb.run(generated(100_000, to))
        ended.set()
        thread.join()
        self.assertGreater(turns, 100)
