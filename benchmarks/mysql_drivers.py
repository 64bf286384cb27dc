"""Which driver the MySQL store should use: the relay's two jobs, on each of them.

    scripts/services up mariadb
    python benchmarks/mysql_drivers.py mysql://root@127.0.0.1:PORT/mysql

Reading is one SELECT of 1,000 events of 1 kB; settling is one message of BEGIN, DELETE by primary
key, INSERT and COMMIT. Both are the median of 15 rounds; the figure is thousands of events a
second, and the processor time that this process spends on 1,000 of them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiomysql
import asyncmy
import pymysql
from pymysql.constants import CLIENT

EVENTS = 1000
ROUNDS = 15
DATABASE = "commitrelay_drivers"
READ = "SELECT * FROM log ORDER BY seq LIMIT 1000"
SETTLE = (
    "BEGIN; DELETE FROM queue WHERE seq IN ({seqs}); "
    "INSERT INTO journal (seqs) VALUES ('{seqs}'); COMMIT"
)

Run = Callable[[str], Awaitable[Any]]


def address(url: str, **more: Any) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "charset": "utf8mb4",
        "autocommit": True,
        "client_flag": CLIENT.MULTI_STATEMENTS,
        **more,
    }


def prepare(url: str) -> Any:
    connection = pymysql.connect(**address(url))
    cursor = connection.cursor()
    for statement in (
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE}",
        f"USE {DATABASE}",
        "CREATE TABLE log (seq BIGINT PRIMARY KEY, id CHAR(36) CHARACTER SET ascii, "
        "type VARCHAR(255), payload MEDIUMBLOB, headers MEDIUMTEXT, at DATETIME(6))",
        "CREATE TABLE queue (seq BIGINT PRIMARY KEY, state INT)",
        "CREATE TABLE journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, seqs LONGTEXT)",
        "INSERT INTO log SELECT seq, uuid(), 'OrderPaid', repeat('x', 1024), '{}', now(6) "
        f"FROM seq_1_to_{EVENTS}",
    ):
        cursor.execute(statement)
    return cursor


async def measure(name: str, run: Run, refill: Callable[[], None]) -> None:
    seqs = ",".join(map(str, range(1, EVENTS + 1)))
    for job, text in (("read", READ), ("settle", SETTLE.format(seqs=seqs))):
        took, busy = [], []
        for _ in range(ROUNDS):
            refill()
            started, worked = time.perf_counter(), time.process_time()
            await run(text)
            took.append(time.perf_counter() - started)
            busy.append(time.process_time() - worked)
        rate = EVENTS / statistics.median(took) / 1000
        cpu = statistics.median(busy) * 1000
        print(f"{name:22} {job:7} {rate:7.1f} k/s {cpu:6.2f} ms of CPU", flush=True)


async def on_asyncio(driver: Any, url: str) -> Run:
    connection = await driver.connect(**address(url, db=DATABASE))

    async def run(text: str) -> Any:
        async with connection.cursor() as cursor:
            await cursor.execute(text)
            rows = await cursor.fetchall()
            while await cursor.nextset():
                pass
        return rows

    return run


def in_a_thread(url: str) -> Run:
    connection = pymysql.connect(**address(url, database=DATABASE))

    def work(text: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(text)
            rows = cursor.fetchall()
            while cursor.nextset():
                pass
        return rows

    async def run(text: str) -> Any:
        return await asyncio.to_thread(work, text)

    return run


async def main(url: str) -> None:
    cursor = prepare(url)

    def refill() -> None:
        cursor.execute(f"REPLACE INTO queue SELECT seq, 0 FROM seq_1_to_{EVENTS}")

    await measure("asyncmy", await on_asyncio(asyncmy, url), refill)
    await measure("aiomysql", await on_asyncio(aiomysql, url), refill)
    await measure("PyMySQL in a thread", in_a_thread(url), refill)
    cursor.execute(f"DROP DATABASE {DATABASE}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
