"""Lists are found by looking back from event to event, in steps and for a moment only."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox
from commitrelay.page import FIRST_STEP, LOOK_SECONDS, Page, look
from commitrelay.store import AdminStore, EventFilter
from commitrelay.stores.sqlite.store import SqliteStore

RARE = EventFilter(aggregate_type="Rare")
GAP = 40 * FIRST_STEP


@pytest.fixture
def path(sqlite_path: Path) -> Iterator[Path]:
    """A rare event and a common one, a long gap, and the same again."""

    async def initialise() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    connection = sqlite3.connect(sqlite_path)
    for _ in range(2):
        with connection:
            Outbox().add(
                connection, Event("Rare", "1", "Seen", "1"), Event("Order", "1", "Paid", "1")
            )
            connection.execute(f"UPDATE sqlite_sequence SET seq = seq + {GAP}")
    connection.close()
    yield sqlite_path


class Spans:
    """A store that remembers over how many seqs each list went."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.seen: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list_events(self, where: EventFilter, **page: Any) -> Any:
        if where != EventFilter():
            self.seen.append(page["before_seq"] - page["above_seq"] - 1)
        return await self._store.list_events(where, **page)


def pages(path: Path, limit: int, clock: Callable[[], float]) -> tuple[list[Page], list[int]]:
    """All pages of the rare ones, and the spans that were looked through."""

    async def read() -> tuple[list[Page], list[int]]:
        store = Spans(SqliteStore(str(path)))
        await store.open()
        found = [await _look(store, limit, None, clock)]
        while found[-1].next_before is not None:
            found.append(await _look(store, limit, found[-1].next_before, clock))
        await store.close()
        return found, store.seen

    return asyncio.run(read())


async def _look(store: Any, limit: int, before: int | None, clock: Callable[[], float]) -> Page:
    asked: AdminStore = store
    return await look(asked, RARE, before, limit, clock)


def seqs(found: list[Page]) -> list[list[int]]:
    return [[event.seq for event in page.events] for page in found]


def test_a_quick_look_goes_through_a_log_with_gaps_in_ever_larger_steps(path: Path) -> None:
    found, spans = pages(path, 10, lambda: 0.0)
    assert seqs(found) == [[GAP + 3, 1]]
    assert spans[:3] == [FIRST_STEP, 2 * FIRST_STEP, 4 * FIRST_STEP]
    assert sum(spans) == GAP + 4


def test_a_slow_look_ends_early_and_says_where_to_go_on(path: Path) -> None:
    seconds = count()
    found, spans = pages(path, 10, lambda: next(seconds) * LOOK_SECONDS)
    assert sorted(seq for page in seqs(found) for seq in page) == [1, GAP + 3]
    assert len(found) > 10
    assert found[0].next_before == GAP + 4 - FIRST_STEP + 1
    assert set(spans[:-1]) == {FIRST_STEP}


def test_a_full_page_ends_at_its_last_event(path: Path) -> None:
    found, _spans = pages(path, 1, lambda: 0.0)
    assert seqs(found) == [[GAP + 3], [1]]
    assert [page.next_before for page in found] == [GAP + 3, None]


def test_an_empty_log_has_one_empty_page(sqlite_path: Path, path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM outbox_queue")
        connection.execute("DELETE FROM outbox_event")
    connection.close()
    assert pages(sqlite_path, 10, lambda: 0.0)[0] == [Page([], None)]
