"""Topics: whether a topic is there, asked before anything is sent to it.

librdkafka would hold messages for an unknown topic until they time out, and tell nobody why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import Refused
from commitrelay.publishers.kafka.outcomes import outcome_of
from commitrelay.publishers.kafka.settings import BATCH_BYTES, KafkaSettings

MISSING_SECONDS = 1.0
"""For so long nobody asks again for a topic that was not there."""

MAX_MISSING = 1000
"""So many of them are remembered."""

LOOK_UP_SECONDS = 5.0
LIMIT_SECONDS = 1.0


class Topics:
    """Remembers the topics that exist, and for a moment those that do not."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._timeout_seconds = min(LOOK_UP_SECONDS, settings.delivery_timeout_seconds / 2)
        self._admin: AdminClient | None = None
        self._last_error: KafkaError | None = None
        self._tells_limits = True
        self._missing: dict[str, tuple[float, str]] = {}
        self.batch_bytes: dict[str, int] = {}  # of known topics: what a batch may hold

    async def refused(self, topics: Collection[str]) -> dict[str, str]:
        """Why some of these topics cannot be sent to; `BrokerUnreachable` if nobody says."""
        unknown = [topic for topic in topics if topic not in self.batch_bytes]
        if not unknown:
            return {}
        return await asyncio.to_thread(self.look_up, unknown)

    def look_up(self, topics: Collection[str]) -> dict[str, str]:
        """Ask the broker, in the calling thread."""
        return {topic: reason for topic in topics if (reason := self._problem(topic))}

    def forget(self, topic: str) -> None:
        """A message to it failed: ask again before the next one."""
        self.batch_bytes.pop(topic, None)

    def reach(self) -> None:
        """Ask the broker for anything; `BrokerUnreachable` if it does not answer."""
        self._last_error = None
        try:
            self._client().list_topics(timeout=self._timeout_seconds)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def existing(self) -> set[str]:
        """All topics there are; asking for them by name might create them."""
        try:
            return set(self._client().list_topics(timeout=self._timeout_seconds).topics)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def close(self) -> None:
        self._admin = None

    def _problem(self, topic: str) -> str | None:
        if topic in self.batch_bytes:
            return None
        until, reason = self._missing.get(topic, (0.0, ""))
        if time.monotonic() < until:
            return reason
        self._missing.pop(topic, None)
        problem = self._ask(topic)
        if problem is None:
            self.batch_bytes[topic] = self._batch_bytes_of(topic)
        else:
            if len(self._missing) >= MAX_MISSING:
                self._missing.clear()
            self._missing[topic] = (time.monotonic() + MISSING_SECONDS, problem)
        return problem

    def _ask(self, topic: str) -> str | None:
        try:
            answer = self._client().list_topics(topic, timeout=self._timeout_seconds)
        except KafkaException as error:
            return self._verdict(error.args[0], topic)
        problem = answer.topics[topic].error
        if problem is None or problem.code() == KafkaError.LEADER_NOT_AVAILABLE:
            return None
        if problem.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            return self._verdict(problem, topic)
        if self._settings.create_topics:
            return self._create(topic)
        return f"topic {topic} does not exist: create it or use ?create_topics=true"

    def _create(self, topic: str) -> str | None:
        new = NewTopic(topic, self._settings.partitions, self._settings.replication)
        try:
            self._result(
                self._client().create_topics([new], request_timeout=self._timeout_seconds)[topic]
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return None
            return self._verdict(error.args[0], topic, "cannot be created: ")
        return None

    def _batch_bytes_of(self, topic: str) -> int:
        """A broker refuses a batch above the topic's limit as a whole, whoever is to blame."""
        if not self._tells_limits:
            return BATCH_BYTES
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            answers = self._client().describe_configs([resource], request_timeout=LIMIT_SECONDS)
            limit = self._result(answers[resource])["max.message.bytes"]
            return min(BATCH_BYTES, int(limit.value))
        except KafkaException as error:
            # Not allowed to know, or nobody answers: a refused batch is taken apart later.
            self._tells_limits = error.args[0].code() != KafkaError._TIMED_OUT
            return BATCH_BYTES

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result(self._timeout_seconds + 1)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def _verdict(self, error: KafkaError, topic: str, what: str = "") -> str:
        outcome = outcome_of(error, topic)
        if isinstance(outcome, Refused):
            return f"{what}{outcome.reason}"
        raise self._unreachable(error)

    def _unreachable(self, error: KafkaError) -> BrokerUnreachable:
        self._client().poll(0)  # calls _note, if there is something to note
        text = error.str() if self._last_error is None else self._last_error.str()
        return BrokerUnreachable(
            f"{self._settings} does not answer: {self._settings.hide_secrets(text)}"
        )

    def _note(self, error: KafkaError) -> None:
        """A refused login or a wrong certificate is told here, and only here."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _client(self) -> AdminClient:
        if self._admin is None:
            config = self._settings.client()
            config["error_cb"] = self._note
            self._admin = AdminClient(config)
        return self._admin


async def missing_topics(settings: KafkaSettings, topics: Collection[str]) -> Sequence[str]:
    """Those of these topics that are not there and will not be made."""
    if settings.create_topics or not topics:
        return []
    asking = Topics(settings)
    try:
        return sorted(set(topics) - await asyncio.to_thread(asking.existing))
    finally:
        asking.close()
