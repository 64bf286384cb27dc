"""`commitrelay drain`: wait until a lane has nothing left to deliver."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

from commitrelay.admin import Admin
from commitrelay.cli.command import BREACHED, JSON, OK, Command, Option, Request
from commitrelay.cli.output import count, print_json
from commitrelay.cli.pause import LANE
from commitrelay.drain import Draining, drain
from commitrelay.errors import CommitrelayError
from commitrelay.kinds import Duration, duration


def run(request: Request) -> int:
    now = asyncio.run(_wait(request, request.options["lane"] or "default"))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if request.json:
        print_json(asdict(now))
    elif now.empty:
        held = f"; {count(now.held)} are dead, parked or scheduled" if now.held else ""
        print(f"Lane {now.lane} has nothing left to deliver{held}.")
    if not now.empty:
        waited = duration(request.options["timeout"])
        print(
            f"commitrelay: lane {now.lane} still has {count(now.left)} events to deliver "
            f"after {waited}: look at `commitrelay status`",
            file=sys.stderr,
        )
    return OK if now.empty else BREACHED


async def _wait(request: Request, lane: str) -> Draining:
    database = request.database()
    now: Draining | None = None
    async with Admin(database):
        try:
            async with asyncio.timeout(request.options["timeout"]):
                async for now in drain(database, lane):
                    _check(now)
                    _show(now)
        except TimeoutError:
            if now is None:
                raise CommitrelayError("the database did not answer in time") from None
    assert now is not None
    return now


def _check(now: Draining) -> None:
    if now.paused and not now.empty:
        raise CommitrelayError(
            f"lane {now.lane} is paused with {count(now.left)} events: "
            f"run commitrelay resume {now.lane} first"
        )


def _show(now: Draining) -> None:
    if sys.stderr.isatty():
        relays = f"{now.relays} relays" if now.relays else "no relay is running"
        text = f"{now.lane}: {count(now.left)} left, {relays}"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


COMMAND = Command(
    name="drain",
    summary="Wait until a lane has nothing left to deliver.",
    description="""
        Returns when nothing in the lane is pending, being sent or waiting for its next attempt.
        What is dead, parked behind a dead event, or scheduled for later does not count. It
        delivers nothing itself: a relay has to run. On a terminal it shows how much is left.

        Exit code 3 if there is something left when the time is up.
    """,
    run=run,
    options=(
        LANE,
        Option("--timeout", "How long to wait.", Duration(never=True), default_text="never"),
        JSON,
    ),
    examples=(("before a migration", "commitrelay drain --timeout 5m && commitrelay pause"),),
    usage="[LANE] --database URL",
)
