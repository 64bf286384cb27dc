"""NatsConnection: NATS's text protocol on one connection, with replies counted, not awaited.

All acknowledgements come back to one inbox, `_INBOX.x.<number>`, and the number says which
message they are for.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from commitrelay.errors import BrokerUnreachable, PublisherError
from commitrelay.publishers.wire import Wire

NO_RESPONDERS = "503"
OWN_SUBSCRIPTIONS = 2
DEFAULT_MAX_PAYLOAD = 1024 * 1024


_STORED = rb'MSG %b(\d+) 1 (\d+)\r\n(\{"stream":"[^"\\\r\n]*", ?"seq":\d+\})\r\n'
"""JetStream has stored a message: what nearly every answer says, so it is read in one step."""


class Reply(NamedTuple):
    """An answer: its payload, or a status such as 503 with none."""

    status: str | None
    payload: bytes


class Delivery(NamedTuple):
    """A message to a subscription, with its headers as they came: `NATS/1.0…`, or nothing."""

    subject: str
    reply_to: str
    headers: bytes
    payload: bytes


Take = Callable[[int, Reply], None]
TakeStored = Callable[[list[int]], None]
TakeDelivery = Callable[[Delivery], None]


class NatsConnection(Wire):
    """What is asked and answered; `publish` frames are written by `NatsLink`."""

    def __init__(
        self, name: str, take: Take | None = None, take_stored: TakeStored | None = None
    ) -> None:
        super().__init__(name)
        self.info: dict[str, Any] = {}
        self.max_payload = DEFAULT_MAX_PAYLOAD
        self.has_info = asyncio.Event()
        self.error: str | None = None  # the last -ERR
        self.on_violation: Callable[[str], None] | None = None  # an -ERR that is no end
        self.on_end: Callable[[str], None] | None = None
        self._take = take
        self._take_stored = take_stored
        self._buffer = b""
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self.acknowledge_to = f"{self._inbox}.".encode()
        self._stored = re.compile(_STORED % re.escape(self.acknowledge_to))
        self._requests: dict[int, asyncio.Future[Reply]] = {}
        self._requested = 0
        self._pongs: list[asyncio.Future[None]] = []
        self._subscriptions: dict[bytes, TakeDelivery] = {}
        self._subscribed = OWN_SUBSCRIPTIONS

    async def log_in(self, options: dict[str, Any]) -> None:
        """Introduce ourselves; `BrokerUnreachable` if we are not let in."""
        self.write(f"CONNECT {json.dumps(options)}\r\n".encode())
        try:
            await self.ping()
        except BrokerUnreachable:
            if self.error is None:
                raise
            raise BrokerUnreachable(
                f"{self.name} refuses the login ({self.error}): check user, password or credentials"
            ) from None
        # The first for acknowledgements, the second for everything else that is asked.
        self.write(f"SUB {self._inbox}.* 1\r\nSUB {self._inbox}.r.* 2\r\n".encode())

    async def ping(self) -> None:
        """One round trip."""
        self._check()
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self.write(b"PING\r\n")
        await pong

    def subscribe(self, take: TakeDelivery, subject: str | None = None) -> str:
        """Have everything to a subject delivered; None: to a new inbox, which is returned."""
        self._check()
        self._subscribed += 1
        subject = subject or f"{self._inbox}.d.{self._subscribed}"
        self._subscriptions[str(self._subscribed).encode()] = take
        self.write(f"SUB {subject} {self._subscribed}\r\n".encode())
        return subject

    def publish(self, subject: str, body: bytes, reply_to: str = "") -> None:
        """Say it to whoever listens."""
        self._check()
        head = f"PUB {subject} {reply_to} {len(body)}\r\n"
        self.write(head.encode() + body + b"\r\n")

    async def request(self, subject: str, body: bytes = b"", headers: bytes = b"") -> Reply:
        """Ask, and wait for the first answer; the caller sets the time limit."""
        self._check()
        self._requested += 1
        number = self._requested
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._requests[number] = reply
        size = f"{len(headers)} {len(headers) + len(body)}" if headers else f"{len(body)}"
        verb = "HPUB" if headers else "PUB"
        head = f"{verb} {subject} {self._inbox}.r.{number} {size}\r\n"
        self.write(head.encode() + headers + body + b"\r\n")
        try:
            return await reply
        finally:
            self._requests.pop(number, None)

    async def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """JetStream's own answers, errors among them as `error`."""
        text = b"" if body is None else json.dumps(body).encode()
        reply = await self.request(f"$JS.API.{subject}", text)
        if reply.status is not None:
            raise BrokerUnreachable(
                f"{self.name}: JetStream does not answer: check that it is enabled "
                "(nats-server -js) and that this user may ask it ($JS.API.>)"
            )
        answer: dict[str, Any] = json.loads(reply.payload)
        return answer

    def fail_requests(self, reason: str) -> None:
        for waiting in self._requests.values():
            if not waiting.done():
                waiting.set_exception(BrokerUnreachable(f"{self.name}: {reason}"))

    def ended(self, reason: str) -> None:
        self.has_info.set()
        everybody: list[asyncio.Future[Any]] = [*self._pongs, *self._requests.values()]
        for waiting in everybody:
            if not waiting.done():
                waiting.set_exception(BrokerUnreachable(reason))
        if self.on_end is not None:
            self.on_end(reason)

    def _check(self) -> None:
        if self.lost is not None:
            raise BrokerUnreachable(self.lost)

    # --- what the server says -------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        start = 0
        if self._take_stored is not None:
            start = self._read_stored(buffer, self._take_stored)
        while (end := buffer.find(b"\r\n", start)) >= 0:
            if buffer.startswith((b"MSG ", b"HMSG "), start):
                after = self._message(buffer, start, end)
                if after is None:
                    break
                start = after
            else:
                self._control(buffer[start:end].decode("utf-8", "replace"))
                start = end + 2
        self._buffer = buffer[start:]

    def _read_stored(self, buffer: bytes, take: TakeStored) -> int:
        """Take the answers before the first thing that is something else; where that begins."""
        start, match = 0, self._stored.match
        numbers: list[int] = []
        while (found := match(buffer, start)) is not None:
            number, size, answer = found.groups()
            if int(size) != len(answer):
                break
            numbers.append(int(number))
            start = found.end()
        take(numbers)
        return start

    def _message(self, buffer: bytes, start: int, end: int) -> int | None:
        """Take one message; where the next thing begins, None if it is not here in full."""
        kind, subject, sid, *rest, total = buffer[start:end].split()
        begin = end + 2
        stop = begin + int(total)
        if len(buffer) < stop + 2:
            return None
        headers = b""
        if kind == b"HMSG":
            body = begin + int(rest.pop())
            headers, begin = buffer[begin:body], body
        payload = buffer[begin:stop]
        take = self._subscriptions.get(sid)
        if take is None:
            self._dispatch(subject, Reply(status_of(headers) if headers else None, payload))
        else:
            reply_to = rest[0].decode() if rest else ""
            take(Delivery(subject.decode("utf-8", "replace"), reply_to, headers, payload))
        return stop + 2

    def _dispatch(self, subject: bytes, reply: Reply) -> None:
        number = int(subject[subject.rindex(b".") + 1 :])
        if subject[len(self.acknowledge_to) :].startswith(b"r."):
            waiting = self._requests.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)
        elif self._take is not None:
            self._take(number, reply)

    def _control(self, line: str) -> None:
        if line == "PING":
            self.write(b"PONG\r\n")
        elif line == "PONG":
            if self._pongs:
                pong = self._pongs.pop(0)
                if not pong.done():
                    pong.set_result(None)
        elif line.startswith("INFO "):
            self.info = json.loads(line[5:])
            self.max_payload = int(self.info.get("max_payload", DEFAULT_MAX_PAYLOAD))
            self.has_info.set()
        elif line.startswith("-ERR"):
            self.error = line[4:].strip(" '")
            if self.on_violation is not None:
                self.on_violation(self.error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.error is not None and self.lost is None:
            self.drop(f"the server closed the connection ({self.error})")
        super().connection_lost(exc)


def status_of(headers: bytes) -> str | None:
    """`NATS/1.0 503 No Responders` -> 503; None for headers without one."""
    first = headers.split(b"\r\n", 1)[0].split(b" ")
    return first[1].decode() if len(first) > 1 and first[1] else None


def described(error: dict[str, Any]) -> str:
    return f"{error.get('description', 'no reason given')} ({error.get('err_code', '?')})"


def must(answer: dict[str, Any], what: str) -> dict[str, Any]:
    """The answer of JetStream; `PublisherError` if it says no."""
    if "error" in answer:
        raise PublisherError(f"{what}: {described(answer['error'])}")
    return answer
