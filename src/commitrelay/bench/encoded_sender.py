"""EncodedSender: for brokers whose protocol the bare loop speaks itself, in two steps.

What is encoded beforehand shows what the broker takes; with both steps, what a loop can send.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class EncodedSender(ABC):
    """Knows of failures only that there was one: no message is told from another."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        """The bytes that our publisher would send for these events, all in one piece."""

    @abstractmethod
    async def write(self, encoded: bytes, count: int) -> None:
        """Returns when all `count` of them are acknowledged."""

    @abstractmethod
    async def close(self) -> None: ...

    async def send(self, rows: list[tuple[Any, ...]]) -> None:
        await self.write(self.encode(rows), len(rows))
