"""Alerts: says once that something is wrong, reminds, and says when it is over.

The relay that leads a lane looks again and again. What it finds goes to the log, to a webhook and
to a command.

findings.py    what is wrong, in one observation
incidents.py   what goes on from look to look, and when to tell of it
messengers.py  who takes the news to people
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from commitrelay.alerts.findings import Finding, Limits, Watch
from commitrelay.alerts.incidents import Incidents, Notice
from commitrelay.alerts.messengers import Command, Messenger, Outgoing, Webhook
from commitrelay.errors import CommitrelayError
from commitrelay.observer import Observer
from commitrelay.urls import scrub

__all__ = ["Alerts", "Command", "Limits", "Messenger", "Notice", "Webhook"]

logger = logging.getLogger("commitrelay.alerts")

MOST_EVENTS = 5


class Alerts:
    """Looks, and tells."""

    def __init__(
        self,
        observer: Observer,
        limits: Limits,
        messengers: Sequence[Messenger] = (),
        *,
        leases_lost: Callable[[str], float] = lambda lane: 0.0,
        interval_seconds: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._observer = observer
        self._limits = limits
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._watch = Watch(limits, clock=clock, leases_lost=leases_lost)
        self._incidents = Incidents(limits.reminder_seconds, clock=clock, now=now)
        self._outgoing = [Outgoing(messenger) for messenger in messengers]
        self._blind_since: float | None = None

    async def open(self) -> None:
        """See that whoever is to be told can be: what is wrong with a setting is an error now."""
        await asyncio.gather(*(outgoing.open() for outgoing in self._outgoing))

    async def run(
        self,
        lanes: Collection[str],
        my_duty: Callable[[], Collection[str]],
        outbox: Callable[[], bool],
    ) -> None:
        """Look until cancelled: at the leases of `lanes`, and at all of those that are my duty."""
        while True:
            try:
                await self.look(lanes, my_duty(), outbox=outbox())
            except Exception:
                logger.exception("looking for alerts failed in a way that it should not")
            await asyncio.sleep(self._interval_seconds)

    async def look(
        self, lanes: Collection[str], my_duty: Collection[str], *, outbox: bool = True
    ) -> None:
        """Look once, and tell what is new. `outbox`: also at what concerns no lane."""
        self._incidents.keep(
            lambda finding: (
                finding.lane is None or finding.alert == "lease_lost" or finding.lane in my_duty
            )
        )
        findings = [finding for lane in lanes for finding in self._watch.lease(lane)]
        complete = True
        try:
            findings += await self._observed(my_duty, outbox)
        except CommitrelayError as error:
            complete = False
            findings += self._blind(error)
        for notice in self._incidents.update(findings, complete=complete):
            await self._tell(notice)
        await asyncio.gather(*(outgoing.flush() for outgoing in self._outgoing))

    async def close(self) -> None:
        for outgoing in self._outgoing:
            await outgoing.close()

    async def _observed(self, my_duty: Collection[str], outbox: bool) -> list[Finding]:
        observation = await self._observer.look(min(1.0, self._interval_seconds / 2))
        self._blind_since = None
        findings = [
            finding
            for status in observation.lanes
            if status.lane in my_duty
            for finding in self._watch.lane(status)
        ]
        return [*findings, *self._watch.outbox(observation)] if outbox else findings

    def _blind(self, error: CommitrelayError) -> Iterator[Finding]:
        limit = self._limits.standing_seconds
        now = self._clock()
        self._blind_since = now if self._blind_since is None else self._blind_since
        blind = now - self._blind_since
        if limit is not None and blind > limit:
            said = f"the database cannot be asked for {blind:.0f}s: {scrub(str(error))}"
            yield Finding("database", "outbox", said, blind, limit)

    async def _tell(self, notice: Notice) -> None:
        finding = notice.finding
        if finding.alert == "dead_letter" and notice.status != "cleared":
            notice = replace(notice, finding=await self._with_events(finding))
        level = logging.INFO if notice.status == "cleared" else logging.ERROR
        about = {"alert": finding.alert, "status": notice.status, "incident": notice.incident}
        logger.log(level, "alert %s: %s", notice.status, notice.summary, extra=about)
        for outgoing in self._outgoing:
            outgoing.add(notice)

    async def _with_events(self, finding: Finding) -> Finding:
        """With the last few events that died, so that whoever is woken knows where to look."""
        try:
            records = await self._observer.dead_events(finding.subject, MOST_EVENTS)
        except CommitrelayError:
            return finding
        events = [
            {
                "id": record.id,
                "aggregate_type": record.aggregate_type,
                "aggregate_id": record.aggregate_id,
                "event_type": record.event_type,
                "error": scrub(delivery.last_error or ""),
            }
            for record in records
            for delivery in record.deliveries
            if delivery.lane == finding.subject and delivery.last_error is not None
        ]
        return replace(finding, detail={"events": events})
