"""Maintenance: what has to be done now and then. One duty each, run by one relay of a lane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from commitrelay.errors import StoreUnreachable
from commitrelay.store import Store

logger = logging.getLogger("commitrelay.maintenance")

PURGE_SECONDS = 60.0
PURGE_LIMIT = 1000


async def purge_forever(
    store: Store, retention_seconds: float, is_my_duty: Callable[[], bool]
) -> None:
    """Delete settled events past the retention, a small batch at a time."""
    while True:
        await asyncio.sleep(PURGE_SECONDS)
        if not is_my_duty():
            continue
        try:
            deleted = PURGE_LIMIT
            while deleted == PURGE_LIMIT:
                await asyncio.sleep(0.05)  # let the others have the disk in between
                deleted = await store.purge(older_than_seconds=retention_seconds, limit=PURGE_LIMIT)
        except StoreUnreachable as error:
            logger.info("purge put off: %s", error)
