"""Marks on each database: who reads what, how the last one ended, what was started with care."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from commitrelay import registry
from commitrelay.consumer.database import Database
from commitrelay.consumer.marks import Marks, Past
from commitrelay.inbox import Inbox
from commitrelay.sql import Names
from tests.consumer import services


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        found = f"sqlite:///{tmp_path}/consumer.db"
    else:
        found = request.getfixturevalue(f"{request.param}_database")
    services.initialise(found)
    return found


def marks_of(reader: str, consumer: str = "billing") -> Marks:
    return Marks(consumer, reader, Names())


def play(url: str, case: Callable[[Callable[[Any], Awaitable[Any]]], Awaitable[None]]) -> None:
    async def main() -> None:
        inbox, marks = Inbox("billing"), marks_of("any")
        database = Database(registry.transactions(url), inbox, marks, threads=1)
        try:
            await case(database.transact)
        finally:
            await database.close()

    asyncio.run(main())


def test_a_reader_learns_how_the_last_ones_ended(url: str) -> None:
    async def case(ask: Callable[[Any], Awaitable[Any]]) -> None:
        assert await ask(marks_of("a").enter("p", 2)) is Past.CLEAN
        assert await ask(marks_of("a").is_reading("p"))
        assert not await ask(marks_of("a").is_reading("q"))
        assert await ask(marks_of("b", "shipping").enter("p", 2)) is Past.CLEAN
        assert await ask(marks_of("b").enter("p", 2)) is Past.DIED
        assert await ask(marks_of("c").enter("p", 2)) is Past.DIED_OFTEN
        await ask(marks_of("b").outlive("p"))
        await ask(marks_of("b").leave("p"))
        assert await ask(marks_of("d").enter("p", 2)) is Past.DIED_OFTEN, "b had no say any more"
        await ask(marks_of("d").outlive("p"))
        assert await ask(marks_of("e").enter("p", 2)) is Past.DIED
        await ask(marks_of("e").leave("p"))
        assert await ask(marks_of("f").enter("p", 2)) is Past.CLEAN

    play(url, case)


def test_starts_are_counted_until_one_ends(url: str) -> None:
    async def case(ask: Callable[[Any], Awaitable[Any]]) -> None:
        marks = marks_of("a")
        assert [await ask(marks.start("1", 2)) for _ in range(3)] == [True, True, False]
        assert await ask(marks.start("2", 2))
        assert await ask(marks_of("a", "shipping").start("1", 2))
        await ask(marks.end("1"))
        assert await ask(marks.start("1", 2))

    play(url, case)
