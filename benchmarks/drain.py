"""How fast a backlog is drained from PostgreSQL to Kafka, next to a bare loop on the same drivers.

The bare loop reads, produces and deletes, overlapped, with no guarantee at all: no leases, no
order after a failure, no retries, no journal. commitrelay runs with everything on. Repetitions
are interleaved; read the ratios, not the rates.

    python benchmarks/drain.py [--events 100000] [--keys 10000] [--payload 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.publishers.kafka import from_url
from commitrelay.relay import Relay
from commitrelay.route import Route
from commitrelay.stores.postgres.store import PostgresStore

SERVICES = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "services")]
TOPIC = "bench"
BATCH = 1000
WINDOW = 8

FILL = """
    INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
    SELECT 'Order', (n %% %(keys)s)::text, 'OrderPaid',
           convert_to('{"number": ' || n || ', "filling": "' || repeat('x', %(payload)s - 40)
                      || '"}', 'UTF8')
    FROM generate_series(1, %(events)s) AS n
"""


def services(*arguments: str) -> str:
    return subprocess.check_output([*SERVICES, *arguments], text=True).strip()


class Bench:
    def __init__(self, arguments: argparse.Namespace, database: str, kafka: str) -> None:
        self.arguments = arguments
        self.database = database
        self.kafka = kafka
        self.bootstrap = kafka.removeprefix("kafka://")

    async def prepare(self) -> None:
        store = PostgresStore(self.database)
        await store.initialise()
        await store.close()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        if TOPIC not in admin.list_topics(timeout=10).topics:
            admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(30)

    def fill(self) -> None:
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute("TRUNCATE outbox_event, outbox_queue, outbox_delivery")
            connection.execute(FILL, vars(self.arguments))
            connection.execute("VACUUM ANALYZE outbox_queue, outbox_event")
            connection.execute("CHECKPOINT")

    async def relay(self, order: str) -> None:
        relay = Relay(
            PostgresStore(self.database),
            from_url(self.kafka, {}),
            RelayOptions(order=order, until="drained", retention_seconds=None),  # type: ignore[arg-type]
            compose=Plain(Route(TOPIC)),
        )
        await relay.run()
        assert relay.stats.published == self.arguments.events

    async def bare(self) -> None:
        await BareLoop(self.database, self.bootstrap).drain(self.arguments.events)

    async def measure(self, work: Callable[[], Awaitable[None]]) -> float:
        self.fill()
        started = time.perf_counter()
        await work()
        return self.arguments.events / (time.perf_counter() - started)

    async def run(self) -> None:
        await self.prepare()
        subjects: dict[str, Callable[[], Awaitable[None]]] = {
            "bare loop": self.bare,
            "strict, one per key": lambda: self.relay("strict"),
            "relaxed": lambda: self.relay("relaxed"),
        }
        rates: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(self.arguments.rounds):
            for name, work in subjects.items():
                rates[name].append(await self.measure(work))
        bare = statistics.median(rates["bare loop"])
        for name, each in rates.items():
            middle = statistics.median(each)
            spread = (max(each) - min(each)) / middle
            print(f"{name:20} {middle:>9,.0f} events/s  {middle / bare:5.2f} of bare ±{spread:.0%}")


class BareLoop:
    """Read ahead by seq, produce, and delete once a batch is acknowledged."""

    def __init__(self, database: str, bootstrap: str) -> None:
        self._database = database
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 2,
                "batch.size": 1_000_000,
                "queue.buffering.max.kbytes": 256 * 1024,
            }
        )
        self._ending = threading.Event()
        self._room = asyncio.Semaphore(WINDOW)
        self._acknowledged: asyncio.Queue[list[int]] = asyncio.Queue()

    async def drain(self, events: int) -> None:
        poll = threading.Thread(target=self._poll)
        poll.start()
        settle = asyncio.create_task(self._settle(events))
        connection = await psycopg.AsyncConnection.connect(self._database, autocommit=True)
        floor = 0
        while True:
            await self._room.acquire()
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                "SELECT q.seq, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type,"
                " e.payload, e.content_type, e.created_at::text"
                " FROM outbox_queue q JOIN outbox_event e ON e.seq = q.seq"
                " WHERE q.lane = 1 AND q.state = 0 AND q.seq > %s ORDER BY q.seq LIMIT %s",
                (floor, BATCH),
                prepare=True,
            )
            rows = await cursor.fetchall()
            if not rows:
                break
            floor = rows[-1][0]
            self._produce(rows)
        await settle
        self._ending.set()
        poll.join()
        await connection.close()

    def _produce(self, rows: list[tuple[object, ...]]) -> None:
        loop = asyncio.get_running_loop()
        left = len(rows)

        def acknowledge(error: object, _message: object) -> None:
            nonlocal left
            assert error is None
            left -= 1
            if not left:
                seqs = [row[0] for row in rows]
                loop.call_soon_threadsafe(self._acknowledged.put_nowait, seqs)

        produce = self._producer.produce
        for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows:
            headers = [
                ("event-id", event_id),
                ("event-type", event_type),
                ("aggregate-type", kind),
                ("aggregate-id", key),
                ("content-type", content_type),
                ("created-at", created_at),
            ]
            produce(TOPIC, payload, key, on_delivery=acknowledge, headers=headers)

    async def _settle(self, events: int) -> None:
        connection = await psycopg.AsyncConnection.connect(self._database, autocommit=True)
        while events:
            batches = [await self._acknowledged.get()]
            while not self._acknowledged.empty():
                batches.append(self._acknowledged.get_nowait())
            seqs = [seq for batch in batches for seq in batch]
            await connection.execute(
                "DELETE FROM outbox_queue WHERE lane = 1 AND seq = ANY (%s::bigint[])",
                ("{" + ",".join(map(str, seqs)) + "}",),
                prepare=True,
            )
            events -= len(seqs)
            for _ in batches:
                self._room.release()
        await connection.close()

    def _poll(self) -> None:
        while not self._ending.is_set():
            self._producer.poll(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--payload", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        services("up", "postgres@bench", "kafka@bench")
        database, kafka = services("url", "postgres@bench"), services("url", "kafka@bench")
        asyncio.run(Bench(arguments, database, kafka).run())
    finally:
        services("down", "postgres@bench", "kafka@bench")


if __name__ == "__main__":
    main()
