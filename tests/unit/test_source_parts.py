"""The parts of sources that do no I/O."""

from __future__ import annotations

import asyncio

from commitrelay.source import Arrival
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.roll import BYE, HELLO, HERE, MISSING_SECONDS, Roll


def arrival(partition: str, value: bytes = b"x") -> Arrival:
    return Arrival("t", partition, None, "", value, [])


def test_a_buffer_is_full_by_count_or_by_bytes_and_low_at_half() -> None:
    async def case() -> None:
        buffer = Buffer(max_arrivals=4, max_bytes=100)
        buffer.put([arrival("a")] * 4)
        assert buffer.is_full
        await buffer.take(2, 0)
        assert not buffer.is_full
        assert buffer.is_low
        buffer.put([arrival("b", b"x" * 100)])
        assert buffer.is_full
        buffer.drop(["b"])
        assert len(buffer) == 2
        assert buffer.is_low

    asyncio.run(case())


def test_a_buffer_gives_what_there_is_or_waits() -> None:
    async def case() -> None:
        buffer = Buffer()
        assert await buffer.take(10, 0.01) == []
        reading = asyncio.create_task(buffer.take(10, 30))
        await asyncio.sleep(0)
        buffer.drop(["a"])  # wakes nobody for good
        await asyncio.sleep(0)
        buffer.put([arrival("a"), arrival("b")])
        assert [each.partition for each in await reading] == ["a", "b"]

    asyncio.run(case())


def test_a_buffer_tells_when_there_is_room() -> None:
    async def case() -> None:
        buffer = Buffer(max_arrivals=2)
        buffer.put([arrival("a")] * 2)
        waiting = asyncio.create_task(buffer.until_low())
        await asyncio.sleep(0)
        assert not waiting.done()
        await buffer.take(1, 0)
        await waiting

    asyncio.run(case())


def test_who_says_nothing_is_not_there_any_more() -> None:
    now = 0.0
    roll = Roll("me", clock=lambda: now)
    other, third = Roll("other"), Roll("third")
    assert roll.hear(other.word(HELLO))  # wants an answer
    assert not roll.hear(third.word(HERE))
    assert not roll.hear(roll.word(HELLO))  # our own
    assert roll.members == ["me", "other", "third"]
    roll.hear(third.word(BYE))
    assert roll.members == ["me", "other"]
    now = MISSING_SECONDS + 1
    assert roll.members == ["me"]
    assert not roll.hear(b"\xff nonsense")
    assert not roll.hear(b"nonsense")
    assert roll.members == ["me"]
