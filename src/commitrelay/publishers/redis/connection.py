"""RedisConnection: commands out, replies in, in the same order; parsed by hiredis."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import hiredis

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.redis.settings import RedisSettings
from commitrelay.publishers.wire import Wire, dial

pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command  # its stub allows one argument

DEFAULT_MAX_BULK_BYTES = 512 * 1024 * 1024


class Expectation(Protocol):
    """Somebody who waits for replies; `left` of them are still to come."""

    left: int

    def take(self, reply: Any) -> None: ...

    def give_up(self, reason: str) -> None: ...


class RedisConnection(Wire):
    """One connection. What is expected is queued in the order in which it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.max_bulk_bytes = DEFAULT_MAX_BULK_BYTES
        self._reader = hiredis.Reader()
        self._expected: deque[Expectation] = deque()

    def ask(self, commands: bytes, expectation: Expectation) -> None:
        """Write commands whose replies go to `expectation`."""
        self._expected.append(expectation)
        self.write(commands)

    async def call(self, *arguments: str | bytes | int) -> Any:
        """One command and its reply; an error reply is returned, not raised."""
        if self.lost is not None:
            raise BrokerUnreachable(self.lost)
        answer = _Answer()
        self.ask(pack(arguments), answer)
        return await answer.reply

    def data_received(self, data: bytes) -> None:
        reader, expected = self._reader, self._expected
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not False:
                waiting = expected[0]
                waiting.take(reply)
                if not waiting.left:
                    expected.popleft()
        except (hiredis.ProtocolError, IndexError):
            self.drop("this is not Redis speaking: check host and port")

    def ended(self, reason: str) -> None:
        while self._expected:
            self._expected.popleft().give_up(reason)


class _Answer:
    """The expectation of a single reply."""

    __slots__ = ("left", "reply")

    def __init__(self) -> None:
        self.left = 1
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(self, reply: Any) -> None:
        self.left = 0
        if not self.reply.done():
            self.reply.set_result(reply)

    def give_up(self, reason: str) -> None:
        self.left = 0
        if not self.reply.done():
            self.reply.set_exception(BrokerUnreachable(reason))


async def connect(
    settings: RedisSettings,
    host: str,
    port: int,
    *,
    any_role: bool = False,
    make: Callable[[str], RedisConnection] = RedisConnection,
) -> RedisConnection:
    """A connection to a server that takes messages: `BrokerUnreachable` if it does not."""
    connection = make(f"Redis at {host}:{port}")
    context = None if settings.tls is None else settings.tls.context()
    await dial(connection, host, port, context)
    try:
        await _log_in(settings, connection)
        if not any_role:
            await check(connection)
        await _learn_limit(connection)
    except BaseException:
        connection.drop("no login")
        raise
    return connection


async def check(connection: RedisConnection) -> None:
    """Whether it answers, and is not a replica."""
    must(await connection.call("PING"), connection, "check its state")
    role = await connection.call("ROLE")
    # A user without the right to ask finds out by publishing.
    if isinstance(role, list) and role and role[0] != b"master":
        raise BrokerUnreachable(f"{connection.name} is a {role[0].decode()}: publish to its master")


def must(reply: Any, connection: RedisConnection, advice: str) -> Any:
    if isinstance(reply, hiredis.ReplyError):
        raise BrokerUnreachable(f"{connection.name}: {reply}: {advice}")
    return reply


async def _log_in(settings: RedisSettings, connection: RedisConnection) -> None:
    if settings.password is not None:
        login = (settings.user, settings.password) if settings.user else (settings.password,)
        must(await connection.call("AUTH", *login), connection, "check user and password")
    if settings.database:
        number = settings.database
        must(await connection.call("SELECT", number), connection, "check the database's number")


async def _learn_limit(connection: RedisConnection) -> None:
    """A longer field would end the connection instead of being refused."""
    reply = await connection.call("CONFIG", "GET", "proto-max-bulk-len")
    if isinstance(reply, list) and len(reply) == 2:
        connection.max_bulk_bytes = int(reply[1])
