"""How long `status` and `list` take on PostgreSQL with a long history and a large backlog.

    python benchmarks/status_at_size.py [--history 5000000] [--pending 1000000] [--rounds 5]
                                        [--database URL]

Without --database it starts a server of its own and removes it at the end. The outbox is filled
directly: history in the log and the journal, the backlog through the trigger. Times are those of
the questions (`Admin`), and of the whole command with the start of Python. Exit 1 if one of them
took longer than --limit at the median.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

from commitrelay.admin import Admin
from commitrelay.store import EventFilter
from commitrelay.stores.postgres.store import PostgresStore

SERVICES = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "services")]
INSTANCE = "postgres@status"
CHUNK = 250_000

HISTORY = """
    INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, created_at)
    SELECT 'Order', (n %% 10000)::text, 'OrderPaid', '{"total": 10}',
           now() - interval '6 days' + n * interval '1 microsecond'
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
"""
JOURNAL = """
    INSERT INTO outbox_delivery (smallest, largest, at, lane, events, verdict, relay, seqs)
    SELECT i, i + 499, now() - interval '6 days', 1, 500, 0, 'bench',
           ARRAY(SELECT generate_series(i, i + 499))
    FROM generate_series(%(first)s::bigint, %(last)s::bigint, 500) AS i
"""
BACKLOG = """
    INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
    SELECT 'Order', (n %% 10000)::text, 'OrderPaid', '{"total": 10}'
    FROM generate_series(1, %(number)s::bigint) AS n
"""
TROUBLE = """
    UPDATE outbox_queue SET state = 4, last_error = 'refused', attempts = 5
    WHERE seq IN (SELECT seq FROM outbox_queue ORDER BY seq LIMIT 100)
"""

QUESTIONS: dict[str, Callable[[Admin], Awaitable[object]]] = {
    "status": lambda admin: admin.status(),
    "list": lambda admin: admin.events(EventFilter()),
    "list --status pending": lambda admin: admin.events(EventFilter(status="pending")),
    "list --status dead": lambda admin: admin.events(EventFilter(status="dead")),
    "list --status published": lambda admin: admin.events(EventFilter(status="published")),
    "list --lane default": lambda admin: admin.events(EventFilter(lane="default")),
    "list, a page in the middle": lambda admin: admin.events(EventFilter(), before_seq=10_000),
}


def fill(url: str, history: int, pending: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("ALTER TABLE outbox_event DISABLE TRIGGER USER")
        for first in range(1, history + 1, CHUNK):
            values = {"first": first, "last": min(first + CHUNK - 1, history)}
            connection.execute(HISTORY, values)
            connection.execute(JOURNAL, values)
        connection.execute("ALTER TABLE outbox_event ENABLE TRIGGER USER")
        for first in range(0, pending, CHUNK):
            connection.execute(BACKLOG, {"number": min(CHUNK, pending - first)})
        connection.execute(TROUBLE)
        connection.execute("VACUUM ANALYZE")


async def ask(url: str, rounds: int) -> dict[str, float]:
    """The median time of each question, in seconds."""
    took: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    async with Admin(PostgresStore(url)) as admin:
        for _ in range(rounds):
            for name, question in QUESTIONS.items():
                started = time.perf_counter()
                await question(admin)
                took[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in took.items()}


def command(url: str, *words: str, rounds: int) -> float:
    """The median time of a whole command, in seconds, compiled once as an installed one is."""
    environment = {**os.environ, "COMMITRELAY_DATABASE": url}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    took = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "commitrelay", *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        took.append(time.perf_counter() - started)
    return statistics.median(took[1:])


def measure(url: str, arguments: argparse.Namespace) -> int:
    store = PostgresStore(url)

    async def initialise() -> None:
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    started = time.perf_counter()
    fill(url, arguments.history, arguments.pending)
    print(f"{arguments.history:,} events of history, {arguments.pending:,} pending: filled in "
          f"{time.perf_counter() - started:.0f} s")  # fmt: skip
    medians = asyncio.run(ask(url, arguments.rounds))
    for name, seconds in medians.items():
        print(f"  {name:<28} {seconds * 1000:7.1f} ms")
    for word in ("status", "list"):
        seconds = medians[f"commitrelay {word}"] = command(url, word, rounds=arguments.rounds)
        print(f"  commitrelay {word:<16} {seconds * 1000:7.1f} ms with the start of Python")
    return int(max(medians.values()) > arguments.limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--history", type=int, default=5_000_000)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.3, help="seconds")
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
