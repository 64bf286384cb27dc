"""The peer's side of a measurement: a job from standard input, a result on standard output.

Runs in the peers' own environment, so it imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

QUEUE_KEYS = 10_000


@dataclass
class Job:
    database: str
    broker: str
    topic: str
    events: int
    payload_bytes: int
    tuned: bool


@dataclass
class Clock:
    """Started by the first event that is published."""

    began_at: float = 0.0

    def start(self) -> None:
        if not self.began_at:
            self.began_at = time.monotonic()


def filling(job: Job) -> str:
    return "x" * (job.payload_bytes - 34)


def main(prepare: Callable[[Job], Awaitable[None]], drain: Callable[[Job, Clock], Awaitable[None]]):
    job = Job(**json.loads(sys.stdin.readline()))
    asyncio.run(run(job, prepare, drain))


async def run(job, prepare, drain) -> None:
    await prepare(job)
    print("ready", flush=True)
    sys.stdin.readline()
    clock, used = Clock(), cpu_seconds()
    await drain(job, clock)
    result = {
        "events": job.events,
        "seconds": time.monotonic() - clock.began_at,
        "cpu_seconds": cpu_seconds() - used,
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(result), flush=True)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_memory_bytes(pid: int | str = "self") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
