"""What only PostgreSQL has: roles, notifications, connections that break, locks."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commitrelay.errors import ConfigError, LeaseLost, StoreUnreachable
from commitrelay.format import Plain
from commitrelay.route import Route
from commitrelay.sql import Names
from commitrelay.store import OpenCircuit, Settlement
from commitrelay.stores.postgres.store import BUSY_CLAIM, PostgresStore, from_url
from commitrelay.testing import Scene, opened
from commitrelay.testing.store_cases.scene import ALL_BUCKETS
from commitrelay.window import Window
from tests.support.freezing_proxy import FreezingProxy
from tests.support.stores import PostgresHarness

SOON = 10.0


@asynccontextmanager
async def scene_on(url: str, **options: Any) -> AsyncIterator[Scene]:
    harness = PostgresHarness(url, **options)
    harness.names = Names()
    async with opened(harness) as scene:
        yield scene


def notified(listener: psycopg.Connection[Any], seconds: float) -> list[str]:
    return [notify.payload for notify in listener.notifies(timeout=seconds, stop_after=1)]


async def fall_asleep(store: PostgresStore) -> None:
    """Sleep until the gate is closed; whoever sleeps the next time is notified."""
    assert store._gate is not None
    async with asyncio.timeout(SOON):
        while not store._gate._closed_by_us:
            await store.sleep(0.01)


async def fall_asleep_again(store: PostgresStore) -> None:
    """As `fall_asleep`, on a connection of its own server again."""
    store._listens._url = store._url
    await fall_asleep(store)


def backends(connection: psycopg.Connection[Any]) -> list[int]:
    rows = connection.execute(
        "SELECT pid FROM pg_stat_activity "
        "WHERE application_name = 'commitrelay' AND datname = current_database()"
    ).fetchall()
    return [pid for (pid,) in rows]


# --- sweeping ------------------------------------------------------------------------------


def test_a_sweep_does_not_bring_back_what_was_settled_since_it_began(
    postgres_database: str,
) -> None:
    """In the sweep's snapshot it is pending to the end."""

    async def case() -> None:
        hand = Window(capacity=100, one_per_key=False, key_limit=16)
        compose = Plain(Route())

        async def claim(scene: Scene) -> list[int]:
            rows = await scene.store.claim(scene.fence, hand.request(2, ALL_BUCKETS))
            hand.accept([(row, compose(row)) for row in rows])
            if rows:
                hand.raise_floor(rows[-1].seq)
            return [row.seq for row in rows]

        async with scene_on(postgres_database) as scene:
            with psycopg.connect(postgres_database) as late:
                lower = scene.add("a", "b", connection=late)
                c, d = scene.add("c", "d")
                assert await claim(scene) == [c, d]
            hand.end_sweep()
            assert await claim(scene) == lower
            await scene.deliver(c)
            hand.settled([c])
            assert await claim(scene) == []

    asyncio.run(case())


# --- waking --------------------------------------------------------------------------------


