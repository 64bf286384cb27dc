"""Connection: one AMQP 0-9-1 connection, from the handshake to its loss."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from typing import Self, cast

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.rabbitmq.channel import REPLY_SUCCESS, Channel, Replies
from commitrelay.publishers.rabbitmq.confirms import UnknownConfirm
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.rabbitmq.wire import (
    BODY,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT_FRAME,
    METHOD,
    PREAMBLE,
    Method,
    Reader,
    Value,
    frame_head,
    long_bytes,
    method,
    short_text,
    table,
    u16,
    u32,
)

FRAME_MAX = 128 * 1024
WRITE_BUFFER_BYTES = 1024 * 1024
GOODBYE_SECONDS = 1.0
UNWANTED = (403, 530)
"""Access refused, not allowed: said of a connection, this is about who we are."""

CLIENT_PROPERTIES: dict[str, Value] = {
    "product": "commitrelay",
    "platform": "Python",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "connection.blocked": True,
        "consumer_cancel_notify": True,
        "authentication_failure_close": True,
    },
}


class Rejected(BrokerUnreachable):
    """The broker answered, and wants nothing to do with us: login, virtual host, certificate."""


class Connection(asyncio.Protocol):
    """Made by `connect`; of no more use once `lost` says why."""

    def __init__(self, settings: RabbitMQSettings) -> None:
        self.frame_max = FRAME_MAX
        self.lost: BrokerUnreachable | None = None
        self.blocked: str | None = None  # why the broker takes no messages at the moment
        self._settings = settings
        self._channels: dict[int, Channel] = {}
        self._replies = Replies()
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._drained = True
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._loop = asyncio.get_running_loop()
        self._heartbeat: asyncio.TimerHandle | None = None
        self._heard_at = self._wrote_at = self._loop.time()
        self._is_greeted = False

    # --- life ----------------------------------------------------------------------------------

    @classmethod
    async def connect(cls, settings: RabbitMQSettings) -> Self:
        """To the first host that answers; `BrokerUnreachable` if none does."""
        error = BrokerUnreachable(f"{settings} has no host")
        for host, port in settings.hosts:
            connection = cls(settings)
            try:
                async with asyncio.timeout(settings.connect_timeout_seconds):
                    await connection._shake_hands(host, port)
                return connection
            except TimeoutError:
                error = BrokerUnreachable(
                    f"{settings} does not answer: no answer within "
                    f"{settings.connect_timeout_seconds:g} s"
                )
            except ssl.SSLCertVerificationError as problem:
                error = Rejected(
                    f"the certificate of {settings} is not trusted: {problem.verify_message}: "
                    "check the host name in the URL, and cacertfile"
                )
            except OSError as problem:  # ssl.SSLError among them
                text = problem.strerror or str(problem)
                error = BrokerUnreachable(
                    f"{settings} does not answer: {text}: check its address, and that it runs"
                )
            except BrokerUnreachable as problem:
                error = problem
            connection.abort()
        raise error

    async def close(self) -> None:
        """Say goodbye, if that is possible, and disconnect."""
        if self.lost is None:
            with contextlib.suppress(TimeoutError, BrokerUnreachable):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    arguments = u16.pack(REPLY_SUCCESS) + short_text("bye") + u32.pack(0)
                    reply = self._replies.expect()
                    self.write(method(0, Method.CONNECTION_CLOSE, arguments))
                    await reply
        self.abort()

    def abort(self) -> None:
        self._lose(f"{self._settings}: the connection is closed")

    async def ready(self) -> None:
        """Until the broker takes messages; `BrokerUnreachable` if the connection is lost."""
        while not self._may_write.is_set():
            await self._may_write.wait()
        if self.lost is not None:
            raise self.lost

    def write(self, data: bytes) -> None:
        if self.lost is not None:
            raise self.lost
        assert self._transport is not None
        self._wrote_at = self._loop.time()
        self._transport.write(data)

    def attach(self, channel: Channel) -> None:
        if self.lost is not None:
            raise self.lost
        self._channels[channel.number] = channel

    def detach(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)

    # --- asyncio calls these -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(f"{self._settings} closed the connection{f': {exc}' if exc else ''}")

    def pause_writing(self) -> None:
        self._drained = False
        self._allow_writing()

    def resume_writing(self) -> None:
        self._drained = True
        self._allow_writing()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self._rest:
            data = self._rest + data
        place, end = 0, len(data)
        try:
            if not self._is_greeted and data[:4] == PREAMBLE[:4]:
                self._lose(f"{self._settings} does not speak AMQP 0-9-1")
                return
            while end - place >= FRAME_OVERHEAD:
                kind, number, size = frame_head.unpack_from(data, place)
                start, stop = place + 7, place + 7 + size
                if stop >= end:
                    break
                if data[stop] != 0xCE:
                    raise ValueError("a frame without its end mark")
                place = stop + 1
                self._frame_arrived(kind, number, data[start:stop])
        except (UnknownConfirm, ValueError, IndexError, struct.error) as error:
            self._lose(f"{self._settings} answers what is not AMQP 0-9-1: {error}")
            return
        self._rest = data[place:]

    # --- what the broker says ------------------------------------------------------------------

    def _frame_arrived(self, kind: int, number: int, payload: bytes) -> None:
        if number == 0:
            if kind == METHOD:
                self._is_greeted = True
                self._method_arrived(u32.unpack_from(payload)[0], payload)
            return
        channel = self._channels.get(number)
        if channel is None:
            return  # what was under way when the channel was closed
        if kind == METHOD:
            channel.method_arrived(u32.unpack_from(payload)[0], payload)
        elif kind == HEADER:
            channel.header_arrived(payload)
        elif kind == BODY:
            channel.body_arrived(payload)

    def _method_arrived(self, name: int, payload: bytes) -> None:
        match name:
            case Method.CONNECTION_BLOCKED:
                self.blocked = Reader(payload, 4).text()
                self._allow_writing()
            case Method.CONNECTION_UNBLOCKED:
                self.blocked = None
                self._allow_writing()
            case Method.CONNECTION_CLOSE:
                self._closed_by_broker(payload)
            case _:
                self._replies.arrived(payload)

    def _closed_by_broker(self, payload: bytes) -> None:
        reader = Reader(payload, 4)
        code, text = reader.short(), reader.text()
        with contextlib.suppress(BrokerUnreachable):
            self.write(method(0, Method.CONNECTION_CLOSE_OK))
        said = f"{self._settings} ended the connection: {text.rstrip('.')}"
        if code in UNWANTED:
            said += ": check user, password and virtual host in the URL"
            self._lose_with(Rejected(said))
        else:
            self._lose(said)

    async def _shake_hands(self, host: str, port: int) -> None:
        settings = self._settings
        start = self._replies.expect()
        await self._loop.create_connection(lambda: self, host, port, ssl=settings.tls_context())
        self.write(PREAMBLE)
        await start
        login = f"\0{settings.user}\0{settings.password}".encode()
        tune = self._replies.expect()
        self.write(
            method(
                0,
                Method.CONNECTION_START_OK,
                table(CLIENT_PROPERTIES)
                + short_text("PLAIN")
                + long_bytes(login)
                + short_text("en_US"),
            )
        )
        reader = Reader(await tune, 4)
        channel_max, frame_max, heartbeat = reader.short(), reader.long(), reader.short()
        self.frame_max = min(frame_max or FRAME_MAX, FRAME_MAX)
        wanted = settings.heartbeat_seconds
        heartbeat = min(heartbeat, wanted) if heartbeat and wanted else heartbeat or wanted
        tuned = u16.pack(channel_max) + u32.pack(self.frame_max) + u16.pack(heartbeat)
        self.write(method(0, Method.CONNECTION_TUNE_OK, tuned))
        opened = self._replies.expect()
        self.write(
            method(0, Method.CONNECTION_OPEN, short_text(settings.vhost) + short_text("") + b"\x00")
        )
        await opened
        self._beat(heartbeat / 2)

    def _beat(self, seconds: float) -> None:
        if self.lost is not None or not seconds:
            return
        now = self._loop.time()
        if now - self._heard_at > 4 * seconds:
            self._lose(f"{self._settings} does not answer: no heartbeat in {4 * seconds:g} s")
            return
        if now - self._wrote_at >= seconds * 0.9:
            self.write(HEARTBEAT_FRAME)
        self._heartbeat = self._loop.call_later(seconds, self._beat, seconds)

    # --- the end -------------------------------------------------------------------------------

    def _allow_writing(self) -> None:
        if self.lost is not None or (self._drained and self.blocked is None):
            self._may_write.set()
        else:
            self._may_write.clear()

    def _lose(self, reason: str) -> None:
        self._lose_with(BrokerUnreachable(reason))

    def _lose_with(self, error: BrokerUnreachable) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for channel in self._channels.values():
            channel.fail(error)
        self._replies.fail(error)
        self._allow_writing()
        if self._transport is not None:
            # What was written should go out (a goodbye), but nobody may wait for it.
            self._transport.close()
            self._loop.call_later(GOODBYE_SECONDS, self._transport.abort)
