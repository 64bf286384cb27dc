"""`commitrelay lanes`: list, add, filter and remove lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.confirm import YES, actor, confirmed
from commitrelay.cli.output import count, moment, print_json, table
from commitrelay.errors import CommitrelayError, ConfigError
from commitrelay.kinds import Choice, Listing, Text
from commitrelay.lanes import check_removable, described, find_lane, remove_lane
from commitrelay.log import LaneFilter, LaneRecord
from commitrelay.operations import Act
from commitrelay.registry import Database
from commitrelay.stores.status import COUNT_CAP

ACTIONS = ("list", "add", "filter", "remove")


def run(request: Request) -> int:
    action, name = request.options["action"] or "list", request.options["name"]
    if action != "list" and name is None:
        raise ConfigError(f"which lane? write commitrelay lanes {action} NAME")
    return asyncio.run(_run(request, action, name))


async def _run(request: Request, action: str, name: str) -> int:
    database = request.database()
    await database.open()
    try:
        if action == "add":
            await _add(request, database, name)
        elif action == "filter":
            return await _filter(request, database, name)
        elif action == "remove":
            return await _remove(request, database, name)
        lanes = await database.lanes()
    finally:
        await database.close()
    if request.json:
        print_json({"lanes": [lane._asdict() for lane in lanes]})
    else:
        print(_text(lanes))
    return OK


async def _add(request: Request, database: Database, name: str) -> None:
    filters = _asked(request)._asdict()
    if name not in (lane.name for lane in await database.lanes()):  # else it is refused
        await database.begin_act(Act(actor(), "add lane", name, filters))
    await database.add_lane(name, **filters)


def _asked(request: Request) -> LaneFilter:
    return LaneFilter(request.options["aggregate_types"], request.options["event_types"])


async def _filter(request: Request, database: Database, name: str) -> int:
    lane = find_lane(await database.lanes(), name)
    new = _asked(request)
    if new.takes_the_same_as(lane.filter):
        _tell_filter(request, lane, None, f"Lane {name} takes {described(new)} already.")
        return OK
    change = f"{described(lane.filter)} → {described(new)}"
    if not confirmed(request, f"Change what lane {name} takes from now on, {change}?"):
        text = f"Lane {name} stays as it is: {change} was asked for; --yes changes it."
        _tell_filter(request, lane, None, text)
        return OK
    detail = {**new._asdict(), "before": lane.filter._asdict()}
    audit = await database.begin_act(Act(actor(), "filter lane", name, detail))
    if not await database.set_filter(name, seen=lane.filter, new=new):
        raise CommitrelayError(
            f"lane {name} was changed by somebody else meanwhile, or is being removed: look again"
        )
    _tell_filter(request, lane, audit, f"Lane {name} takes {described(new)} from now on.")
    return OK


def _tell_filter(request: Request, lane: LaneRecord, audit: int | None, text: str) -> None:
    if request.json:
        print_json(
            {
                "lane": lane.name,
                "changed": audit is not None,
                **_asked(request)._asdict(),
                "before": lane.filter._asdict(),
                "waiting": lane.waiting,
                "audit": audit,
            }
        )
        return
    print(text)
    if audit is not None and lane.waiting:
        print(f"The {count(lane.waiting, COUNT_CAP)} events in its queue stay.")


async def _remove(request: Request, database: Database, name: str) -> int:
    lane = find_lane(await database.lanes(), name)
    check_removable(lane)
    waiting = f"{count(lane.waiting, COUNT_CAP)} events that it has not delivered"
    if lane.waiting and not confirmed(request, f"Remove lane {name} and drop {waiting}?"):
        _tell(request, name, None, f"Lane {name} stays: it has {waiting}; --yes drops them.")
        return OK
    audit = await database.begin_act(Act(actor(), "remove lane", name, {"waiting": lane.waiting}))
    dropped = await remove_lane(database, lane)
    await database.count_act(audit, dropped)
    _tell(request, name, dropped, f"Removed lane {name}; {count(dropped)} events were dropped.")
    return OK


def _tell(request: Request, name: str, dropped: int | None, text: str) -> None:
    if request.json:
        print_json({"lane": name, "removed": dropped is not None, "dropped": dropped or 0})
    else:
        print(text)


def _text(lanes: Sequence[LaneRecord]) -> str:
    rows = [
        (
            lane.name + (" (paused)" if lane.paused else ""),
            count(lane.waiting, COUNT_CAP),
            count(lane.relays),
            _names(lane.aggregate_types),
            _names(lane.event_types),
            moment(lane.created_at),
        )
        for lane in lanes
    ]
    columns = ("lane", "waiting", "relays", "aggregate types", "event types", "added")
    return table(columns, rows)


def _names(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names) or "none"


_TYPES = Listing(Text("NAME"), "A,B,…")

COMMAND = Command(
    name="lanes",
    summary="List lanes, add one, change its filter, or remove one.",
    description="""
        A lane is a destination with a queue of its own. A new lane gets what is added from now on
        and passes its filter: an event must be of one of the aggregate types and of one of the
        event types. `commitrelay replay` fills it with what is in the log already.

        `filter` replaces a lane's filter; without options, everything passes. It is for what is
        added from then on: what is in the lane's queue stays, and what the lane did not take before
        comes by `commitrelay replay`. Transactions that are open meanwhile may still use the old
        filter.

        A lane is removed only when no relay runs in it. If events wait there, it says how many, and
        with --yes drops them from that lane; the log keeps them.
    """,
    run=run,
    options=(
        Option("ACTION", "list (or nothing), add, filter or remove.", Choice(ACTIONS), arity="?"),
        Option("NAME", "The lane to add, filter or remove.", Text("NAME"), arity="?"),
        Option("--aggregate-types", "Only of these aggregate types.", _TYPES, group="Filter"),
        Option("--event-types", "Only of these event types.", _TYPES, group="Filter"),
        YES,
        JSON,
    ),
    examples=(
        ("all lanes", "commitrelay lanes"),
        ("a lane for the audit", "commitrelay lanes add audit --aggregate-types Order,Payment"),
        ("it gets more", "commitrelay lanes filter audit --aggregate-types Order,Payment,Refund"),
        ("away with it", "commitrelay lanes remove audit"),
    ),
    usage="[ACTION NAME] --database URL",
)
