"""Telling: an event's story, line by line and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from commitrelay.cli.output import age, moment, plain, timestamp
from commitrelay.cli.style import DIM, GREEN, RED, YELLOW, Style
from commitrelay.operations import AuditRow, Edited, Hold, Story
from commitrelay.store import EventRecord

_COLOURS = {"published": GREEN, "failed": RED, "completed": GREEN}


def told(event: EventRecord, story: Story) -> str:
    """What happened, oldest first, who has the event now, and what it is stuck behind."""
    style = Style()
    lines = []
    for at, what, rest in sorted(_happenings(event, story), key=lambda line: line[0]):
        head = f"{style(moment(at), DIM)}  {style(what, _COLOURS.get(what, YELLOW))}"
        lines.append(f"{head} {plain(rest)}".rstrip())
    for hold in story.holds:
        text = f"in lane {hold.lane}: {_hands(hold)}"
        lines.append(f"{style('queued', YELLOW)} {plain(text)}")
    for behind in story.stuck_behind:
        error = f": {behind.last_error}" if behind.last_error else ""
        text = (
            f"in lane {behind.lane} behind {behind.event_type} {behind.id}, {behind.state}{error}"
        )
        lines.append(f"{style('stuck', RED)} {plain(text)}")
    return "\n".join(lines)


def _happenings(event: EventRecord, story: Story) -> Iterator[tuple[datetime, str, str]]:
    yield event.created_at, "added", ""
    for tried in story.attempts:
        where = f"attempt {tried.attempt} in lane {tried.lane} by {tried.relay}"
        yield tried.at, "failed", f"{where}: {tried.error}"
    for act in story.acts:
        where = f" in lane {act.lane}" if act.lane else ""
        yield act.at, act.action, f"by {act.actor}{where} (audit {act.id})"
    for done in story.settled:
        yield done.at, done.status, f"in lane {done.lane} by {done.by}"
    if story.completed_at is not None:
        yield story.completed_at, "completed", "downstream"


def _hands(hold: Hold) -> str:
    """Who has a queued event, and until when."""
    if hold.kind == "unheld":
        return "no relay holds its bucket"
    if hold.kind == "unclaimed":
        return "no relay has claimed it yet"
    if hold.kind == "leased":
        return f"in the hands of relay {hold.relay} (lease {_ends(hold)})"
    relay = "a relay that is gone" if hold.relay is None else f"relay {hold.relay}"
    claimer = "a direct pass" if hold.kind == "direct" else relay
    return f"claimed by {claimer} (claim {_ends(hold)})"


def _ends(hold: Hold) -> str:
    seconds = hold.ends_in_seconds or 0.0
    return f"ends in {age(seconds)}" if seconds > 0 else "has ended: the next relay takes it"


def as_json(story: Story) -> dict[str, Any]:
    return {
        "attempts": [tried._asdict() for tried in story.attempts],
        "settled": [done._asdict() for done in story.settled],
        "edits": [_edit(edit) for edit in story.edits],
        "acts": [_act(act) for act in story.acts],
        "holds": [hold._asdict() for hold in story.holds],
        "stuck_behind": [behind._asdict() for behind in story.stuck_behind],
        "completed_at": timestamp(story.completed_at),
    }


def _edit(edit: Edited) -> dict[str, Any]:
    text = decoded(edit.old.payload)
    encoded = None if text is not None else base64.b64encode(edit.old.payload).decode()
    return {
        "at": timestamp(edit.at),
        "actor": edit.actor,
        "old_payload": text,
        "old_payload_base64": encoded,
        "old_content_type": edit.old.content_type,
        "old_headers": edit.old.headers,
    }


def _act(act: AuditRow) -> dict[str, Any]:
    return {
        "audit": act.id,
        "at": timestamp(act.at),
        "actor": act.actor,
        "action": act.action,
        "lane": act.lane,
    }


def decoded(payload: bytes) -> str | None:
    """A payload as text; None if it is no UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
