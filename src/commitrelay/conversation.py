"""Conversation: statements go out to a driver, counts and errors come back.

What runs on the caller's handle may depend on what the server answers, so it is a generator: it
yields a statement with its values, is sent how many rows were changed (or found, by a SELECT),
has errors thrown into it, and returns its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Value = str | bytes | int | None
Step = tuple[str, tuple[Value, ...]]
Conversation = Generator[Step, int, T]


def converse(ask: Callable[..., int], conversation: Conversation[T]) -> T:
    """Run what the conversation asks for with ``ask(text, values)``, to its result."""
    try:
        step = next(conversation)
        while True:
            try:
                count = ask(*step)
            except Exception as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(count)
    except StopIteration as end:
        result: T = end.value
        return result


async def converse_async(ask: Callable[..., Awaitable[int]], conversation: Conversation[T]) -> T:
    """As `converse`, where asking takes an await."""
    try:
        step = next(conversation)
        while True:
            try:
                count = await ask(*step)
            except Exception as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(count)
    except StopIteration as end:
        result: T = end.value
        return result


def count_of(cursor: Any) -> int:
    """Rows changed, or rows found: not every driver counts those by itself."""
    return len(cursor.fetchall()) if cursor.description else int(cursor.rowcount)
