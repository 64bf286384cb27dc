"""What is special about the MySQL store, on MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from commitrelay.errors import ConfigError, SchemaMissing, StoreUnreachable
from commitrelay.sql import Names, read
from commitrelay.store import BUCKETS, ClaimRequest, Failure, Fence, Settlement
from commitrelay.stores.migration import latest, migrations
from commitrelay.stores.mysql.link import Link
from commitrelay.stores.mysql.schema import statements
from commitrelay.stores.mysql.store import MysqlStore
from commitrelay.testing import opened
from tests.stores.test_frozen_relay import FreezingProxy
from tests.support import mariadb
from tests.support.services import DedicatedServer
from tests.support.stores import MariadbHarness

ALL_BUCKETS = frozenset(range(BUCKETS))
LEASE_SECONDS = 0.3

Write = Callable[[MysqlStore, Fence], Awaitable[object]]


async def joined(store: MysqlStore, relay: str, lease_seconds: float = 60) -> Fence:
    lane = await store.lane("default")
    roster = await store.renew(
        lane.id, relay, strategy="partitioned", keep=None, lease_seconds=lease_seconds
    )
    return Fence(lane.id, relay, roster.token)


# --- locks ---------------------------------------------------------------------------------


async def _settle(store: MysqlStore, fence: Fence) -> object:
    failures = [Failure(seq, "refused", 5.0) for seq in (1, 2, 3)]
    return await store.settle(fence, Settlement(delivered=[4, 5, 6], failures=failures))


async def _renew(store: MysqlStore, fence: Fence) -> object:
    return await joined(store, fence.relay, LEASE_SECONDS)


async def _acquire(store: MysqlStore, fence: Fence) -> object:
    return await store.acquire(fence, ALL_BUCKETS)


@pytest.mark.parametrize("cut", [100, 400, 800])
@pytest.mark.parametrize("write", [_settle, _renew, _acquire])
def test_the_lease_of_a_relay_frozen_in_a_write_is_taken_over(
    mariadb_database: str, write: Write, cut: int
) -> None:
    async def case() -> None:
        other = MysqlStore(mariadb_database)
        await other.initialise()
        proxy = FreezingProxy(mariadb_database)
        async with proxy.serving() as url:
            frozen = MysqlStore(url)
            fence = await joined(frozen, "frozen", LEASE_SECONDS)
            await frozen.acquire(fence, ALL_BUCKETS)
            await frozen.settle(fence, Settlement(delivered=[1]))
            proxy.freeze_after(cut)
            writing = asyncio.create_task(write(frozen, fence))
            async with asyncio.timeout(10):
                while await _lives(other, fence.lane, "frozen"):
                    await asyncio.sleep(0.05)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await frozen.close()
        await other.close()

    asyncio.run(case())


async def _lives(store: MysqlStore, lane: int, relay: str) -> bool:
    roster = await store.renew(lane, "other", strategy="partitioned", keep=None, lease_seconds=60)
    return relay in roster.others


def test_a_claim_keeps_no_writer_waiting(mariadb_database: str) -> None:
    """Nor does the snapshot of a sweep that goes on, nor does a writer keep a claim waiting."""

    async def case() -> None:
        async with opened(MariadbHarness(mariadb_database)) as scene:
            scene.add(*"abcdef")
            assert len(await scene.claim(limit=2)) == 2
            writer = scene.harness.connect()
            writer.execute("SET SESSION innodb_lock_wait_timeout = 1")
            scene.add("a", "z", connection=writer)
            assert len(await scene.claim(limit=100)) == 6
            writer.commit()
            writer.close()
            assert len(await scene.claim(limit=100)) == 8

    asyncio.run(case())


def test_a_lease_is_renewed_beside_a_transaction_that_stays_open(mariadb_database: str) -> None:
    async def case() -> None:
        async with opened(MariadbHarness(mariadb_database)) as scene:
            (seq,) = scene.add("a")
            writer = scene.harness.connect()
            scene.add("a", connection=writer)
            try:
                async with asyncio.timeout(2):
                    await scene.join("a")
                    assert await scene.seqs() == [seq]
                    assert await scene.deliver(seq) == 1
            finally:
                writer.close()

    asyncio.run(case())


def test_a_lock_that_is_held_too_long_is_waited_for(mariadb_database: str) -> None:
    """Error 1205 after the session's time-out: the transaction is run again."""

    async def case() -> None:
        async with opened(MariadbHarness(mariadb_database)) as scene:
            (seq,) = scene.add("a")
            await scene.store._settles.ask("SET SESSION innodb_lock_wait_timeout = 1")  # type: ignore[attr-defined]
            holder = scene.harness.connect()
            holder.execute(scene.harness.names.fill("SELECT * FROM @queue FOR UPDATE"))
            asyncio.get_running_loop().call_later(1.5, holder.rollback)
            assert await scene.deliver(seq) == 1
            holder.close()

    asyncio.run(case())


