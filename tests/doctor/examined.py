"""What one check finds, and the outboxes that it looks at."""

from __future__ import annotations

import asyncio
from typing import Any

from commitrelay import open_store
from commitrelay.doctor import CHECKS, Finding, Patient, examine
from commitrelay.settings import Settings


def found(check: str, database: str, **settings: Any) -> list[Finding]:
    """The findings of one check; `long_seconds` and `clock` are the patient's own."""
    own = {name: settings.pop(name) for name in ("long_seconds", "clock") if name in settings}
    patient = Patient(Settings(database=database, **settings), **own)
    (chosen,) = [each for each in CHECKS if each.name == check]
    (report,) = asyncio.run(examine(patient, [chosen]))
    assert report.unknown is None
    assert all(finding.problem and finding.remedy for finding in report.findings)
    return list(report.findings)


def the_problem(check: str, database: str, **settings: Any) -> str:
    """What the check says is wrong: one thing."""
    (finding,) = found(check, database, **settings)
    return finding.problem


def initialised(url: str) -> str:
    async def initialise() -> None:
        store = open_store(url)
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    return url
