"""What is committed is passed on at once; what cannot be is left to the relay, and nobody waits."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from commitrelay import (
    ConfigError,
    DirectPass,
    Event,
    InvalidHandle,
    Outbox,
    Relay,
    RelayOptions,
    open_publisher,
    open_store,
)
from commitrelay.publisher import (
    DELIVERED,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.sql import Names
from commitrelay.statement import statement
from commitrelay.store import State
from tests.direct.scene import REPOSITORY, Database, arrivals, wait_until

Make = Callable[..., DirectPass]


class Broker:
    """A publisher in memory that answers as it is told to."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.answer: Outcome = DELIVERED
        self.lets_go = True

    async def open(self) -> None:
        return

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        while not self.lets_go:
            await asyncio.sleep(0.01)
        if self.answer is DELIVERED:
            self.messages += messages
        return [self.answer] * len(messages)

    async def recover(self) -> None:
        return

    async def close(self) -> None:
        return

    @property
    def numbers(self) -> list[int]:
        return [json.loads(message.value)["number"] for message in self.messages]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def direct_pass(database: Database, broker: Broker) -> Iterator[Make]:
    """Makes direct passes that are ready, and closes them at the end."""
    made: list[DirectPass] = []

    def make(**options: Any) -> DirectPass:
        direct = DirectPass(open_store(database.url), broker, **{"wait_seconds": 30.0, **options})
        made.append(direct)
        assert direct.start(30)
        return direct

    yield make
    broker.lets_go = True
    for direct in made:
        direct.close()


@pytest.fixture
def direct(direct_pass: Make) -> DirectPass:
    return direct_pass()


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    connection = database.connect()
    yield connection
    connection.close()


def event(number: int, key: object = 1, **more: Any) -> Event:
    return Event("Order", str(key), "Counted", {"number": number}, **more)


def relay_all(database: Database, directory: Path) -> list[int]:
    """Let a relay deliver what is left; the numbers in their order."""

    async def run() -> None:
        await Relay(
            open_store(database.url),
            open_publisher(f"file://{directory}"),
            RelayOptions(until="drained"),
        ).run()

    asyncio.run(run())
    return [number for _key, number in arrivals(directory)]


# --- on every handle -----------------------------------------------------------------------


def add_on_connection(outbox: Outbox, url: str) -> None:
    connection = Database.connect(_plain(url))
    with outbox.transaction(connection):
        outbox.add(connection, event(1), event(2, key=2))
        outbox.add(connection, event(3))
    connection.close()


async def add_on_psycopg_async(outbox: Outbox, url: str) -> None:
    async with (
        await psycopg.AsyncConnection.connect(url) as connection,
        outbox.transaction(connection),
    ):
        await outbox.add_async(connection, event(1), event(2, key=2))
        await outbox.add_async(connection, event(3))


async def add_on_asyncpg(outbox: Outbox, url: str) -> None:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        outbox.transaction(connection),
    ):
        await outbox.add_async(connection, event(1), event(2, key=2))
        await outbox.add_async(connection, event(3))


async def add_on_aiosqlite(outbox: Outbox, url: str) -> None:
    path = url.removeprefix("sqlite:///")
    async with (
        aiosqlite.connect(path, isolation_level=None) as connection,
        outbox.transaction(connection),
    ):
        await outbox.add_async(connection, event(1), event(2, key=2))
        await outbox.add_async(connection, event(3))


