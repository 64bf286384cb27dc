"""SourceSuite and SourceOutageSuite: what every source has to pass.

Subclass them in a test module and say how to make a topic, a publisher that fills it and a source
that reads it::

    class TestMySource(SourceSuite):
        async def fresh_topic(self): return "…"
        async def make_publisher(self): return MyPublisher(…)
        async def make_source(self, topic, group): return MySource(…)

The cases adapt to how many partitions a topic has, and to what the broker keeps of a message.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

import pytest

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import DELIVERED, TOMBSTONE, Message, Publisher
from commitrelay.source import Arrival, Source
from commitrelay.testing.publisher_suite import message, run

DEADLINE_SECONDS = 60.0
"""No case measures time; this only ends one that would never end."""

KEYS = 40
"""Enough for every partition to have some of them."""

QUIET_SECONDS = 0.5
"""How long nothing more has to come for a reader to believe that nothing will."""


class Reader:
    """A source, what it has delivered, and what was taken from it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.arrivals: list[Arrival] = []
        self.revoked: list[str] = []
        self.in_hand: dict[str, list[Arrival]] = {}
        self.when_revoked: Callable[[Reader], object] | None = None

    async def open(self) -> None:
        await self.source.open(self._on_revoked)

    async def _on_revoked(self, partitions: Collection[str]) -> None:
        if self.when_revoked is not None:
            result = self.when_revoked(self)
            if asyncio.iscoroutine(result):
                await result
        self.revoked += partitions
        for partition in partitions:
            self.in_hand.pop(partition, None)

    async def read(self, wait_seconds: float = 0.2, limit: int = 100) -> Sequence[Arrival]:
        arrivals = await self.source.read(limit, wait_seconds)
        self.arrivals += arrivals
        for each in arrivals:
            self.in_hand.setdefault(each.partition, []).append(each)
        return arrivals

    async def read_until(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_enough():
            assert time.monotonic() < deadline, f"only {len(self.arrivals)} have arrived"
            await self.read()

    async def read_all(self, count: int) -> list[Arrival]:
        """Few, so that no source waits for an acknowledgement before it gives more."""
        await self.read_until(lambda: len(set(ids(self.arrivals))) >= count)
        return self.arrivals

    async def handle_all(self, count: int) -> list[Arrival]:
        """Read so many, and acknowledge them as they come."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.arrivals) < count:
            assert time.monotonic() < deadline, f"only {len(self.arrivals)} have arrived"
            await self.read()
            await self.ack_all()
        return self.arrivals

    async def ack_all(self) -> None:
        for partition in list(self.in_hand):
            await self.source.ack(self.in_hand.pop(partition, []))


def ids(arrivals: Sequence[Arrival], partition: str | None = None) -> list[str]:
    """The ids of what arrived, in order."""
    wanted = (each for each in arrivals if partition in (None, each.partition))
    return [dict(each.headers)["event-id"] for each in wanted]


def by_partition(arrivals: Sequence[Arrival]) -> dict[str, list[str]]:
    """The ids of each partition, repeats left out: first arrivals, in order."""
    found: dict[str, dict[str, None]] = {}
    for each in arrivals:
        found.setdefault(each.partition, {})[dict(each.headers)["event-id"]] = None
    return {partition: list(of_it) for partition, of_it in found.items()}


def check_order(arrivals: Sequence[Arrival]) -> None:
    """First arrivals of a key come in the order of their numbers."""
    last: dict[str, int] = {}
    seen: set[str] = set()
    for each in arrivals:
        headers = dict(each.headers)
        if headers["event-id"] in seen:
            continue
        seen.add(headers["event-id"])
        key = headers["event-id"].rsplit("-", 1)[0]
        number = int(headers["number"])
        assert number > last.get(key, -1), f"{key}: {number} came after {last[key]}"
        last[key] = number


def fresh_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


class _SourceHooks:
    """What a subclass says about its broker."""

    partitions = 1  # of a fresh topic; more: readers of a group are to share them
    idle_seconds = 3.0  # so long nobody reads, and the reader is still in its group
    keeps_nulls = False
    keeps_repeated_headers = True

    async def fresh_topic(self) -> str:
        """A topic that exists and is empty."""
        raise NotImplementedError

    async def make_publisher(self) -> Publisher:
        """A publisher that fills such topics, not open yet."""
        raise NotImplementedError

    async def make_source(self, topic: str, group: str) -> Source:
        """A new source, not open yet."""
        raise NotImplementedError

    async def publish(self, messages: Sequence[Message]) -> None:
        publisher = await self.make_publisher()
        await publisher.open()
        try:
            await publisher.recover()
            for start in range(0, len(messages), 500):
                outcomes = await publisher.publish(messages[start : start + 500])
                assert all(each is DELIVERED for each in outcomes), outcomes
        finally:
            await publisher.close()

    async def filled(self, count: int = 60) -> str:
        """A topic with that many messages."""
        topic = await self.fresh_topic()
        await self.publish(numbered(topic, range(count)))
        return topic

    @asynccontextmanager
    async def reading(self, topic: str, group: str) -> AsyncIterator[Reader]:
        reader = Reader(await self.make_source(topic, group))
        await reader.open()
        try:
            yield reader
        finally:
            await reader.source.close()


def numbered(topic: str, numbers: range) -> list[Message]:
    return [message(topic, f"k{number % KEYS}", number) for number in numbers]


def numbered_ids(numbers: range) -> set[str]:
    return {f"k{number % KEYS}-{number}" for number in numbers}


class SourceSuite(_SourceHooks):
    """What has to hold while the broker is well."""

    # --- content ----------------------------------------------------------------------------

    def test_arrivals_are_what_was_published(self) -> None:
        sent = [("event-id", "1"), ("city", "Zürich 東京 🚲"), ("empty", ""), ("spaced", "a  b")]
        if self.keeps_repeated_headers:
            sent += [("tag", "a"), ("tag", "b")]

        async def case() -> None:
            topic = await self.fresh_topic()
            value = bytes(range(256))
            await self.publish([Message(topic, "Schlüssel 1", value, sent, "1")])
            async with self.reading(topic, fresh_group()) as reader:
                [arrival] = await reader.read_all(1)
            assert arrival.topic == topic
            assert arrival.key == "Schlüssel 1"
            assert arrival.value == value
            assert sorted(arrival.headers) == sorted(sent)
            tags = [text for name, text in arrival.headers if name == "tag"]
            assert tags == (["a", "b"] if self.keeps_repeated_headers else [])

        run(case())

    def test_nothing_and_much_as_values(self) -> None:
        async def case() -> None:
            topic = await self.fresh_topic()
            values = [b"", TOMBSTONE, b"x" * 300_000]
            await self.publish([message(topic, "k", n, value) for n, value in enumerate(values)])
            async with self.reading(topic, fresh_group()) as reader:
                arrivals = await reader.read_all(3)
            assert [each.value for each in arrivals] == values
            assert (arrivals[1].value is TOMBSTONE) is self.keeps_nulls
            assert arrivals[0].value is not TOMBSTONE

        run(case())

    def test_each_partition_in_order(self) -> None:
        async def case() -> None:
            topic = await self.filled(600)
            async with self.reading(topic, fresh_group()) as reader:
                arrivals = await reader.handle_all(600)
            assert len(arrivals) == 600
            check_order(arrivals)
            assert len(by_partition(arrivals)) <= self.partitions

        run(case())

    # --- acknowledgements -------------------------------------------------------------------

    def test_acknowledged_is_done_and_the_rest_comes_again_in_order(self) -> None:
        async def case() -> None:
            topic, group = await self.filled(60), fresh_group()
            async with self.reading(topic, group) as reader:
                before = by_partition(await reader.read_all(60))
                done: dict[str, int] = {}
                for partition, arrivals in reader.in_hand.items():
                    done[partition] = len(arrivals) // 2
                    await reader.source.ack(arrivals[: done[partition]])
            rest = {partition: all_ids[done[partition] :] for partition, all_ids in before.items()}
            async with self.reading(topic, group) as reader:
                await reader.read_all(sum(map(len, rest.values())))
                await reader.read(QUIET_SECONDS)
                assert {each: ids(reader.arrivals, each) for each in rest} == rest
                await reader.ack_all()
            async with self.reading(topic, group) as reader:
                assert not await reader.read(QUIET_SECONDS)
                await self.publish(numbered(topic, range(60, 64)))
                assert len(await reader.read_all(4)) == 4

        run(case())

    def test_each_group_gets_everything(self) -> None:
        async def case() -> None:
            topic = await self.filled(20)
            for _ in range(2):
                async with self.reading(topic, fresh_group()) as reader:
                    assert len(await reader.read_all(20)) == 20
                    await reader.ack_all()

        run(case())

    def test_lag_counts_what_is_not_acknowledged(self) -> None:
        async def case() -> None:
            topic, group = await self.filled(40), fresh_group()
            async with self.reading(topic, group) as reader:
                await reader.read_all(40)
                if await reader.source.lag() is None:
                    pytest.skip("this source cannot tell")
                await _eventually_lags(reader.source, 40)
                await reader.ack_all()
                await _eventually_lags(reader.source, 0)

        run(case())

    # --- groups -----------------------------------------------------------------------------

    def test_who_does_not_read_stays_in_the_group(self) -> None:
        async def case() -> None:
            topic, group = await self.filled(5000), fresh_group()
            async with self.reading(topic, group) as reader:
                await reader.read_until(lambda: bool(reader.arrivals))
                await asyncio.sleep(self.idle_seconds)
                await reader.handle_all(5000)
                assert not reader.revoked
                check_order(reader.arrivals)
                assert len(reader.arrivals) == 5000

        run(case())

    def test_a_reader_that_leaves_is_followed_by_the_next(self) -> None:
        async def case() -> None:
            topic, group = await self.filled(60), fresh_group()
            first = Reader(await self.make_source(topic, group))
            await first.open()
            await first.read_all(60)
            done = {each: arrivals[:3] for each, arrivals in first.in_hand.items()}
            for arrivals in done.values():
                await first.source.ack(arrivals)
            second = Reader(await self.make_source(topic, group))
            opening = asyncio.create_task(second.open())
            await first.source.close()
            await opening
            try:
                finished = {each for arrivals in done.values() for each in ids(arrivals)}
                await second.read_all(60 - len(finished))
                assert not finished & set(ids(second.arrivals))
                check_order(second.arrivals)
            finally:
                await second.source.close()

        run(case())

    def test_readers_of_a_group_share_the_partitions(self) -> None:
        async def case() -> None:
            if self.partitions == 1:
                pytest.skip("there is nothing to share")
            topic, group = await self.fresh_topic(), fresh_group()
            async with self.reading(topic, group) as first, self.reading(topic, group) as second:
                await self._until_both_read(topic, first, second)
                at_first, at_second = set(first.in_hand), set(second.in_hand)
                assert not at_first & at_second
                check_order(first.arrivals)
                check_order(second.arrivals)

        run(case())

    def test_a_partition_goes_when_what_is_in_hand_is_done(self) -> None:
        async def case() -> None:
            if self.partitions == 1:
                pytest.skip("nothing is ever taken away")
            topic, group = await self.filled(80), fresh_group()
            async with self.reading(topic, group) as first:
                await first.read_all(80)
                asked, may_go = asyncio.Event(), asyncio.Event()

                async def finish(reader: Reader) -> None:
                    asked.set()
                    await may_go.wait()
                    await reader.ack_all()

                first.when_revoked = finish
                second = Reader(await self.make_source(topic, group))
                opening = asyncio.create_task(second.open())
                try:
                    async with asyncio.timeout(DEADLINE_SECONDS):
                        await asked.wait()
                    assert not await second.read(QUIET_SECONDS)  # not while it is in hand
                    may_go.set()
                    await opening
                    await self._until_both_read(topic, first, second, start=80)
                    assert not set(ids(second.arrivals)) & numbered_ids(range(80))
                finally:
                    may_go.set()
                    await opening
                    await second.source.close()

        run(case())

    def test_what_was_not_read_goes_with_its_partition(self) -> None:
        async def case() -> None:
            if self.partitions == 1:
                pytest.skip("nothing is ever taken away")
            topic, group = await self.filled(80), fresh_group()
            async with self.reading(topic, group) as first:
                while not first.arrivals:
                    await first.read(limit=1)
                async with self.reading(topic, group) as second:
                    deadline = time.monotonic() + DEADLINE_SECONDS
                    while not first.revoked:
                        assert time.monotonic() < deadline, "nothing is taken away"
                        await asyncio.sleep(0.02)
                    before = len(first.arrivals)
                    while not second.arrivals or len(set(_all_ids(first, second))) < 80:
                        assert time.monotonic() < deadline
                        await first.read(0.05)
                        await second.read(0.05)
                    while await second.read(QUIET_SECONDS):
                        assert time.monotonic() < deadline
                    at_second = {each.partition for each in second.arrivals}
                    assert not at_second & {each.partition for each in first.arrivals[before:]}
                    check_order(second.arrivals)

        run(case())

    async def _until_both_read(
        self, topic: str, first: Reader, second: Reader, start: int = 0
    ) -> None:
        """Publish and read until both get something in the same round."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        number = start
        while time.monotonic() < deadline:
            await self.publish(numbered(topic, range(number, number + 40)))
            number += 40
            first.in_hand.clear()
            second.in_hand.clear()
            fresh = numbered_ids(range(number - 40, number))
            arrived: set[str] = set()
            while len(arrived) < 40 and time.monotonic() < deadline:
                for reader in (first, second):
                    arrivals = await reader.read(0.05)
                    arrived |= fresh & set(ids(arrivals))
                    await reader.source.ack(arrivals)
            if first.in_hand and second.in_hand:
                return
        raise AssertionError("the readers do not share")


class SourceOutageSuite(_SourceHooks):
    """What has to hold when the broker goes away and comes back. Needs a broker of its own."""

    async def stop_broker(self) -> None:
        raise NotImplementedError

    async def start_broker(self) -> None:
        """With the data that it had."""
        raise NotImplementedError

    def test_open_without_a_broker_says_so(self) -> None:
        async def case() -> None:
            source = await self.make_source(await self.fresh_topic(), fresh_group())
            await self.stop_broker()
            try:
                with pytest.raises(BrokerUnreachable) as caught:
                    await Reader(source).open()
                assert "\n" not in str(caught.value)
            finally:
                await source.close()
                await self.start_broker()

        run(case())

    def test_a_restart_in_the_middle_loses_nothing(self) -> None:
        async def case() -> None:
            topic, group = await self.filled(40), fresh_group()
            async with self.reading(topic, group) as reader:
                await reader.read_all(40)
                done: set[str] = set()
                for arrivals in reader.in_hand.values():
                    await reader.source.ack(arrivals[:2])
                    done |= set(ids(arrivals[:2]))
                await self.stop_broker()
                assert not await reader.read(QUIET_SECONDS)
                await self.start_broker()
                await self._publish_in_the_end(numbered(topic, range(40, 80)))
                await reader.read_all(80)
                check_order(reader.arrivals)
                await reader.ack_all()
                await _eventually_acknowledged(reader)
            async with self.reading(topic, group) as reader:
                await self.publish(numbered(topic, range(80, 88)))
                await reader.read_all(8)
                assert not done & set(ids(reader.arrivals))

        run(case())

    def test_close_during_an_outage_comes_to_an_end(self) -> None:
        async def case() -> None:
            topic = await self.filled(10)
            reader = Reader(await self.make_source(topic, fresh_group()))
            await reader.open()
            await reader.read_all(10)
            await self.stop_broker()
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await reader.ack_all()
                    await reader.source.close()
            finally:
                await self.start_broker()

        run(case())

    async def _publish_in_the_end(self, messages: Sequence[Message]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                await self.publish(messages)
                return
            except (BrokerUnreachable, AssertionError):
                assert time.monotonic() < deadline, "the broker does not come back"
                await asyncio.sleep(0.2)


def _all_ids(*readers: Reader) -> list[str]:
    return [each for reader in readers for each in ids(reader.arrivals)]


async def _eventually_lags(source: Source, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (lag := await source.lag()) != count:
        assert time.monotonic() < deadline, f"the lag is {lag}, not {count}"
        await asyncio.sleep(0.05)


async def _eventually_acknowledged(reader: Reader) -> None:
    """Acknowledge what comes again, until nothing does."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while await reader.read(QUIET_SECONDS):
        assert time.monotonic() < deadline
        await reader.ack_all()
