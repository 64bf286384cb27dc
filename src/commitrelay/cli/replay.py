"""`commitrelay replay`: events of the log go into a lane again."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

from commitrelay.admin import Admin
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.confirm import DRY_RUN, YES, actor, confirmed
from commitrelay.cli.output import count, print_json
from commitrelay.cli.selecting import AGGREGATE, ALL, IDS, SINCE, TYPE, UNTIL, selection_of
from commitrelay.errors import ConfigError
from commitrelay.kinds import Integer, Text
from commitrelay.replay import COUNT_CAP, Replay, Replayed, ReplayPlan


def run(request: Request) -> int:
    into = request.options["into"] or request.options["lane"]
    if into is None:
        raise ConfigError("into which lane? --lane default replays what it delivered, --into NAME")
    return asyncio.run(_run(request, into))


async def _run(request: Request, into: str) -> int:
    selection = selection_of(request)
    database = request.database()
    async with Admin(database):
        replay = Replay(database, actor(), rate=request.options["rate"])
        plan = await replay.plan(selection, into)
        described = f"{count(plan.matched, COUNT_CAP)} events into {_place(plan)}"
        if plan.matched and confirmed(request, f"Replay {described}?"):
            done = await replay.run(plan, _show)
            _tell(request, plan, done, _told(plan, done))
        else:
            _tell(request, plan, None, f"Nothing was replayed: there are {described}.")
            if plan.matched and not request.json:
                print("With --yes they are replayed.")
    return OK


def _show(queued: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{count(queued)} queued", end="", file=sys.stderr, flush=True)


def _told(plan: ReplayPlan, done: Replayed) -> str:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    text = f"{count(done.queued)} events were put into {_place(plan)}."
    if done.left_alone:
        text += f" {count(done.left_alone)} left alone: they are to be delivered there anyway."
    if plan.is_new:
        text += f"\nDeliver them with: commitrelay run --lane {plan.into} --topic …"
    return text


def _place(plan: ReplayPlan) -> str:
    return f"the new lane {plan.into}" if plan.is_new else f"lane {plan.into}"


def _tell(request: Request, plan: ReplayPlan, done: Replayed | None, text: str) -> None:
    if not request.json:
        print(text)
        return
    figures = {"audit": None, "queued": 0, "left_alone": 0} if done is None else asdict(done)
    print_json(
        {
            "into": plan.into,
            "new_lane": plan.is_new,
            "dry_run": done is None,
            "matched": plan.matched,
            **figures,
        }
    )


COMMAND = Command(
    name="replay",
    summary="Put events of the log into a lane again.",
    description="""
        Events that a lane has delivered, or that an operator has discarded, go into its queue
        again, oldest first: by id, key, type or time. They keep their ids, so that consumers that
        know them do nothing twice; per key they come in order, before what is added later.

        With --into they go into another lane. If there is none of that name, it is created and
        takes nothing by itself: a relay with its own topic delivers what is replayed
        (`commitrelay run --lane NAME --topic …`, or an entry of [[lanes]]). Without --lane, every
        event of the log that matches is taken, whatever became of it.

        It says how many there are first: a terminal is asked, elsewhere nothing happens without
        --yes.
    """,
    run=run,
    options=(
        IDS,
        Option("--lane", "Only what has left this lane's queue.", Text("NAME"), group="Filter"),
        AGGREGATE,
        TYPE,
        SINCE,
        UNTIL,
        ALL,
        Option("--into", "The lane to put them into; default: that of --lane.", Text("NAME")),
        Option("--rate", "Events a second at most.", Integer(1, 1_000_000), default=1000),
        DRY_RUN,
        YES,
        JSON,
    ),
    examples=(
        (
            "one event again",
            "commitrelay replay 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10 --lane default",
        ),
        ("what was sent last night", "commitrelay replay --lane default --since 12h --until 4h"),
        (
            "a new consumer gets all of one kind, on a topic of its own",
            "commitrelay replay --into search --aggregate Order --rate 200 --yes",
        ),
    ),
    usage="ID… | FILTERS --database URL",
)
