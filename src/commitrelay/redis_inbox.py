"""RedisInbox: an event's effect mostly once, for handlers without a database.

async with RedisInbox("redis://localhost:6379", consumer="billing") as inbox:
    async with inbox.once(event_id) as first:
        if first:
            await charge(...)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from secrets import token_hex
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import UUID

from commitrelay.errors import (
    BrokerUnreachable,
    ClaimExpired,
    ConfigError,
    InProgress,
    InvalidEvent,
    MissingExtra,
)
from commitrelay.inbox import checked

try:
    import hiredis  # noqa: F401
except ImportError:
    raise MissingExtra("redis", "the inbox in Redis") from None

from commitrelay.publishers.redis.connection import RedisConnection, connect, must
from commitrelay.publishers.redis.settings import RedisSettings

DAY = 86_400.0

CLAIM = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return 'first'
end
return redis.call('GET', KEYS[1])
"""
# Asked again because the first answer was lost, it says the same. A claim that has ended and that
# nobody else has taken is marked too: that is one effect less to come.
FINISH = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] or not holder then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return (holder == ARGV[1] or holder == ARGV[2]) and 1 or 0
"""
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
"""


class RedisInbox:
    """What one consumer has handled, kept in Redis. One instance serves one event loop.

    Its promise is weaker than `Inbox`'s: the mark is not in the transaction of the effect. A
    delivery claims the event for ``claim_seconds`` and marks it as done afterwards, for
    ``done_seconds``. The effect happens again

    * if the process dies, or Redis cannot be reached, after the effect and before the mark;
    * if a handler takes longer than its claim and the event is delivered elsewhere meanwhile:
      that is `ClaimExpired` when it ends;
    * if Redis loses what it has confirmed: at a failover to a replica, in a crash without
      ``appendfsync always``, or when it evicts keys;
    * if the event comes again after ``done_seconds``.

    So use it for effects that are harmless or noticed when they are repeated. The URL is that of
    the Redis publisher, of one server.
    """

    def __init__(
        self,
        url: str,
        consumer: str,
        *,
        prefix: str = "inbox",
        claim_seconds: float = 60.0,
        done_seconds: float = 7 * DAY,
    ) -> None:
        self._settings = RedisSettings.from_url(url, {})
        if self._settings.cluster:
            raise ConfigError(f"{self._settings} cannot hold an inbox: name one server")
        if not 0.001 <= claim_seconds < done_seconds:
            raise ConfigError(
                f"claim_seconds {claim_seconds:g} has to be more than 0 and less than "
                f"done_seconds {done_seconds:g}"
            )
        self.consumer = checked("consumer", consumer, ConfigError)
        self._prefix = f"{prefix}:{quote(consumer, safe='')}:"
        self._claim_ms = round(claim_seconds * 1000)
        self._done_ms = round(done_seconds * 1000)
        self._connection: RedisConnection | None = None
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Connect; it would be done by the first event as well."""
        await self._connected()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.drop("closed")
            self._connection = None

    def once(self, event_id: str | UUID) -> RedisOnce:
        """`async with` it: True for the first delivery, False for a duplicate.

        While the event is claimed elsewhere it is `InProgress`. What the body raises gives the
        claim back.
        """
        return RedisOnce(self, checked("event id", str(event_id), InvalidEvent))

    async def _ask(self, script: str, event_id: str, *values: str | int) -> Any:
        settings = self._settings
        try:
            async with asyncio.timeout(settings.delivery_timeout_seconds):
                connection = await self._connected()
                key = self._prefix + event_id
                reply = await connection.call("EVAL", script, 1, key, *values)
        except TimeoutError:
            if self._connection is not None:
                self._connection.drop("no answer")
            raise BrokerUnreachable(
                f"{settings} did not answer within {settings.delivery_timeout_seconds:g} s: "
                "try again later"
            ) from None
        return must(reply, connection, "look at its log")

    async def _connected(self) -> RedisConnection:
        async with self._connecting:
            if self._connection is None or self._connection.lost is not None:
                settings = self._settings
                self._connection = await connect(settings, settings.host, settings.port)
            return self._connection


class RedisOnce:
    """One delivery of one event, from its claim to its mark."""

    def __init__(self, inbox: RedisInbox, event_id: str) -> None:
        self._inbox = inbox
        self._event_id = event_id
        token = token_hex(16)
        self._claim, self._done = f"claim {token}", f"done {token}"
        self._first = False

    async def __aenter__(self) -> bool:
        inbox = self._inbox
        answer = await inbox._ask(CLAIM, self._event_id, self._claim, inbox._claim_ms)
        self._first = answer == b"first"
        if not self._first and not answer.startswith(b"done "):
            raise InProgress(
                f"event {self._event_id} is being handled for {inbox.consumer} elsewhere: "
                "leave it, and let it be delivered again"
            )
        return self._first

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._first:
            return
        if error is not None:
            with suppress(BrokerUnreachable):  # then it expires
                await self._inbox._ask(RELEASE, self._event_id, self._claim)
        elif not await self._finish():
            inbox = self._inbox
            raise ClaimExpired(
                f"the claim on event {self._event_id} ended after {inbox._claim_ms / 1000:g} s "
                f"while its handler ran: the effect may have happened twice for {inbox.consumer}; "
                "make claim_seconds longer than the handler takes"
            )

    async def _finish(self) -> bool:
        """Whether the claim was still ours. The effect is there, so it is worth a second try."""
        inbox = self._inbox
        mark = (FINISH, self._event_id, self._claim, self._done, inbox._done_ms)
        with suppress(BrokerUnreachable):
            return bool(await inbox._ask(*mark))
        return bool(await inbox._ask(*mark))
