"""No confirm is attributed to the wrong message, in whatever order and grouping they come."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitrelay.publishers.rabbitmq.confirms import Confirms, Flight, UnknownConfirm

NACKED = "nacked"


def flights_of(confirms: Confirms, sizes: list[int]) -> list[Flight]:
    flights = []
    number = 0
    for size in sizes:
        flight = confirms.begin()
        half = size // 2
        for count in (half, size - half):  # written in two pieces
            confirms.sent(flight, [f"e{number + each}" for each in range(count)])
            number += count
        flight.seal()
        flights.append(flight)
    return flights


def where(flights: list[Flight], number: int) -> tuple[Flight, int]:
    for flight in flights:
        if number < flight.first + len(flight):
            return flight, number - flight.first
    raise AssertionError(number)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    answers=st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.booleans()), max_size=60),
)
def test_every_message_gets_its_own_answer(
    sizes: list[int], answers: list[tuple[int, bool, bool]]
) -> None:
    async def case() -> None:
        confirms = Confirms()
        flights = flights_of(confirms, sizes)
        total = sum(sizes)
        expected: dict[int, str | None] = {}
        for number, multiple, nack in answers:
            if number > total:
                continue
            failure = NACKED if nack else None
            confirms.settle(number, multiple, failure)
            for each in range(1, number + 1) if multiple else (number,):
                expected.setdefault(each, failure)
        for number in range(1, total + 1):
            flight, position = where(flights, number)
            assert (position in flight.settled) == (number in expected)
            assert flight.failures.get(position) == expected.get(number)
        for flight in flights:
            numbers = range(flight.first, flight.first + len(flight))
            assert flight.is_settled == all(number in expected for number in numbers)
            if flight.is_settled:
                await asyncio.wait_for(flight.done(), 1)

    asyncio.run(case())


def test_a_return_is_remembered_when_its_confirm_comes() -> None:
    async def case() -> None:
        confirms = Confirms()
        first, second = flights_of(confirms, [3, 3])
        confirms.returned("e1", "unroutable")
        confirms.returned("e5", "unroutable")
        confirms.settle(6, multiple=True)
        await first.done()
        await second.done()
        assert first.failures == {1: "unroutable"}
        assert second.failures == {2: "unroutable"}

    asyncio.run(case())


@pytest.mark.parametrize("number", [4, 1000])
def test_a_confirm_of_what_was_never_sent_is_not_believed(number: int) -> None:
    async def case() -> None:
        confirms = Confirms()
        flights_of(confirms, [3])
        with pytest.raises(UnknownConfirm):
            confirms.settle(number, multiple=True)

    asyncio.run(case())


def test_a_return_of_what_was_never_sent_is_not_believed() -> None:
    async def case() -> None:
        confirms = Confirms()
        flights_of(confirms, [3])
        with pytest.raises(UnknownConfirm):
            confirms.returned("somebody else's", "unroutable")

    asyncio.run(case())


def test_a_call_that_gave_up_leaves_the_numbers_in_order() -> None:
    """The next flight begins after what was really written, not after what was planned."""

    async def case() -> None:
        confirms = Confirms()
        given_up = confirms.begin()
        confirms.sent(given_up, ["e0", "e1"])
        following = confirms.begin()
        confirms.sent(following, ["e2"])
        following.seal()
        confirms.settle(3, multiple=False)
        await asyncio.wait_for(following.done(), 1)
        assert given_up.unsettled == [0, 1]

    asyncio.run(case())