def test_a_commit_wakes_a_sleeping_relay(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            assert store.capabilities.wakes
            for _round in range(3):
                await fall_asleep(store)
                sleeping = asyncio.create_task(store.sleep(60))
                await asyncio.sleep(0.05)
                assert not sleeping.done()
                (seq,) = await asyncio.to_thread(scene.add, "a")
                async with asyncio.timeout(SOON):
                    await sleeping
                assert await scene.seqs() == [seq]
                await scene.deliver(seq)

    asyncio.run(case())


def test_writers_notify_only_while_a_relay_sleeps(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            with psycopg.connect(postgres_database, autocommit=True) as listener:
                listener.execute("LISTEN outbox_event")
                scene.add("a")
                assert notified(listener, 0.2) == []
                await fall_asleep(store)
                scene.add("a")
                assert notified(listener, SOON) == [str(scene.lane.id)]
                scene.add("a")
                assert notified(listener, SOON) == [str(scene.lane.id)], "still asleep"

    asyncio.run(case())


def test_a_busy_relay_lets_the_gate_go_and_tells_who_else_sleeps(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            busy: Any = scene.store
            idle: Any = await scene.another_store()
            await idle.lane("default")
            await fall_asleep(busy)
            with scene.connected() as connection:
                scene.add(*(str(number) for number in range(150)), connection=connection)
            assert len(await scene.claim(limit=1000)) == 150
            await fall_asleep(idle)
            sleeping = asyncio.create_task(idle.sleep(60))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(scene.add, "a")
            async with asyncio.timeout(SOON):
                await sleeping

    asyncio.run(case())


def test_no_wake_up_is_lost_while_writers_come_and_go(postgres_database: str) -> None:
    """Each event is found within a nap, however the commit falls between poll and sleep."""

    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            stop = threading.Event()

            def write() -> None:
                with psycopg.connect(postgres_database) as connection:
                    for number in range(150):
                        if stop.is_set():
                            return
                        scene.add(str(number), connection=connection)
                        connection.commit()
                        time.sleep(0.002 * (number % 4))

            writer = asyncio.create_task(asyncio.to_thread(write))
            seen = 0
            try:
                async with asyncio.timeout(60):
                    while seen < 150:
                        rows = await scene.claim()
                        if rows:
                            seen += await scene.deliver(*(row.seq for row in rows))
                            continue
                        started = time.monotonic()
                        await store.sleep(30)
                        assert time.monotonic() - started < 20, "slept through a commit"
            finally:
                stop.set()
                await writer

    asyncio.run(case())


def test_closing_the_gate_asks_for_one_more_poll(postgres_database: str) -> None:
    """Whoever committed just before sent no notification: the first sleep must not sleep."""

    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            assert await scene.seqs() == []
            (seq,) = scene.add("a")
            async with asyncio.timeout(SOON):
                await scene.store.sleep(60)
            assert await scene.seqs() == [seq]

    asyncio.run(case())


def test_events_of_another_lane_wake_nobody(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            await store.add_lane("users", aggregate_types=["User"])
            await store.lane("users")
            await fall_asleep(store)
            with psycopg.connect(postgres_database, autocommit=True) as listener:
                listener.execute("LISTEN outbox_event")
                scene.add("a", aggregate_type="Order")
                assert notified(listener, 0.2) == []
                scene.add("a", aggregate_type="User")
                assert len(notified(listener, SOON)) == 1

    asyncio.run(case())


def test_losing_the_listening_connection_is_harmless(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            await fall_asleep(store)
            pid = store._gate._listener.info.backend_pid
            sleeping = asyncio.create_task(store.sleep(60))
            await asyncio.sleep(0.05)
            with psycopg.connect(postgres_database) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            async with asyncio.timeout(SOON):
                await sleeping
                while store._gate._is_lost():
                    await store.sleep(0.01)
            await fall_asleep(store)
            sleeping = asyncio.create_task(store.sleep(60))
            await asyncio.to_thread(scene.add, "a")
            async with asyncio.timeout(SOON):
                await sleeping

    asyncio.run(case())


def test_a_listening_connection_that_dies_without_a_word_costs_no_more_than_polling(
    postgres_database: str,
) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            proxy = FreezingProxy(postgres_database)
            async with proxy.serving() as url:
                store._listens._url = url
                await fall_asleep(store)
                proxy.freeze_after(0)
                scene.add(*("a" * BUSY_CLAIM))
                async with asyncio.timeout(2):
                    assert len(await scene.seqs()) == BUSY_CLAIM
                    for _ in range(3):
                        await store.sleep(0.05)
                assert store._gate._talk is not None, "nobody has answered yet"
            await fall_asleep_again(store)

    asyncio.run(case())


def test_an_answer_that_comes_late_asks_for_one_more_poll(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            async with store._listens.use():  # so that the gate has to wait
                await store.sleep(0.05)
            await asyncio.wait({store._gate._talk})
            async with asyncio.timeout(SOON):
                await store.sleep(60)
            assert store._gate._closed_by_us

    asyncio.run(case())


def test_closing_the_store_ends_the_talk_about_the_gate(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            store: Any = scene.store
            async with store._listens.use():  # so that the gate has to wait
                await store.sleep(0.05)
                talk = store._gate._talk
                await store.close()
            assert talk.cancelled()

    asyncio.run(case())


# --- connections ---------------------------------------------------------------------------


def test_a_lost_connection_is_unreachable_once_and_then_made_again(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            (seq,) = scene.add("a")
            assert await scene.seqs() == [seq]
            await scene.deliver(10**9)
            with psycopg.connect(postgres_database, autocommit=True) as other:
                for pid in backends(other):
                    other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            for call in (scene.seqs, lambda: scene.deliver(10**9)):
                with pytest.raises(StoreUnreachable, match="postgresql://"):
                    await call()
                await call()
            assert await scene.seqs() == [seq]

    asyncio.run(case())


def test_a_server_that_is_not_there_is_unreachable_and_no_password_is_told() -> None:
    store = PostgresStore("postgresql://app:hunter2@127.0.0.1:9/shop?connect_timeout=2")

    async def case() -> None:
        with pytest.raises(StoreUnreachable) as caught:
            await store.open()
        message = str(caught.value)
        assert "hunter2" not in message
        assert "\n" not in message
        assert "127.0.0.1" in message
        with pytest.raises(StoreUnreachable):
            await store.lane("default")
        await store.close()

    asyncio.run(case())


def test_a_cancelled_call_leaves_the_store_usable(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            (seq,) = scene.add("a")
            with psycopg.connect(postgres_database) as blocker:
                blocker.execute("SELECT * FROM outbox_queue FOR UPDATE")
                settling = asyncio.create_task(scene.fail(seq, None))
                await asyncio.sleep(0.2)
                settling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await settling
            assert await scene.deliver(seq) == 1

    asyncio.run(case())


def test_no_transaction_is_open_when_a_call_returns(postgres_database: str) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            a, b = scene.add("a", "b")
            await scene.claim()
            await scene.deliver(a)
            await scene.fail(b, None)
            await scene.unpark()
            await scene.purge(60)
            await scene.store.status()
            await scene.store.sleep(0.01)
            with psycopg.connect(postgres_database) as other:
                states = other.execute(
                    "SELECT DISTINCT state FROM pg_stat_activity "
                    "WHERE application_name = 'commitrelay' AND datname = current_database()"
                ).fetchall()
            assert states == [("idle",)]

    asyncio.run(case())


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("postgresql://h/d?nonsense=1", {}),
        ("postgresql://h/d", {"colour": "red"}),
        ("postgresql://h/d", {"notify": "perhaps"}),
        ("postgresql://h/d", {"prepare_threshold": "-1"}),
    ],
)
def test_wrong_urls_and_options_are_config_errors(url: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        from_url(url, Names(), options)


def test_options_for_a_pooler() -> None:
    store = from_url("postgresql://h/d", Names(), {"notify": "off", "prepare_threshold": "off"})
    assert not store.capabilities.wakes


# --- fences under concurrency --------------------------------------------------------------


def test_a_settlement_waits_for_a_takeover_and_then_changes_nothing(
    postgres_database: str,
) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            (seq,) = scene.add("a")
            for settlement in (Settlement(delivered=[seq]), Settlement([seq], parked=[seq])):
                before = scene.queue()
                with psycopg.connect(postgres_database) as takeover:
                    takeover.execute("DELETE FROM outbox_lease WHERE relay = 'a'")
                    settling = asyncio.create_task(scene.store.settle(scene.fence, settlement))
                    await asyncio.sleep(0.1)
                    assert not settling.done()
                    takeover.commit()
                with pytest.raises(LeaseLost):
                    await settling
                assert scene.queue() == before
                scene.fence = await scene.join("a")

    asyncio.run(case())


def test_a_lease_is_not_taken_from_a_relay_in_the_middle_of_a_settlement(
    postgres_database: str,
) -> None:
    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            await scene.store.renew(
                scene.lane.id, "a", strategy="partitioned", keep=None, lease_seconds=0.01
            )
            await asyncio.sleep(0.05)
            with psycopg.connect(postgres_database) as settling:
                settling.execute("SELECT 1 FROM outbox_lease WHERE relay = 'a' FOR KEY SHARE")
                async with asyncio.timeout(SOON):
                    roster = await scene.store.renew(
                        scene.lane.id, "b", strategy="partitioned", keep=None, lease_seconds=60
                    )
                assert list(roster.others) == ["a"], "and nobody had to wait"
            roster = await scene.store.renew(
                scene.lane.id, "b", strategy="partitioned", keep=None, lease_seconds=60
            )
            assert roster.others == {}

    asyncio.run(case())


def test_writers_are_not_held_up_by_a_relay(postgres_database: str) -> None:
    """Neither claims, settlements nor purges lock anything that an INSERT needs."""

    async def case() -> None:
        async with scene_on(postgres_database) as scene:
            (seq,) = scene.add("a")
            with psycopg.connect(postgres_database) as slow:
                slow.execute("SELECT * FROM outbox_queue FOR UPDATE")
                slow.execute("SELECT * FROM outbox_lease FOR UPDATE")
                slow.execute("SELECT * FROM outbox_lane FOR NO KEY UPDATE")
                slow.execute("SELECT * FROM outbox_event FOR UPDATE")
                async with asyncio.timeout(SOON):
                    await asyncio.to_thread(scene.add, "a")
            assert (await scene.seqs())[0] == seq

    asyncio.run(case())


# --- the producer's role -------------------------------------------------------------------


@pytest.fixture
def producer(postgres_database: str) -> Any:
    """A connection of a role that may insert into the log and do nothing else."""

    async def initialise() -> None:
        store = PostgresStore(postgres_database)
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    role = f"producer_{threading.get_ident()}_{time.time_ns()}"
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role}")
        owner.execute(f"GRANT INSERT ON outbox_event TO {role}")
    connection = psycopg.connect(postgres_database)
    connection.execute(f"SET ROLE {role}")
    connection.commit()
    yield connection
    connection.close()
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute(f"DROP OWNED BY {role}")
        owner.execute(f"DROP ROLE {role}")


INSERT = (
    "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
    "VALUES ('Order', '1', 'OrderPaid', '{}')"
)


def test_insert_on_the_log_is_the_only_right_a_producer_needs(
    producer: Any, postgres_database: str
) -> None:
    producer.execute(INSERT)
    producer.commit()
    for forbidden in ("SELECT * FROM outbox_event", "SELECT * FROM outbox_queue"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            producer.execute(forbidden)
        producer.rollback()
    with psycopg.connect(postgres_database) as owner:
        assert owner.execute("SELECT count(*) FROM outbox_queue").fetchone() == (1,)


def test_a_producers_own_tables_do_not_mislead_the_trigger(
    producer: Any, postgres_database: str
) -> None:
    producer.execute(
        "CREATE TEMP TABLE outbox_queue (seq bigint, key bigint, event_id uuid, lane integer, "
        "due_at timestamptz, bucket smallint, state smallint)"
    )
    producer.execute("SET search_path = pg_temp, public, pg_catalog")
    producer.execute(INSERT)
    producer.commit()
    with psycopg.connect(postgres_database) as owner:
        assert owner.execute("SELECT count(*) FROM outbox_queue").fetchone() == (1,)


def test_the_rights_that_the_reference_grants_a_relay_are_enough(postgres_database: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "schema.md"
    grants = re.findall(r"GRANT [^;]*?TO my_relay;", page.read_text())
    assert len(grants) == 2
    role = f"relay_{time.time_ns()}"
    harness = PostgresHarness(postgres_database)
    harness.names = Names()

    async def case() -> None:
        async with opened(harness) as scene:
            with psycopg.connect(postgres_database, autocommit=True) as owner:
                owner.execute(f"CREATE ROLE {role}")
                for grant in grants:
                    owner.execute(grant.replace("my_relay", role))
            limited = PostgresStore(f"{postgres_database}?options=-c%20role%3D{role}")
            await limited.open()
            await limited.lane("default")
            a, b, c, _d = scene.add("a", "b", "c", "c")
            scene.store = limited
            scene.fence = await scene.join("a")
            await limited.acquire(scene.fence, ALL_BUCKETS)
            await scene.deliver(a)
            await scene.fail(b, None)
            await scene.unpark()
            await scene.purge(0)
            await limited.purge_inbox(older_than_seconds=0, limit=10)
            await fall_asleep(limited)
            for circuit in (OpenCircuit(1.0, "away"), None):
                await limited.tell_circuit(scene.lane.id, "a", circuit, valid_seconds=60)
            await limited.status()
            await limited.leave(scene.fence)
            scene.fence = await scene.join("a", strategy="competing")
            assert [row.seq for row in await limited.claim_heads(scene.fence, 9, 60)] == [c]
            await limited.close()

    try:
        asyncio.run(case())
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("column", ["aggregate_type", "aggregate_id", "event_type"])
@pytest.mark.parametrize("text", ["''", "repeat('x', 256)", "NULL"])
def test_nameless_events_are_refused(producer: Any, column: str, text: str) -> None:
    row = {"aggregate_type": "'O'", "aggregate_id": "'1'", "event_type": "'E'", column: text}
    with pytest.raises(psycopg.errors.IntegrityError):
        producer.execute(
            f"INSERT INTO outbox_event ({', '.join(row)}, payload) "
            f"VALUES ({', '.join(row.values())}, '')"
        )
    producer.rollback()
