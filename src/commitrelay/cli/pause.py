"""`commitrelay pause`: let a lane's relays stand still."""

from __future__ import annotations

import asyncio

from commitrelay.acts import Acts
from commitrelay.admin import Admin
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.confirm import actor
from commitrelay.cli.output import print_json
from commitrelay.kinds import Text

LANE = Option("LANE", "The lane's name; default: default.", Text("LANE"), arity="?")


def turn(request: Request, *, paused: bool) -> int:
    """Turn a lane's switch and say so."""
    lane = request.options["lane"] or "default"
    asyncio.run(_turn(request, lane, paused))
    if request.json:
        print_json({"lane": lane, "paused": paused})
    else:
        print(f"Lane {lane} is paused." if paused else f"Lane {lane} goes on.")
    return OK


async def _turn(request: Request, lane: str, paused: bool) -> None:
    database = request.database()
    async with Admin(database):
        await Acts(database, actor()).pause(lane, paused=paused)


def run(request: Request) -> int:
    return turn(request, paused=True)


COMMAND = Command(
    name="pause",
    summary="Let a lane's relays stand still.",
    description="""
        The relays of the lane finish what is at the broker and send nothing more until
        `commitrelay resume`. They notice it when they renew their leases, after a third of the
        lease time at most. Events may be added meanwhile; other lanes go on.
    """,
    run=run,
    options=(LANE, JSON),
    examples=(("the default lane", "commitrelay pause"), ("another", "commitrelay pause audit")),
    usage="[LANE] --database URL",
)
