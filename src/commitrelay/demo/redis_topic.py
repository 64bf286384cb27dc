"""RedisTopic: the demo's stream on Redis, deleted after the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from commitrelay.demo.ledger import Received
from commitrelay.demo.topic import received
from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.format import EVENT_ID
from commitrelay.publishers.redis import RedisSettings
from commitrelay.publishers.redis.connection import RedisConnection, connect, must
from commitrelay.publishers.redis.link import PAYLOAD

T = TypeVar("T")

MAX_MESSAGES = 5000
WAIT_MILLISECONDS = 20
TIMEOUT_SECONDS = 10.0


class RedisTopic:
    title = "Redis"

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._settings = RedisSettings.from_url(url, {})
        if self._settings.cluster:
            raise ConfigError("the demo reads back from one server: leave out cluster=true")
        self._streams = [name]
        if self._settings.streams > 1:
            self._streams = [f"{name}:{number}" for number in range(self._settings.streams)]
        self._read_up_to = dict.fromkeys(self._streams, b"0")
        self._loop = asyncio.new_event_loop()
        self._connection: RedisConnection | None = None

    def prepare(self) -> None:
        try:
            self._connected()
        except BaseException:
            self._end()
            raise

    def subscribe(self) -> None:
        pass

    def poll(self) -> list[Received]:
        try:
            connection = self._connected()
            streams: list[str | bytes] = [*self._streams, *self._read_up_to.values()]
            reply = self._wait(
                connection.call(
                    "XREAD", "COUNT", MAX_MESSAGES, "BLOCK", WAIT_MILLISECONDS, "STREAMS", *streams
                )
            )
        except BrokerUnreachable:
            self._connection = None  # as a consumer would: connect again, and go on
            return []
        must(reply, connection, "check the rights of this user")
        return [each for stream, entries in reply or () for each in self._entries(stream, entries)]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.drop("closed")
            self._connection = None

    def remove(self) -> None:
        self._wait(self._connected().call("DEL", *self._streams))
        self._end()

    def _entries(self, stream: bytes, entries: list[Any]) -> list[Received]:
        self._read_up_to[stream.decode()] = entries[-1][0]
        return [_received(fields) for _id, fields in entries]

    def _connected(self) -> RedisConnection:
        if self._connection is None:
            settings = self._settings
            self._connection = self._wait(connect(settings, settings.host, settings.port))
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


from_url = RedisTopic


def _received(fields: list[bytes]) -> Received:
    by_name = dict(zip(fields[::2], fields[1::2], strict=True))
    return received(by_name[EVENT_ID.encode()].decode(), by_name[PAYLOAD.encode()])
