"""Metrics: counters, gauges and histograms, and their text for Prometheus. No I/O.

Each series is named by the values of its labels, of which there are few: lanes and states, never
ids, keys or texts of errors.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Metric:
    """A name, a sentence about it, and a value for each combination of labels."""

    kind = "untyped"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._values: dict[Labels, float] = {}

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0.0)

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield f"{self.name}{self._braces(labels)} {_number(value)}"

    def _braces(self, labels: Labels, extra: str = "") -> str:
        pairs = [
            f'{name}="{_escaped(value)}"' for name, value in zip(self.labels, labels, strict=True)
        ]
        inside = ",".join([*pairs, extra] if extra else pairs)
        return f"{{{inside}}}" if inside else ""


class Counter(Metric):
    """Only ever grows; its rate is what matters."""

    kind = "counter"

    def add(self, amount: float, *labels: str) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount


class Gauge(Metric):
    """What is so right now."""

    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        self._values[labels] = value

    def add(self, amount: float, *labels: str) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def clear(self) -> None:
        """Forget every series: what is not set again is not shown."""
        self._values.clear()


class Histogram(Metric):
    """How often a value was at most so large."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), *, bounds: Sequence[float]
    ) -> None:
        super().__init__(name, help, labels)
        self._bounds = [*bounds, math.inf]
        self._series: dict[Labels, list[int]] = {}

    def observe(self, value: float, *labels: str) -> None:
        self._counts(labels)[bisect_left(self._bounds, value)] += 1
        self._values[labels] = self._values.get(labels, 0.0) + value

    def observe_counts(self, cumulative: Sequence[int], total: float, *labels: str) -> None:
        """Many at a time: how many values were at most each bound, then all; and their sum."""
        counts = self._counts(labels)
        below = 0
        for number, up_to in enumerate(cumulative):
            counts[number] += up_to - below
            below = up_to
        self._values[labels] = self._values.get(labels, 0.0) + total

    def touch(self, *labels: str) -> None:
        """Show the series before anything was observed."""
        self._counts(labels)
        self._values.setdefault(labels, 0.0)

    def count(self, *labels: str) -> int:
        return sum(self._series.get(labels, ()))

    def lines(self) -> Iterator[str]:
        for labels, counts in sorted(self._series.items()):
            for bound, total in zip(self._bounds, accumulate(counts), strict=True):
                braces = self._braces(labels, f'le="{_number(bound)}"')
                yield f"{self.name}_bucket{braces} {total}"
            braces = self._braces(labels)
            yield f"{self.name}_sum{braces} {_number(self._values[labels])}"
            yield f"{self.name}_count{braces} {sum(counts)}"

    def _counts(self, labels: Labels) -> list[int]:
        counts = self._series.get(labels)
        if counts is None:
            counts = self._series[labels] = [0] * len(self._bounds)
        return counts


def exposition(metrics: Sequence[Metric]) -> str:
    """All of them as Prometheus reads them."""
    lines: list[str] = []
    for metric in metrics:
        text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.lines()
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
