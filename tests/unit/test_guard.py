"""A publisher that breaks its word is an outage, and nothing worse."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from commitrelay.guard import guarded_publish
from commitrelay.publisher import (
    DELIVERED,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)

MESSAGES = [Message("orders", str(number), b"{}", [], str(number)) for number in range(3)]


class Broken:
    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 0.01

    def __init__(self, does: object) -> None:
        self._does = does

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        if isinstance(self._does, Exception):
            raise self._does
        if self._does is None:
            await asyncio.Event().wait()
        return self._does  # type: ignore[return-value]


def published(does: object) -> Sequence[Outcome]:
    return asyncio.run(guarded_publish(Broken(does), MESSAGES))  # type: ignore[arg-type]


def test_what_it_answers_is_passed_on() -> None:
    answers = [DELIVERED, Refused("too large"), DELIVERED]
    assert published(answers) == answers


def test_one_that_raises_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    assert published(KeyError("x")) == [Unreachable("KeyError: 'x'")] * 3
    assert "in a way that it should not" in caplog.text


def test_one_that_never_answers_is_unreachable() -> None:
    assert published(None) == [Unreachable("no answer within 1.02 s")] * 3
