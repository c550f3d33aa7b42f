"""The extension module. The package around it has the functions for users."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, final

def main(arguments: Sequence[str]) -> int: ...
def version() -> str: ...
def run(
    pipeline: dict[str, Any],
    parts: dict[str, Any],
    choice: dict[str, Any],
    keeps_history: bool,
    watch: dict[str, Any],
) -> str: ...
def plan(
    pipeline: dict[str, Any], parts: dict[str, Any], choice: dict[str, Any], watch: dict[str, Any]
) -> str: ...
def check(pipeline: dict[str, Any], parts: dict[str, Any], watch: dict[str, Any]) -> str: ...
def discover(pipeline: dict[str, Any], parts: dict[str, Any], watch: dict[str, Any]) -> str: ...
def verify(
    pipeline: dict[str, Any], choice: dict[str, Any], sample: float, repairs: bool, watch: dict[str, Any]
) -> str: ...
def close_idle() -> int: ...
def end(refused: BaseException, seconds: float) -> int: ...
def extended_json(value: Any) -> str: ...
def read(pipeline: dict[str, Any], choice: dict[str, Any]) -> Reader: ...

@final
class Cancel:
    """Ends the calls that got it, from another thread."""

    def __init__(self) -> None: ...
    def cancel(self) -> None:
        """Cancel the calls that got this object."""
    @property
    def is_cancelled(self) -> bool:
        """Whether it is cancelled."""

@final
class Batch:
    """Rows as columns. Arrow libraries take it without a copy."""

    @property
    def stream(self) -> str | None:
        """The stream that the rows are of."""
    @property
    def num_rows(self) -> int:
        """The number of rows."""
    @property
    def columns(self) -> list[tuple[str, str]]:
        """The names of the columns and their types, as a pipeline writes them."""
    def __len__(self) -> int: ...
    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Reader:
    """The batches of one stream, in order, while a run brings them."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The names of the columns and their types, as a pipeline writes them."""
    def __iter__(self) -> Reader: ...
    def __next__(self) -> Batch: ...
    def close(self) -> None:
        """End the read. Rows that were not read are not read any more."""
    def __enter__(self) -> Reader: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Sink:
    """A run that takes rows as they come. ``rapidbyte.Sink`` is around it."""

    def __init__(self, pipeline: dict[str, Any], table: str, key: list[str], schema: Any, extended: bool) -> None: ...
    def write(self, rows: Any) -> int: ...
    def close(self) -> str | None: ...
    def abandon(self, at_once: bool) -> None: ...
    @property
    def is_closed(self) -> bool: ...
