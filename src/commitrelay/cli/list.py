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
from commitrelay.page import Page
from commitrelay.store import EventRecord


def run(request: Request) -> int:
    events, next_before = asyncio.run(_page(request))
    if request.json:
        print_json({"events": [as_json(event) for event in events], "next_before": next_before})
        return OK
    if events:
        print(_text(events))
    elif next_before is None:
        print("No events.")
    if next_before is not None:
        print(Style()(_more(len(events) < request.options["limit"], next_before), DIM))
    return OK


async def _page(request: Request) -> Page:
    options = request.options
    async with Admin(request.database()) as admin:
        return await admin.events(
            filter_of(request), before_seq=options["before"], limit=options["limit"]
        )


def _more(is_cut_short: bool, next_before: int) -> str:
    if is_cut_short:
        return f"Looked back to seq {next_before}. Further: --before {next_before}"
    return f"More: --before {next_before}"


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
        pass to --before for the next one. What matches rarely is looked for a moment only: then
        the page says how far back it has looked.
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
            Integer(1, MAX_LISTED),
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
