"""SQS: entries, errors and partial failures, on a made-up server that speaks its protocol."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publisher import DELIVERED, Message, Outcome, Refused, Unreachable
from commitrelay.publishers.sqs import SqsPublisher, SqsSettings, from_url
from commitrelay.publishers.sqs.entry import MORE_HEADERS, entry_of, size_of
from tests.support import aws
from tests.support.certificates import Authority
from tests.support.webhooks import Hook, Receiver

Entries = list[dict[str, Any]]
Reply = Callable[[Entries], tuple[int, dict[str, Any]]]


class MadeUpSqs:
    """Knows one queue; `reply` answers SendMessageBatch."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.receiver = Receiver(tls)
        self.receiver.answer = self._answer
        self.batches: list[Entries] = []
        self.limit = 262_144
        self.reply: Reply = lambda entries: (200, successful(*entries))

    @property
    def url(self) -> str:
        return f"sqs://eu-west-1/orders.fifo?endpoint_url={self.receiver.url}"

    async def _answer(self, hook: Hook) -> web.Response:
        call = hook.headers["x-amz-target"].partition(".")[2]
        asked = json.loads(hook.body)
        status, answer = 200, {}
        if call == "GetQueueUrl":
            answer = {"QueueUrl": f"{self.receiver.url}/1/orders.fifo"}
        elif call == "GetQueueAttributes":
            answer = {"Attributes": {"MaximumMessageSize": str(self.limit)}}
        else:
            self.batches.append(asked["Entries"])
            status, answer = self.reply(asked["Entries"])
        return web.json_response(answer, status=status, content_type="application/x-amz-json-1.0")


def successful(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"Successful": [_one(entry) for entry in entries], "Failed": []}


def _one(entry: dict[str, Any]) -> dict[str, Any]:
    return {"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "0", "SequenceNumber": "1"}


def failed(entry: dict[str, Any], code: str, *, sender: bool) -> dict[str, Any]:
    return {"Id": entry["Id"], "Code": code, "SenderFault": sender, "Message": "for a reason"}


@pytest.fixture
def sqs() -> Iterator[MadeUpSqs]:
    server = MadeUpSqs()
    with aws.credentials():
        yield server
    server.receiver.close()


def message(number: int, key: str | None = None, value: bytes = b"{}") -> Message:
    return Message("orders", key or f"k{number}", value, [("event-id", f"{number}")], f"{number}")


def publish(publisher: SqsPublisher, *messages: Message) -> Sequence[Outcome]:
    async def case() -> Sequence[Outcome]:
        try:
            await publisher.open()
            return await publisher.publish(messages)
        finally:
            await publisher.close()

    return asyncio.run(case())


# --- partial failures -------------------------------------------------------------------------


def test_every_entry_of_a_batch_has_its_own_outcome(sqs: MadeUpSqs) -> None:
    def reply(entries: Entries) -> tuple[int, dict[str, Any]]:
        answer = successful(*(each for each in entries if each["MessageBody"] not in ("3", "5")))
        by_body = {each["MessageBody"]: each for each in entries}
        answer["Failed"] = [
            failed(by_body["3"], "InvalidMessageContents", sender=True),
            failed(by_body["5"], "InternalError", sender=False),
        ]
        return 200, answer

    sqs.reply = reply
    outcomes = publish(from_url(sqs.url, {}), *(message(n, value=b"%d" % n) for n in range(10)))
    assert isinstance(outcomes[3], Refused)
    assert "InvalidMessageContents for a reason" in outcomes[3].reason
    assert isinstance(outcomes[5], Unreachable)
    assert [n for n, each in enumerate(outcomes) if each is DELIVERED] == [0, 1, 2, 4, 6, 7, 8, 9]


def test_an_entry_that_is_not_mentioned_is_not_delivered(sqs: MadeUpSqs) -> None:
    sqs.reply = lambda entries: (200, successful(*entries[1:]))
    outcomes = publish(from_url(sqs.url, {}), *map(message, range(3)))
    assert isinstance(outcomes[0], Unreachable)
    assert outcomes[1:] == [DELIVERED, DELIVERED]


def test_a_throttled_entry_is_nobodys_fault(sqs: MadeUpSqs) -> None:
    sqs.reply = lambda entries: (
        200,
        {"Successful": [], "Failed": [failed(entries[0], "RequestThrottled", sender=True)]},
    )
    [outcome] = publish(from_url(sqs.url, {}), message(1))
    assert isinstance(outcome, Unreachable)


def test_a_batch_that_is_refused_whole_is_taken_apart(sqs: MadeUpSqs) -> None:
    def reply(entries: Entries) -> tuple[int, dict[str, Any]]:
        if any(each["MessageBody"] == "bad" for each in entries):
            return 400, {"__type": "com.amazonaws.sqs#InvalidMessageContents", "message": "bad"}
        return 200, successful(*entries)

    sqs.reply = reply
    messages = [message(n, value=b"bad" if n == 4 else b"good") for n in range(10)]
    outcomes = publish(from_url(sqs.url, {}), *messages)
    assert isinstance(outcomes[4], Refused)
    assert list(outcomes).count(DELIVERED) == 9


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "InvalidParameterValue", Refused),
        (400, "QueueDoesNotExist", Refused),
        (400, "RequestThrottled", Unreachable),
        (403, "AccessDenied", Unreachable),
        (403, "ExpiredToken", Unreachable),
        (500, "InternalError", Unreachable),
        (503, "ServiceUnavailable", Unreachable),
    ],
)
def test_an_error_is_the_messages_or_the_services(
    sqs: MadeUpSqs, status: int, code: str, kind: type
) -> None:
    sqs.reply = lambda _: (status, {"__type": f"com.amazonaws.sqs#{code}", "message": "no"})
    [outcome] = publish(from_url(sqs.url, {}), message(1))
    assert isinstance(outcome, kind)


