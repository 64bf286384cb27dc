"""Worker: the process side of a measurement. Run by `process.py`, not by people.

It reads a `Job` from its standard input, says that it is ready, starts when a line says so, and
stops when its work is done, when another line says so, or when the input ends. Then it prints its
`Result`. URLs come this way, because everybody can read the arguments of a process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from commitrelay.bench.bare import BareLoop
from commitrelay.bench.delivering import deliver
from commitrelay.bench.job import Job, Result
from commitrelay.bench.meter import Meter
from commitrelay.bench.tally import Tally
from commitrelay.bench.writing import Writing
from commitrelay.daemon import run_async
from commitrelay.errors import CommitrelayError, first_of
from commitrelay.registry import dialect_of
from commitrelay.urls import scrub

READY, FAILED = "ready", "failed: "
SAMPLE_SECONDS = 0.05


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        job = Job.from_json(sys.stdin.readline())
        result = write(job) if job.role == "write" else run_async(relay(job))
    except (CommitrelayError, ExceptionGroup) as error:
        print(FAILED + scrub(" ".join(str(first_of(error)).split())), flush=True)
        return 1
    print(result.to_json(), flush=True)
    return 0


def write(job: Job) -> Result:
    writing, enough = Writing(job), threading.Event()
    _await_start()

    def stop() -> None:
        sys.stdin.readline()
        enough.set()

    threading.Thread(target=stop, daemon=True).start()
    used = time.process_time()
    writing.run(enough)
    return Result(
        events=writing.events,
        began_at=writing.began_at,
        ended_at=writing.ended_at,
        cpu_seconds=time.process_time() - used,
        whole_cpu_seconds=time.process_time() - used,
        peak_memory_bytes=_peak_memory_bytes(),
        moments=writing.committed,
    )


async def relay(job: Job) -> Result:
    meter, tally, enough = Meter(notes_every_event=job.notes_every_event), Tally(), asyncio.Event()
    if job.counts_statements:
        tally.start(dialect_of(job.database))
    _await_start()
    used = time.process_time()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        sys.stdin.readline()
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(enough.set)

    threading.Thread(target=stop, daemon=True).start()
    timeline: list[tuple[float, int]] = []
    statement_line: list[tuple[float, int]] = []

    def look() -> None:
        now = time.monotonic()
        timeline.append((now, meter.delivered))
        statement_line.append((now, tally.statements))

    watching = asyncio.create_task(_watch(job, meter, look, enough))
    if job.role == "bare":
        await BareLoop(job, meter).run(enough)
    else:
        await deliver(job, meter, enough)
    watching.cancel()
    look()
    return Result(
        events=meter.delivered,
        began_at=meter.began_at,
        ended_at=meter.ended_at,
        cpu_seconds=meter.cpu_seconds,
        whole_cpu_seconds=time.process_time() - used,
        peak_memory_bytes=_peak_memory_bytes(),
        timeline=timeline,
        statement_line=statement_line if job.counts_statements else [],
        moments=meter.acknowledged,
    )


async def _watch(job: Job, meter: Meter, look: Callable[[], None], enough: asyncio.Event) -> None:
    while job.deliveries is None or meter.delivered < job.deliveries:
        look()
        await asyncio.sleep(SAMPLE_SECONDS)
    enough.set()


def _await_start() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


def _peak_memory_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says there is at least what the parent had
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    # At once: a thread may still be waiting for a line of the input, which would be waited for.
    os._exit(main())
