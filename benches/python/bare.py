"""Requests that were made before, over one open connection: the time that a server needs, whatever its client is."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, BinaryIO

#: Requests that are on their way at the same time.
IN_FLIGHT = 64


def request(method: str, path: str, headers: dict[str, str], body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"content-length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + data


def send(port: int, requests: Sequence[bytes]) -> None:
    """Send requests one behind the other, without waiting for each answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for one in requests[:IN_FLIGHT]:
            connection.sendall(one)
        for at in range(len(requests)):
            _skip_answer(answers)
            for one in requests[at + IN_FLIGHT : at + IN_FLIGHT + 1]:
                connection.sendall(one)


def _skip_answer(answers: BinaryIO) -> None:
    status = int(answers.readline().split()[1])
    length, is_chunked = 0, False
    while (line := answers.readline().strip().lower()) != b"":
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
        is_chunked |= line == b"transfer-encoding: chunked"
    answers.read(length)
    while is_chunked:
        size = int(answers.readline(), 16)
        answers.read(size + 2)
        is_chunked = size > 0
    if status >= 300:
        raise RuntimeError(f"the server answers {status}")
