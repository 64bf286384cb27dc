"""`commitrelay audit`: what operators did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from commitrelay.admin import MAX_LISTED, Admin
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import count, moment, print_json, table
from commitrelay.cli.style import DIM, Style
from commitrelay.kinds import Integer
from commitrelay.operations import AuditRow


def run(request: Request) -> int:
    limit = request.options["limit"]
    found = asyncio.run(_rows(request, limit + 1))
    rows, more = found[:limit], len(found) > limit
    next_before = rows[-1].id if more else None
    if request.json:
        print_json({"acts": [row._asdict() for row in rows], "next_before": next_before})
    elif not rows:
        print("Nobody has changed anything yet.")
    else:
        print(_text(rows))
        if more:
            print(Style()(f"More: --before {next_before}", DIM))
    return OK


async def _rows(request: Request, limit: int) -> Sequence[AuditRow]:
    database = request.database()
    async with Admin(database):
        return await database.list_audit(before_id=request.options["before"], limit=limit)


def _text(rows: Sequence[AuditRow]) -> str:
    cells = [
        (
            str(row.id),
            moment(row.at),
            row.actor,
            row.action,
            row.lane or "all",
            count(row.events),
            json.dumps(row.detail, ensure_ascii=False) if row.detail else "",
        )
        for row in rows
    ]
    return table(("id", "at", "who", "what", "lane", "events", "asked for"), cells)


COMMAND = Command(
    name="audit",
    summary="Show what operators did, newest first.",
    description="""
        Every command that changes something writes down who it was, what was asked for, and how
        many events were changed, before it changes the first. `commitrelay show` tells it of one
        event. Who: COMMITRELAY_ACTOR, or the account and the machine.
    """,
    run=run,
    options=(
        Option("--limit", "Acts on a page.", Integer(1, MAX_LISTED), default=50, group="Page"),
        Option("--before", "Only acts with a smaller id.", Integer(1, 2**62), group="Page"),
        JSON,
    ),
    examples=(("the last ten", "commitrelay audit --limit 10"),),
    usage="--database URL",
)
