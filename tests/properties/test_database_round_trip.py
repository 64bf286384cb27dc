"""I8 in the database: whatever is added is claimed byte for byte."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from commitrelay import Event, InvalidEvent, Outbox
from commitrelay.outbox import as_row
from commitrelay.store import BUCKETS, ClaimRequest, Fence, Queued
from commitrelay.stores.mysql.store import MysqlStore
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore
from tests.simulation.store import inline
from tests.simulation.world import fresh_database
from tests.support import mariadb

AnyStore = SqliteStore | PostgresStore | MysqlStore

ALL_BUCKETS = frozenset(range(BUCKETS))
BATCH = 150
ALWAYS_THE_SAME = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

anything = st.text(st.characters(exclude_categories=["Cs"]))
fit = st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r\n")
names = st.text(fit, min_size=1, max_size=255)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
as_json = st.recursive(
    st.none() | st.booleans() | numbers | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=5,
)
events = st.builds(
    Event,
    aggregate_type=names,
    aggregate_id=names,
    event_type=names,
    payload=st.binary() | anything | as_json,
    headers=st.dictionaries(names, st.text(fit), max_size=4),
    idempotency_key=st.none() | names,
    id=st.uuids(),
    content_type=st.none() | names,
)
lists = st.lists(
    events, min_size=1, max_size=5, unique_by=(lambda e: e.id, lambda e: e.idempotency_key or e.id)
)

CORNERS = [
    Event("Order", "1", "AllBytes", bytes(range(256))),
    Event("Order", "1", "Empty", b""),
    Event("Order", "1", "NotUtf8", b"\xff\xfe\x80", headers={"a": "", "A": "case", "a ": "blank"}),
    Event("Order", "1", "Nul", "a\x00b\r\n", headers={"tab": "\t\x01\x7f\x85\u2028"}),
    Event("Order ", " 1 ", "Blanks ", {"b": 1, "a": [1.0, "\x00"]}, content_type="text/plain "),
    Event("'\"`\\", "%s %% ? :id $1", "{}", '{"not": json', headers={"\\u0041": "\\u0000 %s"}),
    Event("𝄞é\u0301", "é", "\ufffe\ufffd", "𝄞" * 100, headers={"𝄞": "\U0010ffff"}),
]


@settings(ALWAYS_THE_SAME, max_examples=150)
@given(lists)
def test_sqlite_gives_back_what_was_added(added: list[Event]) -> None:
    _sqlite_gives_back(added)


def test_sqlite_gives_back_the_corners() -> None:
    _sqlite_gives_back(CORNERS)


def test_postgres_gives_back_what_was_added(postgres_database: str) -> None:
    store, batch = PostgresStore(postgres_database), _batch()
    asyncio.run(_initialise(store))
    with psycopg.connect(postgres_database) as connection:
        Outbox().add(connection, *batch)
    _check(batch, asyncio.run(_claimed(store)))


def test_mariadb_gives_back_what_was_added(mariadb_database: str) -> None:
    store, batch = MysqlStore(mariadb_database), _batch()
    asyncio.run(_initialise(store))
    with closing(mariadb.connect(mariadb_database)) as connection:
        Outbox().add(connection, *batch)
        connection.commit()
    _check(batch, asyncio.run(_claimed(store)))


FIELDS = ("aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key")


@settings(ALWAYS_THE_SAME)
@given(
    st.sampled_from([*FIELDS, "payload", "header's name", "header's value", "in JSON"]),
    st.text(fit, max_size=5),
    st.characters(categories=["Cs"]),
    st.text(fit, max_size=5),
)
def test_a_surrogate_is_refused_before_the_database_sees_it(
    place: str, before: str, surrogate: str, after: str
) -> None:
    bad = before + surrogate + after
    given_: dict[str, Any] = {
        "aggregate_type": "Order",
        "aggregate_id": "1",
        "event_type": "Placed",
        "payload": b"",
        **{
            "header's name": {"headers": {bad: "value"}},
            "header's value": {"headers": {"name": bad}},
            "in JSON": {"payload": {"name": [bad]}},
        }.get(place, {place: bad}),
    }
    with pytest.raises(InvalidEvent, match="surrogate"):
        as_row(Event(**given_))


def _batch() -> list[Event]:
    """For one transaction: one after the other would take a server too long."""
    drawn: list[Event] = []

    @settings(ALWAYS_THE_SAME, max_examples=BATCH, phases=[Phase.generate])
    @given(events)
    def draw(event: Event) -> None:
        drawn.append(replace(event, id=uuid5(NAMESPACE_OID, str(len(drawn)))))

    draw()
    by_key = {event.idempotency_key or event.id: event for event in drawn}
    assert len(by_key) > BATCH / 2
    return [*by_key.values(), *CORNERS]


def _sqlite_gives_back(added: list[Event]) -> None:
    with closing(fresh_database()) as connection:
        store = SqliteStore(":memory:", connection=connection, run=inline)
        _add_to_sqlite(connection, added)
        _check(added, asyncio.run(_claimed(store)))


def _add_to_sqlite(connection: sqlite3.Connection, added: list[Event]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    Outbox().add(connection, *added)
    connection.execute("COMMIT")


async def _initialise(store: AnyStore) -> None:
    await store.initialise()
    await store.close()


async def _claimed(store: AnyStore) -> list[Queued]:
    await store.open()
    lane = await store.lane("default")
    roster = await store.renew(lane.id, "a", strategy="partitioned", keep=None, lease_seconds=60)
    fence = Fence(lane.id, "a", roster.token)
    await store.acquire(fence, ALL_BUCKETS)
    rows = await store.claim(fence, ClaimRequest(limit=1000, buckets=ALL_BUCKETS))
    await store.close()
    return rows


def _check(added: list[Event], claimed: list[Queued]) -> None:
    assert len(claimed) == len(added)
    for event, row in zip(added, claimed, strict=True):
        payload, content_type = event.encoded()
        assert row.payload == payload
        assert list(json.loads(row.headers).items()) == list(event.headers.items())
        assert row.id == str(event.id)
        assert (row.aggregate_type, row.aggregate_id) == (event.aggregate_type, event.aggregate_id)
        assert (row.event_type, row.content_type) == (event.event_type, content_type)
        assert row.idempotency_key == event.idempotency_key
