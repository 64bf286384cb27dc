"""Service: one process that runs consumers until it is told to stop.

The first SIGTERM or SIGINT lets running handlers end; the second one cancels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus

from commitrelay.consumer import Consumer, prometheus
from commitrelay.daemon import Totals, stop_signals
from commitrelay.endpoint import Answer, listen
from commitrelay.kinds import HostPort
from commitrelay.metrics import CONTENT_TYPE

logger = logging.getLogger("commitrelay.consumer")

COUNTERS = ("handled", "duplicates", "skipped", "failed", "retried", "dead_lettered")


class Service:
    """Consumers with one endpoint for their metrics and probes, if `listen_on` is given."""

    def __init__(self, consumers: Sequence[Consumer], *, listen_on: HostPort | None = None) -> None:
        self._consumers = consumers
        self._listen_on = listen_on
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
        handlers = {"/livez": self._live, "/readyz": self._ready, "/metrics": self._metrics}
        endpoint = await listen(self._listen_on, handlers)
        try:
            return await self._consume()
        finally:
            if endpoint is not None:
                await endpoint.close()

    async def _consume(self) -> Totals:
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

    async def _live(self) -> Answer:
        return Answer("ok\n")

    async def _ready(self) -> Answer:
        """Whether every consumer has reached its broker, and its database answers."""
        healths = {consumer.name: consumer.health() for consumer in self._consumers}
        ready = {name: each.running and each.database_answers for name, each in healths.items()}
        lines = [
            f"consumer {name}: {'ready' if ready[name] else 'not ready'}"
            f"{f', {len(each.stopped)} keys stand still' if each.stopped else ''}\n"
            for name, each in healths.items()
        ]
        status = HTTPStatus.OK if all(ready.values()) else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer("".join(lines), status)

    async def _metrics(self) -> Answer:
        for consumer in self._consumers:
            consumer.stats.lag = await consumer.lag()
        return Answer(prometheus(*self._consumers), content_type=CONTENT_TYPE)

    def _stop_consumers(self) -> None:
        self._stopping = True
        for consumer in self._consumers:
            consumer.stop()

    def _counts(self) -> dict[str, int]:
        return {
            name: sum(getattr(consumer.stats, name) for consumer in self._consumers)
            for name in COUNTERS
        }
