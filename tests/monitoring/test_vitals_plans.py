"""What monitoring reads stays cheap: however many events wait behind a key, a key is one step."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

from commitrelay.sql import Names, queries
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore

WAITING = 100_000
KEYS = 50


def test_postgresql_reads_a_few_pages(postgres_database: str) -> None:
    async def create() -> None:
        store = PostgresStore(postgres_database)
        await store.initialise()
        await store.close()

    asyncio.run(create())
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox_queue (seq, key, event_id, lane, bucket, state)"
            " SELECT n, n %% %s, gen_random_uuid(), 1, 0, CASE WHEN n < %s THEN 4 ELSE 3 END"
            " FROM generate_series(0, %s) AS n",
            (KEYS, KEYS, WAITING),
        )
        connection.execute("VACUUM ANALYZE outbox_queue")
        query = queries("postgres", Names())["blocked_keys_count"]
        assert connection.execute(query, {"cap": 1000}).fetchall() == [("default", KEYS)]
        ((plan,),) = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", {"cap": 1000}
        ).fetchall()
    pages = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    assert pages < 10 * KEYS, "1,000 pages hold the queue: it was read as a whole"


def test_sqlite_searches_and_never_scans(sqlite_path: Path) -> None:
    async def create() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(create())
    query = queries("sqlite", Names())["blocked_keys_count"]
    with closing(sqlite3.connect(sqlite_path)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {query}", {"lane": 1, "cap": 9}).fetchall()
    of_the_queue = [text for *_, text in rows if "outbox_queue_blockers" in text]
    assert len(of_the_queue) == 3
    assert all(text.startswith("SEARCH") and "lane=?" in text for text in of_the_queue)
    assert sum("key>?" in text or "key=?" in text for text in of_the_queue) == 2
