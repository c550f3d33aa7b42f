"""The end of a program whose other threads are in calls."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import textwrap

import rapidbyte as rb

from support import Folder, MongoServer, Server

ROUNDS = 20
#: Rows of each write.
ROWS = 50
#: What the programs end with by themselves.
OWN = 7

#: Threads that call without an end, and a main thread that ends while they do.
BUSY = """
    import itertools, sys, threading, uuid
    import rapidbyte as rb

    postgres, mongodb, table, rows = sys.argv[1:4] + [int(sys.argv[4])]
    done = threading.Semaphore(0)

    def made():
        write = str(uuid.uuid4())
        return [{"write": write, "n": n} for n in range(rows)]

    def many():
        # Most of the time of such a call is spent in this code.
        for n in range(20_000):
            yield {"n": n, "text": str(n) * 3}

    def again(call):
        for number in itertools.count():
            try:
                call(number)
            except rb.Error as error:
                assert error.code in ("cancelled", "program_ended", "run_superseded"), error
            done.release()

    def sink(number):
        with rb.sink(mongodb, table=table + "_sink") as sink:
            for row in made():
                sink.write([row])

    def read(number):
        for batch in rb.read(postgres, table=table):
            batch.to_pylist()

    # Their connectors are compiled before the end: nothing interrupts that.
    for place in (postgres, mongodb):
        rb.write(made(), place, table=table)
        rb.read(place, table=table).close()
    calls = [
        lambda number: rb.write(made(), postgres, table=table),
        lambda number: rb.write(iter(made()), postgres, table=table),
        lambda number: rb.write((row for row in made()), mongodb, table=table),
        lambda number: rb.write(made(), mongodb, table=table),
        lambda number: rb.write(made(), f"{table}/a{number}.jsonl"),
        lambda number: rb.write(many(), f"{table}/b{number}.jsonl"),
        lambda number: rb.write(many(), f"{table}/c{number}.jsonl"),
        lambda number: rb.write(many(), f"{table}/d{number}.jsonl"),
        sink,
        read,
    ]
    for call in calls:
        threading.Thread(target=again, args=[call], daemon=True).start()
    for _ in range(2 * len(calls)):
        done.acquire()
    sys.exit(7)
"""


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own, to its end."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


class Ending(Folder):
    def test_a_program_ends_while_threads_are_in_calls(self) -> None:
        postgres, mongodb = Server.get().url, MongoServer.get().url("ending")
        for number in range(ROUNDS):
            table = f"ending{number}"
            done = ended(BUSY, postgres, mongodb, table, str(ROWS))
            self.assertEqual((done.returncode, done.stderr), (OWN, ""), f"round {number}")
            for url, name in [(postgres, table), (mongodb, table), (mongodb, table + "_sink")]:
                with rb.read(url, table=name, columns="write") as reader:
                    rows = [row["write"] for batch in reader for row in batch.to_pylist()]
                # The rows of a write are there, or none of them.
                self.assertEqual(set(collections.Counter(rows).values()), {ROWS}, name)
            for file in (self.folder / table).glob("*.jsonl"):
                lines = [json.loads(line)["n"] for line in file.read_text().splitlines()]
                rows = ROWS if file.name.startswith("a") else 20_000
                self.assertEqual(lines, list(range(rows)), file.name)

    def test_code_that_gives_rows_is_interrupted(self) -> None:
        done = ended("""
            import sys, threading, time
            import rapidbyte as rb

            begun = threading.Event()

            def rows():
                yield {"id": 1}
                begun.set()
                while True:
                    time.sleep(0.001)

            threading.Thread(target=rb.write, args=[rows(), "rows.jsonl"], daemon=True).start()
            begun.wait()
            sys.exit(7)
        """)
        self.assertEqual((done.returncode, done.stderr), (OWN, ""))
        self.assertFalse((self.folder / "rows.jsonl").exists())

    def test_calls_at_the_exit_are_refused_after_the_packages_own_handler(self) -> None:
        done = ended("""
            import atexit, sys

            def late():
                try:
                    rb.write([{"id": 1}], "late.jsonl")
                except rb.Cancelled as error:
                    print(error.code, error.hint, error)
                try:
                    next(reader)
                except rb.Cancelled as error:
                    print(error.code)
                sink.abandon()
                reader.close()

            atexit.register(late)
            import rapidbyte as rb

            atexit.register(lambda: rb.write([{"id": 1}], "early.jsonl"))
            rb.write([{"id": n} for n in range(200_000)], "rows.jsonl")
            reader = rb.read("rows.jsonl")
            next(reader)
            sink = rb.sink("sink.jsonl")
            sink.write([{"id": n} for n in range(100_000)])
            sys.exit(7)
        """)
        self.assertEqual((done.returncode, done.stderr), (OWN, ""))
        first, hint, last = done.stdout.splitlines()
        self.assertTrue(first.startswith("program_ended join the threads"), first)
        self.assertEqual((hint.split()[0], last), ("hint:", "program_ended"))
        self.assertTrue((self.folder / "early.jsonl").exists())
        self.assertFalse((self.folder / "late.jsonl").exists())
        self.assertFalse((self.folder / "sink.jsonl").exists())
