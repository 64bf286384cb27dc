"""`commitrelay retry`: try failed events again, now."""

from __future__ import annotations

from commitrelay.acts import RETRY
from commitrelay.cli.acting import act, options_of
from commitrelay.cli.command import Command, Request


def run(request: Request) -> int:
    return act(request, RETRY, "retried", asks=False)


COMMAND = Command(
    name="retry",
    summary="Try dead or waiting events again, now.",
    description="""
        Dead events, and with --status retrying those that wait for their next attempt, are due
        now, with all their attempts before them. Their keys stay blocked until they are delivered,
        so order holds.

        Ids are retried at once. Filters are counted first: a terminal is asked, elsewhere --yes is
        needed. An event that was changed meanwhile is left alone.
    """,
    run=run,
    options=options_of(RETRY),
    examples=(
        ("one event", "commitrelay retry 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10"),
        ("all that died of one error", "commitrelay retry --error 'no such topic' --yes"),
        ("do not wait any longer", "commitrelay retry --status retrying --all"),
    ),
    usage="ID… | FILTERS --database URL",
)
