"""Service: one process that runs consumers until it is told to stop.

The first SIGTERM or SIGINT lets running handlers end; the second one cancels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from commitrelay.consumer import Consumer
from commitrelay.daemon import Totals, stop_signals

logger = logging.getLogger("commitrelay.consumer")

COUNTERS = ("handled", "duplicates", "skipped", "failed", "retried", "dead_lettered")


class Service:
    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._cancelled = False

    def stop(self) -> None:
        """Ask once to stop gracefully; ask again to cancel."""
        if self._stopping:
            logger.warning("stopping at once: events in hand will be handled again")
            self._cancelled = True
            for task in self._tasks:
                task.cancel()
            return
        logger.info("stopping: running handlers may end; signal again to cancel")
        self._stop_consumers()

    async def run(self) -> Totals:
        """Consume until stopped; the first failure stops every consumer."""
        self._tasks = [
            asyncio.create_task(consumer.run(), name=f"consumer {consumer.name}")
            for consumer in self._consumers
        ]
        with stop_signals(self.stop):
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            self._stop_consumers()
            results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        totals = Totals(self._counts(), self._cancelled)
        logger.info("consumer stopped", extra=totals.counts)
        return totals

    def _stop_consumers(self) -> None:
        self._stopping = True
        for consumer in self._consumers:
            consumer.stop()

    def _counts(self) -> dict[str, int]:
        return {
            name: sum(getattr(consumer.stats, name) for consumer in self._consumers)
            for name in COUNTERS
        }
