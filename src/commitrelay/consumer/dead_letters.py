"""DeadLetters: where events go that nobody could handle, with the reason in their headers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from commitrelay.consumer.window import Entry
from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publisher import DELIVERED, Message, Outcome, Publisher, Unreachable
from commitrelay.urls import scrub

PREFIX = "dead-"
MAX_TEXT = 1000
_FIELDS = ("topic", "consumer")


class DeadLetters:
    """Publishes one at a time: they are rare, and a failure concerns that one alone."""

    def __init__(self, publisher: Publisher, topic: str, consumer: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self._consumer = consumer
        self._lock = asyncio.Lock()
        self.topic_of("topic")

    def topic_of(self, topic: str) -> str:
        try:
            return self._topic.format(topic=topic, consumer=self._consumer)
        except (KeyError, IndexError, ValueError):
            raise ConfigError(
                f"the dead letters' topic {self._topic!r} is no template: "
                f"use {{{'} and {'.join(_FIELDS)}}}"
            ) from None

    async def open(self) -> None:
        await self._publisher.open()

    async def close(self) -> None:
        await self._publisher.close()

    async def send(self, entry: Entry, error: BaseException) -> Outcome:
        """Publish the message as it arrived, and say why; anything but DELIVERED is for later."""
        arrival = entry.arrival
        headers = [pair for pair in arrival.headers if not pair[0].lower().startswith(PREFIX)]
        event_id = entry.read.id if entry.read is not None else ""
        message = Message(
            self.topic_of(arrival.topic),
            arrival.key,
            arrival.value,
            [*headers, *self._reasons(entry, error)],
            event_id or f"{arrival.partition}@{shown(arrival.position)}",
        )
        async with self._lock:
            (outcome,) = await self._publisher.publish([message])
            if outcome is not DELIVERED:
                try:
                    await self._publisher.recover()
                except BrokerUnreachable as reason:
                    return Unreachable(str(reason))
        return outcome

    def _reasons(self, entry: Entry, error: BaseException) -> list[tuple[str, str]]:
        arrival = entry.arrival
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        reasons = {
            "error-type": type(error).__name__,
            "error": described(error),
            "attempts": str(entry.failures),
            "consumer": self._consumer,
            "topic": arrival.topic,
            "partition": arrival.partition,
            "position": shown(arrival.position),
            "at": now.replace("+00:00", "Z"),
        }
        return [(f"{PREFIX}{name}", value) for name, value in reasons.items()]


def shown(position: object) -> str:
    """A position as people know it; that of a tuple is its last part."""
    return str(position[-1] if isinstance(position, tuple) else position)


def described(error: BaseException) -> str:
    """The error's text on one line, not too long, without passwords."""
    text = scrub(" ".join(str(error).replace("\x00", "").split()))
    return text.encode("utf-8", "replace").decode()[:MAX_TEXT] or type(error).__name__
