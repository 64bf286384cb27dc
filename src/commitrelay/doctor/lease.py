"""Is the lease of every lane longer than a delivery may take?"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient
from commitrelay.kinds import duration
from commitrelay.leases import MIN_LEASE_SHARE


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = []
    for lane in patient.lanes:
        timeout = lane.publisher().delivery_timeout_seconds
        lease = lane.settings.lease
        if lease < MIN_LEASE_SHARE * timeout:
            findings.append(
                Finding(
                    f"lane {lane.name}: a lease of {duration(lease)} is too short for a delivery "
                    f"timeout of {duration(timeout)}: the relay refuses to start",
                    f"lease = {duration(MIN_LEASE_SHARE * timeout)} or more, or a shorter "
                    "delivery_timeout_seconds",
                )
            )
    return findings


CHECK = Check("lease", "leases outlast deliveries", examine)