def add_on_session(outbox: Outbox, url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        with session.begin():
            outbox.add(session, event(1), event(2, key=2))
            with session.begin_nested():
                outbox.add(session, event(3))
            with session.begin_nested() as savepoint:
                outbox.add(session, event(99))
                savepoint.rollback()
        outbox.add(session, event(98))
        session.rollback()
    engine.dispose()


async def add_on_async_session(outbox: Outbox, url: str) -> None:
    schemes = {"postgresql://": "postgresql+asyncpg://", "sqlite://": "sqlite+aiosqlite://"}
    for scheme, driver in schemes.items():
        url = url.replace(scheme, driver)
    engine = create_async_engine(url)
    async with AsyncSession(engine) as session, session.begin():
        await outbox.add_async(session, event(1), event(2, key=2))
        await outbox.add_async(session, event(3))
    await engine.dispose()


def _plain(url: str) -> Database:
    database = Database.__new__(Database)
    database.url = url
    return database


WRITERS = {
    "postgres": (
        add_on_connection,
        add_on_psycopg_async,
        add_on_asyncpg,
        add_on_session,
        add_on_async_session,
    ),
    "sqlite": (add_on_connection, add_on_aiosqlite, add_on_session, add_on_async_session),
}


@pytest.mark.parametrize(
    ("database", "write"),
    [(name, write) for name, writers in WRITERS.items() for write in writers],
    indirect=["database"],
)
def test_what_is_committed_is_passed_on(
    database: Database, direct: DirectPass, broker: Broker, write: Callable[..., Any]
) -> None:
    done = write(Outbox(direct=direct), database.url)
    if done is not None:
        asyncio.run(done)
    wait_until(lambda: direct.stats.in_hand == 0, 30, "nothing in hand")
    assert sorted(broker.numbers) == [1, 2, 3]
    assert broker.numbers.index(1) < broker.numbers.index(3)
    assert direct.stats.passed == 3
    assert database.queued == 0
    assert database.published("direct-%") == 3


def test_a_message_is_the_same_whoever_sends_it(
    database: Database, direct: DirectPass, broker: Broker, connection: Any, tmp_path: Path
) -> None:
    outbox = Outbox(direct=direct)
    sent = event(1, headers={"trace": "ä"})
    with outbox.transaction(connection):
        outbox.add(connection, sent)
    asyncio.run(_deliver_again(database, tmp_path))
    (line,) = (tmp_path / "order.events.jsonl").read_text().splitlines()
    relayed = json.loads(line)
    (message,) = broker.messages
    assert relayed["headers"] == dict(message.headers)
    assert (relayed["topic"], relayed["key"], relayed["payload"].encode()) == message[:3]
    assert relayed["id"] == message.event_id == str(sent.id)


async def _deliver_again(database: Database, directory: Path) -> None:
    columns = "lane, seq, key, bucket" + (", event_id" if "postgres" in database.url else "")
    values = "1, 1, 1, 1" + (", (SELECT id FROM outbox_event)" if "event_id" in columns else "")
    database.run(f"INSERT INTO outbox_queue ({columns}) VALUES ({values})")
    options = RelayOptions(until="drained")
    publisher = open_publisher(f"file://{directory}")
    await Relay(open_store(database.url), publisher, options).run()


# --- never before the commit, never after a rollback ---------------------------------------


def test_nothing_of_a_rolled_back_transaction_is_sent(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    outbox = Outbox(direct=direct)
    with pytest.raises(ZeroDivisionError), outbox.transaction(connection):
        outbox.add(connection, event(1))
        1 / 0  # noqa: B018
    with outbox.transaction(connection):
        with pytest.raises(ZeroDivisionError), outbox.transaction(connection):
            outbox.add(connection, event(2))
            1 / 0  # noqa: B018
        outbox.add(connection, event(3))
    assert broker.numbers == [3]
    assert database.added == 1


def test_a_claim_that_was_signalled_and_rolled_back_is_not_sent(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    """Whatever a hook believes, only what was committed is found."""
    outbox = Outbox(direct=direct)
    with pytest.raises(ZeroDivisionError), outbox.transaction(connection):
        added = outbox.add(connection, event(1))
        claim = outbox._claimer.claim(connection, [str(each) for each in added])
        assert claim is not None
        assert claim.count == 1
        direct.pass_on(claim)
        time.sleep(0.2)
        1 / 0  # noqa: B018
    wait_until(lambda: direct.stats.in_hand == 0, 30, "given up")
    assert broker.messages == []


def test_inside_of_a_foreign_transaction_it_is_left_to_the_relay(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    outbox = Outbox(direct=direct)
    connection.execute("BEGIN")
    with outbox.transaction(connection):
        outbox.add(connection, event(1))
    assert database.added == 0
    connection.execute("COMMIT")
    assert database.states() == {1: State.PENDING}
    assert direct.stats.left_to_relay["no transaction"] == 1


# --- left to the relay ---------------------------------------------------------------------


def test_what_is_not_its_keys_head_is_left(
    database: Database, direct: DirectPass, broker: Broker, connection: Any, tmp_path: Path
) -> None:
    outbox = Outbox(direct=direct)
    connection.execute("BEGIN")
    Outbox().add(connection, event(1, key="a"))
    connection.execute("COMMIT")
    with outbox.transaction(connection):
        outbox.add(connection, event(2, key="a"), event(3, key="b"))
    assert broker.numbers == [3]
    assert direct.stats.left_to_relay == {"not head": 1}
    assert relay_all(database, tmp_path / "left") == [1, 2]


def test_what_is_for_later_is_left(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    outbox = Outbox(direct=direct)
    with outbox.transaction(connection):
        outbox.add(connection, event(1, deliver_at=later), event(2))
    assert broker.numbers == [2]
    assert list(database.states().values()) == [State.SCHEDULED]


def test_what_was_there_already_is_left(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    """A relay may be sending it at this moment."""
    outbox, twice = Outbox(direct=direct), event(1)
    connection.execute("BEGIN")
    Outbox().add(connection, twice)
    connection.execute("COMMIT")
    with outbox.transaction(connection):
        assert outbox.add(connection, twice).duplicates == 1
    assert broker.messages == []
    assert list(database.states().values()) == [State.PENDING]


def test_a_bulk_load_is_left(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    outbox = Outbox(direct=direct)
    with outbox.transaction(connection):
        outbox.add(connection, *(event(number, key=number) for number in range(101)))
    assert direct.stats.left_to_relay == {"bulk": 101}
    assert set(database.states().values()) == {State.PENDING}


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_under_an_older_snapshot_all_is_left(
    database: Database, direct: DirectPass, connection: Any, level: str
) -> None:
    """It could hide an earlier event of the key."""
    connection.execute(f"SET default_transaction_isolation TO '{level}'")
    outbox = Outbox(direct=direct)
    with outbox.transaction(connection):
        outbox.add(connection, event(1))
    assert direct.stats.left_to_relay == {"not head": 1}
    assert list(database.states().values()) == [State.PENDING]


def test_on_mysql_all_is_left(mariadb_database: str, broker: Broker, tmp_path: Path) -> None:
    database = Database.__new__(Database)
    database.url = mariadb_database
    asyncio.run(database._initialise())
    with pytest.raises(ConfigError, match="no direct pass"):
        DirectPass(open_store(mariadb_database), broker)
    elsewhere = Database(f"sqlite:///{tmp_path / 'other.db'}")
    with DirectPass(open_store(elsewhere.url), broker) as direct:
        assert direct.start(30)
        engine = create_engine(mariadb_database.replace("mysql://", "mysql+pymysql://"))
        with Session(engine) as session, session.begin():
            Outbox(direct=direct).add(session, event(1))
        with engine.connect() as plain:
            (state,) = plain.execute(text("SELECT state FROM outbox_queue")).one()
        engine.dispose()
        assert state == State.PENDING
        assert direct.stats.left_to_relay == {"not head": 1}


ADD_MANY = (
    "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)"
    " SELECT 'Order', n::text, 'Counted', '' FROM generate_series(1, %s) AS n"
)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_claim_costs_the_same_behind_a_backlog(database: Database, connection: Any) -> None:
    """Also if it was planned while the queue was empty."""
    connection.execute(ADD_MANY, (200,))
    connection.execute("DELETE FROM outbox_queue")
    connection.execute("ANALYZE")
    connection.execute("SET plan_cache_mode = force_generic_plan")
    before = statement("before_claim", 1, "postgres", "numeric_dollar", Names())
    claim = statement("claim_added", 1, "postgres", "numeric_dollar", Names())
    connection.execute(f"PREPARE claim AS {claim}")
    execute = "EXECUTE claim (-1, 1000, 'default', '{}', 'default')"
    with connection.transaction():
        (added,) = Outbox().add(connection, event(1))
        connection.execute(before)
        connection.execute(execute.format(added))
    connection.execute(ADD_MANY, (20_000,))
    with connection.transaction():
        (added,) = Outbox().add(connection, event(2))
        connection.execute(before)
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {execute.format(added)}"
        (plan,) = connection.execute(explain).fetchone()
    assert max(_rows_read(plan[0]["Plan"])) <= 201


def _rows_read(node: dict[str, Any]) -> Iterator[int]:
    yield int(node["Actual Rows"] * node["Actual Loops"]) + node.get("Rows Removed by Filter", 0)
    for child in node.get("Plans", ()):
        yield from _rows_read(child)


# --- nobody waits for the broker, and nobody sees its errors -------------------------------


def test_a_slow_broker_holds_nobody_up(
    database: Database, direct_pass: Make, broker: Broker, connection: Any, tmp_path: Path
) -> None:
    direct = direct_pass(max_waiting=3, wait_seconds=0.05)
    outbox = Outbox(direct=direct)
    broker.lets_go = False
    for number in range(5):
        with outbox.transaction(connection):
            outbox.add(connection, event(number, key=number))
    assert direct.stats.in_hand == 3
    assert direct.stats.left_to_relay == {"full": 2}
    broker.lets_go = True
    wait_until(lambda: direct.stats.in_hand == 0, 30, "all passed")
    assert sorted(broker.numbers) == [0, 1, 2]
    assert relay_all(database, tmp_path / "left") == [3, 4]


@pytest.mark.parametrize("answer", [Unreachable("it is away"), Refused("not this one")])
def test_what_the_broker_does_not_take_is_the_relays_at_once(
    database: Database, direct: DirectPass, broker: Broker, topics: Path, answer: Outcome
) -> None:
    outbox = Outbox(direct=direct)
    broker.answer = answer
    with closing(database.connect()) as connection, outbox.transaction(connection):
        outbox.add(connection, event(1, key="a"), event(2, key="a"), event(3, key="b"))
    assert database.states() == {1: State.RETRYING, 2: State.PARKED, 3: State.RETRYING}
    rows = database.rows("SELECT attempts, claim_token, last_error FROM outbox_queue WHERE seq = 1")
    assert rows == [(0, 0, answer.reason)]
    assert direct.stats.released == 3
    delivered = relay_all(database, topics)
    assert sorted(delivered) == [1, 2, 3]
    assert delivered.index(1) < delivered.index(2)


def test_the_log_names_what_is_left_to_the_relay(
    database: Database, direct: DirectPass, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "commitrelay.direct")
    outbox = Outbox(direct=direct)
    broker.answer = Refused("not with password=c4n4ry")
    events = [event(number, key="a") for number in range(3)]
    with closing(database.connect()) as connection, outbox.transaction(connection):
        outbox.add(connection, *events)
    wait_until(lambda: "left to the relay" in caplog.text, 30, "the line")
    [line] = [each for each in caplog.records if "left to the relay" in each.getMessage()]
    said = f"event {events[0].id} of Order/a and 2 more left to the relay: not with password=***"
    assert line.getMessage() == said
    named = {"event_id": str(events[0].id), "key": "Order/a", "lane": "default"}
    assert named.items() <= vars(line).items()
    rows = database.rows("SELECT last_error FROM outbox_queue WHERE seq = 1")
    assert rows == [("not with password=***",)]


def test_while_the_broker_is_away_nothing_is_claimed(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    outbox = Outbox(direct=direct)
    broker.answer = Unreachable("it is away")
    for number in range(20):
        with outbox.transaction(connection):
            outbox.add(connection, event(number, key=number))
    assert direct.stats.left_to_relay["not ready"] > 0
    broker.answer = DELIVERED
    wait_until(lambda: direct.is_ready, 60, "it has come back")
    with outbox.transaction(connection):
        outbox.add(connection, event(99, key=99))
    assert 99 in broker.numbers


def test_a_message_that_cannot_be_made_is_the_relays(
    database: Database, direct_pass: Make, broker: Broker, connection: Any
) -> None:
    def compose(row: Any) -> Message:
        raise ValueError("no such template")

    direct = direct_pass(compose=compose)
    outbox = Outbox(direct=direct)
    with outbox.transaction(connection):
        outbox.add(connection, event(1))
    assert list(database.states().values()) == [State.RETRYING]


def test_what_would_be_answered_too_late_is_not_sent(
    database: Database, direct: DirectPass, broker: Broker, connection: Any
) -> None:
    """The relay may have it by the time of the answer: the clock is asked before each send."""
    outbox = Outbox(direct=direct)
    broker.lets_go = False
    with Outbox().transaction(connection):
        added = Outbox().add(connection, event(1), event(2))
        claim = outbox._claimer.claim(connection, [str(each) for each in added])
        time_left = 2.0  # of the 30 s of the claim, less the 10 s that the broker may take
        claim.made_at = time.monotonic() - (30 - 10 - time_left)
    direct.pass_on(claim)
    time.sleep(time_left + 0.1)
    broker.lets_go = True
    claim.wait(30)
    assert broker.numbers == [1]
    assert database.states() == {2: State.RETRYING}


# --- life ----------------------------------------------------------------------------------


def test_closing_lets_go_of_what_was_not_sent(
    database: Database, direct_pass: Make, broker: Broker, connection: Any
) -> None:
    direct = direct_pass(wait_seconds=0.0)
    outbox = Outbox(direct=direct)
    broker.lets_go = False
    for number in range(10):  # more than are sent at a time
        with outbox.transaction(connection):
            outbox.add(connection, event(number, key=number))
    time.sleep(0.2)
    direct.close(timeout_seconds=0.1)
    broker.lets_go = True
    direct.close()
    with outbox.transaction(connection):
        outbox.add(connection, event(11, key=11))
    states = list(database.states().values())
    assert len(broker.numbers) + len(states) == 11
    assert State.CLAIMED not in states
    assert direct.stats.left_to_relay["not ready"] == 1


def test_a_process_that_ends_leaves_no_claim(database: Database, topics: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from commitrelay import DirectPass, Event, Outbox, open_publisher, open_store
from tests.direct.scene import Database
database = Database({database.url!r})
direct = DirectPass(open_store({database.url!r}), open_publisher("file://{topics}"))
assert direct.start(30)
outbox = Outbox(direct=direct)
connection = database.connect()
for number in range(20):
    with outbox.transaction(connection):
        outbox.add(connection, Event("Order", str(number), "Counted", {{"number": number}}))
connection.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    states = database.states()
    assert State.CLAIMED not in states.values()
    assert len(arrivals(topics)) + len(states) == 20


def test_a_child_of_a_running_one_leaves_all_to_the_relay(
    database: Database, direct: DirectPass, broker: Broker
) -> None:
    """It has no thread there, and its connections are the parent's."""
    child = os.fork()
    if child == 0:
        connection = database.connect()
        outbox = Outbox(direct=direct)
        with outbox.transaction(connection):
            outbox.add(connection, event(1))
        connection.close()
        direct.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert list(database.states().values()) == [State.PENDING]
    assert direct.is_ready


def test_it_starts_with_the_first_commit(
    database: Database, broker: Broker, connection: Any
) -> None:
    direct = DirectPass(open_store(database.url), broker)
    outbox = Outbox(direct=direct)
    with outbox.transaction(connection):
        outbox.add(connection, event(1))
    assert direct.stats.left_to_relay == {"not ready": 1}
    wait_until(lambda: direct.is_ready, 30, "ready")
    direct.close()
    assert not direct.is_ready


# --- configuration -------------------------------------------------------------------------


def test_what_is_wrong_is_said_at_once(tmp_path: Path, broker: Broker) -> None:
    url = f"sqlite:///{tmp_path / 'missing.db'}"
    with pytest.raises(ConfigError, match=r"too short for a delivery timeout of 10 s.*least 15"):
        DirectPass(open_store(url), broker, claim_seconds=14)
    one_owner = open_publisher("kafka://localhost:1?transactional.id=me")
    with pytest.raises(ConfigError, match="only one process"):
        DirectPass(open_store(url), one_owner)
    direct = DirectPass(open_store(url), broker)
    with pytest.raises(ConfigError, match=r"\.shop.*\.outbox"):
        Outbox(prefix="shop", direct=direct)
    with pytest.raises(Exception, match="commitrelay init"):
        direct.start(30)
    with pytest.raises(InvalidHandle, match=r"session\.begin"), Outbox().transaction(object()):
        pass


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_the_rights_that_the_page_names_are_enough(
    database: Database, direct: DirectPass, broker: Broker
) -> None:
    role = f"producer_{os.getpid()}_{time.monotonic_ns()}"
    page = (REPOSITORY / "docs/how-to/direct-pass.md").read_text()
    grants = [line for line in page.splitlines() if line.startswith("GRANT")]
    assert grants
    connection = database.connect()
    try:
        connection.execute(f"CREATE ROLE {role}")
        for grant in grants:
            connection.execute(grant.replace("shop", role))
        connection.execute(f"SET ROLE {role}")
        outbox = Outbox(direct=direct)
        with outbox.transaction(connection):
            outbox.add(connection, event(1))
        assert broker.numbers == [1]
    finally:
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")
        connection.close()


def test_without_a_direct_pass_it_is_a_plain_transaction(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'outbox.db'}")
    connection = sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)
    with Outbox().transaction(connection):
        Outbox().add(connection, event(1))
    connection.close()
    assert list(database.states().values()) == [State.PENDING]


def test_a_connection_that_is_always_in_a_transaction_is_refused() -> None:
    class NeverCommits(sqlite3.Connection):
        autocommit = False  # as sqlite3.connect(…, autocommit=False) since Python 3.12

    with (
        closing(sqlite3.connect(":memory:", factory=NeverCommits)) as connection,
        pytest.raises(InvalidHandle, match="autocommit=False"),
        Outbox().transaction(connection),
    ):
        pass
