"""A small API for http.yaml and python/: python3 pipelines/data/shop_server.py [PORT]

GET /orders?page=N gives two orders a page; a request in four is answered with 503, as by a busy server.
GET /feed.xml gives a feed of news in XML.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

ORDERS = [
    {"id": 1, "total": "19.90", "placed_at": "2026-11-01T09:10:00Z", "lines": [{"sku": "A-1", "count": 2}]},
    {"id": 2, "total": "250.00", "placed_at": "2026-11-01T09:20:00Z", "lines": [{"sku": "B-7", "count": 1}]},
    {"id": 3, "total": "7.25", "placed_at": "2026-11-02T10:30:00Z", "lines": []},
    {"id": 4, "total": "88.80", "placed_at": "2026-11-03T08:10:00Z", "lines": [{"sku": "A-1", "count": 1}]},
    {"id": 5, "total": "4.10", "placed_at": "2026-11-03T08:20:00Z", "lines": [{"sku": "C-3", "count": 9}]},
]
FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed>
  <entry id="1" at="2026-11-01"><title>We are open</title></entry>
  <entry id="2" at="2026-11-02"><title>Ünïcode in stock</title></entry>
  <entry id="3" at="2026-11-03"><title>Free delivery &amp; returns</title></entry>
</feed>
"""
REQUESTS = count(1)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/feed.xml":
            self.answer(200, "application/xml", FEED)
        elif url.path != "/orders":
            self.answer(404, "text/plain", "there is only /orders and /feed.xml")
        elif next(REQUESTS) % 4 == 0:
            self.answer(503, "text/plain", "busy, ask again")
        else:
            page = int(parse_qs(url.query).get("page", ["1"])[0])
            orders = ORDERS[(page - 1) * 2 : page * 2]
            self.answer(200, "application/json", json.dumps({"orders": orders}))

    def answer(self, status, kind, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8099
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
