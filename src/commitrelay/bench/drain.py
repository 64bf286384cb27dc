"""Drain: how fast a backlog is delivered, and what that costs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from commitrelay.bench import usage
from commitrelay.bench.job import Result
from commitrelay.bench.process import Process
from commitrelay.bench.sample import Sample, ratio
from commitrelay.bench.site import BARE, Site, Subject

SHARING_SECONDS = 4.0
"""Relays that have come together own equal shares by then."""

MOST_WARM_UPS = 6
WARMER = 0.95
"""A run that takes less than this share of the processor time of the last was not yet warm."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Drained:
    """One backlog delivered, once."""

    events: int
    seconds: float
    cpu_us: dict[str, float]  # an event, by who used it
    peak_memory_mb: float
    wal_bytes: dict[str, float]  # an event, for adding and for delivering it
    foreign_cores: float
    timeline: list[tuple[float, int]]

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds


class Stopwatch:
    """What was used between its making and `stop`, by whom."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._began = self._now()
        self._wal = site.ground.wal_bytes()

    def stop(self, workers: list[Result]) -> tuple[dict[str, float], float, float | None]:
        """CPU seconds by user, processors that others used meanwhile, bytes of WAL."""
        workers_seconds = sum(worker.whole_cpu_seconds for worker in workers)
        after = self._now()
        used = {name: after[name] - self._began[name] for name in after}
        elapsed, busy, own = used.pop("elapsed"), used.pop("busy"), used.pop("own")
        foreign = max(0.0, busy - own - workers_seconds - sum(used.values())) / elapsed
        wal = self._site.ground.wal_bytes()
        written = None if wal is None or self._wal is None else float(wal - self._wal)
        servers = {
            "database": (self._site.database_pid, used["database"]),
            "broker": (self._site.broker_pid, used["broker"]),
        }
        cpu = {name: seconds for name, (pid, seconds) in servers.items() if pid is not None}
        return {"relay": sum(worker.cpu_seconds for worker in workers), **cpu}, foreign, written

    def _now(self) -> dict[str, float]:
        return {
            "elapsed": time.monotonic(),
            "busy": usage.busy_seconds(),
            "own": sum(os.times()[:2]),
            "database": usage.cpu_seconds(self._site.database_pid),
            "broker": usage.cpu_seconds(self._site.broker_pid),
        }


def prepare(site: Site, events: int, **workload: Any) -> float | None:
    """Empty tables and a fresh backlog; the bytes of WAL that it took, for each event."""
    plan, ground = site.plan, site.ground
    before = ground.wal_bytes()
    ground.fill(
        events,
        keys=workload.get("keys", plan.keys),
        payload_bytes=workload.get("payload_bytes", plan.payload_bytes),
    )
    after = ground.wal_bytes()
    ground.calm()
    return None if before is None or after is None else (after - before) / events


def drain(site: Site, subject: Subject, *, events: int, **more: Any) -> Drained:
    """Deliver what `prepare` has left, and count `events` of it."""
    with site.topic() as topic, Process(site.job(subject, topic, deliveries=events, **more)) as one:
        stopwatch = Stopwatch(site)
        one.start()
        return _drained(stopwatch, [one.result()])


def drain_together(site: Site, subject: Subject, processes: int) -> Drained:
    """Several relays share the keys; then the backlog is committed, and they deliver it."""
    with site.topic() as topic, ExitStack() as stack:
        job = site.job(subject, topic)
        workers = [stack.enter_context(Process(job)) for _ in range(processes)]
        for worker in workers:
            worker.start()
        time.sleep(SHARING_SECONDS)
        stopwatch = Stopwatch(site)
        plan = site.plan
        site.ground.fill(plan.events, keys=plan.keys, payload_bytes=plan.payload_bytes)
        site.await_drained()
        return _drained(stopwatch, [worker.stop() for worker in workers])


def _drained(stopwatch: Stopwatch, results: list[Result]) -> Drained:
    cpu, foreign, wal = stopwatch.stop(results)
    results = [result for result in results if result.events]
    delivered = sum(result.events for result in results)
    seconds = max(each.ended_at for each in results) - min(each.began_at for each in results)
    return Drained(
        events=delivered,
        seconds=seconds,
        cpu_us={name: used / delivered * 1e6 for name, used in cpu.items()},
        peak_memory_mb=sum(result.peak_memory_bytes for result in results) / 1e6,
        wal_bytes={} if wal is None else {"deliver": wal / delivered},
        foreign_cores=foreign,
        timeline=_joined(results),
    )


def measure(site: Site, say: Say) -> dict[str, Any]:
    """Every subject in every round, in turns."""
    plan = site.plan
    runs: dict[str, list[Drained]] = {subject.name: [] for subject in site.subjects()}
    adding: list[float] = []
    warm_up(site, say)
    for number in range(plan.rounds):
        for subject in site.turns(number):
            site.ground.clear()
            wal = prepare(site, plan.events)
            adding += [] if wal is None else [wal]
            run = drain(site, subject, events=plan.events)
            runs[subject.name].append(run)
            say(
                f"drain {number + 1}/{plan.rounds}: {subject.name} "
                f"{run.events_per_second:,.0f} events/s"
            )
    return report(runs, adding)


def warm_up(site: Site, say: Say) -> None:
    """Servers are slower at first, Java's most of all: deliver until that gets no cheaper."""
    last = float("inf")
    for _ in range(MOST_WARM_UPS):
        site.ground.clear()
        prepare(site, site.plan.events)
        run = drain(site, site.subjects()[0], events=site.plan.events)
        say(f"warming up: {run.events_per_second:,.0f} events/s")
        cost = sum(run.cpu_us.values())
        if cost > last * WARMER:
            return
        last = cost


def report(runs: dict[str, list[Drained]], adding: list[float]) -> dict[str, Any]:
    rates = {
        name: Sample.of([run.events_per_second for run in each]) for name, each in runs.items()
    }
    found: dict[str, Any] = {}
    for name, each in runs.items():
        found[name] = {
            "events_per_second": rates[name],
            "of_bare_loop": ratio(rates[name], rates[BARE]),
            "cpu_us_per_event": {
                user: Sample.of([run.cpu_us[user] for run in each]) for user in each[0].cpu_us
            },
            "peak_memory_mb": Sample.of([run.peak_memory_mb for run in each]),
            "foreign_cores": Sample.of([run.foreign_cores for run in each]),
            "timeline": [run.timeline for run in each],
        }
        if each[0].wal_bytes:
            delivering = Sample.of([run.wal_bytes["deliver"] for run in each])
            found[name]["wal_bytes_per_event"] = {"add": Sample.of(adding), "deliver": delivering}
    return found


def _joined(results: list[Result]) -> list[tuple[float, int]]:
    """Seconds since the first event went out, and how many had been delivered by then."""
    began = min(result.began_at for result in results)
    if len(results) == 1:
        return [(round(at - began, 3), count) for at, count in results[0].timeline]
    return []
