"""A consumer without a database: `tests.inbox.redis_process URL CONSUMER TASKS EVENTS`."""

from __future__ import annotations

import asyncio
import sys

from commitrelay import InProgress, RedisInbox


async def deliver(inbox: RedisInbox, event_id: str) -> bool:
    """Until it is first or a duplicate, as a broker would deliver it again and again."""
    while True:
        try:
            async with inbox.once(event_id) as first:
                if first:
                    await asyncio.sleep(0.005)
                return first
        except InProgress:
            await asyncio.sleep(0.002)


async def main(url: str, consumer: str, tasks: int, events: int) -> None:
    async with RedisInbox(url, consumer) as inbox:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def deliver_all() -> list[int]:
            return [n for n in range(events) if await deliver(inbox, f"event-{n}")]

        for effects in await asyncio.gather(*(deliver_all() for _ in range(tasks))):
            print(*effects, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
