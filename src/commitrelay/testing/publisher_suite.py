"""PublisherSuite and OutageSuite: what every publisher has to pass.

Subclass them in a test module, say how to make a publisher, a topic, and how to read it back::

    class TestMyPublisher(PublisherSuite):
        async def make_publisher(self): return MyPublisher(…)
        async def fresh_topic(self): return "…"
        async def read_back(self, topic): return [Received(key, value, headers), …]

The cases adapt to the publisher's capabilities, and to the hooks that the subclass provides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import pytest

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import (
    DELIVERED,
    NOT_SENT,
    TOMBSTONE,
    Message,
    Outcome,
    Publisher,
    Refused,
    Unreachable,
)

T = TypeVar("T")

SLACK_SECONDS = 2.0
"""How much later than promised an answer may come on a busy machine."""


class Received(NamedTuple):
    """A message as a consumer sees it."""

    key: str
    value: bytes
    headers: dict[str, str]


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a case in an event loop of its own."""
    return asyncio.run(coroutine)


def message(topic: str, key: str, number: int, value: bytes | None = None) -> Message:
    """A message that tells its place: ids and payloads are numbered."""
    event_id = f"{key}-{number}"
    body = event_id.encode() if value is None else value
    return Message(topic, key, body, [("event-id", event_id), ("number", str(number))], event_id)


def ids(received: Sequence[Received], key: str | None = None) -> list[str]:
    """The ids of what arrived, repeats left out: first deliveries, in order."""
    wanted = (each for each in received if key is None or each.key == key)
    return list(dict.fromkeys(each.headers["event-id"] for each in wanted))


