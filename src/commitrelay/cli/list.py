"""`commitrelay list`: events, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from commitrelay.admin import MAX_LISTED, STATUSES, Admin
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import age, print_json, table
from commitrelay.cli.selecting import AGGREGATE, ERROR, LANE, SINCE, TYPE, UNTIL, filter_of
from commitrelay.cli.show import as_json
from commitrelay.cli.style import DIM, Style
from commitrelay.kinds import Choice, Integer
from commitrelay.store import EventRecord


def run(request: Request) -> int:
    limit = request.options["limit"]
    # One more than asked for tells whether there is a next page.
    found = list(asyncio.run(_events(request, limit + 1)))
    events, more = found[:limit], len(found) > limit
    next_before = events[-1].seq if more else None
    if request.json:
        print_json({"events": [as_json(event) for event in events], "next_before": next_before})
    elif not events:
        print("No events.")
    else:
        print(_text(events))
        if next_before is not None:
            print(Style()(f"More: --before {next_before}", DIM))
    return OK


async def _events(request: Request, limit: int) -> Sequence[EventRecord]:
    before = request.options["before"]
    async with Admin(request.database()) as admin:
        return await admin.events(filter_of(request), before_seq=before, limit=limit)


def _text(events: Sequence[EventRecord]) -> str:
    now = datetime.now(UTC)
    several = len({story.lane for event in events for story in event.deliveries}) > 1
    rows = [
        (
            str(event.seq),
            event.id,
            age((now - event.created_at).total_seconds()),
            ", ".join(
                f"{story.lane}: {story.status}" if several else story.status
                for story in event.deliveries
            )
            or "–",
            event.event_type,
            f"{event.aggregate_type}/{event.aggregate_id}",
        )
        for event in events
    ]
    return table(("seq", "id", "age", "status", "type", "aggregate"), rows)


COMMAND = Command(
    name="list",
    summary="List events, newest first.",
    description="""
        Lists events of the log with where they stand. Filters combine; a page ends with what to
        pass to --before for the next one.
    """,
    run=run,
    options=(
        Option("--status", "Only events in this state.", Choice(STATUSES, "STATE"), group="Filter"),
        TYPE,
        AGGREGATE,
        LANE,
        ERROR,
        SINCE,
        UNTIL,
        Option(
            "--limit",
            "Events on a page.",
            Integer(1, MAX_LISTED - 1),
            default=50,
            group="Page",
        ),
        Option("--before", "Only events older than this seq.", Integer(1, 2**62), group="Page"),
        JSON,
    ),
    examples=(
        ("what is stuck", "commitrelay list --status dead"),
        ("the story of one order", "commitrelay list --aggregate Order/42"),
        ("what failed of one error", "commitrelay list --error 'no such topic' --since 2h"),
    ),
    usage="--database URL",
)
