"""Lanes: how a lane's filter is told, and how a lane is taken away.

Nothing is lost that nobody has decided to lose: a lane is closed first, so that it takes no new
event, then emptied in bounded batches, and removed when nothing is left. A lane with a live relay
stays: its relay would have events in hand.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from commitrelay.errors import CommitrelayError, ConfigError
from commitrelay.kinds import hint
from commitrelay.log import LaneFilter, LaneRecord, LogStore

BATCH = 1000


def find_lane(lanes: Sequence[LaneRecord], name: str) -> LaneRecord:
    for lane in lanes:
        if lane.name == name:
            return lane
    known = [lane.name for lane in lanes]
    raise ConfigError(f"no lane {name!r}{hint(name, known)}: there is {', '.join(known)}")


def described(passes: LaneFilter) -> str:
    """A filter in words."""
    parts = {"aggregate types": passes.aggregate_types, "event types": passes.event_types}
    return " and ".join(
        f"all {noun}" if names is None else f"{noun} {', '.join(names) or '(none)'}"
        for noun, names in parts.items()
    )


def filter_command(name: str, passes: LaneFilter) -> str:
    """What gives a lane this filter."""
    options = {"--aggregate-types": passes.aggregate_types, "--event-types": passes.event_types}
    given = [(option, ",".join(names)) for option, names in options.items() if names is not None]
    words = ("commitrelay", "lanes", "filter", name, *(word for pair in given for word in pair))
    return shlex.join(words)


def check_removable(lane: LaneRecord) -> None:
    """`CommitrelayError` while somebody relays it."""
    if lane.relays:
        raise CommitrelayError(
            f"{lane.relays} relays run in lane {lane.name}: stop them first, "
            "and take the lane out of their settings, or they will create it again"
        )


async def remove_lane(store: LogStore, lane: LaneRecord) -> int:
    """Close, empty and remove it; how many events were taken out of its queue undelivered."""
    check_removable(lane)
    await store.close_lane(lane.name)
    dropped = 0
    while True:
        taken = await store.empty_lane(lane.name, BATCH)
        dropped += taken
        if not taken and await store.remove_lane(lane.name):
            return dropped
