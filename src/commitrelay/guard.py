"""Guard: an answer from a publisher in time, whatever the publisher does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from commitrelay.publisher import Message, Outcome, Publisher, Unreachable

logger = logging.getLogger("commitrelay.publisher")


async def guarded_publish(publisher: Publisher, messages: Sequence[Message]) -> Sequence[Outcome]:
    """Publish; one that breaks its word, by raising or by not answering, is unreachable."""
    guard_seconds = 2 * publisher.delivery_timeout_seconds + 1
    try:
        async with asyncio.timeout(guard_seconds):
            return await publisher.publish(messages)
    except TimeoutError:
        return [Unreachable(f"no answer within {guard_seconds:g} s")] * len(messages)
    except Exception as error:
        logger.exception("the publisher failed in a way that it should not")
        return [Unreachable(f"{type(error).__name__}: {error}")] * len(messages)
