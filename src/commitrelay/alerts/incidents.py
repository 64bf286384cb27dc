"""Incidents: findings that go on, and the notices of them: once, as a reminder, and at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from commitrelay.alerts.findings import Finding
from commitrelay.event import uuid7

CALM_LOOKS = 2
"""An incident is over when it was not found so many times running."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told: that an incident began, goes on, or is over."""

    id: str
    status: str  # raised, reminder, cleared
    incident: str
    since: datetime
    at: datetime
    finding: Finding

    def as_json(self) -> str:
        finding = self.finding
        said = {
            "type": "commitrelay.alert",
            "id": self.id,
            "status": self.status,
            "incident": self.incident,
            "alert": finding.alert,
            "subject": finding.subject,
            "lane": finding.lane,
            "summary": self.summary,
            "value": finding.value,
            "limit": finding.limit,
            "since": self.since.isoformat(),
            "at": self.at.isoformat(),
            **finding.detail,
        }
        return json.dumps(said, ensure_ascii=False)

    @property
    def summary(self) -> str:
        if self.status == "cleared":
            lasted = (self.at - self.since).total_seconds()
            return f"over after {lasted:.0f}s: {self.finding.summary}"
        return self.finding.summary


@dataclass(slots=True)
class Incident:
    id: str
    since: datetime
    finding: Finding
    told_at: float
    calm_looks: int = 0


class Incidents:
    """Turns what is found, look after look, into notices. Pure but for the clocks it is given."""

    def __init__(
        self,
        reminder_seconds: float | None,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._reminder_seconds = reminder_seconds
        self._clock = clock
        self._now = now
        self._open: dict[tuple[str, str, bool], Incident] = {}

    def update(
        self,
        findings: Sequence[Finding],
        *,
        is_mine: Callable[[Finding], bool],
        complete: bool = True,
    ) -> list[Notice]:
        """What is to be told; if the look was not `complete`, nothing is over.

        Of what is not mine another relay tells; but what was raised here is called over here.
        """
        found = {finding.key: finding for finding in findings}
        notices = [
            notice
            for finding in found.values()
            for notice in self._goes_on(finding, is_mine(finding))
        ]
        for key, incident in list(self._open.items()):
            if key in found or not complete:
                continue
            incident.calm_looks += 1
            if incident.calm_looks >= CALM_LOOKS:
                del self._open[key]
                notices.append(self._notice("cleared", incident))
        return notices

    def _goes_on(self, finding: Finding, is_mine: bool) -> Iterator[Notice]:
        incident = self._open.get(finding.key)
        if incident is None:
            if not is_mine:
                return
            incident = Incident(str(uuid7()), self._now(), finding, self._clock())
            self._open[finding.key] = incident
            yield self._notice("raised", incident)
            return
        incident.finding = finding
        incident.calm_looks = 0
        reminder = self._reminder_seconds
        is_due = reminder is not None and self._clock() - incident.told_at >= reminder
        if is_due and is_mine:
            incident.told_at = self._clock()
            yield self._notice("reminder", incident)

    def _notice(self, status: str, incident: Incident) -> Notice:
        at = self._now()
        return Notice(str(uuid7()), status, incident.id, incident.since, at, incident.finding)
