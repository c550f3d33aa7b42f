"""The connector without the host, against a server of its own: `python3 -m unittest`."""

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

from connector import Connector
from rapidbyte import Error

PAGES = {
    "/items": (200, {"items": [{"id": 1, "name": "a", "more": True}], "next": "p2"}),
    "/items?after=p2": (200, {"items": [{"id": 2}]}),
    "/broken/items": (401, {}),
    "/busy/items": (200, {"items": [{"id": 3}]}),
}


class Api(BaseHTTPRequestHandler):
    failures = 0

    def do_GET(self):
        status, page = PAGES[self.path]
        if self.path.startswith("/busy") and Api.failures < 2:
            Api.failures, status = Api.failures + 1, 503
        body = json.dumps(page).encode()
        self.send_response(status)
        if status == 503:
            self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Reads(unittest.TestCase):
    def setUp(self):
        self.server = HTTPServer(("127.0.0.1", 0), Api)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_port}"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def test_pages_follow_each_other(self):
        pages = list(Connector({"base_url": self.base}).read(None))
        self.assertEqual([row["id"] for page in pages for row in page], [1, 2])
        self.assertNotIn("more", pages[0][0])

    def test_a_busy_server_is_asked_again(self):
        pages = list(Connector({"base_url": self.base + "/busy"}).read(None))
        self.assertEqual([row["id"] for page in pages for row in page], [3])

    def test_a_refusal_says_who_acts(self):
        with self.assertRaises(Error) as refused:
            list(Connector({"base_url": self.base + "/broken"}).read(None))
        self.assertEqual(refused.exception.kind, "auth")


if __name__ == "__main__":
    unittest.main()
