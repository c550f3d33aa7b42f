"""Refuses subinterpreters: the engine and the objects that it keeps exist once in a process."""

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
