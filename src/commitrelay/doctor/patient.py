"""Patient: an outbox and its lanes, as the checks see them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commitrelay import registry
from commitrelay.errors import CommitrelayError
from commitrelay.format import Composer
from commitrelay.format.choice import composer
from commitrelay.publisher import Message, Publisher
from commitrelay.registry import Database
from commitrelay.route import Route
from commitrelay.settings import LaneSettings, Settings
from commitrelay.store import EventFilter, EventRecord, Queued
from commitrelay.urls import scheme_of

SAMPLE = 200
"""So many of a lane's newest events tell which topics it sends to."""


@dataclass(frozen=True)
class PatientLane:
    """One lane with a broker, by its settings."""

    name: str
    settings: Settings
    url: str

    @property
    def scheme(self) -> str:
        return scheme_of(self.url)

    def publisher(self) -> Publisher:
        """Not opened yet."""
        return registry.publisher(self.url, self.settings.publisher_options())

    @property
    def compose(self) -> Composer:
        chosen = self.settings
        route = Route({"*": chosen.topic, **chosen.routes})
        return composer(chosen.format, route, scheme=self.scheme, options=chosen.options)


class Patient:
    """What a check may ask. `connect` makes a database adapter, as often as it is needed."""

    def __init__(
        self,
        settings: Settings,
        *,
        long_seconds: float = 300.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.url = settings.required("database")
        self.dialect = registry.dialect_of(self.url)
        self.long_seconds = long_seconds
        self.clock = clock
        self.lanes = [_lane(lane) for lane in settings.lanes() if lane.settings.publish]
        self.file_header = _header(self.url)
        self.database = self._database()

    async def ask(self, query: str, **values: Any) -> Sequence[Mapping[str, Any]]:
        """The rows of a query of `doctor.sql`."""
        return await self.database.facts(query, values)

    @asynccontextmanager
    async def another(self) -> AsyncIterator[Database]:
        """A second connection to the database."""
        second = self._database()
        try:
            yield second
        finally:
            await second.close()

    async def messages(self, lane: PatientLane) -> list[Message]:
        """What the newest events of a lane would be sent as, one for each topic."""
        events = await self.database.list_events(
            EventFilter(lane=lane.name), before_seq=None, limit=SAMPLE
        )
        by_topic: dict[str, Message] = {}
        compose = lane.compose
        for event in events:
            try:
                message = compose(_queued(event))
            except CommitrelayError:
                continue  # the relay refuses it, and says why
            by_topic.setdefault(message.topic, message)
        return list(by_topic.values())

    def _database(self) -> Database:
        options = self.settings.options.get("store", {})
        return registry.database(self.url, self.settings.names, options)


def _lane(lane: LaneSettings) -> PatientLane:
    return PatientLane(lane.name, lane.settings, lane.settings.required("publish"))


def _queued(event: EventRecord) -> Queued:
    return Queued(
        seq=event.seq,
        key="",
        bucket=0,
        state=0,
        attempts=0,
        blocked=False,
        id=event.id,
        aggregate_type=event.aggregate_type,
        aggregate_id=event.aggregate_id,
        event_type=event.event_type,
        payload=b"{}",
        content_type=event.content_type,
        headers="{}",
        idempotency_key=event.idempotency_key,
        created_at=event.created_at.isoformat().replace("+00:00", "Z"),
    )


def _header(url: str) -> bytes:
    """How an SQLite file begins, before this process opens it."""
    if not url.startswith("sqlite:///"):
        return b""
    path = Path(url.removeprefix("sqlite:///"))
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(20)
