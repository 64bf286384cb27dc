"""What only SQLite has: one writer at a time, text for times, a clock that can be turned."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from commitrelay.errors import ConfigError, StoreError, StoreUnreachable
from commitrelay.sql import Names
from commitrelay.store import ClaimRequest, EventFilter, Failure, Fence, Settlement
from commitrelay.stores.sqlite import database
from commitrelay.stores.sqlite.store import SqliteStore, from_url
from commitrelay.testing import opened
from tests.support.stores import SqliteHarness

T = TypeVar("T")
EVERYTHING = ClaimRequest(limit=10_000, buckets=frozenset(range(64)))
INSERT = (
    "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, deliver_at) "
    "VALUES ('Order', ?, 'OrderPaid', '{}', ?)"
)


async def inline(work: Callable[[], T]) -> T:
    return work()


async def opened_store(store: SqliteStore) -> Fence:
    await store.initialise()
    await store.open()
    lane = await store.lane("default")
    roster = await store.renew(lane.id, "a", strategy="leader", keep=None, lease_seconds=60)
    return Fence(lane.id, "a", roster.token)


def test_a_simulation_needs_no_thread_and_no_file() -> None:
    """Several stores share one connection in memory, one clock, and one thread."""
    now = 1_000_000_000.0
    threads: set[int] = set()

    async def run(work: Callable[[], T]) -> T:
        threads.add(threading.get_ident())
        return work()

    async def case() -> None:
        nonlocal now
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as shared:
            first, second = (
                SqliteStore(":memory:", run=run, clock=lambda: now, connection=shared)
                for _ in range(2)
            )
            fence = await opened_store(first)
            await second.open()
            later = datetime.fromtimestamp(now + 5, UTC).isoformat()
            shared.execute(INSERT, ("1", later))
            assert await second.claim(fence, EVERYTHING) == []
            now += 5.01
            assert len(await second.claim(fence, EVERYTHING)) == 1
            now += 60
            roster = await second.renew(
                fence.lane, "b", strategy="leader", keep=None, lease_seconds=1
            )
            assert roster.others == {}
            await first.close()
            await second.close()
            assert shared.execute("SELECT count(*) FROM outbox_queue").fetchone() == (1,)

    asyncio.run(case())
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("microseconds", [0, 1, 499, 500, 501, 999, 1000, 123_456, 999_999])
@pytest.mark.parametrize("offset_hours", [0, 2, -5])
def test_nothing_is_due_before_its_time_to_the_microsecond(
    microseconds: int, offset_hours: int, sqlite_path: Path
) -> None:
    zone = UTC if offset_hours == 0 else datetime.strptime(f"{offset_hours:+03d}00", "%z").tzinfo
    moment = datetime(2033, 5, 18, 3, 33, 20, microseconds, tzinfo=UTC)
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
    now = 0.0

    async def case() -> None:
        nonlocal now
        store = SqliteStore(str(sqlite_path), clock=lambda: now)
        fence = await opened_store(store)
        with closing(sqlite3.connect(sqlite_path)) as connection:
            connection.execute(INSERT, ("1", moment.astimezone(zone).isoformat()))
            connection.commit()
        now = seconds - 0.000_002
        assert await store.claim(fence, EVERYTHING) == []
        now = seconds + 0.002_5
        assert len(await store.claim(fence, EVERYTHING)) == 1
        await store.close()

    asyncio.run(case())


def test_no_retry_is_due_before_its_time(sqlite_path: Path) -> None:
    now = 1_000_000_000.000_4

    async def case() -> None:
        nonlocal now
        store = SqliteStore(str(sqlite_path), clock=lambda: now)
        fence = await opened_store(store)
        with closing(sqlite3.connect(sqlite_path)) as connection:
            connection.execute(INSERT, ("1", None))
            connection.commit()
        failed = Settlement(failures=[Failure(1, "no", 0.001)])
        assert await store.settle(fence, failed) == 1
        now = 1_000_000_000.001_3
        assert await store.claim(fence, EVERYTHING) == []
        now = 1_000_000_000.002_1
        assert len(await store.claim(fence, EVERYTHING)) == 1
        await store.close()

    asyncio.run(case())


def test_a_deliver_at_that_is_no_time_is_refused(sqlite_path: Path) -> None:
    async def case() -> None:
        store = SqliteStore(str(sqlite_path))
        await opened_store(store)
        await store.close()

    asyncio.run(case())
    with closing(sqlite3.connect(sqlite_path)) as connection:
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(INSERT, ("1", "tomorrow"))
        connection.execute(INSERT, ("1", None))


def test_created_at_in_another_notation_is_told_as_rfc_3339(sqlite_path: Path) -> None:
    async def case() -> None:
        store = SqliteStore(str(sqlite_path))
        fence = await opened_store(store)
        with closing(sqlite3.connect(sqlite_path)) as connection:
            connection.execute(
                "INSERT INTO outbox_event "
                "(aggregate_type, aggregate_id, event_type, payload, created_at) "
                "VALUES ('O', '1', 'E', '', '2020-01-02 03:04:05+01:00')"
            )
            connection.commit()
        (row,) = await store.claim(fence, EVERYTHING)
        assert row.created_at == "2020-01-02T02:04:05.000Z"
        await store.close()

    asyncio.run(case())


def test_a_database_that_stays_locked_is_unreachable_and_recovers(
    sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)

    async def case() -> None:
        store = SqliteStore(str(sqlite_path))
        fence = await opened_store(store)
        with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as hog:
            hog.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnreachable, match="locked"):
                await store.settle(fence, Settlement(delivered=[1]))
            assert await store.claim(fence, EVERYTHING) == [], "readers do not wait for writers"
            hog.execute("COMMIT")
        assert await store.settle(fence, Settlement(delivered=[1])) == 0
        await store.close()

    asyncio.run(case())


def test_eight_writers_and_two_relays_at_once(sqlite_path: Path) -> None:
    """Nobody gets SQLITE_BUSY, and every committed event is settled once."""
    harness = SqliteHarness(sqlite_path)
    events = 25

    def write(writer: int) -> None:
        with closing(harness.connect()) as connection:
            for number in range(events):
                connection.execute(INSERT, (f"{writer}", None))
                connection.rollback() if number % 5 == 4 else connection.commit()

    async def case() -> None:
        async with opened(harness) as scene:
            other = await scene.another_store()
            writers = [asyncio.create_task(asyncio.to_thread(write, n)) for n in range(8)]
            settled = 0
            async with asyncio.timeout(120):
                while settled < 8 * events * 4 // 5:
                    for store in (scene.store, other):
                        rows = await store.claim(scene.fence, EVERYTHING)
                        settlement = Settlement(delivered=[row.seq for row in rows])
                        settled += await store.settle(scene.fence, settlement)
                await asyncio.gather(*writers)
            assert scene.journalled() == scene.added() == 8 * events * 4 // 5
            assert scene.queue() == []

    asyncio.run(case())


def test_a_write_has_the_lock_from_its_start_and_does_not_hold_up_claims(
    sqlite_path: Path,
) -> None:
    """BEGIN IMMEDIATE: else two that read first and write then would fail half-way."""

    async def case() -> None:
        store = SqliteStore(str(sqlite_path))
        fence = await opened_store(store)
        held = threading.Event()
        reached = threading.Event()

        def slow(_connection: sqlite3.Connection) -> None:
            reached.set()
            assert held.wait(30)

        writing = asyncio.create_task(store._database.write(slow))
        await asyncio.to_thread(reached.wait, 30)
        with (
            closing(sqlite3.connect(sqlite_path, timeout=0, isolation_level=None)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(20):
            await store.claim(fence, EVERYTHING)
        held.set()
        await writing
        await store.close()

    asyncio.run(case())


def test_one_settlement_over_two_pages_of_the_journal_is_found_on_both(sqlite_path: Path) -> None:
    async def case() -> None:
        store = SqliteStore(str(sqlite_path))
        fence = await opened_store(store)
        with closing(sqlite3.connect(sqlite_path)) as writer, writer:
            writer.execute(INSERT, ("a", None))
            writer.execute("UPDATE sqlite_sequence SET seq = 4094 WHERE name = 'outbox_event'")
            writer.executemany(INSERT, [("a", None)] * 3)
        seqs = [row.seq for row in await store.claim(fence, EVERYTHING)]
        assert seqs == [1, 4095, 4096, 4097]
        assert await store.settle(fence, Settlement(delivered=seqs)) == 4
        records = await store.list_events(EventFilter("published"), before_seq=None, limit=10)
        assert [record.seq for record in records] == seqs[::-1]
        await store.close()

    asyncio.run(case())


def test_settings_that_make_a_commit_durable(sqlite_path: Path) -> None:
    async def case() -> None:
        store = SqliteStore(str(sqlite_path))
        await opened_store(store)

        def pragmas(connection: sqlite3.Connection) -> tuple[object, object]:
            return (
                connection.execute("PRAGMA journal_mode").fetchone()[0],
                connection.execute("PRAGMA synchronous").fetchone()[0],
            )

        run: list[Callable[..., Awaitable[tuple[object, object]]]] = [
            store._database.read,
            store._database.write,
        ]
        for each in run:
            assert await each(pragmas) == ("wal", 2)
        await store.close()

    asyncio.run(case())


def test_a_seq_is_never_given_twice(sqlite_path: Path) -> None:
    async def case() -> None:
        async with opened(SqliteHarness(sqlite_path)) as scene:
            (first,) = scene.add("a")
            await scene.deliver(first)
            scene.harness.pass_time(10)
            assert await scene.purge(1) == 1
            (second,) = scene.add("a")
            assert second > first

    asyncio.run(case())


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///outbox.db", "outbox.db"),
        ("sqlite:////var/lib/outbox.db", "/var/lib/outbox.db"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite://", ":memory:"),
        ("./outbox.db", "./outbox.db"),
    ],
)
def test_urls(url: str, path: str) -> None:
    assert from_url(url, Names(), {})._database.path == path


@pytest.mark.parametrize("url", ["sqlite:outbox.db", "sqlite://outbox.db", "sqlite://host/outbox"])
def test_wrong_urls_say_what_is_right(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:///"):
        from_url(url, Names(), {})


def test_there_are_no_options() -> None:
    with pytest.raises(ConfigError, match="colour"):
        from_url("sqlite:///x", Names(), {"colour": "red"})


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)

    async def case() -> None:
        store = SqliteStore(str(path))
        with pytest.raises(ConfigError, match="not an SQLite database"):
            await store.open()
        await store.close()

    asyncio.run(case())
    assert path.read_text().startswith("Dear diary")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    async def case() -> None:
        store = SqliteStore(str(tmp_path / "nowhere" / "outbox.db"))
        with pytest.raises((StoreUnreachable, StoreError)):
            await store.initialise()
        await store.close()

    asyncio.run(case())


# --- looks in vain -------------------------------------------------------------------------


class Still:
    """A store that has looked in vain often enough to know that it need not look."""

    def __init__(self, path: Path) -> None:
        self.now = 1_000_000_000.0
        self.path = path
        self.store = SqliteStore(str(path), clock=lambda: self.now)

    async def begin(self) -> None:
        self.fence = await opened_store(self.store)
        await self.settle_down()

    async def settle_down(self) -> None:
        for _ in range(3):
            assert await self.claim() == []

    async def claim(self, buckets: frozenset[int] = EVERYTHING.buckets) -> list[int]:
        rows = await self.store.claim(self.fence, ClaimRequest(limit=10, buckets=buckets))
        return [row.seq for row in rows]

    def add(self, deliver_at: str | None = None) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(INSERT, ("42", deliver_at))


def test_a_still_store_finds_what_is_committed_by_others(tmp_path: Path) -> None:
    async def case() -> None:
        still = Still(tmp_path / "outbox.db")
        await still.begin()
        still.add()
        assert await still.claim() == [1]
        assert await still.claim() == [1]
        await still.store.settle(still.fence, Settlement(delivered=[1]))
        await still.settle_down()
        await still.store.close()
        still.add()
        assert await still.claim() == [2]
        await still.store.close()

    asyncio.run(case())


def test_a_still_store_finds_what_becomes_due(tmp_path: Path) -> None:
    async def case() -> None:
        still = Still(tmp_path / "outbox.db")
        await still.begin()
        still.add(deliver_at="2001-09-09T01:46:50Z")  # ten seconds from now
        await still.settle_down()
        still.now += 9.9
        await still.settle_down()
        still.now += 0.2
        assert await still.claim() == [1]
        failure = Failure(1, "refused", retry_in_seconds=30.0)
        await still.store.settle(still.fence, Settlement(failures=[failure]))
        await still.settle_down()
        still.now += 30.1
        assert await still.claim() == [1]
        await still.store.close()

    asyncio.run(case())


def test_a_still_store_is_so_for_the_buckets_that_it_looked_into(tmp_path: Path) -> None:
    async def case() -> None:
        still = Still(tmp_path / "outbox.db")
        await still.begin()
        still.add()
        nothing: frozenset[int] = frozenset()
        for _ in range(3):
            assert await still.claim(nothing) == []
        assert await still.claim() == [1]
        await still.store.close()

    asyncio.run(case())
