"""Whoever follows the log sees each event once, also one that commits late."""

from __future__ import annotations

from commitrelay.follow import MAX_GAPS, PATIENCE_SECONDS, Numbers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_number_is_told_once() -> None:
    numbers = Numbers(5)
    assert numbers.unseen([6, 7]) == [6, 7]
    assert numbers.unseen([6, 7, 8]) == [8]
    assert numbers.floor == 8


def test_a_number_that_comes_late_is_told_when_it_comes() -> None:
    numbers = Numbers(0)
    assert numbers.unseen([1, 4]) == [1, 4]
    assert numbers.floor == 1, "2 and 3 may still come"
    assert numbers.unseen([3, 4, 5]) == [3, 5]
    assert numbers.floor == 1
    assert numbers.unseen([2, 3, 4, 5]) == [2]
    assert numbers.floor == 5


def test_what_was_rolled_back_is_waited_for_no_longer_than_a_minute() -> None:
    clock = Clock()
    numbers = Numbers(0, clock)
    numbers.unseen([2])
    clock.now = PATIENCE_SECONDS + 1
    numbers.unseen([])
    assert numbers.floor == 2
    assert numbers.unseen([1, 2, 3]) == [3]


def test_a_jump_of_numbers_costs_little() -> None:
    numbers = Numbers(0)
    assert numbers.unseen([10**9]) == [10**9]
    assert numbers.floor == 10**9 - MAX_GAPS - 1
    numbers.unseen([2 * 10**9])
    assert numbers.floor >= 2 * 10**9 - MAX_GAPS - 1
