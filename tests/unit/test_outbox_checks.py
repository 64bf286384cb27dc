"""What `add` refuses, and that nothing has reached the database by then."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from commitrelay import Added, ConfigError, Event, InvalidEvent, InvalidHandle, Outbox
from commitrelay.outbox import as_row
from commitrelay.row import DEFAULTS, PLAIN_COLUMNS, Row, insertion
from commitrelay.sql import Names, queries
from commitrelay.statement import MAX_CACHED_ROWS, statement
from commitrelay.stores.sqlite.store import SqliteStore


class Wire:
    """A connection to a database without any table, and all that was sent over it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.sent: list[str] = []
        connection.set_trace_callback(self.sent.append)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Wire(connection)


def event(payload: Any = None, **fields: Any) -> Event:
    return Event("Order", "42", "OrderPaid", payload, **fields)


# --- events --------------------------------------------------------------------------------


ENDLESS: dict[str, Any] = {}
ENDLESS["self"] = ENDLESS


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"total": float("nan")}, "NaN"),
        (ENDLESS, "contains itself"),
        ({"total": object()}, "convert it, or pass bytes or str"),
        ("\ud800", "lone surrogate"),
        (b"x" * 1_048_577, "1,048,577 bytes, the limit is 1,048,576: .* send a reference"),
        ("ü" * 524_289, "1,048,578 bytes"),
    ],
)
def test_a_bad_payload_is_refused_before_anything_is_sent(
    wire: Wire, payload: object, reason: str
) -> None:
    with pytest.raises(InvalidEvent, match=reason) as refused:
        Outbox().add(wire.connection, event({}), event(payload))
    assert "\n" not in str(refused.value)
    assert wire.sent == []
    assert not wire.connection.in_transaction


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"headers": {"a": "b\r\nc: d"}}, "CR"),
        ({"headers": {"a\0": "b"}}, "NUL"),
        ({"idempotency_key": "a\nb"}, "LF"),
        ({"deliver_at": datetime(2030, 1, 1)}, "no time zone"),
    ],
)
def test_a_bad_event_cannot_even_be_made(wire: Wire, fields: Any, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=reason):
        Outbox().add(wire.connection, event(**fields))
    assert wire.sent == []


def test_the_cap_is_inclusive_and_adjustable(wire: Wire) -> None:
    small = Outbox(max_payload_bytes=3)
    with pytest.raises(InvalidEvent, match="the limit is 3"):
        small.add(wire.connection, event(b"1234"))
    assert wire.sent == []
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        small.add(wire.connection, event(b"123"))


def test_the_payload_is_named_by_its_event_and_not_shown(wire: Wire) -> None:
    with pytest.raises(InvalidEvent, match="Order 42 OrderPaid") as refused:
        Outbox(max_payload_bytes=3).add(wire.connection, event(b"secret"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((), "no event was given"),
        ((event(),) * 3001, "3,001 events were given, one call takes at most 3,000"),
        (([event()],), "a list was given where an Event belongs: unpack it"),
        (({"a": 1},), r"a dict was given where an Event belongs: wrap it in Event"),
        ((None,), "a NoneType was given"),
    ],
)
def test_what_is_no_event_is_refused(wire: Wire, events: Any, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=reason):
        Outbox().add(wire.connection, *events)
    assert wire.sent == []


def test_a_moment_beyond_the_calendar_is_refused(wire: Wire) -> None:
    moment = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))
    with pytest.raises(InvalidEvent, match="out of range"):
        Outbox().add(wire.connection, event(deliver_at=moment))
    assert wire.sent == []


def test_a_name_that_is_no_identifier_is_refused() -> None:
    for names in ({"prefix": 'x"; DROP TABLE y; --'}, {"schema": "a.b"}, {"prefix": ""}):
        with pytest.raises(ConfigError, match="not a plain SQL name"):
            Outbox(**names)


# --- handles -------------------------------------------------------------------------------


def instance_of(cls: type) -> Any:
    """A driver's object without a server behind it; enough to be told what it is."""
    nothing: Any = lambda self: None  # noqa: E731
    return type(f"Inert{cls.__name__}", (cls,), {"__init__": nothing, "__del__": nothing})()


SYNC = [psycopg.Connection, sqlite3.Connection, Session, sqlalchemy.Connection]
ASYNC = [psycopg.AsyncConnection, asyncpg.Connection, aiosqlite.Connection, AsyncSession]


@pytest.mark.parametrize("cls", ASYNC)
def test_an_async_handle_given_to_add_is_sent_to_add_async(cls: type) -> None:
    with pytest.raises(InvalidHandle, match=r"asynchronous: use `await outbox\.add_async") as error:
        Outbox().add(instance_of(cls), event())
    assert isinstance(error.value, TypeError)


@pytest.mark.parametrize("cls", SYNC)
def test_a_sync_handle_given_to_add_async_is_sent_to_add(cls: type) -> None:
    with pytest.raises(InvalidHandle, match=r"synchronous: use `outbox\.add\(") as error:
        asyncio.run(Outbox().add_async(instance_of(cls), event()))
    assert isinstance(error.value, TypeError)


