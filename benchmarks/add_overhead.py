"""What `Outbox.add` costs over an INSERT written by hand: transactions of one event each.

    eval "$(scripts/services env)"; .venv/bin/python benchmarks/add_overhead.py

Repetitions of both ways alternate on the same connection, so that the machine's moods hit both.
Prints the medians of the time per transaction, and the client's CPU time in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psycopg

from commitrelay import Event, Outbox
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore

PAYLOAD = {"total": 10, "currency": "EUR", "lines": [{"sku": f"A{n}", "n": n} for n in range(20)]}
COLUMNS = "aggregate_type, aggregate_id, event_type, payload"
REPETITIONS, TRANSACTIONS = 31, 300

Transaction = Callable[[], None]


def compare(name: str, by_hand: Transaction, with_outbox: Transaction) -> None:
    """Time both ways in turns."""
    samples: dict[Transaction, list[tuple[float, float]]] = {by_hand: [], with_outbox: []}
    for repetition in range(REPETITIONS):
        ways = [by_hand, with_outbox]
        for way in ways if repetition % 2 else reversed(ways):
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(TRANSACTIONS):
                way()
            elapsed = (time.perf_counter() - wall, time.process_time() - cpu)
            samples[way].append((elapsed[0] / TRANSACTIONS, elapsed[1] / TRANSACTIONS))
    (hand_wall, hand_cpu), (outbox_wall, outbox_cpu) = (
        tuple(median(sample[index] for sample in samples[way]) * 1e6 for index in (0, 1))
        for way in (by_hand, with_outbox)
    )
    ratio = median(
        ours[0] / theirs[0]
        for ours, theirs in zip(samples[with_outbox], samples[by_hand], strict=True)
    )
    print(
        f"{name:28} by hand {hand_wall:7.1f} µs   Outbox.add {outbox_wall:7.1f} µs   "
        f"{(ratio - 1) * 100:+5.1f} %   client CPU {hand_cpu:6.1f} → {outbox_cpu:6.1f} µs"
    )


def event() -> Event:
    return Event("Order", "42", "OrderPaid", PAYLOAD)


def body() -> bytes:
    return json.dumps(PAYLOAD).encode()


def on_psycopg(url: str) -> None:
    outbox = Outbox()
    insert = f"INSERT INTO outbox_event ({COLUMNS}) VALUES (%s, %s, %s, %s)"
    with psycopg.connect(url) as connection:

        def by_hand() -> None:
            connection.execute(insert, ("Order", "42", "OrderPaid", body()))
            connection.commit()

        def with_outbox() -> None:
            outbox.add(connection, event())
            connection.commit()

        compare("PostgreSQL, psycopg", by_hand, with_outbox)


def on_sqlite(path: Path, synchronous: str) -> None:
    outbox = Outbox()
    insert = f"INSERT INTO outbox_event ({COLUMNS}) VALUES (?, ?, ?, ?)"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA synchronous = {synchronous}")

    def by_hand() -> None:
        connection.execute(insert, ("Order", "42", "OrderPaid", body()))
        connection.commit()

    def with_outbox() -> None:
        outbox.add(connection, event())
        connection.commit()

    compare(f"SQLite, synchronous={synchronous}", by_hand, with_outbox)
    connection.close()


async def initialise(store: PostgresStore | SqliteStore) -> None:
    await store.initialise()
    await store.close()


def main() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "outbox.db"
        asyncio.run(initialise(SqliteStore(str(path))))
        for synchronous in ("FULL", "NORMAL"):
            on_sqlite(path, synchronous)
    server = os.environ.get("COMMITRELAY_POSTGRES_URL")
    if server is None:
        sys.exit('no PostgreSQL: run eval "$(scripts/services env)" first')
    name = f"bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            url = urlsplit(server)._replace(path=f"/{name}").geturl()
            asyncio.run(initialise(PostgresStore(url)))
            on_psycopg(url)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


if __name__ == "__main__":
    main()
