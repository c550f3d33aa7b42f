"""Requests to the servers that the configuration names with `x-grant`, and no others.

They need a project of `rapidbyte connector new --http`. The host checks the server, does TLS with a
checked certificate, and ends what takes too long.
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Dict, Optional

from rapidbyte import Error

try:
    from componentize_py_types import Err
    from wit_world.imports import http_types as _types
    from wit_world.imports import outgoing_handler as _handler
    from wit_world.imports.streams import StreamError_Closed as _Closed
except ImportError:
    # Without the host, as in tests: Python's own requests.
    _types = None

READ_BYTES = 1 << 18
WRITE_BYTES = 1 << 12


@dataclass
class Response:
    status: int
    # Names in small letters.
    headers: Dict[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Error("data", "http_not_json", f"the answer is not JSON: {error}", "check the URL")


def get_json(url: str, query: Optional[Dict[str, Any]] = None, headers: Optional[Dict[str, str]] = None) -> Any:
    """The JSON of an answer whose status is 200; other ones are errors that the host acts on."""
    if query:
        url += ("&" if "?" in url else "?") + urllib.parse.urlencode(query)
    response = request("GET", url, {"accept": "application/json", **(headers or {})})
    if response.status != 200:
        raise _refused(response)
    return response.json()


def request(
    method: str,
    url: str,
    headers: Optional[Dict[str, str]] = None,
    body: Optional[bytes] = None,
    timeout: float = 60.0,
    max_bytes: int = 16 << 20,
) -> Response:
    """Asks, and waits for the whole answer. Redirects are answers like any other.

    `timeout` is for connecting, for the beginning of the answer and between two pieces of it, each in
    seconds. An answer of more than `max_bytes` is refused.
    """
    if _types is None and sys.platform == "wasi":
        hint = "make the project with `rapidbyte connector new --http`, and move connector.py there"
        raise Error("config", "no_http", "this project was made without HTTP", hint)
    if _types is None:
        return _natively(method, url, headers or {}, body, timeout)
    try:
        return _by_host(method, urllib.parse.urlsplit(url), headers or {}, body, timeout, max_bytes)
    except Err as error:
        raise _explained(error.value, url)


def _by_host(method, url, headers, body, timeout, max_bytes) -> Response:
    entries = [(name, value.encode()) for name, value in headers.items()]
    if body is not None:
        entries.append(("content-length", str(len(body)).encode()))
    asked = _types.OutgoingRequest(_types.Fields.from_list(entries))
    asked.set_method(_types.Method_Other(method) if method != "GET" else _types.Method_Get())
    asked.set_scheme(_types.Scheme_Https() if url.scheme == "https" else _types.Scheme_Http())
    asked.set_authority(url.netloc)
    asked.set_path_with_query((url.path or "/") + ("?" + url.query if url.query else ""))
    options, nanoseconds = _types.RequestOptions(), int(timeout * 1e9)
    options.set_connect_timeout(nanoseconds)
    options.set_first_byte_timeout(nanoseconds)
    options.set_between_bytes_timeout(nanoseconds)
    outgoing = None if body is None else asked.body()
    answer = _handler.handle(asked, options)
    if outgoing is not None:
        _write(outgoing, body)
    with answer:
        with answer.subscribe() as ready:
            ready.block()
        # What `get` gives: a result in a result.
        found = answer.get().value
        if isinstance(found, Err):
            raise found
        return _received(found.value, max_bytes)


def _write(outgoing, body) -> None:
    with outgoing.write() as stream:
        for at in range(0, len(body), WRITE_BYTES):
            stream.blocking_write_and_flush(body[at : at + WRITE_BYTES])
    _types.OutgoingBody.finish(outgoing, None)


def _received(response, max_bytes) -> Response:
    with response:
        status = response.status()
        with response.headers() as fields:
            headers = {name.lower(): value.decode("latin-1") for name, value in fields.entries()}
        received = bytearray()
        with response.consume() as body, body.stream() as stream:
            while len(received) <= max_bytes:
                try:
                    received += stream.blocking_read(READ_BYTES)
                except Err as error:
                    if isinstance(error.value, _Closed):
                        return Response(status, headers, bytes(received))
                    text = error.value.value.to_debug_string()
                    raise Error("connection", "connection_lost", f"the answer ends early: {text}")
    raise Error("data", "http_body_too_large", f"an answer of more than {max_bytes} bytes", "ask for smaller pages")


def _explained(found, url: str) -> Error:
    """The host's own words, `code: message` and a hint below, or the name of what happened."""
    server = urllib.parse.urlsplit(url).netloc
    text = getattr(found, "value", None)
    if isinstance(text, str) and ": " in text:
        code, _, rest = text.partition(": ")
        message, _, hint = rest.partition("\n")
        return Error("connection", code, message, hint or None, location=server)
    name = type(found).__name__.removeprefix("ErrorCode_") if found is not None else "not a request"
    return Error("connection", "connect_failed", f"{name}", "is the server up?", location=server)


def _refused(response: Response) -> Error:
    """Who acts on a status."""
    status = response.status
    text = f"the server answers {status}: {response.body[:200].decode(errors='replace')}"
    if status in (429, 503):
        wait = _wait_ms(response.headers.get("retry-after", ""))
        return Error("rate-limited", "http_rate_limited", text, retry_after_ms=wait)
    if status in (401, 403):
        return Error("auth", "http_unauthorized", text, "check the credentials in the configuration")
    passes = status >= 500 or status in (408, 425)
    return Error("transient" if passes else "config", "http_unexpected_status", text)


def _wait_ms(retry_after: str) -> Optional[int]:
    """The milliseconds of a number of seconds or of a date; nothing for anything else."""
    if retry_after.isdecimal():
        return min(int(retry_after[:10]), 10**9) * 1000
    try:
        left = parsedate_to_datetime(retry_after) - datetime.now(timezone.utc)
    except (TypeError, ValueError):
        return None
    return max(0, int(left.total_seconds() * 1000))


def _natively(method, url, headers, body, timeout) -> Response:
    asked = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            names = {name.lower(): value for name, value in answer.headers.items()}
            return Response(answer.status, names, answer.read())
    except urllib.error.HTTPError as answer:
        names = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.code, names, answer.read())
    except urllib.error.URLError as error:
        raise Error("connection", "connect_failed", str(error.reason))
