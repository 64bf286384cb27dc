"""Acting: plan, ask, carry out and tell, as `retry`, `discard` and `resolve` do it."""

from __future__ import annotations

import asyncio
import sys

from commitrelay.acts import Action, Acts, Done, Plan
from commitrelay.admin import Admin
from commitrelay.cli.command import FAILURE, JSON, OK, Option, Request
from commitrelay.cli.confirm import DRY_RUN, YES, actor, confirmed
from commitrelay.cli.output import count, print_json
from commitrelay.cli.selecting import (
    AGGREGATE,
    ALL,
    ERROR,
    IDS,
    LANE,
    SINCE,
    TYPE,
    UNTIL,
    selection_of,
)
from commitrelay.kinds import Choice
from commitrelay.operations import MAX_TARGETS


def options_of(action: Action) -> tuple[Option, ...]:
    """What such a command takes."""
    names = dict.fromkeys(
        "dead" if state.name == "SKIPPED" else state.name.lower() for state in action.states
    )
    status = Option(
        "--status",
        "Only events in this state; default: dead, or any of them if ids are given.",
        Choice(tuple(names), "STATE"),
        group="Filter",
    )
    filters = (status, AGGREGATE, TYPE, LANE, ERROR, SINCE, UNTIL, ALL)
    return (IDS, *filters, DRY_RUN, YES, JSON)


def act(request: Request, action: Action, past: str, *, asks: bool) -> int:
    """Do it; `asks` is whether ids are confirmed too. Filters always are."""
    return asyncio.run(_act(request, action, past, asks))


async def _act(request: Request, action: Action, past: str, asks: bool) -> int:
    selection = selection_of(request)
    database = request.database()
    async with Admin(database):
        acts = Acts(database, actor())
        plan = await acts.plan(action, selection)
        tell_unfit(plan)
        sure = not asks and selection.ids is not None and not request.options["dry_run"]
        question = f"{action.name.capitalize()} {described(plan)}?"
        if plan.targets and (sure or confirmed(request, question)):
            done = await acts.carry_out(plan)
            _tell(request, plan, done, _told(plan, done, past))
        else:
            _tell(request, plan, None, f"Nothing was {past}: there are {described(plan)}.")
            if plan.targets and not request.json:
                print(f"With --yes they are {past}.")
    return FAILURE if plan.unfit else OK


def tell_unfit(plan: Plan) -> None:
    for event_id, reason in plan.unfit.items():
        print(f"commitrelay: event {event_id} {reason}: left alone", file=sys.stderr)


def described(plan: Plan) -> str:
    cap = MAX_TARGETS if plan.is_capped else None
    states = ", ".join(f"{count(number)} {state}" for state, number in plan.by_state.items())
    noun = "event" if len(plan.targets) == 1 else "events"
    return f"{count(len(plan.targets), cap)} {noun}" + (f" ({states})" if states else "")


def _told(plan: Plan, done: Done, past: str) -> str:
    noun = "event" if done.changed == 1 else "events"
    text = f"{count(done.changed)} {noun} {past}."
    if done.left_alone:
        text += f" {count(done.left_alone)} left alone: changed meanwhile, or in a relay's hands."
    if plan.is_capped:
        text += " There may be more: run it again."
    return text


def _tell(request: Request, plan: Plan, done: Done | None, text: str) -> None:
    if not request.json:
        print(text)
        return
    print_json(
        {
            "action": plan.action.name,
            "dry_run": done is None,
            "matched": len(plan.targets),
            "by_state": plan.by_state,
            "more": plan.is_capped,
            "unfit": plan.unfit,
            "changed": 0 if done is None else done.changed,
            "left_alone": 0 if done is None else done.left_alone,
            "audit": None if done is None else done.audit,
        }
    )