# --- batches ----------------------------------------------------------------------------------


def test_batches_are_full_and_hold_each_key_once(sqs: MadeUpSqs) -> None:
    messages = [message(number, f"k{number % 50}") for number in range(200)]
    outcomes = publish(from_url(sqs.url, {}), *messages)
    assert all(outcome is DELIVERED for outcome in outcomes)
    assert len(sqs.batches) <= 30
    for batch in sqs.batches:
        assert len(batch) <= 10
        assert len({entry["MessageGroupId"] for entry in batch}) == len(batch)


def test_a_batch_stays_within_the_limit_of_the_queue(sqs: MadeUpSqs) -> None:
    sqs.limit = 4000
    messages = [message(number, value=b"x" * 1500) for number in range(10)]
    outcomes = publish(from_url(sqs.url, {}), *messages)
    assert all(outcome is DELIVERED for outcome in outcomes)
    for batch in sqs.batches:
        assert sum(size_of(entry, "MessageBody") for entry in batch) <= 4000


# --- entries ----------------------------------------------------------------------------------


def test_key_and_id_become_group_and_deduplication_id() -> None:
    entry = entry_of(message(7, "order-42"), "MessageBody")
    assert entry["MessageGroupId"] == "order-42"
    assert entry["MessageDeduplicationId"] == "7"


@pytest.mark.parametrize("key", ["ключ", "two words", "x" * 129])
def test_a_key_that_cannot_be_a_group_is_hashed_and_kept(key: str) -> None:
    entry = entry_of(message(7, key), "MessageBody")
    assert len(entry["MessageGroupId"]) == 64
    assert entry["MessageAttributes"]["commitrelay-key"]["StringValue"] == key


def test_headers_beyond_ten_attributes_travel_in_one() -> None:
    headers = [(f"h{number}", str(number)) for number in range(20)] + [("empty", ""), ("h1", "2")]
    entry = entry_of(Message("t", "k", b"{}", headers, "1"), "MessageBody")
    attributes = {name: each["StringValue"] for name, each in entry["MessageAttributes"].items()}
    assert len(attributes) == 10
    rest = json.loads(attributes.pop(MORE_HEADERS))
    del attributes["commitrelay-topic"]
    assert sorted([*attributes.items(), *map(tuple, rest)]) == sorted(headers)


@pytest.mark.parametrize("headers", [9, 10])
def test_no_attribute_is_wasted(headers: int) -> None:
    given = [(f"h{number}", "x") for number in range(headers)]
    entry = entry_of(Message("t", "k", b"{}", given, "1"), "MessageBody")
    assert len(entry["MessageAttributes"]) == 10
    assert (MORE_HEADERS in entry["MessageAttributes"]) == (headers == 10)


# --- TLS and settings -------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, "host name", "CA"])
def test_tls_is_checked(tmp_path: Path, wrong: str | None) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    signed = authority.sign("other.example" if wrong == "host name" else "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    server = MadeUpSqs(context)
    ca_file = stranger.certificate if wrong == "CA" else authority.certificate
    publisher = from_url(server.url, {"ca_file": str(ca_file)})
    try:
        with aws.credentials():
            if wrong is None:
                assert publish(publisher, message(1)) == [DELIVERED]
            else:
                with pytest.raises(BrokerUnreachable, match=r"certificate of .* is not trusted"):
                    publish(publisher, message(1))
                assert not server.receiver.requests
    finally:
        server.receiver.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqs://eu-west-1/orders", "no FIFO queue"),
        ("sqs://eu-west-1/", "no FIFO queue"),
        ("sqs:///orders.fifo", "names no region"),
        ("sqs://eu-west-1/a/b/orders.fifo", "wrong path"),
        ("sns://eu-west-1/orders.fifo", "names no account"),
        ("sqs://key:canary@eu-west-1/orders.fifo", "holds credentials"),
        ("sqs://eu-west-1/orders.fifo?endpint_url=x", "has no setting 'endpint_url'"),
        ("sqs://eu-west-1/orders.fifo?ca_file=/nowhere.pem", "is not there"),
        ("sqs://eu-west-1/orders.fifo?endpoint_url=nonsense", "nonsense"),
    ],
)
def test_a_wrong_url_is_explained(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        publish(from_url(url, {}))
    assert "canary" not in str(caught.value)


def test_dots_of_a_topic_become_hyphens_in_a_name() -> None:
    settings = SqsSettings.from_url("sqs://eu-west-1/shop-{topic}.fifo", {})
    assert settings.name_for("order.events") == "shop-order-events.fifo"
