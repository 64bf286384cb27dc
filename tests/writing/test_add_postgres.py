"""Writing on PostgreSQL through psycopg and asyncpg."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from random import Random
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from commitrelay import Event, NotInTransaction, Outbox
from commitrelay.sql import Names
from tests.writing import writers
from tests.writing.databases import PostgresDatabase, initialise_postgres
from tests.writing.promises import Connect, Promises, closing_factory, event

WRITERS = {
    "psycopg": writers.psycopg_writer,
    "psycopg-async": writers.psycopg_async_writer,
    "asyncpg": writers.asyncpg_writer,
    "asyncpg-pool": writers.asyncpg_pool_writer,
}


class TestPostgres(Promises):
    @pytest.fixture
    def database(self, postgres_outbox: PostgresDatabase) -> PostgresDatabase:
        return postgres_outbox

    @pytest.fixture(params=WRITERS)
    def connect(
        self, request: pytest.FixtureRequest, database: PostgresDatabase
    ) -> Iterator[Connect]:
        make = WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.url, mode))


# --- psycopg -------------------------------------------------------------------------------


def test_autocommit_inside_a_transaction_block_is_fine(postgres_outbox: PostgresDatabase) -> None:
    with psycopg.connect(postgres_outbox.url, autocommit=True) as connection:
        with connection.transaction():
            Outbox().add(connection, event(1))
        with pytest.raises(ZeroDivisionError), connection.transaction():
            Outbox().add(connection, event(2))
            raise ZeroDivisionError
        with pytest.raises(NotInTransaction, match=r"with connection\.transaction\(\)"):
            Outbox().add(connection, event(3))
    assert [row["payload"] for row in postgres_outbox.events()] == [b'{"number":1}']


def test_in_a_failed_transaction_the_driver_speaks(postgres_outbox: PostgresDatabase) -> None:
    with psycopg.connect(postgres_outbox.url) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT 1 FROM nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            Outbox().add(connection, event())


@pytest.mark.parametrize("autocommit", [True, False])
def test_duplicates_are_counted_in_a_pipeline_too(
    postgres_outbox: PostgresDatabase, autocommit: bool
) -> None:
    outbox = Outbox(serialize_keys=True)
    with (
        psycopg.connect(postgres_outbox.url, autocommit=autocommit) as connection,
        connection.pipeline(),
        connection.transaction(),
    ):
        connection.execute("SELECT 1")
        assert outbox.add(connection, event(idempotency_key="k")).duplicates == 0
        assert outbox.add(connection, event(idempotency_key="k")).duplicates == 1
    assert len(postgres_outbox.events()) == 1


def test_a_pipeline_in_autocommit_mode_is_no_transaction(postgres_outbox: PostgresDatabase) -> None:
    with (
        psycopg.connect(postgres_outbox.url, autocommit=True) as connection,
        connection.pipeline(),
    ):
        connection.execute("SELECT 1")
        with pytest.raises(NotInTransaction):
            Outbox().add(connection, event())
    assert postgres_outbox.events() == []


async def add_in_async_pipeline(url: str) -> list[int]:
    outbox = Outbox()
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.pipeline():
        added = [await outbox.add_async(connection, event(idempotency_key="k")) for _ in range(2)]
    return [one.duplicates for one in added]


def test_duplicates_are_counted_in_an_async_pipeline_too(postgres_outbox: PostgresDatabase) -> None:
    assert asyncio.run(add_in_async_pipeline(postgres_outbox.url)) == [0, 1]
    assert len(postgres_outbox.events()) == 1


@pytest.mark.parametrize(
    "cursor_factory", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor]
)
def test_the_callers_cursor_and_row_factories_are_respected(
    postgres_outbox: PostgresDatabase, cursor_factory: type
) -> None:
    connection = psycopg.connect(
        postgres_outbox.url, cursor_factory=cursor_factory, row_factory=dict_row
    )
    with connection:
        added = Outbox(serialize_keys=True).add(connection, event(1), event(2))
    assert [row["id"] for row in postgres_outbox.events()] == [str(id_) for id_ in added]


# --- asyncpg -------------------------------------------------------------------------------


async def add_with_codecs(url: str) -> None:
    connection = await asyncpg.connect(url)
    for name in ("json", "uuid", "timestamptz"):
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )
    async with connection.transaction():
        moment = datetime(2030, 1, 1, tzinfo=UTC)
        await Outbox().add_async(connection, event(headers={"a": "b"}, deliver_at=moment))
    await connection.close()


def test_the_callers_codecs_do_not_matter(postgres_outbox: PostgresDatabase) -> None:
    asyncio.run(add_with_codecs(postgres_outbox.url))
    (row,) = postgres_outbox.events()
    assert row["headers"] == '{"a":"b"}'


# --- the database's side -------------------------------------------------------------------


def test_another_schema_and_prefix(postgres_database: str) -> None:
    names = Names("Billing", "Ledger")
    initialise_postgres(postgres_database, names)
    with psycopg.connect(postgres_database) as connection:
        Outbox(schema="Billing", prefix="Ledger", serialize_keys=True).add(connection, event())
    database = PostgresDatabase(
        postgres_database, names.qualified("event"), names.qualified("queue")
    )
    assert len(database.events()) == len(database.queued()) == 1


@pytest.mark.parametrize("serialize_keys", [False, True])
def test_a_role_with_only_the_right_to_insert_can_add(
    postgres_outbox: PostgresDatabase, postgres_producer: str, serialize_keys: bool
) -> None:
    outbox = Outbox(serialize_keys=serialize_keys)
    with psycopg.connect(postgres_producer) as connection:
        added = outbox.add(connection, event(idempotency_key="k"), event())
        assert (added.new, added.duplicates) == (2, 0)
        assert outbox.add(connection, event(idempotency_key="k")).duplicates == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute("SELECT 1 FROM outbox_event")
    assert len(postgres_outbox.events()) == len(postgres_outbox.queued()) == 2


PLAIN_INSERT = (
    "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
    "VALUES ('Order', '42', 'OrderPaid', '{\"total\": 10}')"
)


@pytest.mark.parametrize(("ending", "rows"), [("COMMIT", 1), ("ROLLBACK", 0)])
def test_a_plain_insert_in_psql_does_the_same(
    postgres_outbox: PostgresDatabase, ending: str, rows: int
) -> None:
    script = f"BEGIN; {PLAIN_INSERT}; {ending};"
    psql = ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", postgres_outbox.url, "-c", script]
    subprocess.run(psql, check=True, capture_output=True)
    events = postgres_outbox.events()
    assert len(events) == len(postgres_outbox.queued()) == rows
    for row in events:
        assert (row["content_type"], row["headers"]) == ("application/json", "{}")
        assert row["payload"] == b'{"total": 10}'
        assert UUID(row["id"])


# --- order when the event is inserted before the aggregate is locked -----------------------


def insert_then_lock(database: PostgresDatabase, outbox: Outbox) -> None:
    """Two writers of one key: the first to insert is the last to lock the aggregate.

    The first waits after its event until the second has locked the aggregate, or waits itself
    because keys are serialised: then the first goes on.
    """
    database.run(
        "CREATE TABLE account (id int PRIMARY KEY, history int[] NOT NULL DEFAULT '{}')",
        "INSERT INTO account VALUES (42)",
    )
    update = "UPDATE account SET history = history || %s::int"
    with (
        psycopg.connect(database.url) as first,
        psycopg.connect(database.url) as second,
        ThreadPoolExecutor(1) as thread,
    ):
        outbox.add(first, event(1))

        def overtake() -> None:
            outbox.add(second, event(2))
            second.execute(update, [2])
            second.commit()

        overtaking = thread.submit(overtake)
        if outbox.serialize_keys:
            database.await_blocked()
        else:
            overtaking.result(60)
        first.execute(update, [1])
        first.commit()
        overtaking.result(60)


def history_and_log(database: PostgresDatabase) -> tuple[list[int], list[int]]:
    """The order in which the transactions took effect, and that of their events."""
    ((account,), events) = (database.query("SELECT history FROM account"), database.events())
    database.run("DROP TABLE account")
    return account["history"], [json.loads(row["payload"])["number"] for row in events]


def test_without_serialize_keys_order_is_inverted(postgres_outbox: PostgresDatabase) -> None:
    """Not a promise but its reason: this is what the option is for."""
    insert_then_lock(postgres_outbox, Outbox())
    assert history_and_log(postgres_outbox) == ([2, 1], [1, 2])


def test_with_serialize_keys_order_holds(postgres_outbox: PostgresDatabase) -> None:
    insert_then_lock(postgres_outbox, Outbox(serialize_keys=True))
    assert history_and_log(postgres_outbox) == ([1, 2], [1, 2])


def test_serialised_keys_keep_commit_order_under_load(postgres_outbox: PostgresDatabase) -> None:
    """Eight writers over three keys, two at a time: no deadlock, and seq order is commit order."""
    keys, outbox, numbers = range(3), Outbox(serialize_keys=True), itertools.count()
    postgres_outbox.run(
        "CREATE TABLE account (id int PRIMARY KEY, history int[] NOT NULL DEFAULT '{}')",
        "INSERT INTO account SELECT generate_series(0, 2)",
    )

    def write(seed: int) -> None:
        random = Random(seed)
        with psycopg.connect(postgres_outbox.url) as connection:
            for _ in range(25):
                number, accounts = next(numbers), random.sample(keys, 2)
                outbox.add(
                    connection, *(Event("Account", key, "Changed", number) for key in accounts)
                )
                connection.execute(
                    "UPDATE account SET history = history || %s::int WHERE id = ANY(%s)",
                    [number, accounts],
                )
                connection.commit()

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(write, seed) for seed in range(8)]:
            done.result(120)
    histories = postgres_outbox.query("SELECT id, history FROM account ORDER BY id")
    postgres_outbox.run("DROP TABLE account")
    events = postgres_outbox.events()
    assert len(events) == 400
    for account in histories:
        of_key = [row for row in events if row["aggregate_id"] == str(account["id"])]
        assert [int(row["payload"]) for row in of_key] == account["history"]


def test_two_outboxes_of_a_database_do_not_wait_for_each_other(postgres_database: str) -> None:
    for prefix in ("one", "two"):
        initialise_postgres(postgres_database, Names(None, prefix))
    with psycopg.connect(postgres_database) as first, psycopg.connect(postgres_database) as second:
        second.execute("SET LOCAL lock_timeout = '1s'")
        Outbox(prefix="one", serialize_keys=True).add(first, event())
        Outbox(prefix="two", serialize_keys=True).add(second, event())


def test_the_lock_is_the_same_by_whatever_name_the_table_is_found(
    postgres_outbox: PostgresDatabase,
) -> None:
    with (
        psycopg.connect(postgres_outbox.url) as first,
        psycopg.connect(postgres_outbox.url) as second,
    ):
        Outbox(serialize_keys=True).add(first, event())
        second.execute("SET LOCAL lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            Outbox(schema="public", serialize_keys=True).add(second, event())
