"""A whole consumer, from file topics, on each database and each kind of handle."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from commitrelay import (
    ConfigError,
    Consumer,
    ConsumerOptions,
    Event,
    NotInTransaction,
    Outbox,
    Received,
    RetryPolicy,
    SchemaMissing,
)
from tests.consumer import services

STYLES = {"postgresql": "%s", "mysql": "%s", "sqlite": "?"}


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        found = f"sqlite:///{tmp_path}/consumer.db"
    else:
        found = request.getfixturevalue(f"{request.param}_database")
    services.initialise(found)
    return found


@pytest.fixture
def postgres(postgres_database: str) -> str:
    services.initialise(postgres_database)
    return postgres_database


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    directory = tmp_path / "topics"
    services.publish(directory, services.counted(range(60), keys=6))
    return directory


def style_of(url: str) -> str:
    return next(style for scheme, style in STYLES.items() if url.startswith(scheme))


def a_consumer(topics: Path, database: Any, **options: Any) -> Consumer:
    retry = RetryPolicy(delays_seconds=(0.01,) * 5)
    chosen = replace(ConsumerOptions(retry=retry, until="idle", wait_seconds=0.1), **options)
    return Consumer("billing", source=f"file://{topics}", database=database, options=chosen)


def test_a_sync_handler_and_the_next_step_of_the_workflow(url: str, topics: Path) -> None:
    consumer = a_consumer(topics, url)
    outbox = Outbox()
    text = services.insert(style_of(url))
    failed: set[str] = set()

    @consumer.on("Counted")
    def handle(connection: Any, event: Received[dict[str, int]]) -> None:
        number = event.payload["number"]
        connection.cursor().execute(text, (number, event.aggregate_id))
        outbox.add(connection, Event("Payment", event.aggregate_id, "Taken", {"number": number}))
        if number % 7 == 0 and event.id not in failed:
            failed.add(event.id)
            raise RuntimeError("after the effect, before the commit")

    asyncio.run(consumer.run())
    assert services.effects(url) == services.in_order(60, 6)
    assert services.query(url, "SELECT count(*) FROM outbox_event") == [(60,)]
    assert services.query(url, "SELECT count(*) FROM outbox_inbox") == [(60,)]
    assert services.query(url, "SELECT count(*) FROM outbox_reader") == [(0,)]
    assert (consumer.stats.handled, consumer.stats.failed) == (60, 9)


def test_an_async_handler(url: str, topics: Path) -> None:
    consumer = a_consumer(topics, url)
    outbox = Outbox()
    text = services.insert(style_of(url))

    @consumer.on("Counted")
    async def handle(connection: Any, event: Received[dict[str, int]]) -> None:
        number = event.payload["number"]
        if url.startswith("mysql"):
            async with connection.cursor() as cursor:
                await cursor.execute(text, (number, event.aggregate_id))
        else:
            await connection.execute(text, (number, event.aggregate_id))
        await outbox.add_async(connection, Event("Payment", event.aggregate_id, "Taken", {}))
        if number % 7 == 0 and event.attempt == 1:
            raise RuntimeError("after the effect, before the commit")

    asyncio.run(consumer.run())
    assert services.effects(url) == services.in_order(60, 6)
    assert services.query(url, "SELECT count(*) FROM outbox_event") == [(60,)]
    assert (consumer.stats.handled, consumer.stats.failed) == (60, 9)


def test_events_that_arrive_again_have_no_second_effect(url: str, topics: Path) -> None:
    text = services.insert(style_of(url))
    for group in ("first", "second"):
        consumer = a_consumer(topics, url)
        consumer.group = group

        @consumer.on("*")
        def handle(connection: Any, event: Received[dict[str, int]]) -> None:
            values = (event.payload["number"], event.aggregate_id)
            connection.cursor().execute(text, values)

        asyncio.run(consumer.run())
    assert consumer.stats.duplicates == 60
    assert services.effects(url) == services.in_order(60, 6)


def test_a_violated_constraint_at_commit_is_the_handlers_failure(
    postgres: str, topics: Path
) -> None:
    services.execute(
        postgres,
        "ALTER TABLE effects ADD CONSTRAINT once UNIQUE (event_key) DEFERRABLE INITIALLY DEFERRED",
    )
    consumer = a_consumer(topics, postgres)

    @consumer.on("*")
    def handle(connection: Any, event: Received[dict[str, int]]) -> None:
        connection.execute(services.insert("%s"), (event.payload["number"], event.aggregate_id))

    asyncio.run(consumer.run())
    assert services.effects(postgres) == {str(key): [key] for key in range(6)}
    assert len(consumer.health().stopped) == 6
    assert "once" in consumer.health().stopped[0].error


def test_an_event_whose_id_no_inbox_takes_is_a_failure_of_that_event(
    postgres: str, topics: Path
) -> None:
    strange = Event("Order", 99, "Counted", {"number": 99})
    services.publish(topics, [strange])
    (line,) = (topics / "orders.jsonl").read_text().splitlines()[-1:]
    spoilt = line.replace(f'"event-id":"{strange.id}"', f'"event-id":"{"x" * 300}"')
    text = (topics / "orders.jsonl").read_text().replace(line, spoilt)
    (topics / "orders.jsonl").write_text(text)
    consumer = a_consumer(topics, postgres)
    consumer.on("*")(lambda connection, event: None)
    asyncio.run(consumer.run())
    assert consumer.stats.handled == 60
    (stopped,) = consumer.health().stopped
    assert (stopped.aggregate_id, stopped.attempts) == ("99", 1)


@pytest.mark.parametrize("kind", ["cancelled inside", "not awaited"])
def test_what_a_handler_does_wrong_is_its_failure_and_no_more(
    postgres: str, topics: Path, kind: str
) -> None:
    consumer = a_consumer(topics, postgres, retry=RetryPolicy(()))

    async def handle(connection: Any, event: Received[Any]) -> None:
        if event.payload["number"] == 3:
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task

    if kind == "not awaited":
        consumer.on("*")(lambda connection, event: handle(connection, event))  # noqa: PLW0108
    else:
        consumer.on("*")(handle)
    asyncio.run(consumer.run())
    stopped = consumer.health().stopped
    if kind == "not awaited":
        assert consumer.stats.handled == 0
        assert "make it an async def" in stopped[0].error
    else:
        assert consumer.stats.handled == 50
        assert [each.aggregate_id for each in stopped] == ["3"]


# --- transactions of the application -------------------------------------------------------


def sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


EFFECT = sa.text("INSERT INTO effects VALUES (:number, :key)")


def effect_of(event: Received[Any]) -> dict[str, Any]:
    return {"number": event.payload["number"], "key": event.aggregate_id}


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_sqlalchemy(postgres: str, topics: Path, kind: str) -> None:
    engine = sa.create_engine(sqlalchemy_url(postgres))
    begin = sessionmaker(engine).begin if kind == "session" else engine.begin
    consumer = a_consumer(topics, begin)

    @consumer.on("*")
    def handle(session: Any, event: Received[Any]) -> None:
        session.execute(EFFECT, effect_of(event))
        Outbox().add(session, Event("Payment", event.aggregate_id, "Taken", {}))

    asyncio.run(consumer.run())
    engine.dispose()
    assert services.effects(postgres) == services.in_order(60, 6)


def test_sqlalchemy_async(postgres: str, topics: Path) -> None:
    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(postgres))
        consumer = a_consumer(topics, async_sessionmaker(engine).begin)

        @consumer.on("*")
        async def handle(session: Any, event: Received[Any]) -> None:
            await session.execute(EFFECT, effect_of(event))

        await consumer.run()
        await engine.dispose()

    asyncio.run(main())
    assert services.effects(postgres) == services.in_order(60, 6)


def test_asyncpg(postgres: str, topics: Path) -> None:
    async def main() -> None:
        async with asyncpg.create_pool(postgres, min_size=1) as pool:

            @asynccontextmanager
            async def begin() -> AsyncIterator[Any]:
                async with pool.acquire() as connection, connection.transaction():
                    yield connection

            consumer = a_consumer(topics, begin)

            @consumer.on("*")
            async def handle(connection: Any, event: Received[Any]) -> None:
                values = (event.payload["number"], event.aggregate_id)
                await connection.execute("INSERT INTO effects VALUES ($1, $2)", *values)

            await consumer.run()

    asyncio.run(main())
    assert services.effects(postgres) == services.in_order(60, 6)


@pytest.mark.parametrize("begin", ["sessionmaker", "connect"])
def test_a_transaction_that_does_not_commit_is_refused(
    postgres: str, topics: Path, begin: str
) -> None:
    engine = sa.create_engine(sqlalchemy_url(postgres))
    consumer = a_consumer(
        topics, sessionmaker(engine) if begin == "sessionmaker" else engine.connect
    )

    @consumer.on("*")
    def handle(session: Any, event: Received[Any]) -> None:
        session.execute(EFFECT, effect_of(event))

    with pytest.raises(ConfigError, match=r"does not commit: pass .* sessionmaker\.begin"):
        asyncio.run(consumer.run())
    engine.dispose()
    assert services.effects(postgres) == {}


def test_a_connection_that_commits_by_itself_is_refused(postgres: str, topics: Path) -> None:
    consumer = a_consumer(topics, lambda: psycopg.connect(postgres, autocommit=True))

    @consumer.on("*")
    def handle(connection: Any, event: Received[Any]) -> None:
        raise AssertionError("never called")

    with pytest.raises(NotInTransaction, match="autocommit"):
        asyncio.run(consumer.run())


def test_an_async_handler_on_a_sync_transaction_is_refused(postgres: str, topics: Path) -> None:
    engine = sa.create_engine(sqlalchemy_url(postgres))
    consumer = a_consumer(topics, engine.begin)

    @consumer.on("*")
    async def handle(connection: Any, event: Received[Any]) -> None:
        raise AssertionError("never called")

    with pytest.raises(ConfigError, match="handle is async, but what database= returns is sync"):
        asyncio.run(consumer.run())
    engine.dispose()


def test_what_is_no_transaction_is_refused(tmp_path: Path, topics: Path) -> None:
    consumer = a_consumer(topics, lambda: 42)
    consumer.on("*")(lambda connection, event: None)
    with pytest.raises(ConfigError, match="no transaction but a int"):
        asyncio.run(consumer.run())


# --- a database that is not ready ----------------------------------------------------------


def test_a_database_without_tables_says_what_to_do(
    postgres_database: str, mariadb_database: str, topics: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()

    def begin() -> Iterator[Any]:
        return psycopg.connect(postgres_database)  # type: ignore[return-value]

    for database in (postgres_database, mariadb_database, f"sqlite:///{empty}", begin):
        consumer = a_consumer(topics, database)
        consumer.on("*")(lambda connection, event: None)
        with pytest.raises(SchemaMissing, match="run commitrelay init"):
            asyncio.run(consumer.run())


def test_a_file_that_is_not_there_is_not_made(topics: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    consumer = a_consumer(topics, f"sqlite:///{missing}")
    consumer.on("*")(lambda connection, event: None)
    with pytest.raises(SchemaMissing, match="run commitrelay init"):
        asyncio.run(consumer.run())
    assert not missing.exists()


def test_a_database_in_memory_is_refused(topics: Path) -> None:
    consumer = a_consumer(topics, "sqlite://")
    consumer.on("*")(lambda connection, event: None)
    with pytest.raises(ConfigError, match="must be a file"):
        asyncio.run(consumer.run())


def test_sqlite_that_somebody_else_locks_is_waited_for(topics: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locked.db"
    services.initialise(url)
    consumer = a_consumer(topics, url, until="stopped", retry=RetryPolicy(()))
    done: list[int] = []

    @consumer.on("*")
    def handle(connection: Any, event: Received[Any]) -> None:
        done.append(event.payload["number"])

    async def main() -> None:
        blocker = sqlite3.connect(tmp_path / "locked.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        async with consumer:
            await asyncio.sleep(0.5)
            assert done == []
            blocker.execute("COMMIT")
            async with asyncio.timeout(60):
                while len(done) < 60:
                    await asyncio.sleep(0.02)
        blocker.close()

    asyncio.run(main())
    assert consumer.stats.failed == 0


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_server_that_restarts_costs_no_attempt(
    kind: str, dedicated_server: Any, topics: Path
) -> None:
    server = dedicated_server(kind)
    url = server.url
    services.initialise(url)
    consumer = a_consumer(topics, url, until="stopped", retry=RetryPolicy(()))

    @consumer.on("*")
    def handle(connection: Any, event: Received[Any]) -> None:
        values = (event.payload["number"], event.aggregate_id)
        connection.cursor().execute(services.insert("%s"), values)

    async def main() -> None:
        async with asyncio.timeout(120), consumer:
            while consumer.stats.handled < 60:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(server.stop)
            more = services.counted(range(60, 120), keys=6)
            await asyncio.to_thread(services.publish, topics, more)
            while consumer.health().ready:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(server.start)
            while consumer.stats.handled < 120:
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert services.effects(url) == services.in_order(120, 6)
    assert consumer.stats.failed == 0


def test_old_marks_of_the_inbox_are_deleted(
    postgres: str, topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitrelay.maintenance.PURGE_SECONDS", 0.05)
    services.execute(
        postgres,
        "INSERT INTO outbox_inbox (consumer, event_id, token, done_at) VALUES "
        "('other', 'old', 1, now() - interval '31 days'), ('other', 'new', 1, now())",
    )
    consumer = a_consumer(topics, postgres, until="stopped")
    consumer.on("*")(lambda connection, event: None)
    marks = "SELECT event_id FROM outbox_inbox WHERE consumer = 'other'"
    services.run_until(consumer, lambda: services.query(postgres, marks) == [("new",)])
