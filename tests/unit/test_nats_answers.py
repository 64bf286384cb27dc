"""JetStream's answers find their messages, however they arrive."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from commitrelay.publisher import DELIVERED, NOT_SENT, Message, Outcome, Refused
from commitrelay.publishers.nats.link import NatsLink
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.publishers.pipelined import Batch


class Transport:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def outcomes(*answers: bytes, piece: int = 1_000_000) -> tuple[list[Outcome], bytes]:
    """Of three messages, after these answers in pieces of so many bytes; what was written then."""

    async def case() -> tuple[list[Outcome], bytes]:
        link, transport = NatsLink("NATS", Subjects(), None), Transport()
        link.connection.connection_made(cast(Any, transport))
        batch = Batch([Message("orders", str(n), b"{}", [], str(n)) for n in range(3)])
        await link.send(batch)
        sent, transport.written = transport.written, b""
        inbox = link.connection.acknowledge_to
        assert [b" %b%d " % (inbox, number) in sent for number in (1, 2, 3)] == [True] * 3
        data = b"".join(answer.replace(b"INBOX.", inbox) for answer in answers)
        for start in range(0, len(data), piece):
            link.connection.data_received(data[start : start + piece])
        assert link.unacknowledged == batch.outcomes.count(NOT_SENT)
        return batch.outcomes, transport.written

    return asyncio.run(case())


def said(number: int, text: bytes, size: int | None = None) -> bytes:
    size = len(text) if size is None else size
    return b"MSG INBOX.%d 1 %d\r\n%b\r\n" % (number, size, text)


def stored(number: int) -> bytes:
    return said(number, b'{"stream":"orders", "seq":%d}' % (number + 1000))


@pytest.mark.parametrize("piece", [1, 7, 50, 1_000_000])
def test_in_any_order_and_any_pieces(piece: int) -> None:
    found, written = outcomes(stored(3), stored(1), b"PING\r\n", stored(2), piece=piece)
    assert found == [DELIVERED] * 3
    assert written == b"PONG\r\n"


@pytest.mark.parametrize("piece", [1, 1_000_000])
def test_only_what_was_stored_is_delivered(piece: int) -> None:
    error = b'{"error":{"code":400,"err_code":10054,"description":"too large"},"stream":"orders"}'
    found, _ = outcomes(stored(1), said(2, error), stored(3), piece=piece)
    assert found[0] is DELIVERED
    assert isinstance(found[1], Refused)
    assert found[2] is DELIVERED


def test_a_duplicate_is_delivered() -> None:
    twice = said(2, b'{"stream":"orders", "seq":7,"duplicate": true}')
    assert outcomes(stored(1), twice, stored(3))[0] == [DELIVERED] * 3


def test_an_answer_that_comes_twice_or_to_nobody_counts_once() -> None:
    found, _ = outcomes(stored(1), stored(1), stored(77), stored(3))
    assert found == [DELIVERED, NOT_SENT, DELIVERED]


def test_an_answer_is_as_long_as_it_says() -> None:
    text = b'{"stream":"orders", "seq":7}'
    inner = text + b"\r\n" + b"MSG INBOX.2 1 %d\r\n" % len(text) + text + b"\r\n"
    found, _ = outcomes(b"MSG INBOX.9 1 9999\r\n" + inner)
    assert found == [NOT_SENT] * 3
