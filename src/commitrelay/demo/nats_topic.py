"""NatsTopic: the demo's stream on NATS JetStream, created for one run and deleted after it.

Read by asking for one message after the other by its number, many questions at a time: that needs
no consumer, and shows each message as it is stored.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from commitrelay.demo.ledger import Received
from commitrelay.demo.topic import received
from commitrelay.errors import BrokerUnreachable
from commitrelay.format import EVENT_ID
from commitrelay.publishers.nats import NatsSettings
from commitrelay.publishers.nats.connection import NatsConnection, must
from commitrelay.publishers.nats.login import log_in

T = TypeVar("T")

MAX_MESSAGES = 500
WAIT_SECONDS = 0.02
TIMEOUT_SECONDS = 10.0
STREAM_OPTIONS = ("stream", "subject", "create_stream", "replicas")


class NatsTopic:
    title = "NATS"

    def __init__(self, url: str, name: str) -> None:
        self._settings = NatsSettings.from_url(url, {})
        self.url = _without_stream(url)
        self.name = name
        self._next = 1
        self._loop = asyncio.new_event_loop()
        self._connection: NatsConnection | None = None

    def prepare(self) -> None:
        wanted = {"name": self.name, "subjects": [self.name], "storage": "file"}
        try:
            self._wait(self._api(f"STREAM.CREATE.{self.name}", wanted))
        except BaseException:
            self._end()
            raise

    def subscribe(self) -> None:
        pass

    def poll(self) -> list[Received]:
        try:
            answers = self._wait(self._read())
        except BrokerUnreachable:
            self._connection = None  # as a consumer would: connect again, and go on
            answers = []
        self._next += len(answers)
        return [_received(each["message"]) for each in answers]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.drop("closed")
            self._connection = None

    def remove(self) -> None:
        self._wait(self._api(f"STREAM.DELETE.{self.name}"))
        self._end()

    async def _read(self) -> list[dict[str, Any]]:
        connection = await self._connected()
        info = must(await connection.api(f"STREAM.INFO.{self.name}"), self.title)
        numbers = range(self._next, min(info["state"]["last_seq"], self._next + MAX_MESSAGES) + 1)
        if not numbers:
            await asyncio.sleep(WAIT_SECONDS)
        get = f"STREAM.MSG.GET.{self.name}"
        answers = await asyncio.gather(*(connection.api(get, {"seq": n}) for n in numbers))
        return [must(answer, f"{self.title}: reading back") for answer in answers]

    async def _api(self, subject: str, body: dict[str, Any] | None = None) -> None:
        connection = await self._connected()
        must(await connection.api(subject, body), f"{self._settings}: {subject}")

    async def _connected(self) -> NatsConnection:
        if self._connection is None:
            self._connection = await log_in(self._settings, NatsConnection)
        return self._connection

    def _end(self) -> None:
        self.close()
        self._loop.run_until_complete(asyncio.sleep(0))  # the connection says goodbye
        self._loop.close()

    def _wait(self, work: Awaitable[T]) -> T:
        async def in_time() -> T:
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    return await work
            except TimeoutError:
                raise BrokerUnreachable(f"{self._settings} did not answer") from None

        return self._loop.run_until_complete(in_time())


from_url = NatsTopic


def _without_stream(url: str) -> str:
    """The stream is the demo's own, whatever the URL says about others."""
    parts = urlsplit(url)
    others = [each for each in parse_qsl(parts.query) if each[0] not in STREAM_OPTIONS]
    return urlunsplit(parts._replace(query=urlencode(others)))


def _received(message: dict[str, str]) -> Received:
    lines = base64.b64decode(message["hdrs"]).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    value = base64.b64decode(message.get("data", ""))
    return received(headers[EVENT_ID], value)
