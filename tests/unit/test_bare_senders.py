"""What the bare loop sends is what our publishers send; how it counts what was taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from commitrelay.bench import file_sender, nats_sender, rabbitmq_sender, redis_sender
from commitrelay.bench.acknowledgements import Acknowledgements
from commitrelay.errors import BrokerUnreachable
from commitrelay.format import Plain
from commitrelay.publisher import Message
from commitrelay.publishers.jsonline import encode_line
from commitrelay.publishers.nats.link import NatsLink
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.publishers.rabbitmq.connection import FRAME_MAX
from commitrelay.publishers.rabbitmq.content import MANDATORY, Encoder
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.rabbitmq.wire import Method, frame_head, method, u8, u64
from commitrelay.publishers.redis import RedisSettings
from commitrelay.publishers.redis.link import Streams
from commitrelay.route import Route
from commitrelay.store import Queued, State

TOPIC = "orders"
ROWS: list[tuple[Any, ...]] = [
    (
        number,
        f"0190163d-8694-739b-aea5-966c26f8ad{number:02}",
        ("Order", "Köder")[number % 2],
        f"key-{number} ü",
        "OrderPaid",
        b'{"n": "\\u00fc%d"}' % number,
        "application/json",
        f"2026-11-15T20:33:4{number}.123456Z",
    )
    for number in range(5)
]


P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def messages() -> list[Message]:
    """As the relay makes them."""
    compose = Plain(Route(TOPIC))
    return [
        compose(
            Queued(
                seq, key, 0, State.PENDING, 0, False, event_id, kind, key, event_type, payload,
                content_type, "{}", None, created_at,
            )
        )
        for seq, event_id, kind, key, event_type, payload, content_type, created_at in ROWS
    ]  # fmt: skip


def test_files_get_the_same_lines(tmp_path: Path) -> None:
    sender = file_sender.Sender(tmp_path.as_uri(), TOPIC, {})
    assert sender.encode(ROWS) == b"".join(map(encode_line, messages()))


def test_redis_gets_the_same_commands() -> None:
    for url in ("redis://host", "redis://host?maxlen=1000"):
        streams = Streams(RedisSettings.from_url(url, {}))
        sender = redis_sender.Sender(url, TOPIC, {})
        assert sender.encode(ROWS) == b"".join(map(streams.command, messages()))


@in_a_loop
async def test_nats_gets_the_same_frames_but_for_the_number_of_the_answer() -> None:
    link = NatsLink("NATS", Subjects(), None)
    sender = nats_sender.Sender("nats://host", TOPIC, {})
    sender.line = nats_sender.Line("NATS")
    sender.line.acknowledge_to = link.connection.acknowledge_to
    frames = [link._frame(message, 0) for message in messages()]
    assert sender.encode(ROWS) == b"".join(frames)


def test_rabbitmq_gets_the_same_frames_but_for_mandatory() -> None:
    encode = Encoder(rabbitmq_sender.CHANNEL, FRAME_MAX)
    sender = rabbitmq_sender.Sender("amqp://host", TOPIC, {})
    frames = b"".join(encode(message, "", TOPIC) for message in messages())
    place = b"\x06" + TOPIC.encode()
    assert sender.encode(ROWS) == frames.replace(place + u8.pack(MANDATORY), place + b"\x00")


# --- counting ------------------------------------------------------------------------------------


@in_a_loop
async def test_a_batch_is_done_when_as_many_are_taken_as_were_sent() -> None:
    acknowledgements = Acknowledgements()
    first, second = acknowledgements.expect(2), acknowledgements.expect(3)
    acknowledgements.add(1)
    assert not first.done()
    acknowledgements.add(2)
    assert first.done()
    assert not second.done()
    acknowledgements.add(2)
    assert second.done()


@in_a_loop
async def test_a_failure_ends_every_wait() -> None:
    acknowledgements = Acknowledgements()
    waiting = acknowledgements.expect(2)
    acknowledgements.fail(BrokerUnreachable("gone"))
    with pytest.raises(BrokerUnreachable):
        await waiting
    with pytest.raises(BrokerUnreachable):
        acknowledgements.expect(1)


@in_a_loop
async def test_there_is_room_when_enough_are_taken() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.expect(6)
    await acknowledgements.room(4, limit=10)
    room = asyncio.create_task(acknowledgements.room(5, limit=10))
    await asyncio.sleep(0)
    assert not room.done()
    acknowledgements.add(6)
    await room


def confirm(number: int, *, multiple: bool) -> bytes:
    return method(
        rabbitmq_sender.CHANNEL, Method.BASIC_ACK, u64.pack(number) + u8.pack(int(multiple))
    )


@in_a_loop
async def test_confirms_come_one_by_one_and_many_at_a_time_in_any_order_and_any_pieces() -> None:
    line = rabbitmq_sender.Line(RabbitMQSettings((("host", 1),)))
    line.counts = True
    done = line.acknowledgements.expect(6)
    heartbeat = frame_head.pack(8, 0, 0) + b"\xce"
    data = b"".join(
        (
            confirm(5, multiple=False),
            confirm(1, multiple=False),
            heartbeat,
            confirm(4, multiple=True),
            heartbeat,
        )
    )
    for each in data:
        line.data_received(bytes([each]))
    assert not done.done()  # 1 to 5 are confirmed
    line.data_received(confirm(6, multiple=False))
    assert done.done()


@in_a_loop
async def test_what_is_no_confirm_ends_the_bare_loop() -> None:
    line = rabbitmq_sender.Line(RabbitMQSettings((("host", 1),)))
    line.counts = True
    done = line.acknowledgements.expect(1)
    line.data_received(method(1, Method.BASIC_NACK, u64.pack(1) + b"\x00"))
    assert line.lost is not None
    line.connection_lost(None)
    with pytest.raises(BrokerUnreachable, match="did not take a message"):
        await done


@in_a_loop
async def test_answers_of_jetstream_are_counted_in_any_pieces() -> None:
    line = nats_sender.Line("NATS")
    line.counts = True
    done = line.acknowledgements.expect(2)
    answer = b'MSG _INBOX.x.0 1 26\r\n{"stream":"a", "seq":1234}\r\n'
    for each in answer + b"PING\r\n":
        line.data_received(bytes([each]))
    assert not done.done()
    line.data_received(answer)
    assert done.done()


@pytest.mark.parametrize(
    "answer",
    [
        b'MSG _INBOX.x.0 1 9\r\n{"error":{"code":503}}\r\n',
        b"HMSG _INBOX.x.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'Permissions Violation'\r\n",
    ],
)
@in_a_loop
async def test_what_jetstream_did_not_take_ends_the_bare_loop(answer: bytes) -> None:
    line = nats_sender.Line("NATS")
    line.counts = True
    done = line.acknowledgements.expect(1)
    line.data_received(answer)
    with pytest.raises(BrokerUnreachable, match="not taken"):
        await done


@in_a_loop
async def test_what_redis_did_not_take_ends_the_bare_loop() -> None:
    line = redis_sender.Line("Redis")
    line.counts = True
    first, second = line.acknowledgements.expect(1), line.acknowledgements.expect(1)
    line.data_received(b"$3\r\n1-1\r\n-OOM command not ")
    assert first.done()
    line.data_received(b"allowed\r\n")
    with pytest.raises(BrokerUnreachable, match="OOM"):
        await second
