"""Requests to the servers that the configuration names with `x-grant`, and no others.

They need a project of `rapidbyte connector new --http`. The host checks the server, does TLS with a
checked certificate, and ends what takes too long.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http.client import HTTPException
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

# How often a request is made at most, until an answer is not a transient failure.
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.5
# A server that asks for a longer wait gets no retry here: the host retries the stream after it.
LONGEST_WAIT_SECONDS = 60.0
SAFE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
TRANSIENT = (429, 502, 503, 504)

# The kind of the error for a refusal of the host. Any other failure is the network's.
KINDS = {
    "network_not_granted": "config",
    "address_not_granted": "config",
    "tls_bad_setting": "config",
    "tls_bad_file": "config",
    "tls_disabled": "config",
    "tls_required": "config",
    "tls_wrong_name": "auth",
    "tls_no_san": "auth",
    "tls_expired": "auth",
    "tls_unknown_ca": "auth",
    "tls_self_signed": "auth",
    "timeout": "transient",
    "http_head_too_large": "data",
    "http_invalid_request": "internal",
    "too_many_connections": "internal",
}


class _NoAnswer(Exception):
    """A failure before the answer began."""

    def __init__(self, error: Error):
        super().__init__(error.message)
        self.error = error


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
        raise _refused(response, url)
    return response.json()


def request(
    method: str,
    url: str,
    headers: Optional[Dict[str, str]] = None,
    body: Optional[bytes] = None,
    timeout: float = 60.0,
    max_bytes: int = 16 << 20,
    attempts: int = ATTEMPTS,
    retry: Optional[bool] = None,
) -> Response:
    """Asks, and waits for the whole answer. Redirects are answers like any other.

    `timeout` is for connecting, for the beginning of the answer and between two pieces of it, each in
    seconds. An answer of more than `max_bytes` is refused.

    The statuses 429, 502, 503 and 504 and failures before an answer are retried, up to `attempts`
    requests. Before the first retry half a second passes, then twice as long each time, with jitter;
    or what the header `retry-after` says, up to a minute. Only requests that may be repeated are
    retried: GET, HEAD, OPTIONS, PUT and DELETE, others with `retry=True`. The last answer is given as
    it is.
    """
    if _types is None and sys.platform == "wasi":
        hint = "make the project with `rapidbyte connector new --http`, and move connector.py there"
        raise Error("config", "no_http", "this project was made without HTTP", hint)
    exchange = _natively if _types is None else _by_host
    may_retry = method in SAFE if retry is None else retry
    attempt = 1
    while True:
        is_last = not may_retry or attempt >= attempts
        try:
            response = exchange(method, url, headers or {}, body, timeout, max_bytes)
            wait = None if is_last else _wait_before(attempt, response)
            if wait is None:
                return response
        except _NoAnswer as failed:
            if is_last or failed.error.kind not in ("connection", "transient"):
                raise failed.error from None
            wait = _backoff(attempt)
        time.sleep(wait)
        attempt += 1


def _wait_before(attempt: int, response: Response) -> Optional[float]:
    """The seconds before the next attempt; None where it would not help or take too long."""
    if response.status not in TRANSIENT:
        return None
    asked = _wait_ms(response.headers.get("retry-after", ""))
    if asked is None:
        return _backoff(attempt)
    return asked / 1000 if asked <= LONGEST_WAIT_SECONDS * 1000 else None


def _backoff(attempt: int) -> float:
    """Half of it is jitter, so that clients that failed together do not come back together."""
    longest = min(FIRST_WAIT_SECONDS * 2 ** (attempt - 1), LONGEST_WAIT_SECONDS)
    # `random` itself was seeded when the component was built.
    return longest * (1 - random.SystemRandom().random() / 2)


def _by_host(method, url, headers, body, timeout, max_bytes) -> Response:
    try:
        answer = _answer(method, urllib.parse.urlsplit(url), headers, body, timeout)
    except Err as error:
        raise _NoAnswer(_explained(error.value, url)) from None
    return _received(answer, max_bytes)


def _answer(method, url, headers, body, timeout):
    """The beginning of the answer."""
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
        # `get` returns a result within a result.
        found = answer.get().value
        if isinstance(found, Err):
            raise found
        return found.value


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
    raise _too_large(max_bytes)


def _too_large(max_bytes) -> Error:
    return Error("data", "http_body_too_large", f"an answer of more than {max_bytes} bytes", "ask for smaller pages")


def _explained(found, url: str) -> Error:
    """The host's own words, `code: message` and a hint below, or the name of what happened."""
    server = urllib.parse.urlsplit(url).netloc
    text = getattr(found, "value", None)
    if isinstance(text, str) and ": " in text:
        code, _, rest = text.partition(": ")
        message, _, hint = rest.partition("\n")
        return Error(KINDS.get(code, "connection"), code, message, hint or None, location=server)
    if found is None or type(found).__name__.startswith("HeaderError"):
        text = "the URL, the method or a header has forbidden characters"
        return Error("config", "http_invalid_request", text, location=server)
    name = type(found).__name__.removeprefix("ErrorCode_")
    return Error("connection", "connect_failed", f"{name}", "check that the server is up", location=server)


def _refused(response: Response, url: str) -> Error:
    """The error for a status."""
    status = response.status
    shown = response.body[:200].decode(errors="replace") + ("…" if len(response.body) > 200 else "")
    text = f"{url.partition('?')[0]} answers {status}: {shown}"
    wait = _wait_ms(response.headers.get("retry-after", ""))
    if status == 429 or (status == 503 and wait is not None):
        return Error("rate-limited", "http_rate_limited", text, retry_after_ms=wait)
    if status >= 500 or status in (408, 425):
        return Error("transient", "http_unavailable", text)
    if status in (401, 403):
        return Error("auth", "http_unauthorized", text, "check the credentials and what they may read")
    if status in (404, 410):
        return Error("config", "http_not_found", text, "check the path")
    if status >= 400:
        return Error("config", "http_refused", text, "change the request as the server's documentation says")
    return Error("data", "http_unexpected_status", text)


def _wait_ms(retry_after: str) -> Optional[int]:
    """The milliseconds of a number of seconds or of a date; nothing for anything else."""
    if retry_after.isdecimal():
        return min(int(retry_after[:10]), 10**9) * 1000
    try:
        left = parsedate_to_datetime(retry_after) - datetime.now(timezone.utc)
    except (TypeError, ValueError):
        return None
    return max(0, int(left.total_seconds() * 1000))


class _AsItIs(urllib.request.HTTPRedirectHandler):
    """Redirects are answers like any other, as they are with the host."""

    def redirect_request(self, *_):
        return None


def _natively(method, url, headers, body, timeout, max_bytes) -> Response:
    asked = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        answer = urllib.request.build_opener(_AsItIs).open(asked, timeout=timeout)
    except urllib.error.HTTPError as error:
        answer = error
    except urllib.error.URLError as error:
        raise _NoAnswer(Error("connection", "connect_failed", str(error.reason))) from None
    except (OSError, HTTPException) as error:
        raise _NoAnswer(Error("connection", "connection_lost", str(error))) from None
    with answer:
        names = {name.lower(): value for name, value in answer.headers.items()}
        try:
            # Read with a limit, a body that breaks off would look like a whole one.
            received = answer.read()
        except (OSError, HTTPException) as error:
            raise Error("connection", "connection_lost", f"the answer ends early: {error}") from None
    if len(received) > max_bytes:
        raise _too_large(max_bytes)
    return Response(answer.status, names, received)
