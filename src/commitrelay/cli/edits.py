"""Edits: `commitrelay edit` of several events at once, planned, asked for and told."""

from __future__ import annotations

import asyncio
from typing import Any

from commitrelay.acts import EDIT, RETRY, Acts, Edited, Plan
from commitrelay.admin import Admin
from commitrelay.cli.acting import tell_unfit
from commitrelay.cli.command import FAILURE, OK, Request
from commitrelay.cli.confirm import actor, confirmed
from commitrelay.cli.output import count, plain, print_json
from commitrelay.cli.selecting import selection_of
from commitrelay.errors import ConfigError
from commitrelay.operations import MAX_TARGETS
from commitrelay.revision import Revision


def is_for_several(request: Request) -> bool:
    """Whether it is not just one id that is to be edited now."""
    return not _is_one(request) or request.options["dry_run"] or request.options["lane"] is not None


def _is_one(request: Request) -> bool:
    return len(selection_of(request).ids or ()) == 1


def run(request: Request, revision: Revision) -> int:
    is_same = revision.payload is not None and not _is_one(request)
    if is_same and not request.options["same_payload"]:
        raise ConfigError(
            "--payload-file would give several events the same payload: "
            "add --same-payload if that is meant"
        )
    revision.check()
    return asyncio.run(_run(request, revision))


async def _run(request: Request, revision: Revision) -> int:
    database = request.database()
    async with Admin(database):
        acts = Acts(database, actor())
        plan = await acts.plan(EDIT, selection_of(request))
        tell_unfit(plan)
        if plan.targets and confirmed(request, f"Edit {_described(plan)}?"):
            edited = await acts.edit_all(plan, revision)
            retried = await _retry(request, acts, plan, edited)
            _tell(request, plan, edited, retried)
        else:
            _tell(request, plan, None, 0)
    return FAILURE if plan.unfit else OK


async def _retry(request: Request, acts: Acts, plan: Plan, edited: Edited) -> int:
    """Try again what was edited, if that is asked for; how many, lane by lane."""
    if not (request.options["retry"] and edited.edited):
        return 0
    again = Plan(RETRY, plan.selection, edited.edited, {})
    return (await acts.carry_out(again)).changed


def _described(plan: Plan) -> str:
    cap = MAX_TARGETS if plan.is_capped else None
    return f"{count(plan.events, cap)} dead {_noun(plan.events)}"


def _tell(request: Request, plan: Plan, edited: Edited | None, retried: int) -> None:
    if request.json:
        print_json(_as_json(plan, edited, retried))
    elif edited is None:
        print(f"Nothing was edited: there are {_described(plan)}.")
        if plan.targets:
            print("With --yes they are edited.")
    else:
        _tell_done(plan, edited, retried)


def _as_json(plan: Plan, edited: Edited | None, retried: int) -> dict[str, Any]:
    reasons = {} if edited is None else edited.left_alone
    return {
        "action": "edit",
        "dry_run": edited is None,
        "matched": plan.events,
        "more": plan.is_capped,
        "unfit": plan.unfit,
        "changed": 0 if edited is None else edited.changed,
        "left_alone": 0 if edited is None else sum(reasons.values()) + len(plan.unfit),
        "reasons": reasons,
        "retried": retried,
        "audit": None if edited is None else edited.audit,
    }


def _tell_done(plan: Plan, edited: Edited, retried: int) -> None:
    print(f"{count(edited.changed)} {_noun(edited.changed)} edited; the old versions are kept.")
    for reason, number in edited.left_alone.items():
        print(f"{count(number)} left alone: {plain(reason)}.")
    if plan.is_capped:
        advice = "run it again" if retried else "narrow the filter, such as by --until"
        print(f"There may be more: {advice}.")
    if edited.changed:
        print(f"{count(retried)} retried." if retried else "Deliver them with `commitrelay retry`.")


def _noun(number: int) -> str:
    return "event" if number == 1 else "events"
