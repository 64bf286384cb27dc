"""`commitrelay resume`: let a lane go on after a pause."""

from __future__ import annotations

from commitrelay.cli.command import JSON, Command, Request
from commitrelay.cli.pause import LANE, turn


def run(request: Request) -> int:
    return turn(request, paused=False)


COMMAND = Command(
    name="resume",
    summary="Let a lane go on after a pause.",
    description="""
        Ends a pause: the relays of the lane notice it when they renew their leases.
    """,
    run=run,
    options=(LANE, JSON),
    examples=(("the default lane", "commitrelay resume"),),
    usage="[LANE] --database URL",
)
