"""`commitrelay status`: every lane at a glance, with thresholds for cron jobs and probes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from commitrelay.admin import (
    STANDING_SECONDS,
    Admin,
    breaches,
    circuit,
    events_wait,
    stands_still,
    unserved,
)
from commitrelay.cli.command import BREACHED, JSON, OK, Command, Option, Request
from commitrelay.cli.output import age, as_json, count, moment, plain, print_json, rate, table
from commitrelay.cli.screen import Screen
from commitrelay.cli.style import BOLD, DIM, RED, YELLOW, Style
from commitrelay.errors import StoreUnreachable
from commitrelay.kinds import Duration, Integer
from commitrelay.store import LaneStatus, State
from commitrelay.urls import redact


def run(request: Request) -> int:
    if request.options["watch"]:
        return asyncio.run(_watch(request))
    lanes = asyncio.run(_status(request))
    found = breaches(
        lanes,
        max_lag_seconds=request.options["max_lag"],
        max_dead=request.options["max_dead"],
    )
    if request.json:
        print_json({"lanes": [_as_dict(lane) for lane in lanes], "breaches": found})
    else:
        print(_text(lanes))
    for breach in found:
        print(f"commitrelay: {breach}", file=sys.stderr)
    return BREACHED if found else OK


async def _status(request: Request) -> Sequence[LaneStatus]:
    async with Admin(request.database()) as admin:
        return await admin.status()


async def _watch(request: Request) -> int:
    """Draw it again and again, until Ctrl-C."""
    every = request.options["every"]
    with Screen() as screen:
        async with Admin(request.database()) as admin:
            while True:
                try:
                    lanes = await admin.status()
                except StoreUnreachable as error:
                    screen.show(Style()(f"{error}; trying again", RED))
                else:
                    _draw(request, screen, lanes)
                await asyncio.sleep(every)


def _draw(request: Request, screen: Screen, lanes: Sequence[LaneStatus]) -> None:
    if request.json:
        report = {"lanes": [_as_dict(lane) for lane in lanes]}
        print(json.dumps(report, default=as_json), flush=True)
        return
    style = Style()
    where = redact(request.settings.required("database"))
    heading = f"{style('commitrelay', BOLD)}  {where}  {style(moment(datetime.now(UTC)), DIM)}"
    screen.show(f"{heading}\n\n{_text(lanes)}")


def _as_dict(lane: LaneStatus) -> dict[str, Any]:
    return {
        **lane._asdict(),
        "relays": {name: relay._asdict() for name, relay in lane.relays.items()},
        "open_circuits": {name: held._asdict() for name, held in lane.open_circuits.items()},
        "circuit": circuit(lane),
    }


def _text(lanes: Sequence[LaneStatus]) -> str:
    parts = [_lanes_table(lanes)]
    relays = [
        (name, lane.lane, count(relay.buckets), age(relay.lease_expires_in_seconds))
        for lane in lanes
        for name, relay in sorted(lane.relays.items())
    ]
    style = Style()
    if relays:
        parts.append(table(("relay", "lane", "buckets", "lease ends in"), relays))
    elif not any(lane.open_circuits for lane in lanes):
        parts.append(style("No relay is running: start one with `commitrelay run`.", YELLOW))
    parts += [
        f"{style('circuit open', RED)} in lane {lane.lane}: relay {plain(name)} has waited "
        f"{age(held_off.open_seconds)} for its broker: {plain(held_off.error)}"
        for lane in lanes
        for name, held_off in sorted(lane.open_circuits.items())
    ]
    parts += [
        f"{style('last error', RED)} in lane {lane.lane}: {plain(lane.last_error)}"
        for lane in lanes
        if lane.last_error
    ]
    parts += [
        style(f"Lane {lane.lane} stands still: ", YELLOW)
        + f"its relays have published nothing for {age(STANDING_SECONDS)} or more. Their logs tell "
        "why."
        for lane in lanes
        if stands_still(lane) and not lane.open_circuits
    ]
    parts += [
        style(f"No relay serves lane {lane.lane}: ", YELLOW)
        + f"{events_wait(lane)}. Start one with `commitrelay run --lane {lane.lane}`, or remove "
        f"the lane with `commitrelay lanes remove {lane.lane}`."
        for lane in unserved(lanes)
    ]
    return "\n\n".join(parts)


def _lanes_table(lanes: Sequence[LaneStatus]) -> str:
    # Rare states get a column only where some lane has an event in them.
    always = ("pending", "scheduled", "retrying", "parked", "dead")
    seen = {state for lane in lanes for state, number in lane.counts.items() if number}
    states = [name for state in State if (name := state.name.lower()) in always or name in seen]
    rows = [
        (
            lane.lane + (" (paused)" if lane.paused else ""),
            *(count(lane.counts.get(state, 0), lane.capped_at) for state in states),
            age(lane.oldest_pending_seconds),
            rate(lane.published_last_minute / 60),
            _circuit(lane),
            moment(lane.last_published_at),
        )
        for lane in lanes
    ]
    return table(("lane", *states, "oldest", "rate", "circuit", "last published"), rows)


def _circuit(lane: LaneStatus) -> str:
    """closed, open, or open (1 of 3) where not all relays hold off."""
    holding_off, relays = len(lane.open_circuits), len({*lane.relays, *lane.open_circuits})
    share = f" ({holding_off} of {relays})" if 0 < holding_off < relays else ""
    return (circuit(lane) or "–") + share


COMMAND = Command(
    name="status",
    summary="Show what waits, what failed and who is relaying.",
    description="""
        Shows each lane: how many events wait, are being retried or are dead, the age of the
        oldest, the rate of the last minute, the circuit, and the relays with their buckets. Counts
        stop at a cap, so that it stays cheap. The circuit is open while a relay holds off because
        its broker cannot be reached; it says since when, and why. It also says where events wait
        and no relay is.

        With a threshold it serves as a check: exit code 3 and a line on stderr when breached.
    """,
    run=run,
    options=(
        Option(
            "--max-lag", "Exit 3 if the oldest event has waited longer.", Duration(), group="Check"
        ),
        Option("--max-dead", "Exit 3 if a lane has more dead events.", Integer(), group="Check"),
        Option("--watch", "Show it again and again, until Ctrl-C.", group="Watch"),
        Option("--every", "How often.", Duration(minimum=0.1), default=1.0, group="Watch"),
        JSON,
    ),
    examples=(
        ("as it changes", "commitrelay status --watch"),
        ("a check for cron or a probe", "commitrelay status --max-lag 60s --max-dead 0"),
        ("for scripts", "commitrelay status --json | jq '.lanes[0].counts.pending'"),
    ),
    usage="--database URL",
)
