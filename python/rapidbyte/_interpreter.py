"""Refuses subinterpreters: the engine is one for the process, and so are the objects that it keeps."""

from __future__ import annotations

import importlib


def _is_main() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return interpreters.get_current() == interpreters.get_main()
    return True


if not _is_main():
    raise ImportError("rapidbyte does not work in a subinterpreter: use threads, or processes of multiprocessing")
