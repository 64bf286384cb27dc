"""`commitrelay purge`: delete delivered events past their retention, archived first if asked."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.confirm import DRY_RUN, YES, actor, confirmed
from commitrelay.cli.output import count, print_json
from commitrelay.errors import ConfigError
from commitrelay.kinds import Duration, duration
from commitrelay.operations import Act
from commitrelay.purge import PAGE, PAUSE_SECONDS, Purge, Purged
from commitrelay.registry import Database

if TYPE_CHECKING:
    from commitrelay.archive import FileArchive

COUNT_CAP = 1_000_000


def run(request: Request) -> int:
    retention = request.settings.retention
    if retention is None:
        raise ConfigError("retention is never, so there is nothing to purge: pass --retention 7d")
    return asyncio.run(_run(request, retention))


async def _run(request: Request, retention: float) -> int:
    from commitrelay.daemon import archive_of  # noqa: PLC0415

    database = request.database()
    archive = archive_of(request.settings, database)
    purge = Purge(
        database,
        retention_seconds=retention,
        archive=archive,
        pause_seconds=request.options["pause"],
    )
    await database.open()
    try:
        due = await purge.count(COUNT_CAP)
        what = f"{count(due, COUNT_CAP)} delivered events older than {duration(retention)}"
        if not due or not confirmed(request, f"Delete {what}?"):
            _tell(request, due, None, archive, f"Nothing was deleted: there are {what}.")
            return OK
        done = await _purge(request, database, purge, retention)
        _tell(request, due, done, archive, f"Deleted {count(done.deleted)} events.")
        return OK
    finally:
        await database.close()


async def _purge(request: Request, database: Database, purge: Purge, retention: float) -> Purged:
    """The audit row is there before the first event goes, and grows with what is done."""
    detail = {"older_than": duration(retention), "archive": request.settings.archive}
    audit = await database.begin_act(Act(actor(), "purge", None, detail))
    counted = 0

    async def told(done: Purged) -> None:
        nonlocal counted
        await database.count_act(audit, done.deleted - counted)
        counted = done.deleted
        if sys.stderr.isatty():
            print(f"\r{count(done.deleted)} deleted", end="", file=sys.stderr, flush=True)

    try:
        return await purge.run(told)
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tell(
    request: Request, due: int, done: Purged | None, archive: FileArchive | None, text: str
) -> None:
    files = [str(path) for path in archive.files] if archive is not None else []
    if request.json:
        figures = asdict(done or Purged())
        print_json({"due": due, "dry_run": done is None, **figures, "files": files})
        return
    print(text)
    if done is None and due:
        print("With --yes they are deleted.")
    if files:
        print(f"Archived {count(done.archived if done else 0)} in {len(files)} files.")


COMMAND = Command(
    name="purge",
    summary="Delete delivered events past their retention.",
    description=f"""
        Deletes events that every lane is done with and that are older than the retention, with
        what the journal says about them; nothing that still has to be delivered is touched. It
        goes in steps of {PAGE:,} with a pause in between, so that writers never wait for it. A
        relay does the same every minute, as long as its retention is not never.

        With --archive, events are in files on disk before they are deleted: gzipped JSON lines, or
        Parquet (extra parquet). A crash in between leaves events in both places, so the archive
        may hold an event twice; tell them apart by id.
    """,
    run=run,
    options=(
        Option("--pause", "Between two steps.", Duration(), default=PAUSE_SECONDS),
        DRY_RUN,
        YES,
        JSON,
    ),
    examples=(
        ("how much there is", "commitrelay purge --retention 30d --dry-run"),
        ("in a cron job, with an archive", "commitrelay purge --archive /var/archive --yes"),
        ("read an archive", "zcat /var/archive/outbox-*.jsonl.gz | jq .aggregate_id"),
    ),
    usage="--database URL",
)
