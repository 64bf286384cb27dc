"""An outbox that was migrated step by step is the same as a fresh one."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from commitrelay.errors import ConfigError, SchemaMissing
from commitrelay.sql import Names, read
from commitrelay.store import EventFilter
from commitrelay.stores.migration import latest, migrations
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore
from tests.support import postgres

CATALOG = {
    "columns": """
        SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "options": """
        SELECT relname, relkind, reloptions
        FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1""",
    "functions": """
        SELECT pg_get_functiondef(oid), proacl::text
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1""",
    "triggers": """
        SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    "lanes": "SELECT name FROM outbox_lane",
}


def catalog(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        return {
            name: connection.execute(query).fetchall()  # type: ignore[call-overload]
            for name, query in CATALOG.items()
        }


def run_script(url: str, script: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(sql.SQL(Names().fill(script)))  # type: ignore[arg-type]


@pytest.fixture
def two_databases(postgres_url: str) -> Iterator[tuple[str, str]]:
    with (
        postgres.fresh_database(postgres_url) as one,
        postgres.fresh_database(postgres_url) as other,
    ):
        yield one, other


def test_migrated_and_fresh_postgresql_are_the_same(two_databases: tuple[str, str]) -> None:
    fresh, migrated = two_databases
    run_script(fresh, read("postgres", "schema.sql"))
    for step in migrations("postgres"):
        run_script(migrated, step.sql)
    assert catalog(migrated) == catalog(fresh)


def test_migrated_and_fresh_sqlite_are_the_same() -> None:
    def objects(*scripts: str) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(":memory:")) as connection:
            for script in scripts:
                connection.executescript(Names().fill(script))
            rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")
            found = [(kind, name, _normal(text or "")) for kind, name, text in rows]
            lanes = connection.execute("SELECT name FROM outbox_lane").fetchall()
        return [*found, *lanes]

    fresh = objects(read("sqlite", "schema.sql"))
    assert objects(*(step.sql for step in migrations("sqlite"))) == fresh


def _normal(text: str) -> str:
    return " ".join(re.sub(r"--.*", "", text).split())


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_numbers_have_no_gap_and_the_fresh_schema_records_them_all(dialect: str) -> None:
    steps = migrations(dialect)
    assert [step.number for step in steps] == list(range(1, latest(dialect) + 1))
    schema = read(dialect, "schema.sql")
    for step in steps:
        assert f"({step.number}, '{step.name}')" in schema


def test_names_of_what_was_applied_are_returned_once(postgres_database: str) -> None:
    async def case() -> None:
        store = PostgresStore(postgres_database)
        assert list(await store.initialise()) == [step.name for step in migrations("postgres")]
        assert list(await store.initialise()) == []
        await store.open()
        await store.close()

    asyncio.run(case())


def test_two_processes_may_initialise_at_once(postgres_database: str, sqlite_path: Path) -> None:
    async def case(make: Any) -> None:
        stores = [make() for _ in range(4)]
        results = await asyncio.gather(*(store.initialise() for store in stores))
        assert sorted(map(len, results)) == [0, 0, 0, latest("postgres")]
        for store in stores:
            await store.open()
            await store.close()

    asyncio.run(case(lambda: PostgresStore(postgres_database)))
    asyncio.run(case(lambda: SqliteStore(str(sqlite_path))))


def test_an_older_outbox_keeps_its_events_when_it_is_migrated(
    postgres_database: str, sqlite_path: Path
) -> None:
    """Each dialect as its first version left it: `init` applies the rest."""
    event = "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
    event += "VALUES ('Order', '1', 'OrderPaid', '{}')"
    first = "INSERT INTO outbox_migration (number, name) VALUES (1, '0001_initial')"
    run_script(postgres_database, migrations("postgres")[0].sql)
    with closing(sqlite3.connect(sqlite_path)) as lite, psycopg.connect(postgres_database) as pg:
        lite.executescript(Names().fill(migrations("sqlite")[0].sql))
        for connection in (lite, pg):
            connection.execute(event)
            connection.execute(first)
            connection.commit()

    async def case(store: Any, dialect: str) -> None:
        with pytest.raises(SchemaMissing, match="has an outbox of version 1"):
            await store.open()
        assert list(await store.initialise()) == [step.name for step in migrations(dialect)[1:]]
        await store.open()
        (record,) = await store.list_events(EventFilter(), before_seq=None, limit=10)
        assert [delivery.status for delivery in record.deliveries] == ["pending"]
        await store.close()

    asyncio.run(case(PostgresStore(postgres_database), "postgres"))
    asyncio.run(case(SqliteStore(str(sqlite_path)), "sqlite"))


def test_an_outbox_that_was_not_initialised_says_what_to_do(
    postgres_database: str, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    missing = tmp_path / "missing.db"

    async def case(store: Any, named: str) -> None:
        with pytest.raises(SchemaMissing, match="run commitrelay init --database ") as caught:
            await store.open()
        assert named in str(caught.value)
        assert "hunter2" not in str(caught.value)
        await store.close()

    server = postgres_database.rpartition("@")[2].removeprefix("postgresql://")
    with_password = f"postgresql://postgres:hunter2@{server}"
    asyncio.run(case(PostgresStore(with_password), "postgresql://"))
    asyncio.run(case(SqliteStore(str(empty)), str(empty)))
    asyncio.run(case(SqliteStore(str(missing)), str(missing)))
    assert not missing.exists(), "looking must not make a file"


def test_a_log_table_that_the_application_made_is_taken_over(postgres_database: str) -> None:
    schema = read("postgres", "schema.sql")
    start = schema.index("CREATE TABLE IF NOT EXISTS @event")
    table = schema[start : schema.index(";", start) + 1]
    run_script(postgres_database, table)

    async def case() -> None:
        store = PostgresStore(postgres_database)
        await store.initialise()
        await store.close()

    asyncio.run(case())
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ('Order', '1', 'OrderPaid', '{}')"
        )
        assert connection.execute("SELECT count(*) FROM outbox_queue").fetchone() == (1,)


def test_schema_and_prefix_of_ones_choice(postgres_database: str, sqlite_path: Path) -> None:
    names = Names(schema="Uber", prefix="My_Out")

    async def case(store: Any) -> None:
        await store.initialise()
        await store.open()
        await store.lane("default")
        await store.close()

    asyncio.run(case(PostgresStore(postgres_database, names=names)))
    asyncio.run(case(SqliteStore(str(sqlite_path), names=Names(prefix="My_Out"))))
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            'INSERT INTO "Uber"."My_Out_event" '
            "(aggregate_type, aggregate_id, event_type, payload) VALUES ('O', '1', 'E', '')"
        )
        assert connection.execute('SELECT status FROM "Uber"."My_Out"').fetchall() == [("pending",)]
    with pytest.raises(ConfigError, match="SQLite has no schemas"):
        SqliteStore(str(sqlite_path), names=names)
