"""`commitrelay discard`: decide that events need not be delivered."""

from __future__ import annotations

from commitrelay.acts import DISCARD
from commitrelay.cli.acting import act, options_of
from commitrelay.cli.command import Command, Request


def run(request: Request) -> int:
    return act(request, DISCARD, "discarded", asks=True)


COMMAND = Command(
    name="discard",
    summary="Decide that events need not be delivered.",
    description="""
        Takes events out of the queue for good and lets their keys go on. The journal keeps who did
        it, and the log keeps the events: `commitrelay replay` brings them back.

        It says how many there are first: a terminal is asked, elsewhere nothing happens without
        --yes. Pending and due events are left alone while a relay runs in their lane: it may have
        them in its hands.
    """,
    run=run,
    options=options_of(DISCARD),
    examples=(
        ("one event", "commitrelay discard 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10"),
        ("how many there are", "commitrelay discard --type OrderScanned --dry-run"),
        (
            "what is stuck of one aggregate",
            "commitrelay discard --status parked --aggregate Order/42 --yes",
        ),
    ),
    usage="ID… | FILTERS --database URL",
)
