"""The consumer's duty: marks of the inbox that are older than any replay are deleted."""

from __future__ import annotations

import asyncio
import logging

from commitrelay.errors import StoreUnreachable
from commitrelay.store import Store

logger = logging.getLogger("commitrelay.consumer")

PURGE_SECONDS = 60.0
PURGE_LIMIT = 1000


async def purge_forever(store: Store, retention_seconds: float) -> None:
    """Delete old marks, a small batch at a time."""
    try:
        while True:
            await asyncio.sleep(PURGE_SECONDS)
            try:
                deleted = PURGE_LIMIT
                while deleted == PURGE_LIMIT:
                    await asyncio.sleep(0.05)  # let the others have the disk in between
                    deleted = await store.purge_inbox(
                        older_than_seconds=retention_seconds, limit=PURGE_LIMIT
                    )
            except StoreUnreachable as error:
                logger.info("purge of the inbox put off: %s", error)
    finally:
        await store.close()
