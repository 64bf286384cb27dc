"""Offsets: which partitions are ours, and how far each is done. Shared by two threads; no I/O.

What is committed is the offset behind the last acknowledged message. A partition that comes back
after it went is a new `Held`, so that a late acknowledgement from before changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import TopicPartition

from commitrelay.source import Arrival

Partition = tuple[str, int]


class Held:
    """One partition from the moment it was assigned until it is revoked."""

    __slots__ = ("committing", "done", "end", "first", "high", "name", "partition", "read")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.name = name_of(partition)
        self.first: int | None = None  # the first message that arrived
        self.read: int | None = None  # behind the last message that arrived
        self.done: int | None = None  # behind the last that was acknowledged
        self.committing: int | None = None  # the same, as last told to the broker
        self.end: int | None = None  # where the partition ended when that was last seen
        self.high = -1  # how far it reached when somebody looked

    @property
    def low(self) -> int | None:
        """Everything below is done; None if nothing was heard of it yet."""
        if self.end is not None and self.done == self.read:
            return max(self.done or 0, self.end)  # what is between are marks of transactions
        return self.first if self.done is None else self.done

    @property
    def lag(self) -> int:
        """1 until the broker has said where it is: there may be something."""
        high = max(self.high, self.read or 0)
        return 1 if self.low is None else max(0, high - self.low)


class Place(NamedTuple):
    """The position of an arrival."""

    held: Held
    offset: int


def name_of(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


class Offsets:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Partition, Held] = {}
        self.number = 0  # of the last acknowledgement

    @property
    def is_busy(self) -> bool:
        """Whether something has arrived that is not done yet."""
        return any(each.read != each.done for each in self.all())

    def assigned(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            self._held.update((each, Held(each)) for each in partitions)

    def removed(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            for each in partitions:
                self._held.pop(each, None)

    def held(self, partition: Partition) -> Held | None:
        return self._held.get(partition)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def done(self, arrivals: Sequence[Arrival]) -> int:
        """These are acknowledged; under which number. What is no longer ours nobody looks at."""
        with self._lock:
            for arrival in arrivals:
                place = arrival.position
                assert isinstance(place, Place)
                place.held.done = max(place.held.done or 0, place.offset + 1)
            self.number += 1
            return self.number

    def to_commit(self) -> tuple[list[TopicPartition], int]:
        """What the broker was not told yet, and the number up to which that is all."""
        with self._lock:
            news = [
                each
                for each in self._held.values()
                if each.done is not None and each.done != each.committing
            ]
            for each in news:
                each.committing = each.done
            return [_target(each) for each in news], self.number

    def all_done(self) -> list[TopicPartition]:
        """Everything that is done, told or not."""
        with self._lock:
            return [_target(each) for each in self._held.values() if each.done is not None]

    def not_committed(self) -> None:
        """The broker may not have heard: tell it all again."""
        with self._lock:
            for each in self._held.values():
                each.committing = None


def _target(held: Held) -> TopicPartition:
    assert held.done is not None
    return TopicPartition(*held.partition, held.done)
