"""A claim that is read as one row brings what it would bring row by row, or is read row by row."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

import pytest

from commitrelay.store import ClaimRequest, Failure, Fence, Queued, Settlement
from commitrelay.stores.sqlite import bundle
from commitrelay.stores.sqlite.store import SqliteStore

T = TypeVar("T")
BUCKETS = frozenset(range(64))
COLUMNS = (
    "aggregate_type, aggregate_id, event_type, payload, content_type, headers, idempotency_key, "
    "created_at"
)
PLAIN = ("Order", "1", "OrderPaid", b"{}", "application/json", "{}", None, "2026-11-15T20:33:45Z")


def event(**changed: Any) -> tuple[Any, ...]:
    names = COLUMNS.split(", ")
    assert changed.keys() <= set(names)
    return tuple(changed.get(name, value) for name, value in zip(names, PLAIN, strict=True))


class Claims:
    """The same claim, at the beginning of a sweep (row by row) and within it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._store = SqliteStore(":memory:", connection=connection, run=_inline)

    async def open(self) -> None:
        await self._store.initialise()
        await self._store.open()
        lane = await self._store.lane("default")
        roster = await self._store.renew(
            lane.id, "a", strategy="leader", keep=None, lease_seconds=60
        )
        self._fence = Fence(lane.id, "a", roster.token)

    def add(self, *events: tuple[Any, ...]) -> None:
        marks = ", ".join("?" * len(PLAIN))
        self._connection.executemany(
            f"INSERT INTO outbox_event ({COLUMNS}) VALUES ({marks})", events
        )

    async def fail(self, seq: int) -> None:
        await self._store.settle(self._fence, Settlement(failures=[Failure(seq, "no", None)]))

    async def both(self) -> tuple[list[Queued], list[Queued], bool]:
        """Row by row; within a sweep; and whether that was read as one row only."""
        statements: list[str] = []
        first, *rest = await self._store.claim(self._fence, ClaimRequest(1000, BUCKETS))
        self._connection.set_trace_callback(statements.append)
        request = ClaimRequest(1000, BUCKETS, above_seq=first.seq)
        again = await self._store.claim(self._fence, request)
        self._connection.set_trace_callback(None)
        reads = [text for text in statements if "outbox_queue_hot" in text]
        return rest, again, ["group_concat" in text for text in reads] == [True]


async def _inline(work: Callable[[], T]) -> T:
    return work()


def claimed(
    events: Sequence[tuple[Any, ...]], *, encoding: str = "UTF-8", dead: Sequence[int] = ()
) -> tuple[list[Queued], list[Queued], bool]:
    async def case() -> tuple[list[Queued], list[Queued], bool]:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.execute(f"PRAGMA encoding = '{encoding}'")
            claims = Claims(connection)
            await claims.open()
            claims.add(event(aggregate_id="first"), *events)
            for seq in dead:
                await claims.fail(seq)
            return await claims.both()

    return asyncio.run(case())


FITTING = {
    "alike": [event(), event(), event()],
    "one": [event()],
    "none": [],
    "all different": [
        event(
            aggregate_type=f"Kind {number}",
            aggregate_id=f"ü{number}",
            event_type=f"Paid{number}",
            payload=b"x" * number,
            content_type=f"text/{number}",
            headers=f'{{"n": "{number}"}}',
            idempotency_key=f"key {number}",
            created_at=f"2026-11-15T20:33:{number:02}.5Z",
        )
        for number in range(20)
    ],
    "some with an idempotency key": [event(), event(idempotency_key="a"), event()],
    "empty payloads": [event(payload=b""), event(payload=b"")],
    "payloads that are no text": [event(payload=b"\xff\x00\x1e"), event(payload=b"\x00")],
    "payloads that are text": [event(payload="ü"), event(payload="\x1e")],
    "zeros in text": [event(aggregate_id="a\x00b"), event(headers="\x00")],
    "times in another form": [event(created_at="2026-11-15 20:33:45"), event()],
}


@pytest.mark.parametrize("name", FITTING)
def test_as_row_by_row(name: str) -> None:
    by_row, at_once, bundled = claimed(FITTING[name])
    assert at_once == by_row
    assert [type(value) for row in at_once for value in row] == [
        type(value) for row in by_row for value in row
    ]
    assert len(at_once) == len(FITTING[name])
    assert bundled


def test_what_events_have_in_common_is_one_object() -> None:
    _, (one, other, _), _ = claimed(FITTING["alike"])
    assert one.content_type is other.content_type
    assert one.headers is other.headers


def test_what_is_blocked() -> None:
    by_row, at_once, bundled = claimed([event(), event(aggregate_id="2"), event()], dead=[2])
    assert [row.blocked for row in at_once] == [0, 1]
    assert at_once == by_row
    assert bundled


UNFIT = {
    "a separator": [event(), event(aggregate_id="a\x1eb")],
    "a separator in all": [event(event_type="a\x1eb"), event(event_type="a\x1eb")],
    "bytes for text": [event(), event(headers=b"\xff")],
}


@pytest.mark.parametrize("name", UNFIT)
def test_row_by_row_what_does_not_fit(name: str) -> None:
    by_row, within, bundled = claimed(UNFIT[name])
    assert within == by_row
    assert len(within) == len(UNFIT[name])
    assert not bundled


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_row_by_row_where_text_is_not_utf8(encoding: str) -> None:
    """Joined payloads would be converted."""
    by_row, within, bundled = claimed([event(), event(payload=b"odd")], encoding=encoding)
    assert within == by_row
    assert not bundled


def test_row_by_row_where_payloads_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """To have them twice would matter."""
    monkeypatch.setattr(bundle, "MOST_BYTES", 1000)
    by_row, within, bundled = claimed([event(payload=b"x" * 1000)])
    assert within == by_row
    assert not bundled


def test_row_by_row_what_is_too_large_for_one_value() -> None:
    async def case() -> None:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            claims = Claims(connection)
            await claims.open()
            claims.add(*[event(payload=b"x" * 60_000)] * 3)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
            by_row, within, bundled = await claims.both()
            assert within == by_row
            assert len(within) == 2
            assert not bundled

    asyncio.run(case())
