"""The log in daily partitions: made ahead, dropped when every event in them is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from commitrelay import Event, Outbox
from commitrelay.archive import FileArchive, read_archive
from commitrelay.errors import ConfigError
from commitrelay.event import uuid7
from commitrelay.purge import Purge
from commitrelay.sql import Names
from commitrelay.stores.postgres.partitions import DAYS_AHEAD, Partitions, first_id
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.testing import Scene, opened
from tests.acceptance.cli import commitrelay, succeed, the_error
from tests.doctor.examined import found
from tests.support.stores import PartitionedHarness, PostgresHarness

TODAY = datetime.now(UTC).date()
OLD = TODAY - timedelta(days=30)

Case = Callable[[Scene], Awaitable[None]]


@pytest.fixture
def play(postgres_database: str) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        async def scene() -> None:
            harness = PartitionedHarness(postgres_database)
            harness.names = Names()
            async with opened(harness) as each:
                await case(each)

        asyncio.run(scene())

    return run


def partitions(scene: Scene) -> list[str]:
    text = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '@event'::regclass"
    return sorted(name for (name,) in scene.query(text.replace("'@event'", "'outbox_event'")))


def named(day: date) -> str:
    return f"outbox_event_p{day:%Y%m%d}"


async def make_day(scene: Scene, day: date) -> None:
    """A partition of the past, as if it had been made in time."""
    store: Any = scene.store
    made = Partitions(store._sql, store._names)
    async with store._reads.use() as connection:
        assert await made._make(connection, day)


def add_on(scene: Scene, day: date, number: int) -> list[int]:
    """Events of that day; their seqs."""
    first = UUID(first_id(day)).int
    ids = [str(UUID(int=first + 1000 + each)) for each in range(number)]
    with scene.connected() as connection:
        for event_id in ids:
            connection.execute(
                "INSERT INTO outbox_event"
                " (id, aggregate_type, aggregate_id, event_type, payload, created_at)"
                " VALUES (%s, 'Order', '1', 'OrderPaid', '{}', %s)",
                (event_id, datetime(day.year, day.month, day.day, 12, tzinfo=UTC)),
            )
        rows = connection.execute("SELECT seq FROM outbox_event WHERE id::text = ANY (%s)", (ids,))
        return sorted(seq for (seq,) in rows.fetchall())


def test_a_week_is_made_ahead(play: Callable[[Case], None]) -> None:
    async def case(scene: Scene) -> None:
        days = [TODAY + timedelta(days=each) for each in range(DAYS_AHEAD + 1)]
        assert partitions(scene) == sorted([*map(named, days), "outbox_event_rest"])
        with scene.connected() as connection:
            connection.execute(f"DROP TABLE {named(days[-1])}")
        assert await scene.purge(3600) == 0
        assert named(days[-1]) in partitions(scene), "a purge makes what is missing"

    play(case)


def test_an_event_goes_to_its_day_and_other_ids_to_the_rest(
    play: Callable[[Case], None], postgres_database: str
) -> None:
    async def case(scene: Scene) -> None:
        with psycopg.connect(postgres_database) as connection:
            Outbox().add(connection, Event("Order", "1", "OrderPaid", {}, id=uuid7()))
            Outbox().add(connection, Event("Order", "2", "OrderPaid", {}, id=uuid4()))
            twice = Event("Order", "3", "OrderPaid", {}, idempotency_key="once")
            Outbox().add(connection, twice)
            Outbox().add(connection, Event("Order", "3", "x", {}, idempotency_key="once"))
        rows = scene.query(
            "SELECT aggregate_id, tableoid::regclass::text FROM outbox_event ORDER BY seq"
        )
        rest = "outbox_event_rest"
        assert rows == [("1", named(TODAY)), ("2", rest), ("3", rest)], "the second key is one"

    play(case)


def test_a_partition_is_dropped_when_all_in_it_is_settled(play: Callable[[Case], None]) -> None:
    async def case(scene: Scene) -> None:
        await make_day(scene, OLD)
        seqs = add_on(scene, OLD, 3)
        (recent,) = scene.add("recent")
        week = 7 * 86400
        await scene.deliver(recent, *seqs[:2])
        assert await scene.store.tend_partitions(older_than_seconds=week) == 0
        assert named(OLD) in partitions(scene), "one event is still to be sent"
        await scene.fail(seqs[2], 0)
        await scene.deliver(seqs[2])
        assert await scene.store.tend_partitions(older_than_seconds=None) == 0, "only made ahead"
        assert await scene.store.tend_partitions(older_than_seconds=week) == 3
        assert named(OLD) not in partitions(scene)
        assert scene.query("SELECT seq FROM @event") == [(recent,)]
        assert scene.query("SELECT seq FROM @attempt") == []
        assert await scene.purge(week) == 0
        assert scene.journalled() >= 1

    play(case)


def test_a_young_event_keeps_its_partition(play: Callable[[Case], None]) -> None:
    """Its id is of an old day, its time is not: a clock was wrong."""

    async def case(scene: Scene) -> None:
        await make_day(scene, OLD)
        (seq,) = add_on(scene, OLD, 1)
        await scene.deliver(seq)
        with scene.connected() as connection:
            connection.execute("UPDATE outbox_event SET created_at = now()")
        assert await scene.store.tend_partitions(older_than_seconds=86400) == 0
        assert scene.added() == 1

    play(case)


def test_a_partition_that_somebody_writes_to_is_left_for_another_time(
    play: Callable[[Case], None], postgres_database: str
) -> None:
    async def case(scene: Scene) -> None:
        await make_day(scene, OLD)
        (seq,) = add_on(scene, OLD, 1)
        await scene.deliver(seq)
        late = str(UUID(int=UUID(first_id(OLD)).int + 5))
        with psycopg.connect(postgres_database) as writer:
            writer.execute(
                "INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload)"
                " VALUES (%s, 'Order', '1', 'OrderPaid', '{}')",
                (late,),
            )
            assert await scene.store.tend_partitions(older_than_seconds=86400) == 0
            writer.commit()
        assert await scene.store.tend_partitions(older_than_seconds=86400) == 0
        assert scene.added() == 2

    play(case)


def test_an_archive_has_what_is_dropped(play: Callable[[Case], None], tmp_path: Path) -> None:
    async def case(scene: Scene) -> None:
        await make_day(scene, OLD)
        seqs = add_on(scene, OLD, 5)
        await scene.deliver(*seqs)
        archive = FileArchive(scene.store, tmp_path)
        purge = Purge(scene.store, retention_seconds=86400, archive=archive, pause_seconds=0)
        assert (await purge.run()).archived == 5
        (file,) = archive.files
        assert [row["seq"] for row in read_archive(file)] == seqs
        assert named(OLD) not in partitions(scene), "the empty partition is gone too"

    play(case)


def test_only_a_new_outbox_can_be_partitioned(postgres_database: str) -> None:
    async def case() -> None:
        harness = PostgresHarness(postgres_database)
        harness.names = Names()
        async with opened(harness) as scene:
            scene.add("a")
            store = PostgresStore(postgres_database)
            with pytest.raises(ConfigError, match="only a new one"):
                await store.partition_log()
            await store.close()
            assert scene.added() == 1

    asyncio.run(case())


def test_init_with_partitions(postgres_database: str, sqlite_path: Path) -> None:
    database = ("--database", postgres_database)
    succeed("init", "--partitions", *database)
    succeed("init", "--partitions", *database)
    succeed("init", *database)
    with psycopg.connect(postgres_database) as connection:
        Outbox().add(connection, Event("Order", "1", "OrderPaid", {}))
        rows = connection.execute("SELECT tableoid::regclass::text FROM outbox_event").fetchall()
    assert rows == [(named(TODAY),)]
    assert found("parts", postgres_database) == []
    wrong = commitrelay("init", "--partitions", "--database", f"sqlite:///{sqlite_path}")
    assert "only PostgreSQL" in the_error(wrong, 2)
