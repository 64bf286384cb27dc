"""A reader of a source, steered through its standard input; killed and paused by the tests.

It says what arrives, one JSON object per line. `ack N` acknowledges the first N in hand of each
partition, `close` leaves.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection

from commitrelay import open_source
from commitrelay.source import Arrival, Source

in_hand: dict[str, list[Arrival]] = {}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def on_revoked(partitions: Collection[str]) -> None:
    say(revoked=sorted(partitions))


async def main() -> None:
    settings = json.loads(sys.argv[1])
    source = open_source(settings.pop("url"), **settings)
    await source.open(on_revoked)
    say(opened=True)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    reading = asyncio.create_task(read(source))
    while command := (await commands.readline()).decode().split():
        if command[0] == "close":
            break
        count = int(command[1])
        for arrivals in in_hand.values():
            await source.ack(arrivals[:count])
            del arrivals[:count]
        say(acked=count)
    reading.cancel()
    await source.close()
    say(closed=True)


async def read(source: Source) -> None:
    while True:
        for arrival in await source.read(100, 1.0):
            in_hand.setdefault(arrival.partition, []).append(arrival)
            say(id=dict(arrival.headers)["event-id"], partition=arrival.partition)


asyncio.run(main())
