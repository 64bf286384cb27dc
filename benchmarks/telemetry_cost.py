"""What metrics cost a relay: nanoseconds of CPU per event around ports that do nothing.

python benchmarks/telemetry_cost.py [--events N] [--batch N]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities
from commitrelay.store import Fence, Queued, Settlement
from commitrelay.telemetry import LaneMeter, MeteredPublisher, MeteredStore, Telemetry

FENCE = Fence(1, "relay", 1)


class Nothing:
    """Both ports, done at once."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self, rows: list[Queued]) -> None:
        self._rows = rows

    async def claim(self, fence: Fence, request: object) -> list[Queued]:
        return self._rows

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return [DELIVERED] * len(messages)

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        return len(settlement.delivered)


def rows(count: int) -> list[Queued]:
    now = datetime.now(UTC).replace(tzinfo=None)
    return [
        Queued(
            *(number, number, 0, 0, 0, False, f"{number:036}", "Order", str(number), "Paid", b"{}"),
            *("application/json", "{}", None),
            f"{(now - timedelta(microseconds=137 * number)).isoformat(timespec='microseconds')}Z",
        )
        for number in range(count)
    ]


async def seconds(store: Any, publisher: Any, batch: list[Queued], rounds: int) -> float:
    messages = [Message("t", row.aggregate_id, row.payload, [], row.id) for row in batch]
    settlement = Settlement(delivered=[row.seq for row in batch])
    began = time.process_time()
    for _ in range(rounds):
        await store.claim(FENCE, None)
        await publisher.publish(messages)
        await store.settle(FENCE, settlement)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1000)
    chosen = parser.parse_args()
    batch = rows(chosen.batch)
    rounds = chosen.events // chosen.batch
    bare = Nothing(batch)
    meter = LaneMeter(Telemetry(), "default")
    metered: Any = MeteredStore(bare, meter), MeteredPublisher(bare, meter)  # type: ignore[arg-type]
    without = min(asyncio.run(seconds(bare, bare, batch, rounds)) for _ in range(3))
    with_it = min(asyncio.run(seconds(*metered, batch, rounds)) for _ in range(3))
    each = (with_it - without) / (rounds * chosen.batch) * 1e9
    print(f"{each:.0f} ns per event in batches of {chosen.batch} ({rounds} batches, best of 3)")


if __name__ == "__main__":
    main()
