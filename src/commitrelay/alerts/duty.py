"""Duty: what one process tells of, so that several do not tell of the same.

By what the database says of the relays: for a lane speaks the one that holds a lease in it; where
none does, the one that waits for its broker; of several, the one whose name comes first. For what
concerns no lane, and for the lanes that nobody serves, whoever speaks for the first lane that is
served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commitrelay.store import LaneStatus


class Duty(NamedTuple):
    lanes: frozenset[str] = frozenset()
    outbox: bool = False  # what concerns no lane in particular
    unserved: frozenset[str] = frozenset()  # lanes that nobody serves

    def since(self, before: Duty) -> Duty:
        """What of it was my duty before as well."""
        return Duty(
            self.lanes & before.lanes,
            self.outbox and before.outbox,
            self.unserved & before.unserved,
        )


NO_DUTY = Duty()


def duty_of(
    names: Mapping[str, str | None], lanes: Sequence[LaneStatus], before: Duty = NO_DUTY
) -> Duty:
    """Of relays with these names, by lane; None: not known yet."""
    mine = frozenset(status.lane for status in lanes if _is_mine(names, status, before))
    served = [status for status in lanes if status.is_served]
    outbox = served[0].lane in mine if served else before.outbox
    unserved = {status.lane for status in lanes if not status.is_served} - mine
    return Duty(mine, outbox, frozenset(unserved) if outbox else frozenset())


def _is_mine(names: Mapping[str, str | None], status: LaneStatus, before: Duty) -> bool:
    if status.lane not in names:
        return False
    if not status.is_served:
        return status.lane in before.lanes  # a broker is back, and the lease is not there yet
    return names[status.lane] == min(status.relays or status.open_circuits)
