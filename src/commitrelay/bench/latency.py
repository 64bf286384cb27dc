"""Latency: from commit to the broker's acknowledgement, at a fixed rate and at full load."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from commitrelay.bench.drain import Say, Stopwatch
from commitrelay.bench.job import Job, Result
from commitrelay.bench.process import Process
from commitrelay.bench.sample import Sample, percentile
from commitrelay.bench.site import Site, Subject
from commitrelay.errors import StoreError

JOINING_SECONDS = 1.0
EVENTS_PER_TRANSACTION = 10
QUANTILES = {"p50": 0.5, "p99": 0.99}
MOST_PLOTTED = 2000


@dataclass(frozen=True, slots=True)
class Observed:
    """Writers and a relay at work for a while."""

    written: Result
    delivered: Result
    lags_ms: list[float]
    foreign_cores: float

    @property
    def written_per_second(self) -> float:
        return self.written.events_per_second

    @property
    def delivered_per_second(self) -> float:
        return self.delivered.events_per_second

    @property
    def cpu_us(self) -> float:
        return self.delivered.cpu_seconds / max(1, self.delivered.events) * 1e6


def observe(site: Site, subject: Subject, writing: Job, **more: Any) -> Observed:
    """Let them work for the plan's seconds, then let the relay deliver what is left."""
    site.ground.clear()
    with site.topic() as topic, Process(writing) as writer:
        job = site.job(subject, topic, notes_every_event=writing.notes_every_event, **more)
        with Process(job) as relay:
            relay.start()
            time.sleep(JOINING_SECONDS)
            stopwatch = Stopwatch(site)
            writer.start()
            time.sleep(site.plan.seconds)
            written = writer.stop()
            site.await_drained()
            delivered = relay.stop()
            _cpu, foreign, _wal = stopwatch.stop([written, delivered])
    lags = [
        max(0.0, delivered.moments[event_id] - committed_at) * 1000
        for event_id, committed_at in written.moments.items()
        if event_id in delivered.moments
    ]
    if len(lags) < len(written.moments):
        missing = len(written.moments) - len(lags)
        raise StoreError(f"{missing} events of {subject.name} were written and not delivered")
    return Observed(written, delivered, lags, foreign)


def measure(site: Site, say: Say) -> dict[str, Any]:
    """Commit → acknowledgement at the plan's rate: one writer, an event a transaction."""
    plan = site.plan
    runs: dict[str, list[Observed]] = {}
    writing = site.writing(events_per_second=plan.events_per_second, notes_every_event=True)
    for number in range(plan.rounds):
        for subject in site.turns(number):
            seen = observe(site, subject, writing)
            runs.setdefault(subject.name, []).append(seen)
            p50, p99 = (percentile(seen.lags_ms, share) for share in QUANTILES.values())
            say(
                f"latency {number + 1}/{plan.rounds}: {subject.name} p50 {p50:.2f} ms, "
                f"p99 {p99:.2f} ms"
            )
    return {subject.name: _lags(runs[subject.name]) for subject in site.subjects()}


def measure_sustained(site: Site, say: Say) -> dict[str, Any]:
    """Writers as fast as they can, and the relay beside them."""
    plan = site.plan
    runs: dict[str, list[Observed]] = {}
    writing = site.writing(writers=plan.writers, events_per_transaction=EVENTS_PER_TRANSACTION)
    for number in range(plan.rounds):
        for subject in site.subjects()[1:]:
            seen = observe(site, subject, writing)
            runs.setdefault(subject.name, []).append(seen)
            say(
                f"sustained {number + 1}/{plan.rounds}: {subject.name} "
                f"{seen.written_per_second:,.0f} written/s, "
                f"{seen.delivered_per_second:,.0f} delivered/s"
            )
    return {
        name: {
            "written_per_second": Sample.of([each.written_per_second for each in seen]),
            "delivered_per_second": Sample.of([each.delivered_per_second for each in seen]),
            "cpu_us_per_event": Sample.of([each.cpu_us for each in seen]),
            **_lags(seen),
        }
        for name, seen in runs.items()
    }


def _lags(seen: list[Observed]) -> dict[str, Any]:
    every = sorted(lag for each in seen for lag in each.lags_ms)
    step = max(1, len(every) // MOST_PLOTTED)
    return {
        **{
            f"{name}_ms": Sample.of([percentile(each.lags_ms, share) for each in seen])
            for name, share in QUANTILES.items()
        },
        "events": len(every),
        "foreign_cores": Sample.of([each.foreign_cores for each in seen]),
        "lags_ms": [round(lag, 3) for lag in [*every[::step], *every[-1:]]],
    }
