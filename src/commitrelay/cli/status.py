"""`commitrelay status`: every lane at a glance, with thresholds for cron jobs and probes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict

from commitrelay.admin import Admin, breaches
from commitrelay.cli.command import BREACHED, JSON, OK, Command, Option, Request
from commitrelay.cli.output import age, count, moment, plain, print_json, table
from commitrelay.cli.style import RED, YELLOW, Style
from commitrelay.kinds import Duration, Integer
from commitrelay.store import LaneStatus, State


def run(request: Request) -> int:
    lanes = asyncio.run(_status(request))
    found = breaches(
        lanes,
        max_lag_seconds=request.options["max_lag"],
        max_dead=request.options["max_dead"],
    )
    if request.json:
        print_json({"lanes": [asdict(lane) for lane in lanes], "breaches": found})
    else:
        print(_text(lanes))
    for breach in found:
        print(f"commitrelay: {breach}", file=sys.stderr)
    return BREACHED if found else OK


async def _status(request: Request) -> Sequence[LaneStatus]:
    async with Admin(request.database()) as admin:
        return await admin.status()


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
    else:
        parts.append(style("No relay is running: start one with `commitrelay run`.", YELLOW))
    parts += [
        f"{style('last error', RED)} in lane {lane.lane}: {plain(lane.last_error)}"
        for lane in lanes
        if lane.last_error
    ]
    return "\n\n".join(parts)


def _lanes_table(lanes: Sequence[LaneStatus]) -> str:
    # Rare states get a column only where some lane has an event in them.
    always = ("pending", "retrying", "dead")
    seen = {state for lane in lanes for state, number in lane.counts.items() if number}
    states = [name for state in State if (name := state.name.lower()) in always or name in seen]
    rows = [
        (
            lane.lane + (" (paused)" if lane.paused else ""),
            *(count(lane.counts.get(state, 0), lane.capped_at) for state in states),
            age(lane.oldest_pending_seconds),
            count(lane.published_last_minute),
            moment(lane.last_published_at),
        )
        for lane in lanes
    ]
    return table(("lane", *states, "oldest", "last minute", "last published"), rows)


COMMAND = Command(
    name="status",
    summary="Show what waits, what failed and who is relaying.",
    description="""
        Shows each lane: how many events wait, are being retried or are dead, the age of the
        oldest, and the relays that hold leases. Counts stop at a cap, so that it stays cheap.

        With a threshold it serves as a check: exit code 3 and a line on stderr when breached.
    """,
    run=run,
    options=(
        Option(
            "--max-lag", "Exit 3 if the oldest event has waited longer.", Duration(), group="Check"
        ),
        Option("--max-dead", "Exit 3 if a lane has more dead events.", Integer(), group="Check"),
        JSON,
    ),
    examples=(
        ("a check for cron or a probe", "commitrelay status --max-lag 60s --max-dead 0"),
        ("for scripts", "commitrelay status --json | jq '.lanes[0].counts.pending'"),
    ),
    usage="--database URL",
)
