"""Pictures: the plots of a report, as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from commitrelay.bench.plot import Line, Plot, Point

STEP_SECONDS = 0.25


def save(report: Mapping[str, Any], directory: Path) -> list[Path]:
    """Write them, and tell where."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, plot in plots(report):
        path = directory / f"{name}.svg"
        path.write_text(plot.svg(), "utf-8")
        written.append(path)
    return written


def plots(report: Mapping[str, Any]) -> Iterator[tuple[str, Plot]]:
    where = f"{report['database']} to {report['broker']}"
    if "drain" in report:
        lines = [
            Line(name, rates(timeline))
            for name, found in report["drain"].items()
            for timeline in found["timeline"]
        ]
        title = f"Draining a backlog, {where}: every round"
        yield "throughput", Plot(title, "seconds", "events/s", lines)
    for part, load in (("latency", "at a fixed rate"), ("sustained", "under load")):
        if part in report:
            lines = [
                Line(name, distribution(found["lags_ms"])) for name, found in report[part].items()
            ]
            title = f"Commit to acknowledgement {load}, {where}"
            yield part, Plot(title, "ms", "% of the events", lines, log_x=True)
    for name, curve in report.get("curves", {}).items():
        yield f"curve-{name.replace(' ', '-')}", _curve(name, curve, where)


def rates(timeline: list[tuple[float, int]]) -> list[Point]:
    """Events per second between moments that are some way apart."""
    under_way = [moment for moment in timeline if moment[0] >= 0]
    chosen = under_way[:1]
    for moment in under_way[1:]:
        if moment[0] - chosen[-1][0] >= STEP_SECONDS:
            chosen.append(moment)
    return [((a + b) / 2, (m - n) / (b - a)) for (a, n), (b, m) in pairwise(chosen) if m > n]


def distribution(lags_ms: list[float]) -> list[Point]:
    """How many per cent took no longer than that."""
    count = len(lags_ms)
    return [(max(lag, 0.01), (n + 1) / count * 100) for n, lag in enumerate(sorted(lags_ms))]


def _curve(name: str, curve: Mapping[str, Any], where: str) -> Plot:
    """Sizes from none to millions do not fit on one scale: they stand side by side."""
    places = {label: float(n) for n, label in enumerate(curve["points"])}
    lines = []
    for subject in next(iter(curve["points"].values())):
        samples = {places[label]: point[subject] for label, point in curve["points"].items()}
        lines.append(
            Line(
                subject,
                [(x, sample.median) for x, sample in samples.items()],
                [(min(sample.values), max(sample.values)) for sample in samples.values()],
            )
        )
    names = {place: label for label, place in places.items()}
    return Plot(f"Drain rate by {name}, {where}", name, "events/s", lines, x_names=names)
