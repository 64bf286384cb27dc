"""How much of JetStream's speed is left in the publisher?

    eval "$(scripts/services env)"
    .venv/bin/python benchmarks/nats_publish.py [EVENTS] [BYTES]

The bare loops are nats-py's: its publish_async with a future per message, and its connection with
all replies counted on one inbox. The publisher gets batches of 1000, up to 8 of them at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from typing import Any

import nats
from nats.js.api import StreamConfig
from pipelines import BATCH, WINDOW, make_messages, report, through

from commitrelay.publisher import Message
from commitrelay.publishers.nats import from_url

URL = os.environ["COMMITRELAY_NATS_URL"]


def headers_of(message: Message) -> dict[str, str]:
    return {"Nats-Msg-Id": message.event_id, "message-key": message.key, **dict(message.headers)}


async def counted(messages: list[Message]) -> None:
    async with await nats.connect(URL) as client:
        acknowledged = 0
        changed = asyncio.Event()

        async def count(_message: Any) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if not acknowledged % BATCH or acknowledged == len(messages):
                changed.set()

        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*", cb=count)
        for number, each in enumerate(messages):
            await client.publish(each.topic, each.value, f"{inbox}.{number}", headers_of(each))
            while number - acknowledged > WINDOW * BATCH:
                changed.clear()
                await changed.wait()
        while acknowledged < len(messages):
            changed.clear()
            await changed.wait()


async def futures(messages: list[Message]) -> None:
    async with await nats.connect(URL) as client:
        context = client.jetstream(publish_async_max_pending=WINDOW * BATCH)
        pending = [
            await context.publish_async(
                each.topic, each.value, headers=headers_of(each), wait_stall=30
            )
            for each in messages
        ]
        await asyncio.gather(*pending)


async def stream(action: str, name: str) -> None:
    async with await nats.connect(URL) as client:
        if action == "create":
            await client.jetstream().add_stream(StreamConfig(name=name, subjects=[name]))
        else:
            info = await client.jetstream().stream_info(name)
            assert info.state.messages > 0
            await client.jetstream().delete_stream(name)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    runs = {
        "nats-py, counted replies": lambda each: asyncio.run(counted(each)),
        "nats-py, publish_async": lambda each: asyncio.run(futures(each)),
        "NatsPublisher": lambda each: asyncio.run(through(from_url(URL, {}), each)),
    }
    for name, run in runs.items():
        topic = f"bench-{uuid.uuid4().hex[:12]}"
        messages = make_messages(topic, count, size)
        asyncio.run(stream("create", topic))
        report(name, run, messages)
        asyncio.run(stream("delete", topic))


if __name__ == "__main__":
    main()
