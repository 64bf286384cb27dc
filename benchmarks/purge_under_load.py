"""Purges settled events on PostgreSQL while others write, and watches how long writers wait.

    python benchmarks/purge_under_load.py [--events 1000000] [--writers 4] [--rate 50]
                                          [--database URL]

Each writer is a process that commits one event at a time, at a fixed rate, and measures what each
commit takes; one event in a hundred of the old ones is still to be delivered. Ten quiet seconds
before the purge tell what the machine does by itself. At the end nothing unsent may be gone. Exit 1
if a commit took longer than --limit during the purge, if a writer was seen waiting for a lock, or
if anything unsent was removed.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import subprocess
import sys
import threading
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Event_
from pathlib import Path
from typing import Any

import psycopg

from commitrelay import Event, Outbox
from commitrelay.purge import Purge, Purged
from commitrelay.stores.postgres.store import PostgresStore

SERVICES = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "services")]
INSTANCE = "postgres@purge"
CHUNK = 250_000
QUIET_SECONDS = 10.0
RETENTION_SECONDS = 3600.0
UNSENT_EVERY = 100

WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'writer' AND wait_event_type = 'Lock'
"""
OLD = """
    INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, created_at)
    SELECT 'Order', (n %% 10000)::text, 'OrderPaid', '{"total": 10}', now() - interval '1 day'
    FROM generate_series(1, %(number)s::bigint) AS n
"""
DELIVER = """
    WITH gone AS (DELETE FROM outbox_queue WHERE seq %% %(every)s <> 0 RETURNING seq),
    paged AS (SELECT seq, (row_number() OVER (ORDER BY seq)) / 500 AS page FROM gone)
    INSERT INTO outbox_delivery (smallest, largest, at, lane, events, verdict, relay, seqs)
    SELECT min(seq), max(seq), now() - interval '1 day', 1, count(*), 0, 'bench',
           array_agg(seq ORDER BY seq)
    FROM paged GROUP BY page
"""


def write(url: str, number: int, rate: float, stopping: Event_, took: Queue[Any]) -> None:
    """Commits events at a rate, and notes how long each took; a process of its own."""
    outbox = Outbox()
    mine: list[tuple[float, float]] = []
    with psycopg.connect(url, application_name="writer") as connection:
        while not stopping.is_set():
            event = Event("Order", f"w{number}", "OrderPaid", {"total": 10})
            started = time.time()
            outbox.add(connection, event)
            connection.commit()
            mine.append((started, time.time() - started))
            stopping.wait(max(0.0, 1 / rate - mine[-1][1]))
    took.put(mine)


class LockWatch(threading.Thread):
    """Looks a hundred times a second whether a writer waits for a lock."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.looks = self.waits = 0
        self.stopping = threading.Event()
        self._url = url

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self.stopping.wait(0.01):
                row = connection.execute(WAITING).fetchone()
                self.looks += 1
                self.waits += row[0] if row else 0


def fill(url: str, events: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for first in range(0, events, CHUNK):
            connection.execute(OLD, {"number": min(CHUNK, events - first)})
        connection.execute(DELIVER, {"every": UNSENT_EVERY})
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def unsent(url: str) -> tuple[int, int]:
    """Events in the queue, and those of them that are in the log."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*), count(e.seq) FROM outbox_queue AS q "
            "LEFT JOIN outbox_event AS e ON e.seq = q.seq"
        ).fetchone()
    assert row is not None
    return row


async def purge(url: str) -> Purged:
    store = PostgresStore(url)
    try:
        return await Purge(store, retention_seconds=RETENTION_SECONDS).run()
    finally:
        await store.close()


def shown(name: str, took: list[float]) -> str:
    cuts = statistics.quantiles(took, n=1000)
    return (
        f"  {name:<7} {len(took):>7,} commits  median {cuts[499] * 1000:6.1f} ms  "
        f"99.9 % {cuts[-1] * 1000:6.1f} ms  longest {max(took) * 1000:6.1f} ms"
    )


def measure(url: str, arguments: argparse.Namespace) -> int:
    async def initialise() -> None:
        store = PostgresStore(url)
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    fill(url, arguments.events)
    waiting, _ = unsent(url)
    stopping, results, watch = multiprocessing.Event(), multiprocessing.Queue(), LockWatch(url)
    writers = [
        multiprocessing.Process(target=write, args=(url, n, arguments.rate, stopping, results))
        for n in range(arguments.writers)
    ]
    for writer in writers:
        writer.start()
    time.sleep(QUIET_SECONDS)
    watch.start()
    began = time.time()
    done = asyncio.run(purge(url))
    ended = time.time()
    stopping.set()
    watch.stopping.set()
    watch.join()
    took = [each for _ in writers for each in results.get()]
    for writer in writers:
        writer.join()
    quiet = [seconds for at, seconds in took if at < began]
    busy = [seconds for at, seconds in took if began <= at <= ended]
    queued, found = unsent(url)
    print(f"purged {done.deleted:,} of {arguments.events:,} events in {ended - began:.1f} s "
          f"({done.deleted / (ended - began):,.0f}/s), {len(writers)} writers")  # fmt: skip
    print(shown("quiet", quiet))
    print(shown("purging", busy))
    lost = queued - found + (waiting + len(took) - queued)
    print(f"  {watch.looks:,} looks at the writers' sessions: {watch.waits} waited for a lock")
    print(f"  to be delivered: {queued:,}, of which {found:,} are in the log: {lost} lost")
    right = done.deleted == arguments.events - waiting and lost == 0
    return int(not right or watch.waits > 0 or max(busy) > arguments.limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=50, help="commits a second, per writer")
    parser.add_argument("--limit", type=float, default=0.1, help="seconds")
    parser.add_argument("--database", help="an empty database")
    arguments = parser.parse_args()
    if arguments.database:
        return measure(arguments.database, arguments)
    subprocess.run([*SERVICES, "up", INSTANCE], check=True, stdout=subprocess.DEVNULL)
    try:
        url = subprocess.check_output([*SERVICES, "url", INSTANCE], text=True).strip()
        return measure(url, arguments)
    finally:
        subprocess.run([*SERVICES, "down", INSTANCE], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
