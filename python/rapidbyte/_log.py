"""The log of runs, as records of the logger ``rapidbyte``."""

from __future__ import annotations

import logging

logger = logging.getLogger("rapidbyte")


def lowest() -> int:
    """The lowest level that anybody listens to."""
    return min(logger.getEffectiveLevel(), 255)


def log(level: int, connector: str, stream: str | None, message: str) -> None:
    """Writes one line. The engine calls it."""
    place = connector if stream is None else f"{connector} {stream}"
    extra = {"connector": connector, "stream": stream}
    logger.log(level, "[%s] %s", place, message, extra=extra)
