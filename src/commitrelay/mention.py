"""Mention: how a line of the log names its event, in words and as fields."""

from __future__ import annotations


def key_of(aggregate_type: str, aggregate_id: str) -> str:
    """`Order/42`: as `commitrelay blocked` shows it."""
    return f"{aggregate_type}/{aggregate_id}"


def mention(event_id: str, key: str, lane: str | None = None) -> dict[str, str]:
    """The `extra` of a line about this event."""
    fields = {"event_id": event_id, "key": key}
    return fields if lane is None else {**fields, "lane": lane}
