"""How much of JetStream's speed is left in the publisher?

    eval "$(scripts/services env)"
    .venv/bin/python benchmarks/nats_publish.py [--events N] [--payload BYTES] [--json]

The bare senders write frames, a batch in one piece, and count the answers on one inbox; beside
them nats-py's connection with its answers counted, and its publish_async with a future each.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import nats
from pipelines import (
    BARE,
    BATCH,
    ENCODED,
    WINDOW,
    BareLine,
    EncodedLine,
    PublisherLine,
    Rows,
    main,
    server,
)

from commitrelay.demo.topic import Topic, topic_of

URL = server("nats")

Batch = list[tuple[bytes, dict[str, str]]]


class NatsPy:
    """A future for each message."""

    window = WINDOW

    def __init__(self, topic: Topic) -> None:
        self._topic = topic.name

    async def open(self) -> None:
        self._client = await nats.connect(URL)
        self._context = self._client.jetstream(publish_async_max_pending=WINDOW * BATCH)

    def prepare(self, rows: Rows) -> Batch:
        return [
            (
                payload,
                {
                    "Nats-Msg-Id": event_id,
                    "message-key": key,
                    "event-id": event_id,
                    "event-type": event_type,
                    "aggregate-type": kind,
                    "aggregate-id": key,
                    "content-type": content_type,
                    "created-at": created_at,
                },
            )
            for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows
        ]

    async def send(self, batch: Batch) -> None:
        publish, topic = self._context.publish_async, self._topic
        pending = [
            await publish(topic, payload, headers=headers, wait_stall=30)
            for payload, headers in batch
        ]
        await asyncio.gather(*pending)

    async def close(self) -> None:
        await self._client.close()


class CountedNatsPy(NatsPy):
    """An inbox for all answers to a batch."""

    async def send(self, batch: Batch) -> None:
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left = len(batch)

        async def count(_answer: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                taken.set_result(None)

        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox, cb=count)
        for payload, headers in batch:
            await self._client.publish(self._topic, payload, inbox, headers)
        await taken
        await subscription.unsubscribe()


if __name__ == "__main__":
    lines = {
        BARE: BareLine,
        ENCODED: EncodedLine,
        "NatsPublisher": PublisherLine,
        "nats-py, counted answers": CountedNatsPy,
        "nats-py, publish_async": NatsPy,
    }
    main(__doc__, lines, {"stream": partial(topic_of, URL)})
