"""KafkaPublisher: acks=all, idempotent, the aggregate's id as key.

It does not stop at a failure: librdkafka goes on with the next batch, and its gap-less mode is no
remedy (docs/decisions/0001). So the relay keeps one unacknowledged event per key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from confluent_kafka import KafkaError, KafkaException

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    TOMBSTONE,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.publishers.kafka.outcomes import outcome_of
from commitrelay.publishers.kafka.producer import ANY_PARTITION, Batch, PolledProducer, sent
from commitrelay.publishers.kafka.settings import (
    BATCH_BYTES,
    ONE_MESSAGE_BYTES,
    KafkaSettings,
)
from commitrelay.publishers.kafka.topics import Topics, missing_topics

FULL_QUEUE_SECONDS = 0.002
"""Between two looks whether librdkafka's queue has room again."""


class KafkaPublisher:
    """Sends to Kafka. Topics are looked up before their first message."""

    capabilities = PublisherCapabilities(stops_at_failure=False)

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.delivery_timeout_seconds = settings.delivery_timeout_seconds
        self._topics = Topics(settings)
        self._producers: dict[int, PolledProducer] = {}  # by the size of their batches
        self._turn = asyncio.Lock()  # fair: calls produce in the order in which they were made
        self._is_open = False

    def __str__(self) -> str:
        return str(self.settings)

    async def open(self) -> None:
        await asyncio.to_thread(self._topics.reach)
        self._producer(BATCH_BYTES)
        self._is_open = True

    async def missing_topics(self, topics: Collection[str]) -> Sequence[str]:
        """Those of these topics that are not there and will not be made; need not be open."""
        return await missing_topics(self.settings, topics)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [NOT_SENT] * len(messages)
        try:
            async with asyncio.timeout(self.delivery_timeout_seconds):
                outcomes, too_large = await self._publish(messages)
                if too_large:
                    await self._publish_alone(messages, too_large, outcomes)
                return outcomes
        except TimeoutError:
            reason = f"{self} did not answer within {self.delivery_timeout_seconds:g} s"
        except BrokerUnreachable as error:
            reason = str(error)
        outage = Unreachable(reason)
        return [outage if outcome is NOT_SENT else outcome for outcome in outcomes]

    async def recover(self) -> None:
        for batch_bytes, producer in list(self._producers.items()):
            if producer.fatal is not None:
                del self._producers[batch_bytes]
                await asyncio.to_thread(producer.close, 0)
        await asyncio.to_thread(self._topics.reach)
        self._producer(BATCH_BYTES)

    async def close(self) -> None:
        self._is_open = False
        producers, self._producers = list(self._producers.values()), {}
        timeout = self.delivery_timeout_seconds / 2
        await asyncio.gather(*(asyncio.to_thread(each.close, timeout) for each in producers))
        self._topics.close()

    async def _publish(self, messages: Sequence[Message]) -> tuple[list[Outcome], list[int]]:
        """The outcomes, and the positions of those that a broker found too large in company."""
        outcomes: list[Outcome] = [DELIVERED] * len(messages)
        async with self._turn:
            self._check()
            topics = {message.topic for message in messages}
            refused = await self._topics.refused(topics)
            for position, message in enumerate(messages) if refused else ():
                if message.topic in refused:
                    outcomes[position] = Refused(refused[message.topic])
            sizes = self._topics.batch_bytes
            sending = _Sending(messages, outcomes)
            for topic in topics - refused.keys():
                sending.through(self._producer(sizes.get(topic, BATCH_BYTES)), topic)
            await sending.produce()
        await sending.acknowledged()
        return outcomes, self._learn(sending)

    async def _publish_alone(
        self, messages: Sequence[Message], positions: list[int], outcomes: list[Outcome]
    ) -> None:
        """Send again, each in a batch of its own, so that only the guilty one is refused."""
        for position in positions:
            outcomes[position] = NOT_SENT
        suspects = [messages[position] for position in positions]
        verdicts: list[Outcome] = [DELIVERED] * len(suspects)
        async with self._turn:
            self._check()
            sending = _Sending(suspects, verdicts)
            for topic in {message.topic for message in suspects}:
                sending.through(self._producer(ONE_MESSAGE_BYTES), topic)
            await sending.produce()
        await sending.acknowledged()
        self._learn(sending)
        for position, verdict in zip(positions, verdicts, strict=True):
            outcomes[position] = verdict

    def _learn(self, sending: _Sending) -> list[int]:
        """Look again at topics that made trouble; the positions of batches to take apart."""
        too_large: list[int] = []
        for position, error in sending.failures:
            self._topics.forget(sending.messages[position].topic)
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                too_large.append(position)
        return too_large

    def _check(self) -> None:
        if not self._is_open:
            raise BrokerUnreachable(f"{self}: the publisher is not open")
        for producer in self._producers.values():
            if producer.fatal is not None:
                raise BrokerUnreachable(f"{self}: the producer has failed: {producer.fatal.str()}")

    def _producer(self, batch_bytes: int) -> PolledProducer:
        producer = self._producers.get(batch_bytes)
        if producer is None:
            producer = PolledProducer(self.settings.producer(batch_bytes))
            self._producers[batch_bytes] = producer
        return producer


