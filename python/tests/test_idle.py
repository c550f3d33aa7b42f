"""Connections that wait for the next call with the same arguments."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import rapidbyte as rb

from support import CosmosServer, Folder, MongoServer, Server

_names = itertools.count()


class Door:
    """A port in front of a server, which counts connections and can cut them."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.count = 0
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                outer, _ = self._listener.accept()
            except OSError:
                return
            inner = socket.create_connection(("127.0.0.1", self.behind))
            with self._lock:
                self.count += 1
                self._open += [outer, inner]
            threading.Thread(target=self._serve, args=(outer, inner), daemon=True).start()

    def _serve(self, outer: socket.socket, inner: socket.socket) -> None:
        with outer, inner:
            back = threading.Thread(target=self._carry, args=(inner, outer), daemon=True)
            back.start()
            self._carry(outer, inner)
            back.join()
            with self._lock:
                self._open = [one for one in self._open if one not in (outer, inner)]

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass
        _shut_down(one, other)

    def cut(self) -> None:
        """End all connections, as a server does that restarts."""
        with self._lock:
            _shut_down(*self._open)

    def close(self) -> None:
        self._listener.close()
        self.cut()


def _shut_down(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def peers() -> set[int]:
    """The ports that the connections of this process lead to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                found.add(one.getpeername()[1])
        except OSError:
            pass
    return found


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that comes soon."""
    deadline = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen within a minute")
        time.sleep(0.05)


class Idle(Folder):
    def setUp(self) -> None:
        super().setUp()
        rb.close_idle()
        self.addCleanup(rb.close_idle)

    def door(self, port: int) -> Door:
        door = Door(port)
        self.addCleanup(door.close)
        return door

    def databases(self) -> list[tuple[Door, str]]:
        """A door and an address, for PostgreSQL and for MongoDB."""
        server = Server.get()
        postgres = self.door(server.port)
        mongodb = self.door(MongoServer.get().port)
        return [
            (postgres, f"postgres://rapid@127.0.0.1:{postgres.port}/postgres"),
            (mongodb, f"mongodb://127.0.0.1:{mongodb.port}/idle"),
        ]

    @staticmethod
    def ids(url: str, table: str) -> list[int]:
        with rb.read(url, table=table, columns="id") as reader:
            return sorted(row["id"] for batch in reader for row in batch.to_pylist())

    def test_calls_with_the_same_arguments_share_a_connection(self) -> None:
        for door, url in self.databases():
            with self.subTest(url):
                rb.close_idle()
                table = f"shared{next(_names)}"
                for n in range(5):
                    report = rb.write([{"id": n}], url, table=table)
                    self.assertEqual((report.rows, report.streams[0].rows), (1, 1))
                with rb.sink(url, table=table) as sink:
                    sink.write([{"id": 5}])
                self.assertEqual(door.count, 1)
                for mode in ["upsert", "upsert"]:
                    rb.write([{"id": 6}], url, table=table + "k", mode=mode, key="id")
                self.assertEqual(door.count, 2, "another table")
                for _ in range(3):
                    self.assertEqual(self.ids(url, table), list(range(6)))
                self.assertEqual(door.count, 3, "a source")
                self.assertEqual(rb.close_idle(), 3)
                self.assertEqual(rb.close_idle(), 0)
                rb.write([{"id": 6}], url, table=table)
                self.assertEqual(door.count, 4)
                self.assertEqual(self.ids(url, table + "k"), [6])

    def test_a_kept_connection_sees_what_others_changed(self) -> None:
        server = Server.get()
        for number, (statement, row) in enumerate(
            [
                ("ALTER TABLE {} ALTER id TYPE text USING id::text", {"id": "x"}),
                ("DROP TABLE {}", {"id": 7}),
                ("DROP TABLE {0}; CREATE TABLE {0} (id bigint, n int NOT NULL)", {"id": 7, "n": 1}),
                ("TRUNCATE {}", {"id": 7}),
            ]
        ):
            with self.subTest(statement):
                table = f"changed{number}"
                rb.write([{"id": 1}], server.url, table=table)
                server.execute(statement.format(table))
                rb.write([row], server.url, table=table)
                found = [one for batch in rb.read(server.url, table=table) for one in batch.to_pylist()]
                self.assertEqual(found[-1], row)
                if "text" in statement:
                    with self.assertRaises(rb.Error):
                        rb.write([{"id": 1}, {"id": [1]}, {"id": b"x"}], server.url, table=table)
                    rb.write([{"id": "y"}], server.url, table=table)

    def test_a_server_may_restart_between_two_writes(self) -> None:
        server = Server({"fsync": "off"})
        for n in range(3):
            rb.write([{"id": n}], server.url, table="kept")
            server.restart()
        self.assertEqual(self.ids(server.url, "kept"), [0, 1, 2])
        server.restart()
        self.assertEqual(self.ids(server.url, "kept"), [0, 1, 2])
        # It keeps nothing: a new one has the rows of the second write alone.
        before, after = MongoServer("-XX:TieredStopAtLevel=1"), MongoServer("-XX:TieredStopAtLevel=1")
        door = self.door(before.port)
        url = f"mongodb://127.0.0.1:{door.port}/restarted"
        rb.write([{"id": 1}], url, table="kept")
        door.behind = after.port
        before.process.kill()
        before.process.wait()
        rb.write([{"id": 2}], url, table="kept")
        self.assertEqual(self.ids(url, "kept"), [2])

    def test_a_connection_that_broke_is_opened_again(self) -> None:
        for door, url in self.databases():
            with self.subTest(url):
                table = f"cut{next(_names)}"
                for n in range(4):
                    rb.write([{"id": n}], url, table=table)
                    self.assertEqual(self.ids(url, table), list(range(n + 1)))
                    door.cut()
                self.assertEqual(door.count, 8)

    def test_a_failed_call_leaves_no_connection(self) -> None:
        for door, url in self.databases():
            with self.subTest(url):
                table = f"failed{next(_names)}"
                rb.write([{"id": 1}], url, table=table)

                def rows() -> Any:
                    yield {"id": 2}
                    raise ValueError("mine")

                with self.assertRaises(ValueError):
                    rb.write(rows(), url, table=table)
                with self.assertRaises(KeyError), rb.sink(url, table=table) as sink:
                    sink.write([{"id": 3}])
                    raise KeyError
                rb.write([{"id": 4}], url, table=table)
                self.assertEqual(self.ids(url, table), [1, 4])

    def test_a_cancelled_token_does_not_stop_later_calls(self) -> None:
        for door, url in self.databases():
            with self.subTest(url):
                table, cancel = f"cancel{next(_names)}", rb.Cancel()
                rb.write([{"id": 1}], url, table=table, cancel=cancel)
                cancel.cancel()
                rb.write([{"id": 2}], url, table=table)
                self.assertEqual(door.count, 1)
                with self.assertRaises(rb.Cancelled):
                    rb.write([{"id": 3}], url, table=table, cancel=cancel)
                rb.write([{"id": 4}], url, table=table)
                self.assertEqual(self.ids(url, table), [1, 2, 4])

    def test_threads_have_connections_of_their_own(self) -> None:
        for door, url in self.databases():
            with self.subTest(url):
                table, failed = f"threads{next(_names)}", []
                start = threading.Barrier(6)

                def work(thread: int, table: str = table, url: str = url) -> None:
                    try:
                        start.wait()
                        for n in range(5):
                            rb.write([{"id": thread * 10 + n}], url, table=table)
                            rb.write([{"id": n}], url, table=f"{table}of{thread}")
                            assert self.ids(url, f"{table}of{thread}") == list(range(n + 1))
                    except BaseException as error:
                        failed.append(error)

                threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
                for one in threads:
                    one.start()
                for one in threads:
                    one.join()
                self.assertEqual(failed, [])
                self.assertEqual(self.ids(url, table), [10 * one + n for one in range(6) for n in range(5)])
                self.assertLessEqual(rb.close_idle(), 8)

    def test_a_forked_child_begins_without_connections(self) -> None:
        for door, url in self.databases():
            with self.subTest(url):
                table = f"forked{next(_names)}"
                rb.write([{"id": 1}], url, table=table)
                self.assertIn(door.port, peers())
                # The door is a thread, which a child does not have: it connects to the server itself.
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        here = url.replace(f":{door.port}/", f":{door.behind}/")
                        idle = rb.close_idle() + (door.port in peers())
                        rb.write([{"id": 2}], here, table=table)
                        rb.write([{"id": 3}], here, table=table)
                        code = 0 if (idle, rb.close_idle()) == (0, 1) else 2
                    finally:
                        os._exit(code)
                # At the same time.
                rb.write([{"id": 4}], url, table=f"{table}p")
                _, status = os.waitpid(child, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 0)
                rb.write([{"id": 4}], url, table=table)
                self.assertEqual(self.ids(url, table), [1, 2, 3, 4])

    def test_a_role_with_one_connection_writes_to_several_tables(self) -> None:
        server = Server.get()
        server.execute("CREATE ROLE lonely LOGIN CONNECTION LIMIT 1; GRANT ALL ON SCHEMA public TO lonely")
        server.execute("GRANT CREATE ON DATABASE postgres TO lonely")
        url = server.url.replace("rapid@", "lonely@")
        config = {"checkpoint_schema": "of_lonely"}
        for n in range(2):
            for table in ["lonely_a", "lonely_b"]:
                rb.write([{"id": n}], url, table=table, config=config)
        # As another role: the server may still end the session of the last write.
        self.assertEqual(self.ids(server.url, "lonely_b"), [0, 1])

    def test_a_connection_is_closed_after_some_seconds(self) -> None:
        server = Server.get()
        url = f"{server.url}?application_name=waits"
        count = "select count(*) as n from pg_catalog.pg_stat_activity where application_name = 'waits'"

        def open_ones() -> int:
            with rb.read(server.url, query=count) as reader:
                return next(iter(reader)).to_pylist()[0]["n"]

        rb.write([{"id": 1}], url, table="waits")
        self.assertEqual(open_ones(), 1)
        until(lambda: open_ones() == 0)

    def test_a_changed_password_means_a_new_connection(self) -> None:
        server = Server({"fsync": "off"})
        server.execute("CREATE ROLE who LOGIN PASSWORD 'one' SUPERUSER")
        (server.folder / "data" / "pg_hba.conf").write_text(
            "host all rapid 127.0.0.1/32 trust\nhost all who 127.0.0.1/32 scram-sha-256\n"
        )
        server.execute("SELECT pg_reload_conf()")
        url = server.url.replace("rapid@", "who@")
        os.environ["IDLE_PASSWORD"] = "one"
        self.addCleanup(os.environ.pop, "IDLE_PASSWORD")
        config = {"password": "${IDLE_PASSWORD}"}
        rb.write([{"id": 1}], url, table="secret", config=config)
        os.environ["IDLE_PASSWORD"] = "two"
        with self.assertRaises(rb.AuthError):
            rb.write([{"id": 2}], url, table="secret", config=config)
        os.environ["IDLE_PASSWORD"] = "one"
        rb.write([{"id": 3}], url, table="secret", config=config)
        self.assertEqual(self.ids(server.url, "secret"), [1, 3])

    def test_two_processes_write_to_one_table(self) -> None:
        for _, url in self.databases():
            with self.subTest(url):
                table = f"two{next(_names)}"
                rb.write([{"id": 1}], url, table=table)
                code = "import sys, rapidbyte as rb; rb.write([{'id': 2}], sys.argv[1], table=sys.argv[2])"
                subprocess.run([sys.executable, "-c", code, url, table], check=True)
                rb.write([{"id": 3}], url, table=table)
                with rb.sink(url, table=table) as sink:
                    sink.write([{"id": n} for n in range(10, 20_010)])
                    # It begins with the batch that was sent, and the other process fences it.
                    subprocess.run([sys.executable, "-c", code, url, table], check=True)
                    with self.assertRaises(rb.SupersededError):
                        sink.close()
                rb.write([{"id": 4}], url, table=table)
                self.assertEqual(self.ids(url, table), [1, 2, 2, 3, 4])

    def test_documents_of_cosmos_come_from_kept_sessions(self) -> None:
        server = CosmosServer.get()
        server.make("idle")
        config = {"database": "idle"}
        for n in range(3):
            rb.write([{"id": str(n), "v": n}], server.account(), table="kept", config=config)
        query = "SELECT c.v FROM c"
        for n in range(3, 6):
            with rb.read(server.account(), table="kept", query=query, config=config) as reader:
                found = [row["v"] for batch in reader for row in batch.to_pylist()]
            self.assertEqual(sorted(found), list(range(n)))
            rb.write([{"id": str(n), "v": n}], server.account(), table="kept", config=config)


class Threads(Folder):
    @unittest.skipUnless(sys.platform == "linux", "threads are listed by /proc")
    def test_calls_share_a_thread(self) -> None:
        def threads() -> set[str]:
            found = set()
            for task in os.listdir("/proc/self/task"):
                try:
                    with open(f"/proc/self/task/{task}/comm") as file:
                        name = file.read().strip()
                except FileNotFoundError:
                    continue
                if name == "rapidbyte":
                    found.add(task)
            return found

        others, own = threads(), set()
        for n in range(20):
            rb.write([{"id": n}], "rows.jsonl", mode="replace")
            own |= threads() - others
        # The first call may find a thread of another test.
        self.assertLessEqual(len(own), 1)
        self.assertGreaterEqual(len(own | others), 1)

    def test_a_failed_call_leaves_the_next_one_its_thread(self) -> None:
        for _ in range(3):
            with self.assertRaises(rb.ConfigError):
                rb.write([{"id": 1}], "rows.jsonl", mode="replace", config={"unknown": 1})
            self.assertEqual(rb.write([{"id": 1}], "rows.jsonl", mode="replace").rows, 1)

    def test_a_variable_of_config_has_its_value_of_now(self) -> None:
        def written() -> str:
            rb.write([{"a": 1, "b": 2}], "rows.csv", mode="replace", config={"delimiter": "${OF_TEST_IDLE}"})
            with open("rows.csv") as file:
                return file.read()

        self.addCleanup(os.environ.pop, "OF_TEST_IDLE", None)
        for sign in [",", ";", ";", ","]:
            os.environ["OF_TEST_IDLE"] = sign
            self.assertIn(f"1{sign}2", written())
