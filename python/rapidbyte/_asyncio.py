"""Calls for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from . import Batch, Cancel, Pipeline, read, run, write
from ._results import Report


async def arun(pipeline: Pipeline, **arguments: Any) -> Report:
    """:func:`run` for asyncio, in another thread. If the task is cancelled, the run is."""
    return await _apart(run, pipeline, **arguments)


async def awrite(rows: Any, to: str | os.PathLike[str], **arguments: Any) -> Report:
    """:func:`write` for asyncio, in another thread. If the task is cancelled, the write is."""
    return await _apart(write, rows, to, **arguments)


async def aread(source: str | os.PathLike[str], **arguments: Any) -> AsyncIterator[Batch]:
    """:func:`read` for asyncio: an asynchronous iterator of batches."""
    reader = await asyncio.to_thread(read, source, **arguments)
    try:
        while (batch := await asyncio.to_thread(next, reader, None)) is not None:
            yield batch
    finally:
        await asyncio.shield(asyncio.to_thread(reader.close))


async def _apart(call: Callable[..., Report], *arguments: Any, **named: Any) -> Report:
    cancel = named.pop("cancel", None) or Cancel()
    work = asyncio.ensure_future(asyncio.to_thread(call, *arguments, cancel=cancel, **named))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancel.cancel()
        # It ends soon, and nothing of it may be under way afterwards.
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
        raise
