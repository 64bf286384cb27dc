"""Writing through Django's connection object, on PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import django
import pytest
from django.conf import settings
from django.db import connection, connections, transaction

from commitrelay import InvalidHandle, NotInTransaction, Outbox
from tests.writing.databases import SqliteDatabase
from tests.writing.promises import Connect, Promises, closing_factory, event
from tests.writing.writers import DjangoWriter

ALIASES = ("default", "second", "third", "fourth")


def configure(database: Any) -> None:
    """Let all aliases of `django.db.connections` lead to this database."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    if isinstance(database, SqliteDatabase):
        entry: dict[str, Any] = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(database.path),
            "OPTIONS": {"timeout": 60},
        }
    else:
        url = urlsplit(database.url)
        entry = {
            "ENGINE": f"django.db.backends.{url.scheme}",
            "NAME": url.path.lstrip("/"),
            "USER": url.username,
            "PASSWORD": url.password,
            "HOST": url.hostname,
            "PORT": url.port,
        }
    connections.settings = connections.configure_settings({alias: dict(entry) for alias in ALIASES})


def forget_connections() -> None:
    connections.close_all()
    for alias in ALIASES:
        if hasattr(connections._connections, alias):
            del connections[alias]


class TestDjango(Promises):
    @pytest.fixture(params=["postgres", "sqlite"])
    def database(self, request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue(f"{request.param}_outbox")

    @pytest.fixture
    def connect(self, database: Any) -> Iterator[Connect]:
        configure(database)
        aliases = iter(ALIASES)
        yield from closing_factory(
            lambda outbox, mode: DjangoWriter(outbox, next(aliases), autocommit=mode)
        )
        forget_connections()


@pytest.fixture
def outside(sqlite_outbox: SqliteDatabase) -> Iterator[SqliteDatabase]:
    configure(sqlite_outbox)
    yield sqlite_outbox
    forget_connections()


def test_django_db_connection_itself_is_a_handle(outside: SqliteDatabase) -> None:
    with transaction.atomic():
        Outbox().add(connection, event())
    assert len(outside.events()) == 1


def test_the_refusal_names_atomic(outside: SqliteDatabase) -> None:
    with pytest.raises(NotInTransaction, match=r"transaction\.atomic"):
        Outbox().add(connection, event())


def test_with_djangos_autocommit_off_no_atomic_is_needed(outside: SqliteDatabase) -> None:
    transaction.set_autocommit(False)
    Outbox().add(connection, event())
    transaction.rollback()
    Outbox().add(connection, event())
    transaction.commit()
    assert len(outside.events()) == 1


def test_a_broken_atomic_block_speaks_for_itself(outside: SqliteDatabase) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            Outbox().add(connection, event())


def test_another_vendor_is_refused_by_name(
    outside: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    with pytest.raises(InvalidHandle, match="oracle"):
        Outbox().add(connections["default"], event())
