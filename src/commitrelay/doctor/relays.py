"""Is there a relay in every lane where events wait?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.admin import events_wait, unserved
from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient


async def examine(patient: Patient) -> Sequence[Finding]:
    """Silent where no relay runs at all: that is no oversight."""
    return [
        Finding(
            f"lane {status.lane}: {events_wait(status)}, and no relay serves it, while others are "
            "served",
            f"start one with `commitrelay run --lane {status.lane}`, or remove the lane with "
            f"`commitrelay lanes remove {status.lane}`",
        )
        for status in unserved(await patient.database.status())
        if not status.paused
    ]


CHECK = Check("relays", "no lane waits for a relay", examine)
