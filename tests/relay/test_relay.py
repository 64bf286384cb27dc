"""The relay on SQLite and files: what a user of it sees."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commitrelay import Event, Outbox
from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.options import RelayOptions
from commitrelay.publisher import Message, Outcome, Publisher, PublisherCapabilities, Refused
from commitrelay.publishers.file import from_url
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.store import EventFilter
from commitrelay.stores.sqlite.store import SqliteStore

DRAINED = RelayOptions(until="drained", retry=RetryPolicy((0.05, 0.05), jitter=0))


@pytest.fixture
def outbox_path(sqlite_path: Path) -> Path:
    asyncio.run(_initialise(sqlite_path))
    return sqlite_path


async def _initialise(path: Path) -> None:
    store = SqliteStore(str(path))
    await store.initialise()
    await store.close()


def add(path: Path, *events: Event) -> None:
    connection = sqlite3.connect(path)
    with connection:
        Outbox().add(connection, *events)
    connection.close()


def event(key: str, number: int, **more: object) -> Event:
    return Event("Order", key, "Counted", str(number), **more)  # type: ignore[arg-type]


def relay(path: Path, directory: Path, options: RelayOptions, wrap: type | None = None) -> Relay:
    publisher: Publisher = from_url(f"file://{directory}", {})
    return Relay(SqliteStore(str(path)), wrap(publisher) if wrap else publisher, options)


def delivered(directory: Path) -> list[tuple[str, str]]:
    return [(message.key, message.value.decode()) for message in TopicReader(directory).poll()]


def statuses(path: Path) -> dict[str, list[int]]:
    async def read() -> dict[str, list[int]]:
        store = SqliteStore(str(path))
        await store.open()
        found: dict[str, list[int]] = {}
        for record in await store.list_events(EventFilter(), before_seq=None, limit=100):
            found.setdefault(record.deliveries[0].status, []).append(record.seq)
        await store.close()
        return {status: sorted(seqs) for status, seqs in found.items()}

    return asyncio.run(read())


class RefusesTheSecond:
    """Refuses every message whose value is `2`."""

    capabilities = PublisherCapabilities(stops_at_failure=False)

    def __init__(self, inner: Publisher) -> None:
        self._inner = inner
        self.delivery_timeout_seconds = inner.delivery_timeout_seconds
        self.open, self.close, self.recover = inner.open, inner.close, inner.recover

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        good = [message for message in messages if message.value != b"2"]
        outcomes = iter(await self._inner.publish(good))
        return [Refused("no twos") if m.value == b"2" else next(outcomes) for m in messages]


class OneAtATime:
    """Notes the sizes of the calls, of which no two overlap; the first waits for the claims."""

    capabilities = PublisherCapabilities(stops_at_failure=True, max_in_flight=1)

    def __init__(self, inner: Publisher) -> None:
        self._inner = inner
        self.delivery_timeout_seconds = inner.delivery_timeout_seconds
        self.sizes: list[int] = []
        self.claimed = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self.sizes.append(len(messages))
        await self.claimed.wait()
        return await self._inner.publish(messages)


def test_calls_that_may_not_overlap_are_larger(outbox_path: Path, tmp_path: Path) -> None:
    async def run() -> None:
        options = RelayOptions(until="drained", batch_size=10, window=8)
        relaying = relay(outbox_path, tmp_path / "topics", options, OneAtATime)
        publisher = relaying._publisher
        assert isinstance(publisher, OneAtATime)
        async with asyncio.timeout(60):
            task = asyncio.create_task(relaying.run())
            while relaying._window.ready < 80:
                await asyncio.sleep(0.01)
            publisher.claimed.set()
            await task
        assert publisher.sizes[:2] == [10, 80]
        assert sum(publisher.sizes) == 200

    add(outbox_path, *(event(str(number % 7), number) for number in range(200)))
    asyncio.run(run())
    for key in "0123456":
        order = [int(value) for found, value in delivered(tmp_path / "topics") if found == key]
        assert order == sorted(order)


@pytest.mark.parametrize("until", ["once", "drained"])
def test_delivers_what_is_there_and_ends(outbox_path: Path, tmp_path: Path, until: str) -> None:
    add(outbox_path, *(event(str(n % 3), n) for n in range(30)))
    asyncio.run(relay(outbox_path, tmp_path / "t", RelayOptions(until=until)).run())  # type: ignore[arg-type]
    assert delivered(tmp_path / "t") == [(str(n % 3), str(n)) for n in range(30)]
    assert list(statuses(outbox_path)) == ["published"]


@pytest.mark.parametrize("strategy", ["partitioned", "leader"])
def test_every_strategy_delivers_in_order(outbox_path: Path, tmp_path: Path, strategy: str) -> None:
    add(outbox_path, *(event("a", n) for n in range(100)))
    options = RelayOptions(strategy=strategy, until="drained", batch_size=7)  # type: ignore[arg-type]
    asyncio.run(relay(outbox_path, tmp_path / "t", options).run())
    assert delivered(tmp_path / "t") == [("a", str(n)) for n in range(100)]


def test_sqlite_cannot_compete(outbox_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="competing"):
        asyncio.run(relay(outbox_path, tmp_path, RelayOptions(strategy="competing")).run())


def test_a_dead_event_blocks_its_key_and_no_other(outbox_path: Path, tmp_path: Path) -> None:
    add(outbox_path, *(event("a", n) for n in range(1, 5)), event("b", 7))
    asyncio.run(relay(outbox_path, tmp_path / "t", DRAINED, RefusesTheSecond).run())
    assert sorted(delivered(tmp_path / "t")) == [("a", "1"), ("b", "7")]
    assert statuses(outbox_path) == {"published": [1, 5], "dead": [2], "parked": [3, 4]}


def test_a_dead_event_is_skipped_if_so_wished(outbox_path: Path, tmp_path: Path) -> None:
    add(outbox_path, *(event("a", n) for n in range(1, 5)))
    options = RelayOptions(until="drained", on_dead="skip", retry=RetryPolicy((0.05,), jitter=0))
    asyncio.run(relay(outbox_path, tmp_path / "t", options, RefusesTheSecond).run())
    assert delivered(tmp_path / "t") == [("a", "1"), ("a", "3"), ("a", "4")]
    assert statuses(outbox_path) == {"published": [1, 3, 4], "skipped": [2]}


def test_an_event_that_cannot_be_composed_is_refused_like_any_other(
    outbox_path: Path, tmp_path: Path
) -> None:
    connection = sqlite3.connect(outbox_path)
    with connection:
        connection.executemany(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, headers)"
            " VALUES ('Order', 'a', 'Counted', ?, ?)",
            [("1", "{}"), ("2", "no JSON at all"), ("3", "{}")],
        )
    connection.close()
    asyncio.run(relay(outbox_path, tmp_path / "t", DRAINED).run())
    assert delivered(tmp_path / "t") == [("a", "1")]
    assert statuses(outbox_path) == {"published": [1], "dead": [2], "parked": [3]}


def test_deliver_at_delays_and_does_not_hold_up_its_key(outbox_path: Path, tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(seconds=0.6)
    add(outbox_path, event("a", 1, deliver_at=later), event("a", 2))

    async def run() -> None:
        async with relay(outbox_path, tmp_path / "t", RelayOptions()):
            while len(delivered(tmp_path / "t")) < 1:
                await asyncio.sleep(0.01)
            assert datetime.now(UTC) < later
            while len(delivered(tmp_path / "t")) < 2:
                await asyncio.sleep(0.01)
            assert datetime.now(UTC) >= later

    asyncio.run(run())
    assert delivered(tmp_path / "t") == [("a", "2"), ("a", "1")]


def test_embedded_in_an_application(outbox_path: Path, tmp_path: Path) -> None:
    async def application() -> None:
        async with relay(outbox_path, tmp_path / "t", RelayOptions(poll_seconds=30)) as embedded:
            for number in range(3):
                await asyncio.to_thread(add, outbox_path, event("a", number))
                embedded.wake()
                while len(delivered(tmp_path / "t")) <= number:
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(application(), 20))
    assert len(delivered(tmp_path / "t")) == 3


def test_no_password_is_stored_with_an_error(outbox_path: Path, tmp_path: Path) -> None:
    class Indiscreet(RefusesTheSecond):
        async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
            return [Refused("redis://u:c4n4ry@h said no, password=c4n4ry") for _ in messages]

    add(outbox_path, event("a", 1))
    asyncio.run(relay(outbox_path, tmp_path / "t", DRAINED, Indiscreet).run())
    with closing(sqlite3.connect(outbox_path)) as connection:
        stored = connection.execute(
            "SELECT last_error FROM outbox_queue UNION ALL SELECT error FROM outbox_attempt"
        ).fetchall()
    assert {text for (text,) in stored} == {"redis://u:***@h said no, password=***"}


def test_waits_for_a_broker_that_is_down_at_the_start_and_says_so_once(
    outbox_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class ComesLate(RefusesTheSecond):
        attempts = 0

        def __init__(self, inner: Publisher) -> None:
            super().__init__(inner)
            self.open = self._open  # type: ignore[method-assign]

        async def _open(self) -> None:
            self.attempts += 1
            if self.attempts < 4:
                raise BrokerUnreachable("nobody is there")
            await self._inner.open()

    add(outbox_path, event("a", 1))
    with caplog.at_level(logging.WARNING):
        asyncio.run(relay(outbox_path, tmp_path / "t", DRAINED, ComesLate).run())
    assert delivered(tmp_path / "t") == [("a", "1")]
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "broker unreachable, waiting for it: nobody is there"
    assert lines[1].startswith("broker is back after")
    assert len(lines) == 2


def test_stop_settles_what_is_at_the_broker_and_leaves_at_once(
    outbox_path: Path, tmp_path: Path
) -> None:
    """The lease is given up, so that the next relay need not wait for it."""
    add(outbox_path, *(event(str(n), n) for n in range(200)))

    async def run() -> None:
        options = RelayOptions(batch_size=10)
        first = relay(outbox_path, tmp_path / "t", options)
        task = asyncio.create_task(first.run())
        while not first.stats.published:
            await asyncio.sleep(0.001)
        first.stop()
        await task
        before = len(delivered(tmp_path / "t"))
        assert first.stats.published == before
        async with asyncio.timeout(5):
            await relay(outbox_path, tmp_path / "t", RelayOptions(until="drained")).run()

    asyncio.run(run())
    assert sorted(int(value) for _key, value in delivered(tmp_path / "t")) == list(range(200))


def test_a_lease_shorter_than_a_delivery_is_refused(outbox_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too short for a delivery timeout"):
        asyncio.run(relay(outbox_path, tmp_path, RelayOptions(lease_seconds=1)).run())


def test_an_unknown_lane_is_refused(outbox_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no lane 'nowhere'"):
        asyncio.run(relay(outbox_path, tmp_path, RelayOptions(lane="nowhere")).run())


@pytest.mark.parametrize("name", ["batch_size", "window", "poll_seconds", "lease_seconds"])
def test_options_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        RelayOptions(**{name: 0})  # type: ignore[arg-type]


def test_relays_that_mix_strategies_are_refused(outbox_path: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with relay(outbox_path, tmp_path / "t", RelayOptions()) as running:
            add(outbox_path, event("a", 1))
            while not running.stats.published:
                await asyncio.sleep(0.01)
            with pytest.raises(ConfigError, match="order would be lost"):
                await relay(outbox_path, tmp_path / "t", RelayOptions(strategy="leader")).run()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_standby_takes_over_when_the_leader_leaves(outbox_path: Path, tmp_path: Path) -> None:
    async def run() -> None:
        options = RelayOptions(strategy="leader", lease_seconds=20)
        leader, standby = (relay(outbox_path, tmp_path / "t", options) for _ in range(2))
        leading = asyncio.create_task(leader.run())
        add(outbox_path, event("a", 1))
        while not leader.stats.published:
            await asyncio.sleep(0.01)
        async with standby:
            add(outbox_path, event("a", 2))
            while leader.stats.published < 2:
                await asyncio.sleep(0.01)
            assert standby.stats.published == 0
            leader.stop()
            await leading
            add(outbox_path, event("a", 3))
            while not standby.stats.published:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert [value for _key, value in delivered(tmp_path / "t")] == ["1", "2", "3"]
