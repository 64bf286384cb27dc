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


async def purge_forever(
    store: Store,
    retention_seconds: float,
    is_my_duty: Callable[[], bool],
    archive: Archive | None = None,
) -> None:
    """Delete settled events past the retention, a small page at a time."""
    purge = Purge(store, retention_seconds=retention_seconds, archive=archive)
    while True:
        await asyncio.sleep(PURGE_SECONDS)
        if not is_my_duty():
            continue
        try:
            done = await purge.run()
        except StoreUnreachable as error:
            logger.info("purge put off: %s", error)
        except ConfigError as error:  # the archive's disk is full, or its folder gone
            logger.warning("purge put off: %s", error)
        else:
            if done.deleted:
                logger.info("purged %d events", done.deleted, extra={"archived": done.archived})