@pytest.mark.parametrize(
    ("handle", "remedy"),
    [
        (None, "pass what your own transaction runs on"),
        ("postgresql://localhost", "pass what your own transaction runs on"),
        (Session, "pass what your own transaction runs on"),
        (sqlalchemy.create_engine("sqlite://"), "open a connection or session on it"),
        (create_async_engine("sqlite+aiosqlite://"), "open a connection or session on it"),
        (sessionmaker(), "open a session with it"),
        (sqlite3.connect(":memory:").cursor(), "pass the connection that it belongs to"),
        (instance_of(asyncpg.Pool), "take a connection from it"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_told_what_to_pass(handle: object, remedy: str) -> None:
    with pytest.raises(InvalidHandle, match=rf"^add\(\) cannot write on .*{remedy}"):
        Outbox().add(handle, event())
    with pytest.raises(InvalidHandle, match=rf"^add_async\(\) cannot write on .*{remedy}"):
        asyncio.run(Outbox().add_async(handle, event()))


def test_a_look_alike_is_no_handle() -> None:
    class Connection:
        """The right name in the wrong package."""

    with pytest.raises(InvalidHandle):
        Outbox().add(Connection(), event())


def test_a_subclass_of_a_handle_is_one() -> None:
    class Mine(sqlite3.Connection):
        pass

    with (
        closing(sqlite3.connect(":memory:", factory=Mine)) as connection,
        pytest.raises(sqlite3.OperationalError, match="no such table: outbox_event"),
    ):
        Outbox().add(connection, event())


def test_importing_commitrelay_imports_no_driver() -> None:
    code = (
        "import sys, commitrelay; "
        "print(*{'psycopg', 'asyncpg', 'sqlalchemy', 'sqlite3', 'aiosqlite', 'django', "
        "'confluent_kafka', 'rich'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# --- what is returned and what is sent -----------------------------------------------------


def test_added_is_a_tuple_of_ids_that_knows_its_duplicates() -> None:
    ids = tuple(event().id for _ in range(3))
    added = Added(ids, duplicates=1)  # type: ignore[arg-type]
    assert added == ids
    assert (added.new, added.duplicates) == (2, 1)
    assert "new=2, duplicates=1" in repr(added)


def test_a_row_holds_text_and_bytes_only() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    row = as_row(event({}, headers={"ü": "x"}, deliver_at=moment))
    assert row.deliver_at == "2030-01-02T01:04:05.000000Z"
    assert row.headers == '{"ü":"x"}'
    assert row.payload == b"{}"
    assert datetime.fromisoformat(row.deliver_at) == moment.astimezone(UTC)


@pytest.mark.parametrize("dialect", ["postgres", "mysql", "sqlite"])
def test_the_statement_names_its_values_in_the_order_of_a_row(dialect: str) -> None:
    for query, fields in (("add_event", Row._fields), ("add_plain", Row._fields[:PLAIN_COLUMNS])):
        text = queries(dialect, Names())[query]
        assert tuple(re.findall(r"(?<!:):([a-z_]+)", text)) == fields


def test_a_plain_event_sends_no_column_that_has_its_default() -> None:
    plain = as_row(event({}))
    assert insertion([plain]) == ("add_plain", plain[:PLAIN_COLUMNS])
    assert insertion([plain, plain]) == ("add_plain", 2 * plain[:PLAIN_COLUMNS])


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"a": "b"}},
        {"idempotency_key": "k"},
        {"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"content_type": "application/xml"},
    ],
)
def test_one_event_with_more_has_all_send_every_column(more: dict[str, Any]) -> None:
    plain, full = as_row(event({})), as_row(event({}, **more))
    assert insertion([full]) == ("add_event", full)
    assert insertion([plain, full]) == ("add_event", plain + full)


def test_the_log_has_the_same_defaults(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "outbox.db"))
    asyncio.run(store.initialise())
    with closing(sqlite3.connect(tmp_path / "outbox.db")) as connection:
        Outbox().add(connection, event({}))
        columns = ", ".join(Row._fields[PLAIN_COLUMNS:])
        assert connection.execute(f"SELECT {columns} FROM outbox_event").fetchone() == DEFAULTS


@pytest.mark.parametrize("rows", [1, 2, MAX_CACHED_ROWS + 1])
def test_a_statement_has_a_placeholder_for_each_value(rows: int) -> None:
    count = rows * len(Row._fields)
    for style, found in (("format", r"%s"), ("qmark", r"\?"), ("numeric_dollar", r"\$\d+")):
        text = statement("add_event", rows, "postgres", style, Names())  # type: ignore[arg-type]
        assert text is not None
        assert len(re.findall(found, text)) == count
        assert not re.search(r"[^:]:[a-z]", text)
    assert text is not None
    assert [int(n) for n in re.findall(r"\$(\d+)", text)] == list(range(1, count + 1))


def test_a_statement_is_built_once() -> None:
    first = statement("add_event", 2, "sqlite", "qmark", Names(prefix="built_once"))
    assert statement("add_event", 2, "sqlite", "qmark", Names(prefix="built_once")) is first
    other = statement("add_event", 2, "sqlite", "qmark", Names(prefix="another"))
    assert other is not None
    assert '"another_event"' in other


def test_sqlite_needs_no_lock_per_key() -> None:
    assert statement("lock_keys", 1, "sqlite", "qmark", Names()) is None
    assert statement("lock_keys", 1, "postgres", "format", Names()) is not None
