"""Curve: the drain rate as one thing grows: batches, keys, payloads, processes, history, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from commitrelay.bench import drain
from commitrelay.bench.drain import Drained, Say
from commitrelay.bench.plot import number
from commitrelay.bench.sample import Sample
from commitrelay.bench.site import Site, Subject
from commitrelay.errors import ConfigError
from commitrelay.kinds import hint

HISTORY_PAYLOAD_BYTES = 100
"""A history of millions of events is about their number, not their size."""

DEAD = "Dead"
"""The aggregate type of events that are parked; nothing else is of their key."""


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a curve."""

    label: str
    workload: dict[str, Any] = field(default_factory=dict)  # of `prepare`
    job: dict[str, Any] = field(default_factory=dict)
    before: int = 0  # events that were there before, by `Curve.lay`
    processes: int | None = None  # relays that share the keys before the backlog comes
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Curve:
    points: Callable[[float], list[Point]]  # given the scale of sizes
    lay: Callable[[Site, int], None] | None = None  # puts the events before


def measure(site: Site, names: tuple[str, ...], scale: float, say: Say) -> dict[str, Any]:
    drain.warm_up(site, say)
    return {name: _measure(site, name, scale, say) for name in checked(names)}


def checked(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in CURVES:
            known = ", ".join(CURVES)
            raise ConfigError(f"no curve {name!r}{hint(name, list(CURVES))}: use one of {known}")
    return names


def _measure(site: Site, name: str, scale: float, say: Say) -> dict[str, Any]:
    """All points in every round, in turns."""
    curve = CURVES[name]
    points = curve.points(scale)
    subjects = site.subjects()[1:]
    rates: dict[str, dict[str, list[float]]] = {
        point.label: {subject.name: [] for subject in subjects} for point in points
    }
    foreign: list[float] = []
    for round_number in range(site.plan.rounds):
        for point in points if round_number % 2 == 0 else reversed(points):
            if curve.lay is not None:
                _lay(site, curve, point)
            for subject in subjects:
                if point.processes and subject.settings.get("strategy") == "leader":
                    continue  # the others would stand by
                if curve.lay is None:
                    _lay(site, curve, point)
                run = _run(site, point, subject)
                rates[point.label][subject.name].append(run.events_per_second)
                foreign.append(run.foreign_cores)
                say(
                    f"{name} {point.label}, {round_number + 1}/{site.plan.rounds}: "
                    f"{subject.name} {run.events_per_second:,.0f} events/s"
                )
    return {
        "points": {
            label: {who: Sample.of(each) for who, each in by_subject.items() if each}
            for label, by_subject in rates.items()
        },
        "foreign_cores": Sample.of(foreign),
    }


def _lay(site: Site, curve: Curve, point: Point) -> None:
    """The tables as a point wants them. A run leaves what was laid, so its subjects share it."""
    site.ground.clear()
    site.ground.add_lanes(_lanes(point)[1:])
    if curve.lay is not None and point.before:
        curve.lay(site, point.before)


def _lanes(point: Point) -> list[str]:
    return ["default", *(f"lane-{n}" for n in range(2, point.lanes + 1))]


def _run(site: Site, point: Point, subject: Subject) -> Drained:
    events = site.plan.events
    if point.processes:
        return drain.drain_together(site, subject, point.processes)
    drain.prepare(site, events, **point.workload)
    return drain.drain(
        site,
        subject,
        events=events * point.lanes,
        lanes=tuple(_lanes(point)),
        **point.job,
    )


def _history(site: Site, events: int) -> None:
    site.ground.fill(events, keys=site.plan.keys, payload_bytes=HISTORY_PAYLOAD_BYTES)
    site.ground.publish()


def _backlog(site: Site, events: int) -> None:
    site.ground.fill(events, keys=site.plan.keys, payload_bytes=site.plan.payload_bytes)


def _parked(site: Site, events: int) -> None:
    site.ground.fill(events, keys=1, payload_bytes=HISTORY_PAYLOAD_BYTES, aggregate_type=DEAD)
    site.ground.park()


def _sized(*sizes: int) -> Callable[[float], list[Point]]:
    def points(scale: float) -> list[Point]:
        scaled = [round(size * scale) for size in sizes]
        return [Point(number(size), before=size) for size in dict.fromkeys(scaled)]

    return points


def _each(*points: Point) -> Callable[[float], list[Point]]:
    return lambda _scale: list(points)


CURVES: Mapping[str, Curve] = {
    "batch": Curve(
        _each(*(Point(str(n), job={"batch_size": n}) for n in (100, 300, 1000, 3000, 10_000)))
    ),
    "window": Curve(_each(*(Point(str(n), job={"window": n}) for n in (1, 2, 4, 8, 16)))),
    "keys": Curve(
        _each(
            *(
                Point(number(n), workload={"keys": n})
                for n in (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
            )
        )
    ),
    "payload": Curve(
        _each(
            *(
                Point(f"{number(n)}B", workload={"payload_bytes": n})
                for n in (200, 1000, 5000, 20_000, 100_000)
            )
        )
    ),
    "relays": Curve(_each(*(Point(str(n), processes=n) for n in (1, 2, 4)))),
    "lanes": Curve(_each(*(Point(str(n), lanes=n) for n in (1, 2, 4)))),
    "history": Curve(_sized(0, 100_000, 1_000_000, 5_000_000), _history),
    "backlog": Curve(_sized(0, 100_000, 1_000_000, 2_000_000), _backlog),
    "parked": Curve(_sized(0, 10_000, 100_000, 1_000_000), _parked),
}
