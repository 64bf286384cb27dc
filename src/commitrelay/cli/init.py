"""`commitrelay init`: create or migrate the outbox tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from commitrelay.admin import initialise
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import print_json
from commitrelay.errors import ConfigError
from commitrelay.store import AdminStore
from commitrelay.urls import redact


def run(request: Request) -> int:
    import asyncio  # noqa: PLC0415

    where = redact(request.settings.required("database"))
    database = request.database()
    applied = list(asyncio.run(initialise(database)))
    if request.options["partitions"]:
        partition = getattr(database, "partition_log", None)
        if partition is None:
            raise ConfigError(f"{where} has no partitions: only PostgreSQL does; leave it out")
        asyncio.run(_partitioned(database, partition))
    if request.json:
        print_json({"database": where, "applied": applied})
    elif applied:
        print(f"Outbox ready in {where}: applied {', '.join(applied)}.")
    else:
        print(f"Nothing to do: the outbox in {where} is up to date.")
    return OK


async def _partitioned(database: AdminStore, partition: Callable[[], Awaitable[bool]]) -> None:
    try:
        await partition()
    finally:
        await database.close()


COMMAND = Command(
    name="init",
    summary="Create the outbox tables, or bring them up to date.",
    description="""
        Creates the tables, view, trigger and indexes of the outbox, or migrates them to this
        version. Running it again, or from two places at once, is harmless. It touches nothing
        but its own tables; `commitrelay sql` prints what it would run.
    """,
    run=run,
    options=(
        Option(
            "--partitions",
            "PostgreSQL, a new outbox: keep the log in daily partitions, made a week ahead and "
            "dropped as a whole. Grant rights afterwards.",
        ),
        JSON,
    ),
    examples=(
        ("a file", "commitrelay init --database sqlite:///shop.db"),
        (
            "a schema of its own",
            "commitrelay init --database postgresql://shop@localhost/shop --schema outbox",
        ),
    ),
    usage="--database URL",
)
