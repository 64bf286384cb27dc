"""How much of RabbitMQ's speed is left in the publisher?

    eval "$(scripts/services env)"
    .venv/bin/python benchmarks/rabbitmq_publish.py [EVENTS] [BYTES]

The bare loop writes frames that were made beforehand to a blocking socket and counts the confirms:
it can say how many messages arrived, not which. The publisher makes its frames as it goes, gets
batches of 1000, up to 8 of them at a time, and says what became of each message.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from functools import partial

import pika
from pipelines import BATCH, WINDOW, make_messages, report, through

from commitrelay.publisher import Message
from commitrelay.publishers.rabbitmq import RabbitMQPublisher, RabbitMQSettings, from_url
from commitrelay.publishers.rabbitmq.connection import FRAME_MAX
from commitrelay.publishers.rabbitmq.content import Encoder
from commitrelay.publishers.rabbitmq.wire import (
    PREAMBLE,
    Method,
    frame_head,
    long_bytes,
    method,
    short_text,
    table,
    u16,
    u32,
    u64,
)

URL = os.environ["COMMITRELAY_RABBITMQ_URL"]


class BareSocket:
    def __init__(self) -> None:
        settings = RabbitMQSettings.from_url(URL, {})
        self._socket = socket.create_connection(settings.hosts[0])
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        login = long_bytes(f"\0{settings.user}\0{settings.password}".encode())
        start = table({}) + short_text("PLAIN") + login + short_text("en_US")
        tune = u16.pack(9) + u32.pack(FRAME_MAX) + u16.pack(0)
        self.ask(PREAMBLE)
        self.ask(method(0, Method.CONNECTION_START_OK, start))
        self.send(method(0, Method.CONNECTION_TUNE_OK, tune))
        host = short_text(settings.vhost) + short_text("") + b"\x00"
        self.ask(method(0, Method.CONNECTION_OPEN, host))
        self.ask(method(1, Method.CHANNEL_OPEN, short_text("")))
        self.ask(method(1, Method.CONFIRM_SELECT, b"\x00"))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, data: bytes) -> None:
        self.send(data)
        while not self.frames():
            pass

    def frames(self) -> list[bytes]:
        data = self._rest + self._socket.recv(65536)
        found, place = [], 0
        while len(data) - place >= 8:
            size = frame_head.unpack_from(data, place)[2]
            if place + 8 + size > len(data):
                break
            found.append(data[place + 7 : place + 7 + size])
            place += 8 + size
        self._rest = data[place:]
        return found

    def close(self) -> None:
        self._socket.close()


def bare(chunks: list[bytes], messages: list[Message]) -> None:
    count = len(messages)
    line = BareSocket()
    sent = confirmed = singles = 0
    while confirmed + singles < count:
        while chunks and sent - confirmed - singles < WINDOW * BATCH:
            line.send(chunks.pop(0))
            sent += min(BATCH, count - sent)
        for frame in line.frames():
            number = u64.unpack_from(frame, 4)[0]
            if frame[12] & 1:  # everything up to it, and all that was confirmed alone before
                confirmed, singles = number, 0
            else:
                singles += 1
    line.close()


def publish(publisher: RabbitMQPublisher, messages: list[Message]) -> None:
    asyncio.run(through(publisher, messages))


def marshalled(messages: list[Message]) -> list[bytes]:
    encode = Encoder(1, FRAME_MAX)
    frames = [encode(each, "", each.topic) for each in messages]
    return [b"".join(frames[at : at + BATCH]) for at in range(0, len(frames), BATCH)]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    direct = {"exchange": "", "routing_key": "{topic}"}
    for kind in ("classic", "quorum", "stream"):
        for name in ("bare socket", "RabbitMQPublisher", "bare socket", "RabbitMQPublisher"):
            queue = f"bench-{uuid.uuid4().hex[:12]}"
            connection = pika.BlockingConnection(pika.URLParameters(f"{URL.rstrip('/')}/%2F"))
            channel = connection.channel()
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
            messages = make_messages(queue, count, size)
            if name == "bare socket":
                run = partial(bare, marshalled(messages))
            else:
                run = partial(publish, from_url(URL, direct))
            report(f"{kind}: {name}", run, messages)
            channel.queue_delete(queue)
            connection.close()


if __name__ == "__main__":
    main()
