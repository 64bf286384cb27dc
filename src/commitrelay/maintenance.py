"""Maintenance: what has to be done now and then. One duty each, run by one relay of a lane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from commitrelay.errors import ConfigError, StoreUnreachable
from commitrelay.purge import Archive, Purge
from commitrelay.store import Store

logger = logging.getLogger("commitrelay.maintenance")

PURGE_SECONDS = 60.0
PURGE_LIMIT = 1000


async def purge_forever(
    store: Store,
    *,
    retention_seconds: float | None,
    inbox_retention_seconds: float | None,
    is_my_duty: Callable[[], bool],
    archive: Archive | None = None,
) -> None:
    """Delete settled events and marks of the inbox past their retention; None: keep them."""
    events = None
    if retention_seconds is not None:
        events = Purge(store, retention_seconds=retention_seconds, archive=archive)
    while True:
        await asyncio.sleep(PURGE_SECONDS)
        if not is_my_duty():
            continue
        try:
            if events is not None:
                await _purge_events(events)
            if inbox_retention_seconds is not None:
                await _purge_inbox(store, inbox_retention_seconds)
        except StoreUnreachable as error:
            logger.info("purge put off: %s", error)
        except ConfigError as error:  # the archive's disk is full, or its folder gone
            logger.warning("purge put off: %s", error)


async def _purge_events(purge: Purge) -> None:
    done = await purge.run()
    if done.deleted:
        logger.info("purged %d events", done.deleted, extra={"archived": done.archived})


async def _purge_inbox(store: Store, seconds: float) -> None:
    """All that is of that age, a small batch at a time."""
    deleted = PURGE_LIMIT
    while deleted == PURGE_LIMIT:
        await asyncio.sleep(0.05)  # let the others have the disk in between
        deleted = await store.purge_inbox(older_than_seconds=seconds, limit=PURGE_LIMIT)
