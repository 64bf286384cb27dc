"""`commitrelay blocked`: which keys stand still, and behind what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from commitrelay.admin import Admin
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import age, count, print_json, table
from commitrelay.cli.selecting import LANE
from commitrelay.kinds import Integer
from commitrelay.operations import WAITING_CAP, BlockedKey

MAX_KEYS = 10_000


def run(request: Request) -> int:
    limit = request.options["limit"]
    found = asyncio.run(_keys(request, limit + 1))
    keys, more = found[:limit], len(found) > limit
    keys = sorted(keys, key=lambda key: key.since)
    if request.json:
        print_json({"keys": [key._asdict() for key in keys], "more": more})
    elif not keys:
        print("No key stands still.")
    else:
        print(_text(keys))
        if more:
            print(f"There are more than {limit}: see --limit.")
    return OK


async def _keys(request: Request, limit: int) -> Sequence[BlockedKey]:
    database = request.database()
    async with Admin(database):
        return await database.blocked_keys(request.options["lane"], limit=limit)


def _text(keys: Sequence[BlockedKey]) -> str:
    now = datetime.now(UTC)
    rows = [
        (
            f"{key.aggregate_type}/{key.aggregate_id}",
            key.lane,
            age((now - key.since).total_seconds()),
            count(key.waiting, 0 if key.more_may_wait else None),
            key.state,
            key.id,
            key.event_type,
            key.last_error or "–",
        )
        for key in keys
    ]
    columns = ("aggregate", "lane", "since", "waiting", "state", "behind", "type", "error")
    return table(columns, rows)


COMMAND = Command(
    name="blocked",
    summary="Show which keys stand still, behind which event.",
    description=f"""
        Lists the aggregates whose events do not move, longest first: the event that failed, since
        when, its state and error, and how many later events of the aggregate wait behind it.
        Counting stops at {WAITING_CAP:,} events that a relay has set aside for it, and at so many
        that nobody has looked at yet, of all aggregates: then there may be more (+).
    """,
    run=run,
    options=(
        LANE,
        Option("--limit", "Keys to show.", Integer(1, MAX_KEYS), default=50, group="Page"),
        JSON,
    ),
    examples=(
        ("what stands still", "commitrelay blocked"),
        ("for scripts", "commitrelay blocked --json | jq -r '.keys[].id'"),
    ),
    usage="--database URL",
)
