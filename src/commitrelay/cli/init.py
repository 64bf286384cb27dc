"""`commitrelay init`: create or migrate the outbox tables."""

from __future__ import annotations

from commitrelay.admin import initialise
from commitrelay.cli.command import JSON, OK, Command, Request
from commitrelay.cli.output import print_json
from commitrelay.urls import redact


def run(request: Request) -> int:
    import asyncio  # noqa: PLC0415

    where = redact(request.settings.required("database"))
    applied = list(asyncio.run(initialise(request.database())))
    if request.json:
        print_json({"database": where, "applied": applied})
    elif applied:
        print(f"Outbox ready in {where}: applied {', '.join(applied)}.")
    else:
        print(f"Nothing to do: the outbox in {where} is up to date.")
    return OK


COMMAND = Command(
    name="init",
    summary="Create the outbox tables, or bring them up to date.",
    description="""
        Creates the tables, view, trigger and indexes of the outbox, or migrates them to this
        version. Running it again, or from two places at once, is harmless. It touches nothing
        but its own tables; `commitrelay sql` prints what it would run.
    """,
    run=run,
    options=(JSON,),
    examples=(
        ("a file", "commitrelay init --database sqlite:///shop.db"),
        (
            "a schema of its own",
            "commitrelay init --database postgresql://shop@localhost/shop --schema outbox",
        ),
    ),
    usage="--database URL",
)
