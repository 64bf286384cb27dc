"""Do the clocks of the database and of this machine agree?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient
from commitrelay.kinds import duration

MAX_SECONDS = 1.0


async def examine(patient: Patient) -> Sequence[Finding]:
    before = patient.clock()
    (row,) = await patient.ask("clock")
    after = patient.clock()
    theirs = float(row["seconds"])
    off = max(before - theirs, theirs - after)
    if off <= MAX_SECONDS:
        return []
    way = "behind" if theirs < before else "ahead of"
    return [
        Finding(
            f"the database's clock is {duration(round(off))} {way} this machine's: leases are "
            "safe, but ages, lag and deliver_at are off by that",
            "let both machines keep time by NTP (chrony or systemd-timesyncd)",
        )
    ]


CHECK = Check("clock", "the clocks agree", examine)
