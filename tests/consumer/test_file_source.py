"""File topics as a source: places that survive, and one reader of a group at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Consumer, PublisherError, registry
from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.source import Arrival
from commitrelay.sources.file import FileSource
from tests.consumer import services


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    directory = tmp_path / "topics"
    services.publish(directory, services.counted(range(10), keys=2), topic="orders")
    services.publish(directory, services.counted(range(100, 105), keys=1), topic="payments")
    return directory


async def opened(source: FileSource) -> FileSource:
    async def on_revoked(partitions: Collection[str]) -> None: ...

    await source.open(on_revoked)
    return source


async def read_all(source: FileSource) -> list[Arrival]:
    found: list[Arrival] = []
    while some := await source.read(3, 0.01):
        assert len(some) <= 3
        found += some
    return found


def numbers(arrivals: Sequence[Arrival], topic: str = "orders") -> list[int]:
    return [int(each.value.split(b":")[1][:-1]) for each in arrivals if each.topic == topic]


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(case)


def test_it_goes_on_behind_what_was_acknowledged(topics: Path) -> None:
    async def case() -> None:
        source = await opened(FileSource(topics, "billing"))
        arrivals = await read_all(source)
        assert numbers(arrivals) == list(range(10))
        assert numbers(arrivals, "payments") == list(range(100, 105))
        assert await source.lag() == 15
        mine = [each for each in arrivals if each.topic == "orders"]
        await source.ack(mine[:2])
        await source.ack(mine[2:4])
        assert await source.lag() == 11
        await source.close()
        source = await opened(FileSource(topics, "billing"))
        assert numbers(await read_all(source)) == list(range(4, 10))
        await source.close()
        source = await opened(FileSource(topics, "shipping", ["orders"]))
        assert numbers(await read_all(source)) == list(range(10)), "another group, another place"
        await source.close()

    run(case())


def test_what_is_appended_later_arrives(topics: Path) -> None:
    async def case() -> None:
        source = await opened(FileSource(topics, "billing", ["orders", "later"]))
        await read_all(source)
        more = services.counted([10], keys=1)
        await asyncio.to_thread(services.publish, topics, more, "orders")
        await asyncio.to_thread(services.publish, topics, more, "later")
        found = [*await source.read(1, 30), *await source.read(1, 30)]
        assert sorted(each.topic for each in found) == ["later", "orders"]
        await source.close()

    run(case())


def test_a_second_reader_of_the_group_stands_by(topics: Path) -> None:
    async def case() -> None:
        first = await opened(FileSource(topics, "billing"))
        arrivals = await read_all(first)
        second = await opened(FileSource(topics, "billing"))
        assert await second.read(10, 1.2) == []
        await first.ack(arrivals[:5])
        await first.close()
        found: list[Arrival] = []
        async with asyncio.timeout(30):
            while not found:
                found += await second.read(100, 1)
        assert numbers(found) == list(range(5, 10))
        await second.close()

    run(case())


def test_an_acknowledgement_after_the_end_is_ignored(topics: Path) -> None:
    async def case() -> None:
        source = await opened(FileSource(topics, "billing", ["orders"]))
        stale = await read_all(source)
        await asyncio.to_thread(source._let_go)
        await source.ack(stale)
        again = await opened(FileSource(topics, "billing", ["orders"]))
        assert numbers(await read_all(again)) == list(range(10))
        await again.close()

    run(case())


def test_the_place_is_kept_where_one_wants_it(topics: Path, tmp_path: Path) -> None:
    url = f"file://{topics}?topic=orders&group=a/b&state={tmp_path}/state"

    async def case() -> None:
        source: Any = registry.source(url, {"group": "billing"})
        await opened(source)
        await source.ack(await source.read(10, 1))
        await source.close()

    run(case())
    assert (tmp_path / "state" / "a%2Fb" / "orders.offset").exists()
    assert not (topics / ".groups").exists()


def test_errors_are_one_line(topics: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no directory"):
        registry.source("file://", {"group": "g"})
    with pytest.raises(ConfigError, match="file source has no setting 'topics'"):
        registry.source(f"file://{topics}?topics=a", {"group": "g"})
    with pytest.raises(ConfigError, match="no group"):
        registry.source(f"file://{topics}")

    async def case() -> None:
        with pytest.raises(BrokerUnreachable, match="there is no directory"):
            await opened(FileSource(tmp_path / "missing", "g"))
        place = topics / ".groups" / "g" / "orders.offset"
        place.parent.mkdir(parents=True)
        place.write_text("what?")
        source = await opened(FileSource(topics, "g"))
        with pytest.raises(ConfigError, match="holds no offset: remove it"):
            await source.read(1, 1)
        await source.close()

    run(case())


def test_a_line_that_no_relay_wrote_ends_the_consumer(topics: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/consumer.db"
    services.initialise(url)
    with (topics / "orders.jsonl").open("a") as file:
        file.write("what?\n")
    consumer = Consumer("billing", source=f"file://{topics}", database=url)
    consumer.on("*")(lambda connection, event: None)
    with pytest.raises(PublisherError, match=r"orders\.jsonl has a line at byte \d+ that no relay"):
        run(consumer.run())
