"""Rounds, medians and the table."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any


def missing(name: str, *packages: str) -> bool:
    """Say so, if a package of a competitor is not installed."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            return True
    return False


@dataclasses.dataclass
class Figure:
    group: str
    name: str
    unit: str
    values: list[float]
    #: The bound that is asked for, of the median: at most this, in the unit.
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclasses.dataclass
class Ratio:
    """How many times faster one figure is than another; at least `goal` is asked for."""

    group: str
    ours: Figure
    theirs: Figure
    goal: float | None

    @property
    def value(self) -> float:
        return self.theirs.median / self.ours.median


class Bench:
    def __init__(self, rows: int, rounds: int) -> None:
        self.rows = rows
        self.rounds = rounds
        self._figures: list[Figure] = []
        self._ratios: list[Ratio] = []

    def in_turn(
        self,
        group: str,
        work: dict[str, Callable[[], Any]],
        *,
        before: Callable[[], Any] = lambda: None,
        after: Callable[[Any], None] = lambda _: None,
        clock: Callable[[], float] = time.perf_counter,
        unit: str = "s",
        scale: float = 1.0,
    ) -> dict[str, Figure]:
        """Time each piece of work once a round. `before` and `after` are not timed; `after` gets what the work returned."""
        [figures] = self._rounds({group: clock}, work, before, after, unit, scale)
        return figures

    def wall_and_cpu(
        self,
        group: str,
        work: dict[str, Callable[[], Any]],
        *,
        before: Callable[[], Any] = lambda: None,
        after: Callable[[Any], None] = lambda _: None,
    ) -> list[dict[str, Figure]]:
        """Measure the wall time, and the CPU time of all threads of this process, in milliseconds."""
        clocks = {f"{group}, wall time": time.perf_counter, f"{group}, CPU time": time.process_time}
        return self._rounds(clocks, work, before, after, "ms", 1e3)

    def _rounds(
        self,
        clocks: dict[str, Callable[[], float]],
        work: dict[str, Callable[[], Any]],
        before: Callable[[], Any],
        after: Callable[[Any], None],
        unit: str,
        scale: float,
    ) -> list[dict[str, Figure]]:
        """The figures of each clock. Its name is the group's."""
        figures = [{name: Figure(group, name, unit, []) for name in work} for group in clocks]
        group = next(iter(clocks))
        for turn in range(self.rounds + 1):
            print(f"\r{group}: {turn}/{self.rounds} ", end="", file=sys.stderr, flush=True)
            for name, one in work.items():
                before()
                gc.collect()
                begun = [clock() for clock in clocks.values()]
                made = one()
                ended = [clock() for clock in clocks.values()]
                after(made)
                del made
                # The first round warms caches up.
                if turn:
                    for at, of_clock in enumerate(figures):
                        of_clock[name].values.append((ended[at] - begun[at]) * scale)
        print(file=sys.stderr)
        for of_clock in figures:
            self._figures += of_clock.values()
        return figures

    def figure(self, group: str, name: str, unit: str, values: list[float], at_most: float | None = None) -> Figure:
        """Add values that were measured in another way."""
        figure = Figure(group, name, unit, values, at_most)
        self._figures.append(figure)
        return figure

    def compare(self, figures: dict[str, Figure], ours: str, goals: dict[str, float | None]) -> None:
        """Show how many times faster `ours` is than each of the others that were measured."""
        for name, goal in goals.items():
            if name in figures:
                self._ratios.append(Ratio(figures[ours].group, figures[ours], figures[name], goal))

    def print(self) -> None:
        rows = [["group", "what", "median", "least", "greatest", "asked"]]
        for figure in self._figures:
            asked = "" if figure.at_most is None else _verdict(figure.median <= figure.at_most, f"≤ {figure.at_most:g}")
            shown = [_number(value) for value in (figure.median, min(figure.values), max(figure.values))]
            rows.append([figure.group, f"{figure.name} [{figure.unit}]", *shown, asked])
        print(_table(rows))
        rows = [["group", "times faster", "than", "found", "asked"]]
        for ratio in self._ratios:
            asked = "" if ratio.goal is None else _verdict(ratio.value >= ratio.goal, f"≥ {ratio.goal:g}")
            rows.append([ratio.group, ratio.ours.name, ratio.theirs.name, f"{ratio.value:.2f} ×", asked])
        print(_table(rows))

    def lines(self) -> Iterator[dict[str, Any]]:
        for figure in self._figures:
            yield {"rows": self.rows, **dataclasses.asdict(figure)}


def _verdict(is_met: bool, goal: str) -> str:
    return f"{goal}: {'met' if is_met else 'MISSED'}"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, ""])
