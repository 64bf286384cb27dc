"""Plan: what to measure, on what, how often."""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("drain", "latency", "sustained", "add", "idle")


@dataclass(frozen=True, slots=True)
class Plan:
    database: str | None = None  # None: an SQLite file that goes away with the run
    publish: str | None = None  # None: files that go away with the run
    parts: tuple[str, ...] = PARTS
    events: int = 100_000
    keys: int = 10_000
    payload_bytes: int = 1000
    rounds: int = 5
    seconds: float = 10.0
    events_per_second: float = 200.0
    writers: int = 4
    batch_size: int = 1000
    window: int = 8
    curves: tuple[str, ...] = ()
    scale: float = 1.0  # of the sizes on curves that go up to millions
