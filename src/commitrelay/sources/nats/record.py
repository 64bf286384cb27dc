"""Record: who reads a topic for the group, and how far it is done.

One key of a key-value bucket, changed only by whoever has seen its last change. So the reader that
has it cannot be two, and an acknowledgement of one that has lost it without knowing is refused by
the server. It is written at least every third of `lease_seconds`: who has seen no change for a
whole one may take it. No clocks are compared.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.nats.connection import NatsConnection, described, must
from commitrelay.publishers.nats.streams import stream_info
from commitrelay.sources.nats.settings import NatsSourceSettings
from commitrelay.sources.shared import SeatLost

NO_MESSAGE = 10037
WRONG_LAST_SEQUENCE = (10071, 10164)


class Target(NamedTuple):
    """Which messages: those of a subject in a stream."""

    stream: str
    subject: str


class Record(NamedTuple):
    revision: int  # 0: never written
    reader: str  # "": nobody
    done: int  # the stream's sequence of the last acknowledged message


class Records:
    """The bucket, as far as one group needs it."""

    def __init__(self, settings: NatsSourceSettings) -> None:
        self._stream = f"KV_{settings.bucket}"
        self._bucket = settings.bucket
        self._group = settings.group
        self._replicas = settings.nats.replicas

    async def prepare(self, connection: NatsConnection) -> None:
        if await stream_info(connection, self._stream) is not None:
            return
        wanted = {
            "name": self._stream,
            "subjects": [f"$KV.{self._bucket}.>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "storage": "file",
            "num_replicas": self._replicas,
        }
        answer = await connection.api(f"STREAM.CREATE.{self._stream}", wanted)
        if await stream_info(connection, self._stream) is None:  # nor has anybody else made it
            must(answer, f"{connection.name}: cannot create the bucket {self._bucket}")

    async def get(self, connection: NatsConnection, target: Target) -> Record:
        answer = await connection.api(
            f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": self._key(target)}
        )
        if answer.get("error", {}).get("err_code") == NO_MESSAGE:
            return Record(0, "", 0)
        found = must(answer, f"{connection.name}: bucket {self._bucket}")["message"]
        data: dict[str, Any] = json.loads(base64.b64decode(found.get("data", "")) or b"{}")
        return Record(found["seq"], data.get("reader", ""), data.get("done", 0))

    async def put(self, connection: NatsConnection, target: Target, record: Record) -> Record:
        """Its new revision; `SeatLost` if somebody else has changed it."""
        headers = (
            f"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {record.revision}\r\n\r\n"
        ).encode()
        body = json.dumps({"reader": record.reader, "done": record.done}).encode()
        reply = await connection.request(self._key(target), body, headers)
        if reply.status is not None:
            raise BrokerUnreachable(f"{connection.name}: the bucket {self._bucket} is gone")
        answer = json.loads(reply.payload)
        if "error" in answer:
            if answer["error"].get("err_code") in WRONG_LAST_SEQUENCE:
                raise SeatLost
            raise BrokerUnreachable(f"{connection.name}: {described(answer['error'])}")
        return record._replace(revision=answer["seq"])

    def _key(self, target: Target) -> str:
        names = (self._group, *target)
        return f"$KV.{self._bucket}." + ".".join(_token(each) for each in names)


def _token(text: str) -> str:
    """Different texts stay different, and a bucket takes them."""
    return "".join(
        each if each.isascii() and (each.isalnum() or each in "-_") else f"={ord(each):x}="
        for each in text
    )
