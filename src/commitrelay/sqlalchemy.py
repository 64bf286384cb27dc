"""The log as a SQLAlchemy table and model in your own MetaData, so that Alembic sees it.

    OutboxEvent = outbox_event_model(Base)
    session.add(OutboxEvent("Order", "42", "OrderPaid", {"total": 10}))

`commitrelay init` creates the tables; these describe the one that applications write.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID

from commitrelay.errors import ConfigError, MissingExtra
from commitrelay.event import Event
from commitrelay.outbox import MAX_PAYLOAD_BYTES, as_json, as_row, as_utc
from commitrelay.sql import Names

try:
    import sqlalchemy as sa
    from sqlalchemy import event as sa_event
except ImportError:
    raise MissingExtra("sqlalchemy", "the outbox as a SQLAlchemy table") from None

INTERNAL_NOUNS = (
    "queue",
    "delivery",
    "lane",
    "lease",
    "turn",
    "inbox",
    "completion",
    "circuit",
    "reader",
    "start",
    "audit",
    "audit_event",
    "attempt",
    "edit",
    "migration",
)
"""The tables that belong to the relay."""


def outbox_event_table(
    metadata: sa.MetaData, *, schema: str | None = None, prefix: str = "outbox"
) -> sa.Table:
    """The log as a table of your MetaData. `commitrelay init` creates it, `create_all` does not."""
    names = Names(schema, prefix)
    # Not spelt out: the databases spell their defaults differently, and Alembic's comparison of
    # defaults fails on a json one.
    filled_in = sa.FetchedValue()
    has_key = sa.column("idempotency_key").is_not(None)
    table = sa.Table(
        names.bare("event"),
        metadata,
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity()),
        sa.Column("id", Id(), primary_key=True, server_default=filled_in),
        sa.Column("aggregate_type", sa.Text(), nullable=False),
        sa.Column("aggregate_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False, server_default=filled_in),
        sa.Column("headers", Headers(), nullable=False, server_default=filled_in),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("created_at", Moment(), nullable=False, server_default=filled_in),
        sa.Column("deliver_at", Moment()),
        sa.Index(
            names.bare("event_idempotency"),
            "idempotency_key",
            unique=True,
            postgresql_where=has_key,
            sqlite_where=has_key,
        ),
        schema=schema,
    )
    sa_event.listen(table, "before_create", _refuse_to_create)
    return table


def outbox_event_model(
    base: type[Any],
    *,
    schema: str | None = None,
    prefix: str = "outbox",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> type[Any]:
    """A model whose constructor takes what `Event` takes, with the same checks.

    Flush your aggregate before you add one: SQLAlchemy decides in which order a flush writes
    tables, and the order of events follows that of the aggregate's row lock. An idempotency key
    that is there already makes the flush fail; `Outbox.add` would go on.
    """

    def construct(self: Any, *values: Any, **fields: Any) -> None:
        event = Event(*values, **fields)
        row = as_row(event, max_payload_bytes)
        self.id = event.id
        self.aggregate_type = row.aggregate_type
        self.aggregate_id = row.aggregate_id
        self.event_type = row.event_type
        self.payload = row.payload
        self.content_type = row.content_type
        self.headers = dict(event.headers)
        self.idempotency_key = row.idempotency_key
        self.deliver_at = event.deliver_at

    body = {
        "__doc__": "One event of the outbox; only an operator's edit changes it.",
        "__module__": base.__module__,
        "__table__": outbox_event_table(base.metadata, schema=schema, prefix=prefix),
        # Reading seq back would ask the producer's role for SELECT.
        "__mapper_args__": {"eager_defaults": False},
        "__init__": construct,
    }
    model: type[Any] = types.new_class("OutboxEvent", (base,), exec_body=lambda ns: ns.update(body))
    return model


def alembic_include_name(
    *, schema: str | None = None, prefix: str = "outbox"
) -> Callable[[str | None, str, Mapping[str, str | None]], bool]:
    """For `context.configure(include_name=…)`: keeps Alembic off what belongs to the relay.

    That is its own tables, and the index by which it finds events, which SQLite does not need.
    """
    names = Names(schema, prefix)
    internal = {("table", names.bare(noun)) for noun in INTERNAL_NOUNS}
    internal |= {(kind, names.bare("event_seq_key")) for kind in ("unique_constraint", "index")}

    def include_name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        return (kind, name) not in internal or parents["schema_name"] != schema

    return include_name


def _refuse_to_create(table: sa.Table, connection: object, **_options: object) -> NoReturn:
    raise ConfigError(
        f"{table.fullname} is created by `commitrelay init`, together with its queue and trigger: "
        "run that before metadata.create_all(), which then leaves it alone"
    )


# --- types: the same in Python, whatever the database stores -------------------------------


class Id(sa.types.TypeDecorator[UUID]):
    """uuid on PostgreSQL; its canonical text on SQLite."""

    impl = sa.Uuid
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return _native_or_text(dialect, sa.Uuid())

    def process_bind_param(self, value: UUID | None, dialect: sa.Dialect) -> Any:
        return value if value is None or dialect.name != "sqlite" else str(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> UUID | None:
        return UUID(value) if isinstance(value, str) else value


class Headers(sa.types.TypeDecorator[dict[str, str]]):
    """json on PostgreSQL, its text on SQLite."""

    impl = sa.JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return _native_or_text(dialect, sa.JSON())

    def process_bind_param(self, value: dict[str, str] | None, dialect: sa.Dialect) -> Any:
        return value if value is None or dialect.name != "sqlite" else as_json(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> dict[str, str] | None:
        headers: dict[str, str] | None = json.loads(value) if isinstance(value, str) else value
        return headers


class Moment(sa.types.TypeDecorator[datetime]):
    """timestamptz on PostgreSQL; on SQLite text such as 2026-11-15T20:33:45.123456Z."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return _native_or_text(dialect, sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        return value if value is None or dialect.name != "sqlite" else as_utc(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        return datetime.fromisoformat(value) if isinstance(value, str) else value


def _native_or_text(
    dialect: sa.Dialect, native: sa.types.TypeEngine[Any]
) -> sa.types.TypeEngine[Any]:
    return dialect.type_descriptor(sa.Text() if dialect.name == "sqlite" else native)
