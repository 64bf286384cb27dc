"""Sends with confluent-kafka alone: a counting callback, and one wake-up of the loop a batch."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from confluent_kafka import Producer

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.kafka import KafkaSettings


class Sender:
    def __init__(self, url: str, topic: str, options: dict[str, str]) -> None:
        self._settings = KafkaSettings.from_url(url, options)
        self._topic = topic
        self._ending = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="poll")

    async def open(self) -> None:
        self._producer = Producer(self._settings.producer())
        self._poller.start()

    async def send(self, rows: list[tuple[Any, ...]]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        left = len(rows)

        def acknowledge(error: Any, _message: object) -> None:
            nonlocal left
            if error is not None:
                problem = BrokerUnreachable(f"{self._settings}: {error.str()}")
                loop.call_soon_threadsafe(done.set_exception, problem)
            left -= 1
            if not left and error is None:
                loop.call_soon_threadsafe(done.set_result, None)

        produce, topic = self._producer.produce, self._topic
        for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows:
            headers = [
                ("event-id", event_id),
                ("event-type", event_type),
                ("aggregate-type", kind),
                ("aggregate-id", key),
                ("content-type", content_type),
                ("created-at", created_at),
            ]
            produce(topic, payload, key, on_delivery=acknowledge, headers=headers)
        await done

    async def close(self) -> None:
        self._ending.set()
        self._poller.join()

    def _poll(self) -> None:
        while not self._ending.is_set():
            self._producer.poll(0.1)
