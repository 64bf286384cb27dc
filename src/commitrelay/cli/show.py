"""`commitrelay show`: one event, its payload and its story in every lane."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from commitrelay.admin import Admin
from commitrelay.cli import telling
from commitrelay.cli.command import JSON, OK, Command, Option, Request
from commitrelay.cli.output import moment, plain, print_json, table, timestamp
from commitrelay.cli.style import BOLD, Style
from commitrelay.kinds import Text
from commitrelay.operations import Story
from commitrelay.store import Delivery, EventRecord


def run(request: Request) -> int:
    event, story = asyncio.run(_event(request))
    if request.json:
        print_json({**as_json(event), "story": telling.as_json(story)})
    else:
        print(_text(event, story))
    return OK


async def _event(request: Request) -> tuple[EventRecord, Story]:
    database = request.database()
    async with Admin(database) as admin:
        event = await admin.event(request.options["id"])
        return event, await database.story(event.seq)


def as_json(event: EventRecord) -> dict[str, Any]:
    """An event as JSON; a payload that is no UTF-8 text comes as base64 instead."""
    fields: dict[str, Any] = {
        "seq": event.seq,
        "id": event.id,
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
        "event_type": event.event_type,
        "content_type": event.content_type,
        "headers": event.headers,
        "idempotency_key": event.idempotency_key,
        "created_at": timestamp(event.created_at),
        "deliver_at": timestamp(event.deliver_at),
        "completed_at": timestamp(event.completed_at),
        "deliveries": [_story(story) for story in event.deliveries],
    }
    if event.payload is not None:
        text = telling.decoded(event.payload)
        encoded = None if text is not None else base64.b64encode(event.payload).decode()
        fields |= {"payload": text, "payload_base64": encoded}
    return fields


def _story(story: Delivery) -> dict[str, Any]:
    return {
        "lane": story.lane,
        "status": story.status,
        "attempts": story.attempts,
        "due_at": timestamp(story.due_at),
        "last_error": story.last_error,
        "published_at": timestamp(story.published_at),
        "relay": story.relay,
        "waits_for_seq": story.waits_for_seq,
    }


def _text(event: EventRecord, story: Story) -> str:
    style = Style()
    facts = {
        "id": event.id,
        "seq": str(event.seq),
        "type": event.event_type,
        "aggregate": f"{event.aggregate_type}/{event.aggregate_id}",
        "added": moment(event.created_at),
        "deliver at": moment(event.deliver_at) if event.deliver_at else "",
        "completed": moment(event.completed_at) if event.completed_at else "",
        "idempotency key": event.idempotency_key or "",
        **{f"header {name}": value for name, value in event.headers.items()},
    }
    shown = {label: value for label, value in facts.items() if value}
    room = max(map(len, shown))
    lines = [
        f"{style(plain(label).ljust(room), BOLD)}  {plain(value)}" for label, value in shown.items()
    ]
    lines += ["", _deliveries(event)]
    lines += ["", style("story", BOLD), telling.told(event, story)]
    lines += ["", f"{style('payload', BOLD)} ({_size(event)})", _payload(event)]
    return "\n".join(lines)


def _deliveries(event: EventRecord) -> str:
    if not event.deliveries:
        return "No lane takes this event."
    rows = [
        (
            story.lane,
            story.status,
            str(story.attempts),
            moment(story.published_at or story.due_at),
            story.relay or "–",
            f"seq {story.waits_for_seq}" if story.waits_for_seq is not None else "–",
        )
        for story in event.deliveries
    ]
    return table(("lane", "status", "attempts", "published or due", "relay", "waits for"), rows)


def _size(event: EventRecord) -> str:
    return f"{event.content_type}, {len(event.payload or b''):,} bytes"


def _payload(event: EventRecord) -> str:
    text = telling.decoded(event.payload or b"")
    if text is None:
        return "binary: --json prints it as base64"
    if event.content_type.startswith("application/json"):
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except ValueError:
            pass
    return "\n".join(plain(line) for line in text.split("\n"))


COMMAND = Command(
    name="show",
    summary="Show one event: payload, headers, and its story.",
    description="""
        Shows an event with its payload, where it stands in every lane, and its whole story: when
        it was added, each attempt that failed and why, what operators did to it, when and by whom
        it was published, and, while it is queued, which relay has it in hand and until when, and
        what it is stuck behind.
    """,
    run=run,
    options=(Option("ID", "The event's id, as `commitrelay list` shows it.", Text("ID")), JSON),
    examples=(("one event", "commitrelay show 01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10"),),
    usage="ID --database URL",
)
