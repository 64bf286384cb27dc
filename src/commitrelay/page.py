"""Page: events that match a filter, newest first, found without reading the whole log.

No index knows every filter, so what is rare has to be looked for from event to event. That is done
in steps, and for a moment only: a page may end before it is full, and says where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from commitrelay.store import AdminStore, EventFilter, EventRecord

LOOK_SECONDS = 0.15
"""No further step is begun after that."""

FIRST_STEP = 20_000
STEP_SECONDS = 0.03
"""A step that took less is followed by one over twice as many seqs: the log has gaps."""


class Page(NamedTuple):
    events: Sequence[EventRecord]
    next_before: int | None  # events older than this seq are not looked at yet; None: all are


async def look(
    store: AdminStore,
    where: EventFilter,
    before_seq: int | None,
    limit: int,
    clock: Callable[[], float] = time.monotonic,
) -> Page:
    """The next `limit` events that match, or as many of them as a quick look finds."""
    if where == EventFilter():
        found = await store.list_events(where, before_seq=before_seq, limit=limit + 1)
        return _cut(found, limit, None)
    if before_seq is None:
        newest = await store.list_events(EventFilter(), before_seq=None, limit=1)
        before_seq = newest[0].seq + 1 if newest else 1
    return await _look_back(store, where, before_seq, limit, clock)


async def _look_back(
    store: AdminStore,
    where: EventFilter,
    before_seq: int,
    limit: int,
    clock: Callable[[], float],
) -> Page:
    found: list[EventRecord] = []
    began, step = clock(), FIRST_STEP
    while len(found) <= limit and before_seq > 1:
        step_began = clock()
        if step_began - began > LOOK_SECONDS:
            return _cut(found, limit, before_seq)
        above_seq = max(0, before_seq - 1 - step)
        left = limit + 1 - len(found)
        found += await store.list_events(
            where, before_seq=before_seq, limit=left, above_seq=above_seq
        )
        before_seq = above_seq + 1
        step *= 2 if clock() - step_began < STEP_SECONDS else 1
    return _cut(found, limit, None)


def _cut(found: Sequence[EventRecord], limit: int, next_before: int | None) -> Page:
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1].seq)
    return Page(found, next_before)
