"""What goes wrong in a simulated world, and how often. Everything follows from the seed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random


@dataclass
class Faults:
    """Probabilities, all zero once the world has healed."""

    refuse: float = 0.0  # a message is refused this time
    lose_ack: float = 0.0  # a message arrives, its acknowledgement does not
    lose_message: float = 0.0  # neither does
    store_fails: float = 0.0  # a statement is not executed
    store_loses_reply: float = 0.0  # it is, but nobody hears of it
    broker_is_down: bool = False

    def heal(self) -> None:
        self.__init__()  # type: ignore[misc]

    @staticmethod
    def drawn(random: Random) -> Faults:
        def now_and_then(most: float) -> float:
            return random.choice((0.0, 0.0, most / 10, most))

        return Faults(
            refuse=now_and_then(0.2),
            lose_ack=now_and_then(0.05),
            lose_message=now_and_then(0.05),
            store_fails=now_and_then(0.05),
            store_loses_reply=now_and_then(0.05),
        )


class Gate:
    """A process that is stopped (SIGSTOP) stands here with whatever it was doing."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    async def pass_through(self) -> None:
        await self._open.wait()
