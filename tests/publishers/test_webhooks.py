"""Webhooks: signatures, answers, addresses, TLS and limits, on a real HTTP server."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publisher import DELIVERED, NOT_SENT, Message, Outcome, Refused, Unreachable
from commitrelay.publishers.http import HttpPublisher, from_url
from commitrelay.publishers.http.publisher import MOST_RESPONSE_BYTES
from tests.support.certificates import Authority
from tests.support.webhooks import Hook, Receiver

NEW = "whsec_" + base64.b64encode(b"n" * 24).decode()
OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def message(number: int = 1, key: str = "42", **headers: str) -> Message:
    own = [("event-id", f"id-{number}"), ("content-type", "application/json")]
    own += [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Message("order.events", key, b'{"total": 10}', own, f"id-{number}")


def publisher(url: str, **options: str) -> HttpPublisher:
    return from_url(url, {"allow_private": "true", "delivery_timeout_seconds": "5", **options})


def publish(publisher: HttpPublisher, *messages: Message) -> Sequence[Outcome]:
    async def case() -> Sequence[Outcome]:
        try:
            await publisher.open()
            return await publisher.publish(messages)
        finally:
            await publisher.close()

    return asyncio.run(case())


def answering(status: int, text: str = "", **headers: str) -> Any:
    async def answer(_hook: Hook) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=text, headers=named)

    return answer


# --- what is sent -----------------------------------------------------------------------------


def test_a_request_carries_what_a_consumer_needs(receiver: Receiver) -> None:
    sent = message(traceparent="00-ab-cd-01", event_type="OrderPaid")
    assert publish(publisher(f"{receiver.url}/in?code=7"), sent) == [DELIVERED]
    [hook] = receiver.taken
    assert (hook.path, hook.body) == ("/in?code=7", b'{"total": 10}')
    assert (hook.topic, hook.key) == ("order.events", "42")
    expected = {
        "content-type": "application/json",
        "webhook-id": "id-1",
        "idempotency-key": "id-1",
        "event-id": "id-1",
        "event-type": "OrderPaid",
        "traceparent": "00-ab-cd-01",
    }
    assert expected.items() <= hook.headers.items()
    assert "webhook-signature" not in hook.headers


def test_the_idempotency_key_of_the_event_wins(receiver: Receiver) -> None:
    publish(publisher(receiver.url), message(idempotency_key="pay-42"))
    assert receiver.taken[0].headers["idempotency-key"] == "pay-42"


def test_the_topic_in_the_path_is_encoded(receiver: Receiver) -> None:
    sent = message()._replace(topic="a/b ?ü")
    assert publish(publisher(f"{receiver.url}/x/{{topic}}/y"), sent) == [DELIVERED]
    assert receiver.taken[0].path == "/x/a%2Fb%20%3F%C3%BC/y"


def test_a_topic_cannot_climb_out_of_the_path(receiver: Receiver) -> None:
    [outcome] = publish(publisher(f"{receiver.url}/x/{{topic}}"), message()._replace(topic=".."))
    assert isinstance(outcome, Refused)
    assert not receiver.requests


def test_an_event_cannot_forge_what_the_relay_says(receiver: Receiver) -> None:
    sent = message(webhook_id="x", host="evil", transfer_encoding="chunked", authorization="x")
    assert publish(publisher(receiver.url, bearer_token="t0"), sent) == [DELIVERED]
    headers = receiver.taken[0].headers
    assert headers["webhook-id"] == "id-1"
    assert headers["host"].startswith("localhost")
    assert "transfer-encoding" not in headers
    assert headers["authorization"] == "Bearer t0"


def test_user_and_password_of_the_url_become_basic_authentication(receiver: Receiver) -> None:
    publish(publisher(receiver.url.replace("//", "//me:p%40ss@")), message())
    expected = "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert receiver.taken[0].headers["authorization"] == expected


def test_a_header_that_http_cannot_carry_refuses_its_event(receiver: Receiver) -> None:
    sent = message()
    sent.headers.append(("two words", "x"))
    [outcome] = publish(publisher(receiver.url), sent)
    assert isinstance(outcome, Refused)
    assert "two words" in outcome.reason


# --- signature --------------------------------------------------------------------------------


def test_the_signature_is_what_standard_webhooks_expects(receiver: Receiver) -> None:
    publish(publisher(receiver.url, secret=NEW), message())
    [hook] = receiver.taken
    assert Webhook(NEW).verify(hook.body, hook.headers) == {"total": 10}
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(hook.body + b" ", hook.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(hook.body, hook.headers)


def test_during_a_rotation_both_secrets_verify(receiver: Receiver) -> None:
    publish(publisher(f"{receiver.url}#secret={NEW}&old_secret={OLD}"), message())
    [hook] = receiver.taken
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(hook.body, hook.headers) == {"total": 10}


@pytest.mark.parametrize("wrong", ["canary", "whsec_canary!", "whsec_Y2FuYXJ5", OLD[6:]])
def test_a_wrong_secret_is_named_and_not_shown(wrong: str) -> None:
    with pytest.raises(ConfigError, match="secret of the http publisher") as caught:
        publisher("https://h.example/", secret=wrong)
    assert wrong not in str(caught.value)


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_2xx_is_delivered(receiver: Receiver, status: int) -> None:
    receiver.answer = answering(status)
    assert publish(publisher(receiver.url), message()) == [DELIVERED]


@pytest.mark.parametrize("status", [400, 401, 404, 408, 410, 422, 425, 500, 501])
def test_an_answer_about_the_message_refuses_it(receiver: Receiver, status: int) -> None:
    receiver.answer = answering(status, "no, thanks", retry_after="7")
    [outcome] = publish(publisher(receiver.url), message())
    assert isinstance(outcome, Refused)
    assert outcome.retry_after_seconds == 7
    assert f"answered {status}" in outcome.reason
    assert "no, thanks" in outcome.reason


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_answer_about_the_host_is_an_outage(receiver: Receiver, status: int) -> None:
    receiver.answer = answering(status, retry_after="7")
    messages = [message(number, f"k{number}") for number in range(100)]
    outcomes = publish(publisher(receiver.url, concurrency="4"), *messages)
    assert isinstance(outcomes[0], Unreachable)
    assert outcomes[0].retry_after_seconds == 7
    assert list(outcomes).count(NOT_SENT) >= 96, "it is not asked again and again"
    assert len(receiver.requests) <= 4


def test_a_redirect_is_refused_and_not_followed(receiver: Receiver) -> None:
    receiver.answer = answering(307, location=f"{receiver.url}/elsewhere?token=canary")
    [outcome] = publish(publisher(receiver.url), message())
    assert isinstance(outcome, Refused)
    assert "elsewhere" in outcome.reason
    assert "canary" not in outcome.reason
    assert len(receiver.requests) == 1


def test_an_endless_answer_is_cut_off(receiver: Receiver) -> None:
    receiver.answer = answering(400, "x" * 50 * MOST_RESPONSE_BYTES)
    [outcome] = publish(publisher(receiver.url), message())
    assert isinstance(outcome, Refused)
    assert len(outcome.reason) < 300


def test_a_silent_host_is_unreachable_within_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://localhost:{silent.getsockname()[1]}"
        [outcome] = publish(publisher(url, delivery_timeout_seconds="1"), message())
    assert isinstance(outcome, Unreachable)
    assert "did not answer within" in outcome.reason


def test_a_message_that_stalls_the_host_pays_if_others_are_taken(receiver: Receiver) -> None:
    async def answer(hook: Hook) -> None:
        if hook.key == "poison":
            await asyncio.sleep(30)

    receiver.answer = answer
    messages = [message(0, "poison"), *(message(n, f"k{n}") for n in range(1, 40))]
    outcomes = publish(
        publisher(receiver.url, delivery_timeout_seconds="2", concurrency="2"), *messages
    )
    assert isinstance(outcomes[0], Refused)
    assert "while later events were taken" in outcomes[0].reason
    assert all(outcome is DELIVERED for outcome in outcomes[1:])


def test_what_a_slow_host_has_no_time_for_is_given_back(receiver: Receiver) -> None:
    async def answer(_hook: Hook) -> None:
        await asyncio.sleep(0.2)

    receiver.answer = answer
    messages = [message(number, f"k{number}") for number in range(50)]
    outcomes = publish(
        publisher(receiver.url, concurrency="2", delivery_timeout_seconds="2"), *messages
    )
    delivered = list(outcomes).count(DELIVERED)
    assert 4 <= delivered <= 14
    assert list(outcomes).count(NOT_SENT) == 50 - delivered


def test_at_most_so_many_requests_at_a_time(receiver: Receiver) -> None:
    at_once = most = 0

    async def answer(_hook: Hook) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    receiver.answer = answer
    messages = [message(number, f"k{number}") for number in range(60)]
    outcomes = publish(publisher(receiver.url, concurrency="3"), *messages)
    assert all(outcome is DELIVERED for outcome in outcomes)
    assert most == 3


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]", "100.64.0.1"]
)
def test_a_private_address_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(ConfigError, match="allow_private"):
        from_url(f"http://{host}/", {})


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1"])
def test_a_name_of_a_private_address_is_refused_too(receiver: Receiver, host: str) -> None:
    with pytest.raises(ConfigError, match="allow_private"):
        publish(from_url(f"http://{host}:{receiver.port}/", {}), message())
    assert not receiver.requests


def test_a_name_that_turns_private_later_is_not_followed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = from_url(f"http://rebinding.example:{receiver.port}/", {})
    answers = iter(["8.8.8.8", "127.0.0.1"])

    async def case() -> Sequence[Outcome]:
        async def getaddrinfo(_host: str, port: int, **_: object) -> list[Any]:
            address = (next(answers), port)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        [checked] = await strict._resolver.resolve("rebinding.example", receiver.port)
        assert checked["host"] == "8.8.8.8"
        strict._session = strict._new_session()
        outcomes = await strict.publish([message()])
        await strict.close()
        return outcomes

    [outcome] = asyncio.run(case())
    assert isinstance(outcome, Unreachable)
    assert "allow_private" in outcome.reason
    assert not receiver.requests


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def server_context(authority: Authority, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    signed = authority.sign(host)
    context.load_cert_chain(signed.certificate, signed.key)
    return context


def test_tls_with_the_right_name_and_ca(authority: Authority) -> None:
    receiver = Receiver(server_context(authority, "localhost"))
    try:
        hook = publisher(receiver.url, ca_file=str(authority.certificate), secret=NEW)
        assert publish(hook, message()) == [DELIVERED]
    finally:
        receiver.close()


@pytest.mark.parametrize("wrong", ["host name", "CA"])
def test_tls_with_a_wrong_name_or_an_unknown_ca(
    authority: Authority, tmp_path: Path, wrong: str
) -> None:
    host = "other.example" if wrong == "host name" else "localhost"
    ca_file = authority.certificate if wrong == "host name" else Authority(tmp_path).certificate
    receiver = Receiver(server_context(authority, host))

    async def case() -> None:
        hook = publisher(receiver.url, ca_file=str(ca_file))
        with pytest.raises(BrokerUnreachable, match="certificate is not trusted"):
            await hook.open()
        [outcome] = await hook.publish([message()])
        await hook.close()
        assert isinstance(outcome, Unreachable)
        assert "certificate is not trusted" in outcome.reason

    try:
        asyncio.run(case())
    finally:
        receiver.close()
    assert not receiver.requests


def test_a_ca_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        publisher("https://h.example/", ca_file=str(tmp_path / "nowhere.pem"))


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://", "names no host"),
        ("https://h:port/", "not a URL"),
        ("https://h/{aggregate_type}", "only field"),
        ("https://h/a b", "percent-encode"),
        ("https://h/#secrte=canary", "has no setting 'secrte'"),
        (f"https://h/#old_secret={OLD}", "give secret"),
        ("https://h/#concurrency=0", "at least 1"),
    ],
)
def test_a_wrong_url_is_explained(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        from_url(url, {})
    assert "canary" not in str(caught.value)
