"""Deliveries: a consumer's transaction on any of the handles, step by step."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from commitrelay import Inbox
from commitrelay.completion import Progress
from tests.writing.writers import AsyncWriter, Writer


def handle_of(writer: Any) -> Any:
    return writer.handle if hasattr(writer, "handle") else writer.connection


class Delivery:
    """`with inbox.once(…)` in slow motion: what happens in between is up to the test."""

    def __init__(
        self, writer: Writer, event_id: str, *, consumer: str = "billing", wait: bool = True
    ) -> None:
        self._writer = writer
        self._once = Inbox(consumer).once(handle_of(writer), event_id, wait=wait)

    def enter(self) -> bool:
        if isinstance(self._writer, AsyncWriter):
            return self._writer.run(self._once.__aenter__())
        return self._once.__enter__()

    def leave(self, error: Exception | None = None) -> None:
        kind = None if error is None else type(error)
        if isinstance(self._writer, AsyncWriter):
            self._writer.run(self._once.__aexit__(kind, error, None))
        else:
            self._once.__exit__(kind, error, None)


def once(writer: Writer, event_id: str, *, consumer: str = "billing", wait: bool = True) -> bool:
    """A delivery whose handler does nothing; the transaction stays open."""
    delivery = Delivery(writer, event_id, consumer=consumer, wait=wait)
    first = delivery.enter()
    delivery.leave()
    return first


def begin(writer: Writer, event_id: str | UUID) -> Progress:
    handle = handle_of(writer)
    if isinstance(writer, AsyncWriter):
        return writer.run(writer.outbox.begin_async(handle, event_id))
    return writer.outbox.begin(handle, event_id)


def complete(writer: Writer, event_id: str | UUID) -> None:
    handle = handle_of(writer)
    if isinstance(writer, AsyncWriter):
        writer.run(writer.outbox.complete_async(handle, event_id))
    else:
        writer.outbox.complete(handle, event_id)


def commit_if_possible(writer: Writer) -> None:
    """As a careless caller does, who has swallowed an error."""
    with suppress(Exception):
        writer.commit()
