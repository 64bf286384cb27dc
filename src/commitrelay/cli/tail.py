"""`commitrelay tail`: events as they are added and published."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from commitrelay.cli.command import OK, Command, Option, Request
from commitrelay.cli.output import STATUS_COLOURS, plain, timestamp
from commitrelay.cli.show import as_json
from commitrelay.cli.style import CYAN, DIM, Style
from commitrelay.errors import StoreUnreachable
from commitrelay.follow import Follow, Sight
from commitrelay.kinds import Choice, Duration, Integer, Text

WHAT = ("all", "added", "published")
WAIT_SECONDS = 2.0


def run(request: Request) -> int:
    return asyncio.run(_run(request))


async def _run(request: Request) -> int:
    database = request.database()
    await database.open()
    try:
        end = await database.end_of_log()
        follow = Follow(database, seq=max(0, end.seq - request.options["last"]), batch=end.batch)
        while True:
            try:
                sights = await _look(follow, request)
            except StoreUnreachable as error:
                print(f"commitrelay: {error}; waiting", file=sys.stderr)
                await asyncio.sleep(WAIT_SECONDS)
                continue
            for sight in sights:
                _print(sight, request)
            sys.stdout.flush()
            if request.options["no_follow"]:
                return OK
            await asyncio.sleep(request.options["every"])
    finally:
        await database.close()


async def _look(follow: Follow, request: Request) -> list[Sight]:
    what = request.options["what"]
    sights: list[Sight] = []
    if what != "published":
        sights += await follow.added()
    if what != "added":
        sights += await follow.settled()
    return [sight for sight in sights if _matches(sight, request)]


def _matches(sight: Sight, request: Request) -> bool:
    options, event = request.options, sight.event
    kind, _, identifier = (options["aggregate"] or "").partition("/")
    return (
        (options["lane"] is None or sight.lane in (None, options["lane"]))
        and (options["type"] is None or event.event_type == options["type"])
        and (not kind or event.aggregate_type == kind)
        and (not identifier or event.aggregate_id == identifier)
    )


def _print(sight: Sight, request: Request) -> None:
    if request.json:
        print(json.dumps(_as_json(sight), ensure_ascii=False))
        return
    style = Style()
    event = sight.event
    where = f" {sight.lane} by {sight.relay}" if sight.lane is not None else ""
    print(
        style(sight.at.astimezone().strftime("%H:%M:%S.%f")[:-3], DIM),
        style(f"{sight.what:<9}", STATUS_COLOURS.get(sight.what, CYAN)),
        plain(f"{event.event_type}  {event.aggregate_type}/{event.aggregate_id}"),
        style(f" {event.id}{plain(where)}", DIM),
    )


def _as_json(sight: Sight) -> dict[str, Any]:
    event = as_json(sight.event)
    event.pop("deliveries")
    return {
        "what": sight.what,
        "at": timestamp(sight.at),
        "lane": sight.lane,
        "relay": sight.relay,
        **event,
    }


COMMAND = Command(
    name="tail",
    summary="Follow events as they are added and published.",
    description="""
        Prints a line for every event that is committed to the log, and for every event that leaves
        a lane's queue: published, discarded or resolved. It goes on until Ctrl-C. An event whose
        transaction commits late is told when it does, up to a minute after later ones.
    """,
    run=run,
    options=(
        Option("--what", "all, added or published.", Choice(WHAT), default="all", group="Filter"),
        Option("--type", "Only events of this type.", Text("NAME"), group="Filter"),
        Option(
            "--aggregate",
            "Only events of this aggregate type, or of one aggregate.",
            Text("TYPE[/ID]"),
            group="Filter",
        ),
        Option("--lane", "Only what is published in this lane.", Text("NAME"), group="Filter"),
        Option(
            "--last",
            "Begin with about so many events that were added before.",
            Integer(0, 10_000),
            default=10,
        ),
        Option("--every", "Look for news this often.", Duration(minimum=0.05), default=0.5),
        Option("--no-follow", "Stop at the end instead of waiting for more."),
        Option("--json", "Print one JSON object per line.", group="Output"),
    ),
    examples=(
        ("what happens to one order", "commitrelay tail --aggregate Order/42"),
        ("published events for a script", "commitrelay tail --what published --json"),
    ),
    usage="--database URL",
)
