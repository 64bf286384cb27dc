"""Counts as Prometheus reads them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from commitrelay import Consumer, ConsumerOptions
from commitrelay.consumer import prometheus
from tests.consumer import services

LINE = re.compile(r'commitrelay_consumer_([a-z_]+)\{consumer="a \\"b\\""\} ([0-9.e+-]+)')


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), text
    return {match[1]: float(match[2]) for match in found if match}


def test_prometheus(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/consumer.db"
    services.initialise(url)
    services.publish(tmp_path / "topics", services.counted(range(7), keys=2))
    options = ConsumerOptions(wait_seconds=0.05, report_seconds=0.05)
    source = f"file://{tmp_path}/topics"
    consumer = Consumer('a "b"', source=source, database=url, options=options)
    consumer.on("*")(lambda connection, event: None)
    assert values(prometheus(consumer))["up"] == 0
    during: list[dict[str, float]] = []

    async def main() -> None:
        async with asyncio.timeout(60), consumer:
            while consumer.stats.lag != 0 or consumer.stats.handled < 7:
                await asyncio.sleep(0.02)
            assert await consumer.lag() == 0
            during.append(values(prometheus(consumer)))

    asyncio.run(main())
    (found,) = during
    wanted = {"up": 1, "handled_total": 7, "duplicates_total": 0, "in_hand": 0, "stopped_keys": 0}
    assert {name: found[name] for name in wanted} == wanted
    assert found["lag"] == 0
