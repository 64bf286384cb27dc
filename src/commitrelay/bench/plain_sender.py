"""Sends through a publisher, and nothing else of commitrelay."""

from __future__ import annotations

from typing import Any

from commitrelay import registry
from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import DELIVERED, Message


class Sender:
    def __init__(self, url: str, topic: str, options: dict[str, str]) -> None:
        self._publisher = registry.publisher(url, options)
        self._topic = topic

    async def open(self) -> None:
        await self._publisher.open()
        await self._publisher.recover()

    async def send(self, rows: list[tuple[Any, ...]]) -> None:
        messages = [
            Message(
                self._topic,
                key,
                payload,
                [
                    ("event-id", event_id),
                    ("event-type", event_type),
                    ("aggregate-type", kind),
                    ("aggregate-id", key),
                    ("content-type", content_type),
                    ("created-at", created_at),
                ],
                event_id,
            )
            for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows
        ]
        outcomes = await self._publisher.publish(messages)
        for outcome in outcomes:
            if outcome is not DELIVERED:
                raise BrokerUnreachable(f"{self._publisher}: {outcome}")

    async def close(self) -> None:
        await self._publisher.close()
