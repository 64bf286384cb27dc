"""Dead letters: sent before an event is dead, at least once; never lost, never waited for."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from commitrelay import Event, Outbox, dead_letters
from commitrelay.daemon import relay_of
from commitrelay.dead_letters import BuryingStore, DeadLetters
from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.options import RelayOptions
from commitrelay.publisher import (
    DELIVERED,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.settings import LaneSettings, Settings
from commitrelay.store import EventFilter
from commitrelay.stores.sqlite.store import SqliteStore


class Broker:
    """Answers as it is told, and remembers what it took."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self, *answers: Outcome) -> None:
        self.taken: list[Message] = []
        self.answers = list(answers)
        self.recovered = 0
        self.hangs = False
        self.is_down = False

    async def open(self) -> None:
        if self.is_down:
            raise BrokerUnreachable("down")

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        if self.hangs:
            await asyncio.Event().wait()
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Outcome:
        answer = self.answers.pop(0) if self.answers else DELIVERED
        if answer is DELIVERED:
            self.taken.append(message)
        return answer

    async def recover(self) -> None:
        await self.open()
        self.recovered += 1

    async def close(self) -> None: ...


class RefusesBad(Broker):
    def _answer(self, message: Message) -> Outcome:
        return Refused("bad\nnews") if message.value == b"bad" else super()._answer(message)


@pytest.fixture
def path(sqlite_path: Path) -> Path:
    async def create() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(create())
    return sqlite_path


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "POSTPONED_SECONDS", 0.1)
    monkeypatch.setattr(dead_letters, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(dead_letters, "OPENING_SECONDS", 0.2)


def add(path: Path, *events: Event) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        added = Outbox().add(connection, *events)
        connection.commit()
    return [str(each) for each in added]


def drain(path: Path, broker: Broker, graveyard: Broker, *, on_dead: str = "block") -> None:
    async def main() -> None:
        store = SqliteStore(str(path))
        burying = BuryingStore(store, DeadLetters(graveyard, "dead", "default"), archive=store)
        retry = RetryPolicy((0.05,), jitter=0)
        options = RelayOptions(until="drained", retry=retry, on_dead=on_dead)  # type: ignore[arg-type]
        await asyncio.wait_for(Relay(burying, broker, options, name="me").run(), 60)

    asyncio.run(main())


def states(path: Path) -> dict[str, tuple[str, int]]:
    async def read() -> dict[str, tuple[str, int]]:
        store = SqliteStore(str(path))
        await store.open()
        records = await store.list_events(EventFilter(), before_seq=None, limit=100)
        await store.close()
        return {
            record.id: (record.deliveries[0].status, record.deliveries[0].attempts)
            for record in records
        }

    return asyncio.run(read())


def test_a_dead_letter_tells_what_happened(path: Path) -> None:
    graveyard = Broker()
    headers = {"tenant": "x", "Dead-Letter-Error": "forged"}
    [bad, good] = add(
        path, Event("Order", "1", "Paid", "bad", headers=headers), Event("Order", "2", "Paid", "ok")
    )
    drain(path, RefusesBad(), graveyard)
    [letter] = graveyard.taken
    assert (letter.topic, letter.key, letter.value) == ("dead", "1", b"bad")
    assert letter.event_id == bad
    told = dict(letter.headers)
    assert told["tenant"] == "x"
    assert "Dead-Letter-Error" not in told
    assert told["dead-letter-error"] == "bad news"
    assert (told["dead-letter-attempts"], told["dead-letter-lane"]) == ("2", "default")
    assert told["dead-letter-relay"] == "me"
    [first] = json.loads(told["dead-letter-history"])
    assert (first["attempt"], first["error"]) == (1, "bad news")
    assert states(path) == {bad: ("dead", 2), good: ("published", 0)}


def test_while_nobody_takes_the_letter_the_event_does_not_die(path: Path) -> None:
    graveyard = Broker(Unreachable("gone"), Unreachable("gone"))
    [bad, after, *others] = add(
        path,
        Event("Order", "1", "Paid", "bad"),
        Event("Order", "1", "Paid", "after"),
        *(Event("Order", f"other {number}", "Paid", "ok") for number in range(5)),
    )
    broker = RefusesBad()
    drain(path, broker, graveyard)
    assert [letter.event_id for letter in graveyard.taken] == [bad]
    assert graveyard.recovered >= 2
    assert states(path)[bad] == ("dead", 4)
    assert states(path)[after][0] == "parked"
    assert {message.event_id for message in broker.taken} == set(others)


def test_a_broker_that_hangs_or_is_down_holds_nobody_up(path: Path) -> None:
    graveyard = Broker()
    graveyard.is_down = graveyard.hangs = True
    [bad, *_] = add(path, Event("Order", "1", "Paid", "bad"), Event("Order", "2", "Paid", "ok"))

    async def main() -> None:
        store = SqliteStore(str(path))
        burying = BuryingStore(store, DeadLetters(graveyard, "dead", "default"), archive=store)
        broker = RefusesBad()
        relay = Relay(burying, broker, RelayOptions(retry=RetryPolicy((), jitter=0)))
        async with asyncio.timeout(60), relay:
            while relay.stats.dead < 2:  # it has tried to die twice: nobody was there
                await asyncio.sleep(0.01)
            graveyard.is_down = False
            while not graveyard.recovered:  # it was opened, hung, and is brought back
                await asyncio.sleep(0.01)
            graveyard.hangs = False
            while not graveyard.taken:
                await asyncio.sleep(0.01)
        assert [message.value for message in broker.taken] == [b"ok"]

    asyncio.run(main())
    assert states(path)[bad][0] == "dead"
    assert {letter.event_id for letter in graveyard.taken} == {bad}


def test_a_refused_letter_leaves_the_event_dead(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graveyard = Broker(Refused("too large, password=c4n4ry"))
    [bad] = add(path, Event("Order", "1", "Paid", "bad"))
    drain(path, RefusesBad(), graveyard)
    assert states(path) == {bad: ("dead", 2)}
    [line] = [each.getMessage() for each in caplog.records if "refused: too" in each.getMessage()]
    assert bad in line
    assert "c4n4ry" not in line


def test_an_event_without_a_form_dies_all_the_same(path: Path) -> None:
    graveyard = Broker()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload,"
            " headers) VALUES ('0199f1a2-0000-7000-8000-000000000001', 'Order', '1', 'Paid',"
            " x'00', '[1]')"
        )
        connection.commit()
    drain(path, Broker(), graveyard)
    assert list(states(path).values()) == [("dead", 2)]


def test_dead_letters_of_a_transactional_producer_need_a_broker_of_their_own() -> None:
    settings = Settings(
        database="sqlite:///x",
        publish="kafka://h:1?transactional.id=t",
        dead_letter_topic="dead",
    )
    with pytest.raises(ConfigError, match="dead_letter_publish"):
        relay_of(LaneSettings("default", settings))
