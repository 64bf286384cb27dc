"""When a relay looks for parked events that may go on."""

from __future__ import annotations

import pytest

from commitrelay.unparking import FIRST_SECONDS, MOST_SECONDS, UNPARK_LIMIT, Unparking


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def look(unparking: Unparking, clock: Clock, *, freed: int = 0, seconds: float = 0.0) -> float:
    """One look, and after how long the next one is due."""
    assert unparking.is_due
    began = clock.now
    clock.now += seconds
    unparking.looked(began, freed)
    while not unparking.is_due:
        clock.now += 0.001
    return clock.now - began


def test_looks_that_find_nothing_become_rare() -> None:
    clock = Clock()
    unparking = Unparking(clock)
    pauses = [look(unparking, clock) for _ in range(10)]
    assert pauses[0] == pytest.approx(FIRST_SECONDS, abs=0.002)
    assert pauses[1] == pytest.approx(2 * FIRST_SECONDS, abs=0.002)
    assert pauses[-1] == pytest.approx(MOST_SECONDS, abs=0.002)


def test_what_was_parked_is_looked_for_soon() -> None:
    clock = Clock()
    unparking = Unparking(clock)
    for _ in range(10):
        look(unparking, clock)
    unparking.looked(clock.now, 0)
    unparking.parked()
    assert not unparking.is_due
    clock.now += FIRST_SECONDS
    assert unparking.is_due


def test_after_a_full_look_and_after_a_delivery_the_next_is_at_once() -> None:
    clock = Clock()
    unparking = Unparking(clock)
    assert look(unparking, clock, freed=UNPARK_LIMIT) == 0
    unparking.looked(clock.now, 0)
    assert not unparking.is_due
    unparking.freed()
    assert unparking.is_due


def test_slow_looks_take_no_more_than_a_fifth_of_the_time() -> None:
    clock = Clock()
    unparking = Unparking(clock)
    look(unparking, clock, freed=1, seconds=0.1)
    assert look(unparking, clock, freed=1, seconds=0.1) >= 0.4
