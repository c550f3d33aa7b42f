"""Files that the configuration names with `x-grant`, and no others."""

from typing import Iterator, Tuple

from rapidbyte import Error

try:
    from componentize_py_types import Err
    from wit_world.imports import files as _granted
except ImportError:
    # Without the host, as in tests: the system's own files.
    _granted = None

PIECE_BYTES = 1 << 18


def pieces(path: str) -> Iterator[bytes]:
    """The bytes of a file, some at a time."""
    if _granted is None:
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
        return
    try:
        file, at = _granted.open(path), 0
        while piece := file.read(at, PIECE_BYTES):
            at += len(piece)
            yield piece
    except Err as error:
        found = error.value
        raise Error("config", found.code, found.message, found.hint, location=path)


def lines(path: str, max_line_bytes: int = 1 << 20) -> Iterator[Tuple[int, str]]:
    """The lines of a file in UTF-8 with their numbers, from 1."""
    number, rest = 0, b""
    for piece in pieces(path):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            yield number, _decoded(line, path, number)
        if len(rest) > max_line_bytes:
            text = f"a line longer than {max_line_bytes} bytes"
            raise Error("data", "line_too_long", text, location=f"{path}:{number + 1}")
    if rest:
        yield number + 1, _decoded(rest, path, number + 1)


def _decoded(line: bytes, path: str, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise Error("data", "not_utf8", str(error), location=f"{path}:{number}")