class _Sending:
    """One call on its way: which producer sends which topic, and what came of it."""

    def __init__(self, messages: Sequence[Message], outcomes: list[Outcome]) -> None:
        self.messages = messages
        self.failures: list[tuple[int, KafkaError]] = []
        self._outcomes = outcomes
        self._producers: dict[str, PolledProducer] = {}
        self._batches: dict[PolledProducer, Batch] = {}
        self._produced: dict[PolledProducer, int] = {}

    def through(self, producer: PolledProducer, topic: str) -> None:
        self._producers[topic] = producer
        if producer not in self._batches:
            self._batches[producer] = Batch(asyncio.get_running_loop())
            self._produced[producer] = 0

    async def produce(self) -> None:
        """Hand everything to librdkafka, in order; waits only while its queue is full."""
        if len(self._batches) == 1 and self._outcomes.count(DELIVERED) == len(self.messages):
            await self._produce_all(*self._batches)
            return
        for position, message in enumerate(self.messages):
            producer = self._producers.get(message.topic)
            if producer is not None:
                await self._produce_one(position, message, producer)

    async def _produce_all(self, producer: PolledProducer) -> None:
        """The usual case, and the hot loop: everything goes through one producer."""
        produce = producer.produce
        acknowledge = self._batches[producer].acknowledge
        produced = 0
        for position, message in enumerate(self.messages):
            topic, key, value, headers, _event_id = message
            body = None if value is TOMBSTONE else value
            stamp = 0 if type(message) is Message else message.timestamp_ms
            try:
                # By position, which takes half a microsecond less than by name.
                produce(topic, body, key, ANY_PARTITION, acknowledge, None, stamp, headers)
                produced += 1
            except (BufferError, KafkaException):
                await self._produce_one(position, message, producer)
        self._produced[producer] += produced

    async def _produce_one(self, position: int, message: Message, producer: PolledProducer) -> None:
        topic, key, value, headers, _event_id = message
        acknowledge = self._batches[producer].acknowledge
        while True:
            try:
                producer.produce(
                    topic,
                    sent(value),
                    key,
                    on_delivery=acknowledge,
                    timestamp=message.timestamp_ms,
                    headers=headers,
                )
            except BufferError:
                await asyncio.sleep(FULL_QUEUE_SECONDS)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                producer.note(problem)
                self._outcomes[position] = outcome_of(problem, topic)
                return
            else:
                self._produced[producer] += 1
                return

    async def acknowledged(self) -> None:
        for producer, batch in self._batches.items():
            await batch.acknowledged(self._produced[producer])
            for position, error in batch.failures(self.messages):
                producer.note(error)
                self.failures.append((position, error))
                self._outcomes[position] = outcome_of(error, self.messages[position].topic)
