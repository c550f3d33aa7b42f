"""Rows into OpenSearch."""

from __future__ import annotations

import base64
import datetime as dt
import http.server
import itertools
import json
import threading
from decimal import Decimal
from typing import Any

import rapidbyte as rb

from support import Folder, OpenSearchServer, package

_names = itertools.count()


class OpenSearch(Folder):
    def setUp(self) -> None:
        super().setUp()
        self.server = OpenSearchServer.get()
        self.to = self.server.address()
        self.index = f"python{next(_names)}"
        self.addCleanup(rb.close_idle)

    def documents(self) -> list[dict[str, Any]]:
        return sorted(self.server.documents(self.index), key=lambda found: found["id"])

    def test_dicts_become_documents_by_their_key(self) -> None:
        people = [
            {"id": 1, "name": "Ada", "born": dt.date(1815, 12, 10), "likes": {"tea": True}, "sum": Decimal("1.10")},
            {"id": 2, "name": None, "born": None, "likes": None, "sum": None},
        ]
        report = rb.write(people, self.to, table=self.index, mode="upsert", key="id")
        self.assertEqual((report.rows, report.streams[0].location), (2, self.index))
        rb.write([{"id": 2, "name": "Bo"}], self.to, table=self.index, mode="upsert", key="id")
        first, second = self.documents()
        ada = {"_id": "1", "id": 1, "name": "Ada", "born": "1815-12-10", "likes": {"tea": True}, "sum": "1.10"}
        self.assertEqual(first, ada)
        self.assertEqual((second["_id"], second["name"]), ("2", "Bo"))

    def test_json_text_and_frames_become_documents(self) -> None:
        polars, pyarrow = package("polars"), package("pyarrow")
        rb.write('[{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]', self.to, table=self.index)
        rb.write(polars.DataFrame({"id": [3], "v": ["c"]}), self.to, table=self.index)
        rb.write(pyarrow.table({"id": [4], "v": ["d"]}), self.to, table=self.index)
        self.assertEqual([(found["id"], found["v"]) for found in self.documents()], [*enumerate("abcd", 1)])

    def test_a_sink_writes_in_one_commit(self) -> None:
        with rb.sink(self.to, table=self.index) as sink:
            for n in range(300):
                sink.write([{"id": n}])
        self.assertEqual([found["id"] for found in self.documents()], [*range(300)])

    def test_replace_and_delete_remove_documents(self) -> None:
        rb.write([{"id": n, "v": "old"} for n in range(5)], self.to, table=self.index, mode="replace", key="id")
        rb.write([{"id": n, "v": "new"} for n in range(3)], self.to, table=self.index, mode="replace", key="id")
        self.assertEqual([(found["id"], found["v"]) for found in self.documents()], [(n, "new") for n in range(3)])
        with rb.sink(self.to, table=self.index, mode="delete", key="id") as sink:
            sink.write([{"id": 0}, {"id": 9}])
            sink.write('{"id": 2}')
        self.assertEqual([found["id"] for found in self.documents()], [1])

    def test_the_name_of_the_index_is_taken_as_it_is(self) -> None:
        self.index = f"logs.{self.index}"
        rb.write([{"id": 1}], self.to, table=self.index)
        self.assertEqual([found["id"] for found in self.documents()], [1])
        with self.assertRaises(rb.ConfigError) as raised:
            rb.write([{"id": 1}], self.to, table="Logs")
        self.assertEqual((raised.exception.code, raised.exception.location), ("invalid_name", "argument table="))

    def test_calls_with_the_same_arguments_share_a_session(self) -> None:
        rb.close_idle()
        for n in range(3):
            rb.write([{"id": n}], self.to, table=self.index)
        self.assertEqual([found["id"] for found in self.documents()], [0, 1, 2])
        # Somebody else deletes it, and makes one with another field.
        self.server.ask("DELETE", f"/{self.index}")
        rb.write([{"id": 3}], self.to, table=self.index)
        self.assertEqual([found["id"] for found in self.documents()], [3])
        self.server.ask("DELETE", f"/{self.index}")
        self.server.ask("PUT", f"/{self.index}", {"mappings": {"properties": {"id": {"type": "boolean"}}}})
        with self.assertRaises(rb.Error) as raised:
            rb.write([{"id": 4}], self.to, table=self.index)
        self.assertEqual(raised.exception.code, "column_refused")
        self.server.ask("DELETE", f"/{self.index}")
        rb.write([{"id": 5}], self.to, table=self.index)
        self.assertEqual([found["id"] for found in self.documents()], [5])
        self.assertEqual(rb.close_idle(), 1)

    def test_a_row_that_the_index_refuses_is_named(self) -> None:
        self.server.ask("PUT", f"/{self.index}", {"mappings": {"properties": {"id": {"type": "long"}, "at": {"type": "ip"}}}})
        with self.assertRaises(rb.DataError) as raised:
            rb.write([{"id": 1, "at": "127.0.0.1"}, {"id": 2, "at": "nowhere"}], self.to, table=self.index)
        self.assertIn("nowhere", str(raised.exception))
        self.assertEqual(self.documents(), [])

    def test_addresses_that_say_too_little_or_too_much_are_refused(self) -> None:
        for to, table, code in [
            (self.to, None, "no_table"),
            (f"{self.to}?refresh=interval", "t", "invalid_place"),
            (f"opensearch+ftp://127.0.0.1:{self.server.port}", "t", "unknown_place"),
            (self.server.address("loader@"), "t", "invalid_setting"),
        ]:
            with self.subTest(to), self.assertRaises(rb.ConfigError) as raised:
                rb.write([{"id": 1}], to, table=table)
            self.assertEqual(raised.exception.code, code)
        for scheme, hint in [("http", "opensearch+http://"), ("https", "opensearch://")]:
            with self.subTest(scheme), self.assertRaises(rb.ConfigError) as raised:
                rb.write([{"id": 1}], f"{scheme}://127.0.0.1:{self.server.port}", table="t")
            self.assertEqual(raised.exception.code, "unknown_place")
            self.assertIn(hint, raised.exception.hint)
        with self.assertRaises(rb.ConfigError) as raised:
            rb.read(self.to, table=self.index)
        self.assertEqual(raised.exception.code, "unknown_place")

    def test_the_login_of_an_address_reaches_the_server_and_no_message(self) -> None:
        with Asked() as asked:
            for scheme in ["opensearch+http", "elasticsearch+http"]:
                to = f"{scheme}://load%20er:se%2Fcret%24@127.0.0.1:{asked.port}/search"
                with self.assertRaises(rb.AuthError) as raised:
                    rb.write([{"id": 1}], to, table=self.index)
                self.assertEqual(raised.exception.code, "opensearch_unauthorized")
                self.assertNotIn("cret", f"{raised.exception} {raised.exception.hint}")
        login = "Basic " + base64.b64encode(b"load er:se/cret$").decode()
        self.assertEqual(set(asked.seen), {("/search", login)})

    def test_without_a_scheme_behind_the_plus_it_is_https(self) -> None:
        with self.assertRaises(rb.Error) as raised:
            rb.write([{"id": 1}], f"opensearch://127.0.0.1:{self.server.port}", table=self.index)
        self.assertIn("TLS", f"{raised.exception}")


class Asked:
    """A server that lets nobody in, and remembers who asked."""

    def __enter__(self) -> Asked:
        self.seen: list[tuple[str, str | None]] = []
        seen = self.seen

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append((self.path.rstrip("/"), self.headers["Authorization"]))
                body = json.dumps({"error": "who are you?", "status": 401}).encode()
                self.send_response(401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
