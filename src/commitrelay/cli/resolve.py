"""`commitrelay resolve`: say that events were delivered by other means."""

from __future__ import annotations

from commitrelay.acts import RESOLVE
from commitrelay.cli.acting import act, options_of
from commitrelay.cli.command import Command, Request


def run(request: Request) -> int:
    return act(request, RESOLVE, "resolved", asks=True)


COMMAND = Command(
    name="resolve",
    summary="Say that events were delivered by other means.",
    description="""
        As `commitrelay discard`, with another verdict in the journal: somebody has seen to it that
        the consumers know, and the events need not be delivered any more.
    """,
    run=run,
    options=options_of(RESOLVE),
    examples=(
        ("one event", "commitrelay resolve 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10 --yes"),
        ("what died that night", "commitrelay resolve --since 2026-11-15T22:00 --until 1h"),
    ),
    usage="ID… | FILTERS --database URL",
)
