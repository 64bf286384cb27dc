"""NatsLink: messages as HPUB frames, and their acknowledgements."""

from __future__ import annotations

import asyncio
import re

from commitrelay.errors import BrokerUnreachable, InvalidEvent
from commitrelay.publisher import DELIVERED, Message, Outcome, Refused, Unreachable
from commitrelay.publishers.nats.connection import NatsConnection, Reply, described
from commitrelay.publishers.nats.outcomes import outcome_of
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.publishers.pipelined import Batch

KEY_HEADER = "message-key"
FRAMES_PER_WRITE = 250
MAX_PENDING = 8000
"""Unacknowledged messages. Beyond 10,000 waiting for one stream a server drops some."""

NOBODY = (None, 0)
"""Who waits for an answer that comes too late."""

_HEADER_NAME = re.compile(r"(?!nats-)[!-9;-~]+", re.IGNORECASE)
_VIOLATION = re.compile(r'permissions violation for publish to "([^"]*)"', re.IGNORECASE)


class NatsLink:
    """One connection to publish through."""

    def __init__(self, name: str, subjects: Subjects, stream: str | None) -> None:
        self.connection = NatsConnection(name, self._acknowledged, self._stored)
        self.connection.on_end = self._ended
        self.connection.on_violation = self._violated
        self._subjects = subjects
        self._expected = "" if stream is None else f"Nats-Expected-Stream: {stream}\r\n"
        self._number = 0
        self._pending: dict[int, tuple[Batch, int]] = {}
        self._nobody_took: dict[str, list[tuple[Batch, int]]] = {}
        self._room = asyncio.Event()
        self._line_starts: dict[str, str] = {}  # by the names of headers that may be sent
        self._look_ups: set[asyncio.Task[None]] = set()

    @property
    def lost(self) -> str | None:
        return self.connection.lost

    @property
    def unacknowledged(self) -> int:
        return len(self._pending)

    async def check(self) -> None:
        await self.connection.ping()

    def drop(self, reason: str) -> None:
        self.connection.drop(reason)

    async def send(self, batch: Batch) -> None:
        count = len(batch.messages)
        for start in range(0, count, FRAMES_PER_WRITE):
            await self._until_there_is_room()
            self._write(batch, start, min(count, start + FRAMES_PER_WRITE))

    async def _until_there_is_room(self) -> None:
        await self.connection.writable()
        while len(self._pending) > MAX_PENDING - FRAMES_PER_WRITE and self.lost is None:
            self._room.clear()
            await self._room.wait()
        if self.lost is not None:
            raise BrokerUnreachable(self.lost)

    def _write(self, batch: Batch, start: int, stop: int) -> None:
        pending, number = self._pending, self._number
        frames: list[bytes] = []
        for position in range(start, stop):
            number += 1
            try:
                frames.append(self._frame(batch.messages[position], number))
                pending[number] = (batch, position)
            except InvalidEvent as error:
                batch.settle(position, Refused(str(error)))
        self._number = number
        self.connection.write(b"".join(frames))

    def _frame(self, message: Message, number: int) -> bytes:
        topic, key, value, headers, event_id = message
        subject = self._subjects(topic, key)
        starts = self._line_starts
        try:
            lines = "".join([starts[name] + text for name, text in headers])
        except KeyError:
            self._learn(headers)
            lines = "".join([starts[name] + text for name, text in headers])
        head = (
            f"NATS/1.0\r\nNats-Msg-Id: {event_id}\r\n{self._expected}"
            f"{KEY_HEADER}: {key}{lines}\r\n\r\n"
        )
        # A line break within a value would be the beginning of a header of its own.
        breaks = len(headers) + (5 if self._expected else 4)
        if head.count("\n") != breaks or head.count("\r") != breaks:
            raise InvalidEvent(
                f"event {event_id} has a line break in its key, id or headers: remove it"
            )
        encoded = head.encode()
        size = len(encoded) + len(value)
        connection = self.connection
        if size > connection.max_payload:
            raise InvalidEvent(
                f"subject {subject.decode()}: payload and headers have {size} bytes, the server's "
                f"max_payload is {connection.max_payload}: store a reference instead, or "
                "raise it"
            )
        return b"HPUB %b %b%d %d %d\r\n%b%b\r\n" % (
            subject,
            connection.acknowledge_to,
            number,
            len(encoded),
            size,
            encoded,
            value,
        )

    def _learn(self, headers: list[tuple[str, str]]) -> None:
        for name, _text in headers:
            if not _HEADER_NAME.fullmatch(name):
                raise InvalidEvent(
                    f"header {name!r} cannot go to NATS: use printable ASCII without space and "
                    "colon, and not the server's own prefix Nats-"
                )
            self._line_starts[name] = f"\r\n{name}: "

    # --- answers --------------------------------------------------------------------------------

    def _stored(self, numbers: list[int]) -> None:
        pending = self._pending
        for number in numbers:
            batch, position = pending.pop(number, NOBODY)
            if batch is not None:
                batch.settle(position, DELIVERED)
        self._make_room()

    def _acknowledged(self, number: int, reply: Reply) -> None:
        batch, position = self._pending.pop(number, NOBODY)
        self._make_room()
        if batch is None:
            return
        if reply.status is not None:
            self._look_up(batch, position)
        elif reply.payload.startswith(b'{"stream":') and b'"error"' not in reply.payload:
            batch.settle(position, DELIVERED)
        else:
            subject = self._subject_of(batch.messages[position])
            batch.settle(position, outcome_of(reply.payload, subject))

    def _make_room(self) -> None:
        if not self._room.is_set() and len(self._pending) <= MAX_PENDING // 2:
            self._room.set()

    def _look_up(self, batch: Batch, position: int) -> None:
        """Nobody took it: because no stream does, or because its stream has no leader just now?"""
        subject = self._subject_of(batch.messages[position])
        waiting = self._nobody_took.setdefault(subject, [])
        waiting.append((batch, position))
        if len(waiting) == 1:
            task = asyncio.create_task(self._tell_why(subject))
            self._look_ups.add(task)
            task.add_done_callback(self._look_ups.discard)

    async def _tell_why(self, subject: str) -> None:
        outcome: Outcome
        try:
            answer = await self.connection.api("STREAM.NAMES", {"subject": subject})
        except BrokerUnreachable as error:
            outcome = Unreachable(str(error))
        else:
            if "error" in answer:
                outcome = Unreachable(f"subject {subject}: {described(answer['error'])}")
            elif streams := answer.get("streams"):
                outcome = Unreachable(f"subject {subject}: stream {streams[0]} does not answer")
            else:
                outcome = Refused(
                    f"no JetStream stream takes subject {subject}: "
                    "create one or use ?stream=NAME&create_stream=SUBJECTS"
                )
        for batch, position in self._nobody_took.pop(subject, ()):
            batch.settle(position, outcome)

    def _violated(self, error: str) -> None:
        """The server names the subject that we may not publish to, not the message."""
        if error.lower().startswith("permissions violation for subscription"):
            self.drop(f"{error}: give the relay's user the right to subscribe to _INBOX.>")
            return
        match = _VIOLATION.match(error)
        if match is None:
            return
        subject = match[1]
        if subject.startswith("$JS.API."):
            self.connection.fail_requests(
                f"{error}: give the relay's user the right to publish there"
            )
            return
        outcome = Refused(f"subject {subject}: give the relay's user the right to publish there")
        for number, (batch, position) in list(self._pending.items()):
            if self._subject_of(batch.messages[position]) == subject:
                del self._pending[number]
                batch.settle(position, outcome)

    def _ended(self, reason: str) -> None:
        self._room.set()
        for batch in {batch for batch, _position in self._pending.values()}:
            batch.give_up(reason)
        self._pending.clear()

    def _subject_of(self, message: Message) -> str:
        return self._subjects(message.topic, message.key).decode()