def test_a_deadlock_is_tried_again(mariadb_database: str) -> None:
    async def case() -> None:
        mariadb.run(mariadb_database, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        mariadb.run(mariadb_database, "INSERT INTO t VALUES (1, 0), (2, 0)")
        links = [Link(mariadb_database), Link(mariadb_database)]
        wait = "DO sleep(0.3)"

        async def cross(link: Link, first: int, second: int) -> None:
            texts = (first, wait, second)
            await link.transact(
                [
                    (text if text is wait else f"UPDATE t SET n = n + 1 WHERE id = {text}", {})
                    for text in texts
                ]
            )

        await asyncio.gather(cross(links[0], 1, 2), cross(links[1], 2, 1))
        assert (await links[0].ask("SELECT n FROM t")).rows == ((2,), (2,))
        for link in links:
            await link.close()

    asyncio.run(case())


# --- the server ----------------------------------------------------------------------------


def test_a_server_that_comes_back_is_found_again(
    dedicated_server: Callable[[str], DedicatedServer],
) -> None:
    server = dedicated_server("mariadb")

    async def case() -> None:
        store = MysqlStore(server.url)
        await store.initialise()
        fence = await joined(store, "a")
        request = ClaimRequest(limit=10, buckets=ALL_BUCKETS)
        assert await store.claim(fence, request) == []
        server.stop()
        with pytest.raises(StoreUnreachable, match="cannot reach mysql://"):
            await store.claim(fence, request)
        server.start()
        assert await store.claim(fence, request) == []
        for connection in ("reads", "leases"):  # each finds out at its next call
            with pytest.raises(StoreUnreachable, match="cannot reach mysql://"):
                await joined(store, f"relay of {connection}")
        assert (await joined(store, "b")).token > fence.token
        await store.close()

    asyncio.run(case())


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u:canary@h", "names no database"),
        ("mysql://u:canary@h/db?sslmode=x", "no parameter 'sslmode': use ssl, ssl_ca"),
        ("mysql://u:canary@h/db?ssl=maybe", "use on or off"),
        ("mysql://u:canary@h/db?ssl_ca=/nowhere.pem", "ssl_ca cannot be read"),
        ("mysql://u:canary@h:port/db", "port"),
    ],
)
def test_a_wrong_url_is_told_in_one_line(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        MysqlStore(url)
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_account_and_a_stopped_server_are_told_apart(mariadb_database: str) -> None:
    async def error(url: str) -> Exception:
        store = MysqlStore(url)
        with pytest.raises((ConfigError, StoreUnreachable)) as caught:
            await store.open()
        await store.close()
        assert "canary" not in str(caught.value)
        return caught.value

    wrong = mariadb_database.replace("root@", "nobody:canary@")
    assert isinstance(asyncio.run(error(wrong)), ConfigError)
    nobody_there = "mysql://root:canary@127.0.0.1:1/shop"
    assert isinstance(asyncio.run(error(nobody_there)), StoreUnreachable)


# --- schema --------------------------------------------------------------------------------


def objects(url: str) -> list[Any]:
    with closing(mariadb.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW FULL TABLES")
        names = sorted(cursor.fetchall())
        found = []
        for name, kind in names:
            cursor.execute(f"SHOW CREATE {'VIEW' if kind == 'VIEW' else 'TABLE'} `{name}`")
            found.append(cursor.fetchall()[0][1])
        cursor.execute(
            "SELECT trigger_name, action_statement FROM information_schema.triggers "
            "WHERE trigger_schema = database()"
        )
        return [*found, *cursor.fetchall()]


def test_migrated_and_fresh_are_the_same(mariadb_url: str) -> None:
    fresh = read("mysql", "schema.sql")
    migrated = "\n".join(step.sql for step in migrations("mysql"))
    found = []
    for script in (fresh, migrated):
        with mariadb.fresh_database(mariadb_url) as url:
            mariadb.run(url, *statements(Names().fill(script, "mysql")))
            name = url.rpartition("/")[2]
            found.append([str(each).replace(name, "db") for each in objects(url)])
    assert found[0] == found[1]
    steps = migrations("mysql")
    assert [step.number for step in steps] == list(range(1, latest("mysql") + 1))
    assert all(f"({step.number}, '{step.name}')" in fresh for step in steps)


def test_two_processes_may_initialise_at_once(mariadb_database: str) -> None:
    async def case() -> None:
        stores = [MysqlStore(mariadb_database) for _ in range(4)]
        with pytest.raises(SchemaMissing, match=r"has no outbox.*run commitrelay init"):
            await stores[0].open()
        results = await asyncio.gather(*(store.initialise() for store in stores))
        assert sorted(map(len, results)) == [0, 0, 0, latest("mysql")]
        for store in stores:
            await store.open()
            await store.close()

    asyncio.run(case())
