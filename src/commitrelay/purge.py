"""Purge: deletes settled events past their retention, a page at a time.

Between two pages nothing is locked and nothing is remembered but a number. With an archive, a
chunk of events is in a file, on disk, before the first of them is deleted; what is deleted are
those and no others. A crash in between leaves them in both places, and the next run archives what
it finds again: an event may be in the archive twice, never in neither place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from commitrelay.store import SettledPage

PAGE = 500
"""Events that are looked at, and deleted, at a time."""

PAUSE_SECONDS = 0.025
"""Between two pages that were deleted: let the others have the disk."""

PAGES_PER_FILE = 20
CHUNKS_PER_TRIM = 20
"""The journal is looked through once in so many chunks, and at the end."""


class Purgeable(Protocol):
    """What of a store a purge needs."""

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage: ...

    async def delete_settled(self, seqs: Sequence[int]) -> int: ...

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int: ...

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int: ...


class Archive(Protocol):
    """Where events go before they are deleted."""

    async def keep(self, seqs: Sequence[int]) -> Sequence[int]:
        """Write these events away; when it returns, those that it names are safe."""


@dataclass(slots=True)
class Purged:
    """What a purge has done so far."""

    deleted: int = 0
    archived: int = 0


class Purge:
    """One pass over the log, from its beginning to what is too young."""

    def __init__(
        self,
        store: Purgeable,
        *,
        retention_seconds: float,
        archive: Archive | None = None,
        pause_seconds: float = PAUSE_SECONDS,
        page: int = PAGE,
    ) -> None:
        self._store = store
        self._retention_seconds = retention_seconds
        self._archive = archive
        self._pause_seconds = pause_seconds
        self._page = page
        self._pages_per_chunk = 1 if archive is None else PAGES_PER_FILE

    async def run(self, told: Callable[[Purged], Awaitable[None]] | None = None) -> Purged:
        """Delete everything that is due; `told` hears after each chunk what has been done."""
        done = Purged()
        # What has to be archived is read row by row; its partitions are dropped when empty.
        done.deleted += await self._tend(None if self._archive else self._retention_seconds)
        after_seq, is_last, chunks = 0, False, 0
        while not is_last:
            seqs, after_seq, is_last = await self._chunk(after_seq)
            if not seqs:
                continue
            await self._write_away(seqs, done)
            chunks += 1
            if chunks % CHUNKS_PER_TRIM == 0:
                await self._trim()
            if told is not None:
                await told(done)
        if self._archive is not None:
            await self._tend(self._retention_seconds)
        trimmed = self._page
        while trimmed == self._page:
            trimmed = await self._trim()
        return done

    async def count(self, cap: int) -> int:
        """How many events a run would delete now; counting stops at the cap."""
        found, after_seq, is_last = 0, 0, False
        while found < cap and not is_last:
            page = await self._next(after_seq)
            found += len(page.seqs)
            after_seq, is_last = page.last_seq, page.is_last
        return min(found, cap)

    async def _chunk(self, after_seq: int) -> tuple[list[int], int, bool]:
        """What is to be purged next: as many pages as make a file."""
        seqs: list[int] = []
        is_last = False
        while not is_last and len(seqs) < self._page * self._pages_per_chunk:
            page = await self._next(after_seq)
            seqs += page.seqs
            after_seq, is_last = page.last_seq, page.is_last
        return seqs, after_seq, is_last

    async def _next(self, after_seq: int) -> SettledPage:
        return await self._store.settled(
            older_than_seconds=self._retention_seconds, after_seq=after_seq, limit=self._page
        )

    async def _write_away(self, seqs: Sequence[int], done: Purged) -> None:
        if self._archive is not None:
            seqs = await self._archive.keep(seqs)
            done.archived += len(seqs)
        for piece in _pieces(seqs, self._page):
            done.deleted += await self._store.delete_settled(piece)
            await asyncio.sleep(self._pause_seconds)

    async def _tend(self, older_than_seconds: float | None) -> int:
        return await self._store.tend_partitions(older_than_seconds=older_than_seconds)

    async def _trim(self) -> int:
        return await self._store.trim_journal(
            older_than_seconds=self._retention_seconds, limit=self._page
        )


def _pieces(seqs: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(seqs), size):
        yield seqs[start : start + size]
