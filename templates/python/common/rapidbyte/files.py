"""Files that the configuration names with `x-grant`, and no others."""

import itertools
import os
from typing import Iterator, List, Tuple, Union

from rapidbyte import Error

try:
    from componentize_py_types import Err
    from wit_world.imports import files as _granted
except ImportError:
    # Without the host, as in tests: the system's own files.
    _granted = None
try:
    # Only a destination has it.
    from wit_world.imports import sink as _sink
except ImportError:
    _sink = None

PIECE_BYTES = 1 << 18


class _explained:
    """Turns the host's file errors into connector errors that name the path."""

    def __init__(self, path: str):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if _granted is not None and isinstance(error, Err):
            found = error.value
            kind = type(found.kind).__name__.removeprefix("ErrorKind_").lower()
            kind = kind if kind in Error.KINDS else "internal"
            raise Error(kind, found.code, found.message, found.hint, location=self.path)
        if isinstance(error, OSError):
            code = "file_exists" if isinstance(error, FileExistsError) else "file_io"
            raise Error("config", code, str(error), location=self.path)
        return False


def pieces(path: str) -> Iterator[bytes]:
    """The bytes of a file, some at a time."""
    if _granted is None:
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
        return
    with _explained(path):
        file, at = _granted.open(path), 0
        while piece := file.read(at, PIECE_BYTES):
            at += len(piece)
            yield piece


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
            raise Error("data", "line_too_long", text, "raise max_line_bytes", location=f"{path}:{number + 1}")
    if rest:
        yield number + 1, _decoded(rest, path, number + 1)


def exists(path: str) -> bool:
    """Whether there is a file at a path that may be written or read."""
    if _granted is None:
        return os.path.isfile(path)
    with _explained(path):
        return bool(_granted.find(path))


def probe(path: str) -> None:
    """Refuses a path where no file could be created. Leaves none."""
    with _explained(path):
        if _granted is not None:
            _granted.probe(path)
        elif not os.path.isdir(os.path.dirname(path) or "."):
            raise FileNotFoundError(f"{path}: the directory does not exist")


class Output:
    """A file that nobody sees before `commit`, which puts it in the place of an older one, at once."""

    _numbers = itertools.count()

    @classmethod
    def create_new(cls, path: str) -> "Output":
        """The same for a file that must not be there: of several writers of one path, also in other
        runs, the `commit` of one succeeds. That of the others raises `file_exists`, and changes nothing."""
        return cls(path, is_new=True)

    def __init__(self, path: str, is_new: bool = False):
        self.path, self.bytes, self._is_new = path, 0, is_new
        self._pieces: List[str] = []
        self._size = 0
        with _explained(path):
            if _granted is not None:
                self._file = (_granted.create_new if is_new else _granted.create)(path)
            else:
                self._file = open(f"{path}.{os.getpid()}-{next(self._numbers)}.unfinished", "wb")

    def write(self, data: Union[str, bytes]) -> None:
        """Appends text in UTF-8, or bytes."""
        if isinstance(data, bytes):
            self._hand_over()
            self._write(data)
        else:
            self._pieces.append(data)
            self._size += len(data)
            if self._size >= PIECE_BYTES:
                self._hand_over()

    def commit(self) -> None:
        """Writes everything to the disk and gives the file its name."""
        self._hand_over()
        with _explained(self.path):
            if _granted is not None:
                self._file.sync()
                self._file.commit()
            else:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                if self._is_new:
                    try:
                        os.link(self._file.name, self.path)
                    finally:
                        os.remove(self._file.name)
                else:
                    os.replace(self._file.name, self.path)

    def abort(self) -> None:
        """Leaves nothing. A file that is committed stays."""
        if _granted is not None:
            self._file.__exit__(None, None, None)
        elif not self._file.closed:
            self._file.close()
            os.remove(self._file.name)

    def _hand_over(self) -> None:
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces, self._size = [], 0
            self._write(text)

    def _write(self, data: Union[str, bytes]) -> None:
        raw = data if isinstance(data, bytes) else data.encode()
        self.bytes += len(raw)
        with _explained(self.path):
            if _sink is None:
                self._file.write(raw)
            # By texts: componentize-py 0.25 never frees bytes that it hands over.
            elif isinstance(data, bytes):
                _sink.write_latin(self._file, data.decode("latin-1"))
            else:
                _sink.write_text(self._file, data)


def _decoded(line: bytes, path: str, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise Error("data", "not_utf8", str(error), location=f"{path}:{number}")
