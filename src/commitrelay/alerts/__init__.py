"""Alerts: says once that something is wrong, reminds, and says when it is over.

Every relay looks again and again, and tells of what is its duty: to the log, to a webhook and to a
command.

duty.py        what is this relay's to tell, and what is another's
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

from commitrelay.alerts.duty import NO_DUTY, Duty, duty_of
from commitrelay.alerts.findings import Finding, Limits, Watch
from commitrelay.alerts.incidents import Incidents, Notice
from commitrelay.alerts.messengers import Command, Messenger, Outgoing, Webhook
from commitrelay.errors import CommitrelayError
from commitrelay.observer import Observation, Observer
from commitrelay.store import LaneStatus
from commitrelay.urls import scrub

__all__ = [
    "NO_DUTY",
    "Alerts",
    "Command",
    "Duty",
    "Limits",
    "Messenger",
    "Notice",
    "Webhook",
    "duty_of",
]

logger = logging.getLogger("commitrelay.alerts")

MOST_EVENTS = 5
ABOUT_THIS_RELAY = ("lease_lost", "database")


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
        self._duty = NO_DUTY
        self._blind_since: float | None = None

    async def open(self) -> None:
        """See that whoever is to be told can be: what is wrong with a setting is an error now."""
        await asyncio.gather(*(outgoing.open() for outgoing in self._outgoing))

    async def run(
        self,
        lanes: Collection[str],
        my_duty: Callable[[Sequence[LaneStatus]], Duty],
    ) -> None:
        """Look until cancelled: at the leases of `lanes`, and at all that is my duty."""
        while True:
            try:
                await self.look(lanes, my_duty)
            except Exception:
                logger.exception("looking for alerts failed in a way that it should not")
            await asyncio.sleep(self._interval_seconds)

    async def look(
        self, lanes: Collection[str], my_duty: Callable[[Sequence[LaneStatus]], Duty]
    ) -> None:
        """Look once, and tell what is new."""
        findings = [finding for lane in lanes for finding in self._watch.lease(lane)]
        complete, settled = True, NO_DUTY
        try:
            observation = await self._observer.look(min(1.0, self._interval_seconds / 2))
        except CommitrelayError as error:
            complete = False
            findings += self._blind(error)
        else:
            self._blind_since = None
            duty = my_duty(observation.lanes)
            # Whoever reaches the broker first is on duty for a moment, and need not tell anew.
            settled, self._duty = duty.since(self._duty), duty
            findings += self._found(observation)
        for notice in self._incidents.update(
            findings, is_mine=lambda finding: _is_of(finding, settled), complete=complete
        ):
            await self._tell(notice)
        await asyncio.gather(*(outgoing.flush() for outgoing in self._outgoing))

    async def close(self) -> None:
        for outgoing in self._outgoing:
            await outgoing.close()

    def _found(self, observation: Observation) -> Iterator[Finding]:
        """Also what is another's duty now: it may have been raised here, or be mine soon."""
        for status in observation.lanes:
            yield from self._watch.lane(status)
        unserved = [status for status in observation.lanes if not status.is_served]
        yield from self._watch.unserved(unserved)
        yield from self._watch.outbox(observation)

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


def _is_of(finding: Finding, duty: Duty) -> bool:
    """Whether this relay is the one to tell of it."""
    if finding.alert in ABOUT_THIS_RELAY:
        return True
    if finding.is_unserved:
        return finding.lane in duty.unserved
    return duty.outbox if finding.lane is None else finding.lane in duty.lanes
