"""`commitrelay edit`: change the payload or the headers of a dead event."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from commitrelay.acts import EDIT, RETRY, Acts, Done, Selection
from commitrelay.admin import Admin
from commitrelay.cli import edits
from commitrelay.cli.acting import options_of
from commitrelay.cli.command import OK, Command, Option, Request
from commitrelay.cli.confirm import actor
from commitrelay.cli.output import print_json
from commitrelay.errors import CommitrelayError, ConfigError
from commitrelay.kinds import Text
from commitrelay.revision import Revision
from commitrelay.store import EventRecord


def run(request: Request) -> int:
    if edits.is_for_several(request):
        return edits.run(request, _revision(request, None))
    done, retried = asyncio.run(_run(request))
    if request.json:
        print_json({"id": request.options["id"][0], **asdict(done), "retried": retried})
    else:
        print("The event was edited; its old version is kept.")
        print("It is retried now." if retried else "Deliver it with `commitrelay retry`.")
    return OK


async def _run(request: Request) -> tuple[Done, bool]:
    database = request.database()
    async with Admin(database) as admin:
        acts = Acts(database, actor())
        (event_id,) = request.options["id"]
        seq = (await admin.event(event_id)).seq
        seen = (await database.count_edits([seq])).get(seq, 0)  # before what is edited is read
        event = await admin.event(event_id)
        revision = _revision(request, event)
        revision.check_removals(event)
        done = await acts.edit(event, revision.of(event), edits=seen)
        if not request.options["retry"]:
            return done, False
        retried = await acts.carry_out(await acts.plan(RETRY, Selection(ids=[event.id])))
        return done, retried.changed > 0


def _revision(request: Request, event: EventRecord | None) -> Revision:
    """What the options say or, if they say nothing, the operator's editor."""
    options = request.options
    payload: bytes | None = None
    if options["payload_file"] is not None:
        payload = _read(options["payload_file"])
    elif not any(options[name] for name in ("set_header", "remove_header", "content_type")):
        if event is None:
            raise ConfigError(
                "the editor is for one event, and for no dry run: say what to change "
                "with --set-header, --remove-header, --content-type or --payload-file"
            )
        payload = _edited(event)
    return Revision(
        payload,
        options["content_type"],
        _headers(options["set_header"] or ()),
        tuple(options["remove_header"] or ()),
    )


def _read(path: str) -> bytes:
    return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()


def _headers(assignments: Sequence[str]) -> dict[str, str]:
    headers = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set-header {assignment!r} has no value: write NAME=VALUE")
        headers[name] = value
    return headers


def _edited(event: EventRecord) -> bytes:
    """What the operator's editor makes of the payload."""
    payload = event.payload or b""
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise CommitrelayError(
            f"the payload of event {event.id} is binary: pass a new one with --payload-file"
        ) from None
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise ConfigError("no editor: set EDITOR, or pass --payload-file or --set-header")
    suffix = ".json" if event.content_type.startswith("application/json") else ".txt"
    with tempfile.TemporaryDirectory(prefix="commitrelay-") as folder:
        path = Path(folder, f"payload{suffix}")
        path.write_bytes(payload)
        finished = subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603
        if finished.returncode != 0:
            raise CommitrelayError(
                f"{editor} ended with {finished.returncode}: nothing was changed"
            )
        return _without_last_newline(path.read_bytes(), payload)


def _without_last_newline(new: bytes, old: bytes) -> bytes:
    """Editors end a file with a newline; a payload that had none keeps having none."""
    return new if old.endswith(b"\n") else new.removesuffix(b"\n")


_IDS, *_SELECTING = options_of(EDIT)

COMMAND = Command(
    name="edit",
    summary="Change the payload or the headers of dead events.",
    description="""
        Opens the payload of a dead event in your editor (VISUAL or EDITOR), or takes it from a
        file. A payload that says that it is JSON must be JSON. The old version is kept, and
        `commitrelay show` tells who changed it. The event keeps its id and its place in the order;
        every lane that has not delivered it yet gets the new version.

        If somebody else edits the event meanwhile, nothing is changed.

        Several ids, or filters, change many events the same way: they are counted first, a terminal
        is asked, and elsewhere --yes is needed. What would stay as it is, could not be sent as it
        would be, or was changed meanwhile is left alone and counted.
    """,
    run=run,
    options=(
        _IDS,
        Option("--payload-file", "Take the payload from there; - is standard input.", Text("FILE")),
        Option("--content-type", "The payload's new content type.", Text("TYPE")),
        Option("--set-header", "Set a header; may be repeated.", Text("NAME=VALUE"), arity="*"),
        Option("--remove-header", "Remove a header; may be repeated.", Text("NAME"), arity="*"),
        Option("--same-payload", "With --payload-file: for all of several events."),
        Option("--retry", "Try what was edited again afterwards."),
        *_SELECTING,
    ),
    examples=(
        ("in an editor", "commitrelay edit 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10 --retry"),
        (
            "from a file",
            "commitrelay edit 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10 --payload-file new.json",
        ),
        (
            "a header",
            "commitrelay edit 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10 --set-header tenant=acme",
        ),
        (
            "a header that many lack",
            "commitrelay edit --error 'no tenant' --set-header tenant=acme --retry --yes",
        ),
    ),
    usage="ID… | FILTERS --database URL",
)
