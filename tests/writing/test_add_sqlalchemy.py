"""Writing through SQLAlchemy: sessions and connections, sync and async, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, MetaData, Text, create_engine, delete, select
from sqlalchemy import event as sa_event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from commitrelay import ConfigError, Event, InvalidEvent, InvalidHandle, NotInTransaction, Outbox
from commitrelay.sqlalchemy import alembic_include_name, outbox_event_model, outbox_event_table
from tests.writing.databases import PostgresDatabase, SqliteDatabase
from tests.writing.promises import HEADERS, Connect, Promises, closing_factory, event
from tests.writing.writers import AsyncSqlalchemyWriter, SqlalchemyWriter, Writer

SYNC_HANDLES = {
    "session": Session,
    "scoped-session": lambda engine: scoped_session(sessionmaker(engine), scopefunc=lambda: None),
    "connection": lambda engine: engine.connect(),
}
ASYNC_HANDLES = {
    "async-session": AsyncSession,
    "async-scoped-session": lambda engine: async_scoped_session(
        lambda: AsyncSession(engine), scopefunc=lambda: None
    ),
    "async-connection": lambda engine: engine.connect(),
}
DRIVERS = {
    "psycopg": "postgres",
    "asyncpg": "postgres",
    "psycopg-async": "postgres",
    "pysqlite": "sqlite",
    "aiosqlite": "sqlite",
}
CASES = [
    (driver, handle)
    for driver in DRIVERS
    for handle in (ASYNC_HANDLES if driver.startswith("a") or "async" in driver else SYNC_HANDLES)
]


def engine_options(autocommit: bool) -> dict[str, Any]:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}


def sqlalchemy_url(database: PostgresDatabase | SqliteDatabase, driver: str) -> str:
    driver = driver.removesuffix("-async")
    if isinstance(database, SqliteDatabase):
        return f"sqlite+{driver}:///{database.path}?timeout=60"
    return database.url.replace("postgresql://", f"postgresql+{driver}://")


def open_writer(outbox: Outbox, url: str, handle: str, autocommit: bool) -> Writer:
    if handle in SYNC_HANDLES:
        engine = create_engine(url, **engine_options(autocommit))
        return SqlalchemyWriter(outbox, SYNC_HANDLES[handle](engine), engine.dispose)
    async_engine = create_async_engine(url, **engine_options(autocommit))

    async def connect() -> Any:
        opened = ASYNC_HANDLES[handle](async_engine)
        return await opened.start() if handle == "async-connection" else opened

    return AsyncSqlalchemyWriter(outbox, connect, async_engine.dispose)


class TestSqlalchemy(Promises):
    @pytest.fixture(params=CASES, ids="-".join)
    def case(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def database(self, request: pytest.FixtureRequest, case: tuple[str, str]) -> Any:
        return request.getfixturevalue(f"{DRIVERS[case[0]]}_outbox")

    @pytest.fixture
    def connect(self, database: Any, case: tuple[str, str]) -> Iterator[Connect]:
        driver, handle = case
        url = sqlalchemy_url(database, driver)
        yield from closing_factory(lambda outbox, mode: open_writer(outbox, url, handle, mode))


# --- the session's unit of work ------------------------------------------------------------


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_outbox")


@pytest.fixture
def engine(database: Any) -> Iterator[Engine]:
    driver = "pysqlite" if isinstance(database, SqliteDatabase) else "psycopg"
    engine = create_engine(sqlalchemy_url(database, driver))
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


def test_the_session_writes_the_aggregate_first(database: Any, engine: Engine) -> None:
    statements: list[str] = []
    sa_event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with Session(engine) as session, session.begin():
        session.add(Order(id=42))
        Outbox().add(session, event())
    inserts = [sql.split()[2] for sql in statements if sql.startswith("INSERT")]
    assert inserts == ["orders", '"outbox_event"']
    assert len(database.events()) == 1


def test_autocommit_is_refused_before_the_session_is_flushed(database: Any, engine: Engine) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        session.add(Order(id=42))
        with pytest.raises(NotInTransaction, match="isolation_level AUTOCOMMIT"):
            Outbox().add(session, event())
        session.rollback()
    assert database.query("SELECT * FROM orders") == database.events() == []


def test_begin_does_not_help_against_autocommit(database: Any, engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with connection.begin(), pytest.raises(NotInTransaction):
            Outbox().add(connection, event())
        with pytest.raises(NotInTransaction):
            Outbox().add(connection, event())
        assert not connection.in_transaction()
    assert database.events() == []


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_begin_in_the_drivers_own_words_does(
    request: pytest.FixtureRequest, case: tuple[str, str]
) -> None:
    driver, handle = case
    database = request.getfixturevalue(f"{DRIVERS[driver]}_outbox")
    writer = open_writer(Outbox(), sqlalchemy_url(database, driver), handle, autocommit=True)
    for number, ending in enumerate(("ROLLBACK", "COMMIT")):
        writer.execute("BEGIN")
        writer.add(event(number))
        writer.execute(ending)
    writer.close()
    assert [row["payload"] for row in database.events()] == [b'{"number":1}']


@pytest.mark.parametrize("handle", SYNC_HANDLES)
def test_sqlalchemys_recipe_for_begin_on_sqlite_is_a_transaction(
    sqlite_outbox: SqliteDatabase, handle: str
) -> None:
    engine = create_engine(f"sqlite:///{sqlite_outbox.path}")

    @sa_event.listens_for(engine, "connect")
    def let_sqlalchemy_begin(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @sa_event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    opened = SYNC_HANDLES[handle](engine)
    Outbox().add(opened, event(1))
    opened.rollback()
    Outbox().add(opened, event(2))
    opened.commit()
    opened.close()
    engine.dispose()
    assert [row["payload"] for row in sqlite_outbox.events()] == [b'{"number":2}']


def test_another_dialect_is_refused_by_name(engine: Engine) -> None:
    engine.dialect.name, name = "oracle", engine.dialect.name
    with engine.connect() as connection, pytest.raises(InvalidHandle, match="oracle"):
        Outbox().add(connection, event())
    engine.dialect.name = name


# --- the model -----------------------------------------------------------------------------


class ModelBase(DeclarativeBase):
    pass


OutboxEvent = outbox_event_model(ModelBase)


def test_the_model_writes_what_add_writes(database: Any, engine: Engine) -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    fields = ("Order", 42, "OrderPaid", {"total": Decimal("9.99")})
    options: dict[str, Any] = {
        "headers": HEADERS, "deliver_at": moment, "content_type": "x/y", "idempotency_key": "k",
    }  # fmt: skip
    with Session(engine) as session, session.begin():
        session.add(OutboxEvent(*fields, **options))
    (modelled,) = database.events()
    assert len(database.queued()) == 1
    with Session(engine) as session, session.begin():
        assert Outbox().add(session, Event(*fields, **options)).duplicates == 1
        session.execute(delete(OutboxEvent))
        Outbox().add(session, Event(*fields, **options))
    (added,) = database.events()
    for row in (modelled, added):
        del row["seq"]
        row["headers"] = json.loads(row["headers"])
    assert modelled == added


def test_the_model_keeps_the_order_of_session_add(database: Any, engine: Engine) -> None:
    rows = [OutboxEvent("Order", "1", "Counted", n, id=uuid4()) for n in range(20)]
    with Session(engine) as session, session.begin():
        session.add_all(rows)
    assert [int(row["payload"]) for row in database.events()] == list(range(20))
    with Session(engine) as session:
        session.add(OutboxEvent("Order", "1", "Counted", 20))
        session.flush()
        session.rollback()
    assert len(database.events()) == len(database.queued()) == 20


def test_the_model_reads_back_as_python_values(engine: Engine, database: Any) -> None:
    moment = datetime(2030, 1, 2, tzinfo=UTC)
    with Session(engine) as session, session.begin():
        session.add(OutboxEvent("Order", "1", "Paid", b"\0", headers={"a": "b"}, deliver_at=moment))
    with Session(engine) as session:
        row = session.scalars(select(OutboxEvent)).one()
        assert isinstance(row.id, UUID)
        assert isinstance(row.seq, int)
        assert (row.payload, row.headers, row.deliver_at) == (b"\0", {"a": "b"}, moment)
        assert abs(row.created_at - datetime.now(UTC)) < timedelta(hours=1)


def test_the_model_checks_what_event_checks() -> None:
    with pytest.raises(InvalidEvent, match="NaN"):
        OutboxEvent("Order", "1", "Paid", {"total": float("nan")})
    with pytest.raises(InvalidEvent, match="NUL"):
        OutboxEvent("Order", "1\0", "Paid", {})
    with pytest.raises(InvalidEvent, match="reference"):
        OutboxEvent("Order", "1", "Paid", b"x" * 1_048_577)


def test_the_model_needs_no_more_than_the_right_to_insert(
    postgres_outbox: PostgresDatabase, postgres_producer: str
) -> None:
    engine = create_engine(postgres_producer.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session, session.begin():
        session.add_all([OutboxEvent("Order", "1", "Paid", {}) for _ in range(3)])
    engine.dispose()
    assert len(postgres_outbox.events()) == len(postgres_outbox.queued()) == 3


# --- Alembic -------------------------------------------------------------------------------


def changes_for_alembic(engine: Engine, metadata: MetaData, **options: Any) -> list[Any]:
    Base.metadata.drop_all(engine)
    options["include_name"] = alembic_include_name()
    with engine.connect() as connection:
        return list(
            compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        )


def test_alembic_finds_nothing_to_do(engine: Engine) -> None:
    metadata = MetaData()
    outbox_event_table(metadata)
    assert changes_for_alembic(engine, metadata) == []
    # On SQLite it would like an IDENTITY, which there is not.
    if engine.dialect.name == "postgresql":
        assert changes_for_alembic(engine, metadata, compare_server_default=True) == []


def test_alembic_finds_a_difference_where_there_is_one(engine: Engine) -> None:
    metadata = MetaData()
    outbox_event_table(metadata).append_column(Column("extra", Text))
    assert [change[0] for change in changes_for_alembic(engine, metadata)] == ["add_column"]


def test_create_all_leaves_the_outbox_to_init(engine: Engine) -> None:
    ModelBase.metadata.create_all(engine)
    metadata = MetaData()
    outbox_event_table(metadata, prefix="elsewhere")
    with pytest.raises(ConfigError, match="commitrelay init"):
        metadata.create_all(engine)