class _Hooks:
    """What a subclass says about its broker."""

    async def make_publisher(self) -> Publisher:
        """A new publisher, not open yet."""
        raise NotImplementedError

    async def fresh_topic(self) -> str:
        """A topic that exists and is empty."""
        raise NotImplementedError

    async def read_back(self, topic: str) -> list[Received]:
        """Everything in the topic, in the order in which a consumer gets it."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Publisher]:
        publisher = await self.make_publisher()
        await publisher.open()
        try:
            yield publisher
        finally:
            await publisher.close()


class PublisherSuite(_Hooks):
    """What has to hold while the broker is well."""

    async def missing_topic(self) -> str:
        """A destination that the publisher refuses because it does not exist, or never could."""
        pytest.skip("this publisher knows no missing destination")

    async def oversized(self) -> tuple[str, bytes]:
        """A topic, and a payload that is too large for it."""
        pytest.skip("this publisher has no limit")

    # --- delivery ---------------------------------------------------------------------------

    def test_one_outcome_per_message(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            async with self.opened() as publisher:
                assert list(await publisher.publish([])) == []
                messages = [message(topic, f"k{number % 7}", number) for number in range(50)]
                outcomes = await publisher.publish(messages)
                assert len(outcomes) == 50
                assert all(outcome is DELIVERED for outcome in outcomes)
            assert sorted(ids(await self.read_back(topic))) == sorted(
                each.event_id for each in messages
            )

        run(case())

    def test_order_within_a_key_over_overlapping_calls(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            calls = [
                [message(topic, f"k{number % 3}", number) for number in range(start, start + 40)]
                for start in range(0, 1200, 40)
            ]
            async with self.opened() as publisher:
                for outcomes in await self._overlapping(publisher, calls):
                    assert all(outcome is DELIVERED for outcome in outcomes)
            received = await self.read_back(topic)
            for key in ("k0", "k1", "k2"):
                sent = [each.event_id for call in calls for each in call if each.key == key]
                assert [each.headers["event-id"] for each in received if each.key == key] == sent

        run(case())

    def test_headers_arrive_as_they_were_sent(self) -> None:
        headers = [("event-id", "1"), ("traceparent", "00-ab-cd-01"), ("city", "Zürich 東京 🚲")]
        headers.append(("empty", ""))

        async def case() -> None:
            topic = await self.fresh_topic()
            async with self.opened() as publisher:
                await publisher.publish([Message(topic, "ключ", b"{}", headers, "1")])
            [received] = await self.read_back(topic)
            assert received.key == "ключ"
            assert received.headers == dict(headers)

        run(case())

    @pytest.mark.parametrize(
        "value",
        [
            b"", TOMBSTONE, b"\x00\x01\xff\xfe", b"\r\n\n", '{"é": "\u2028"}'.encode(),
            bytes(range(256)) * 40,
        ],
        ids=["empty", "tombstone", "binary", "newlines", "unicode", "large"],
    )  # fmt: skip
    def test_payload_arrives_byte_for_byte(self, value: bytes) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            async with self.opened() as publisher:
                outcomes = await publisher.publish([message(topic, "k", 1, value)])
                assert list(outcomes) == [DELIVERED]
            # A tombstone is null where the broker has that, else empty.
            assert [each.value or b"" for each in await self.read_back(topic)] == [value]

        run(case())

    # --- refusal ----------------------------------------------------------------------------

    def test_a_missing_destination_is_refused_at_once(self) -> None:
        async def case() -> None:
            missing, topic = await self.missing_topic(), await self.fresh_topic()
            async with self.opened() as publisher:
                started = time.monotonic()
                outcomes = await publisher.publish([message(missing, "lost", 1)])
                assert time.monotonic() - started < publisher.delivery_timeout_seconds / 2
                assert isinstance(outcomes[0], Refused), outcomes
                assert missing in outcomes[0].reason
                await publisher.recover()
                outcomes = await publisher.publish(
                    [message(topic, "a", 1), message(missing, "lost", 1), message(topic, "b", 1)]
                )
                assert isinstance(outcomes[1], Refused)
                assert not isinstance(outcomes[0], (Refused, Unreachable))
                assert not isinstance(outcomes[2], (Refused, Unreachable))

        run(case())

    def test_an_oversized_message_is_refused_and_no_other(self) -> None:
        async def case() -> None:
            topic, value = await self.oversized()
            messages = [message(topic, f"k{number}", number) for number in range(20)]
            messages[7] = message(topic, "k7", 7, value)
            async with self.opened() as publisher:
                outcomes = await publisher.publish(messages)
                assert isinstance(outcomes[7], Refused), outcomes[7]
                others = [outcome for outcome in outcomes if outcome is not outcomes[7]]
                assert not [each for each in others if isinstance(each, (Refused, Unreachable))]
                await self._deliver_the_rest(publisher, messages, outcomes)
            assert sorted(ids(await self.read_back(topic))) == sorted(
                each.event_id for each in messages if each.key != "k7"
            )

        run(case())

    def test_a_refusal_does_not_let_its_key_pass(self) -> None:
        """For publishers that stop at a failure, over overlapping calls, until `recover`."""

        async def case() -> None:
            topic, value = await self.oversized()
            async with self.opened() as publisher:
                if not publisher.capabilities.stops_at_failure:
                    pytest.skip("this publisher does not stop at a failure")
                calls = [
                    [message(topic, "k", number) for number in range(start, start + 10)]
                    for start in range(0, 100, 10)
                ]
                calls[0][4] = message(topic, "k", 4, value)
                results = await self._overlapping(publisher, calls)
                outcomes = [outcome for result in results for outcome in result]
                assert isinstance(outcomes[4], Refused)
                assert all(outcome is NOT_SENT for outcome in outcomes[5:])
                later = await publisher.publish([message(topic, "k", 100)])
                assert list(later) == [NOT_SENT]
                assert set(ids(await self.read_back(topic))) <= {f"k-{n}" for n in range(4)}
                await publisher.recover()
                rest = [each for call in calls for each in call if each.value != value]
                outcomes = list(await publisher.publish(rest))
                assert all(outcome is DELIVERED for outcome in outcomes)
            assert ids(await self.read_back(topic)) == [each.event_id for each in rest]

        run(case())

    # --- life -------------------------------------------------------------------------------

    def test_recover_without_a_failure_is_harmless(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            async with self.opened() as publisher:
                await publisher.publish([message(topic, "k", 1)])
                await publisher.recover()
                assert list(await publisher.publish([message(topic, "k", 2)])) == [DELIVERED]
            assert ids(await self.read_back(topic)) == ["k-1", "k-2"]

        run(case())

    def test_close_while_in_flight_leaves_nothing_unanswered(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            publisher = await self.make_publisher()
            await publisher.open()
            messages = [message(topic, f"k{number % 5}", number) for number in range(500)]
            publishing = asyncio.create_task(_answers(publisher, messages))
            await asyncio.sleep(0)  # it has begun
            await publisher.close()
            async with asyncio.timeout(publisher.delivery_timeout_seconds + SLACK_SECONDS):
                outcomes = await publishing
            arrived = set(ids(await self.read_back(topic)))
            delivered = {
                each.event_id
                for each, outcome in zip(messages, outcomes, strict=True)
                if outcome is DELIVERED
            }
            assert delivered <= arrived

        run(case())

    def test_publish_after_close_answers_unreachable(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            publisher = await self.make_publisher()
            await publisher.open()
            await publisher.close()
            await publisher.close()
            [outcome] = await publisher.publish([message(topic, "k", 1)])
            assert isinstance(outcome, Unreachable)

        run(case())

    # --- helpers ------------------------------------------------------------------------------

    async def _overlapping(
        self, publisher: Publisher, calls: Sequence[Sequence[Message]]
    ) -> list[Sequence[Outcome]]:
        """Make the calls one after the other without waiting, as far as the publisher allows."""
        places = asyncio.Semaphore(publisher.capabilities.max_in_flight or len(calls))

        async def one(call: Sequence[Message]) -> Sequence[Outcome]:
            async with places:
                return await publisher.publish(call)

        return list(await asyncio.gather(*(one(call) for call in calls)))

    async def _deliver_the_rest(
        self, publisher: Publisher, messages: Sequence[Message], outcomes: Sequence[Outcome]
    ) -> None:
        pairs = zip(messages, outcomes, strict=True)
        rest = [each for each, outcome in pairs if outcome is NOT_SENT]
        await publisher.recover()
        assert all(outcome is DELIVERED for outcome in await publisher.publish(rest))


class OutageSuite(_Hooks):
    """What has to hold when the broker goes away and comes back. Needs a broker of its own."""

    async def stop_broker(self) -> None:
        raise NotImplementedError

    async def start_broker(self) -> None:
        """With the data that it had."""
        raise NotImplementedError

    def test_open_without_a_broker_says_so(self) -> None:
        async def case() -> None:
            publisher = await self.make_publisher()
            await self.stop_broker()
            try:
                with pytest.raises(BrokerUnreachable):
                    await publisher.open()
            finally:
                await self.start_broker()
                await publisher.close()

        run(case())

    def test_an_outage_is_answered_in_time_and_spends_no_attempt(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            messages = [message(topic, f"k{number % 3}", number) for number in range(60)]
            async with self.opened() as publisher:
                first = await publisher.publish(messages[:20])
                assert all(outcome is DELIVERED for outcome in first)
                await self.stop_broker()
                started = time.monotonic()
                during = await asyncio.gather(
                    publisher.publish(messages[20:40]), publisher.publish(messages[40:])
                )
                limit = publisher.delivery_timeout_seconds + SLACK_SECONDS
                assert time.monotonic() - started < limit
                assert any(isinstance(each, Unreachable) for each in during[0])
                for outcome in (*during[0], *during[1]):
                    assert outcome is NOT_SENT or isinstance(outcome, Unreachable)
                with pytest.raises(BrokerUnreachable):
                    await publisher.recover()
                await self.start_broker()
                await _delivered_in_the_end(publisher, messages[20:])
            received = await self.read_back(topic)
            for key in ("k0", "k1", "k2"):
                sent = [each.event_id for each in messages if each.key == key]
                assert ids(received, key) == sent

        run(case())

    def test_a_restart_between_two_calls_loses_nothing(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            async with self.opened() as publisher:
                assert list(await publisher.publish([message(topic, "k", 1)])) == [DELIVERED]
                await self.stop_broker()
                await self.start_broker()
                [outcome] = await publisher.publish([message(topic, "k", 2)])
                if outcome is not DELIVERED:
                    assert isinstance(outcome, Unreachable)
                    await _recovered(publisher)
                    assert list(await publisher.publish([message(topic, "k", 2)])) == [DELIVERED]
            assert ids(await self.read_back(topic)) == ["k-1", "k-2"]

        run(case())

    def test_close_during_an_outage_comes_to_an_end(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            publisher = await self.make_publisher()
            await publisher.open()
            await publisher.publish([message(topic, "k", 1)])
            await self.stop_broker()
            try:
                publishing = asyncio.create_task(_answers(publisher, [message(topic, "k", 2)]))
                await asyncio.sleep(0)
                async with asyncio.timeout(publisher.delivery_timeout_seconds + SLACK_SECONDS):
                    await publisher.close()
                    [outcome] = await publishing
                assert outcome is not DELIVERED
            finally:
                await self.start_broker()

        run(case())


async def _answers(publisher: Publisher, messages: Sequence[Message]) -> Sequence[Outcome]:
    return await publisher.publish(messages)


async def _delivered_in_the_end(publisher: Publisher, messages: Sequence[Message]) -> None:
    """As the relay does: a broker that is just starting may still let a call time out."""
    deadline = time.monotonic() + 60
    outcomes: Sequence[Outcome] = ()
    while not outcomes or any(outcome is not DELIVERED for outcome in outcomes):
        assert time.monotonic() < deadline, f"not delivered after the outage: {outcomes[:3]}"
        await _recovered(publisher)
        outcomes = await publisher.publish(messages)
        assert not any(isinstance(outcome, Refused) for outcome in outcomes), outcomes


async def _recovered(publisher: Publisher) -> None:
    """Call `recover` as the relay does: until it no longer raises."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await publisher.recover()
        except BrokerUnreachable:
            assert time.monotonic() < deadline, "the publisher does not recover"
            await asyncio.sleep(0.05)
        else:
            return
