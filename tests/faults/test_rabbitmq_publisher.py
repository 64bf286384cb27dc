"""What the RabbitMQ publisher does beyond the suite: properties, places, refusals, TLS, alarms."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from commitrelay.errors import BrokerUnreachable, PublisherError
from commitrelay.publisher import DELIVERED, Message, Outcome, Publisher, Refused, Unreachable
from commitrelay.publishers.rabbitmq import from_url
from commitrelay.testing.publisher_suite import ids, message
from tests.support import rabbitmq
from tests.support.rabbitmq import Queues
from tests.support.services import DedicatedServer

PLAIN_HEADERS = [
    ("event-id", "0193a3c0"),
    ("event-type", "OrderPaid"),
    ("aggregate-type", "Order"),
    ("aggregate-id", "42"),
    ("content-type", "application/json"),
    ("created-at", "2026-11-15T20:33:45.123456Z"),
]


@pytest.fixture
def queues(rabbitmq_url: str) -> Iterator[Queues]:
    queues = Queues(rabbitmq_url)
    yield queues
    queues.delete_all()


def with_publisher(publisher: Publisher, case: Callable[[Publisher], Awaitable[None]]) -> None:
    async def run() -> None:
        await publisher.open()
        try:
            await case(publisher)
        finally:
            await publisher.close()

    asyncio.run(run())


def publish(url: str, *messages: Message, **options: str) -> Sequence[Outcome]:
    outcomes: list[Outcome] = []

    async def case(publisher: Publisher) -> None:
        outcomes.extend(await publisher.publish(messages))

    with_publisher(from_url(url, options), case)
    return outcomes


def of_order(topic: str) -> Message:
    return Message(topic, "42", b"{}", PLAIN_HEADERS, "0193a3c0")


# --- what maps to what --------------------------------------------------------------------------


def test_properties_are_what_consumers_look_for(queues: Queues) -> None:
    topic = queues()
    assert publish(queues.url, of_order(topic)) == [DELIVERED]
    [(received, properties)] = queues.read_with_properties(topic)
    assert received.key == "42"
    assert received.headers == dict(PLAIN_HEADERS)
    assert properties.message_id == "0193a3c0"
    assert properties.type == "OrderPaid"
    assert properties.content_type == "application/json"
    assert properties.timestamp == 1794774825
    assert properties.delivery_mode == 2


def test_exchange_per_aggregate_type_and_routing_key_from_the_event_type(queues: Queues) -> None:
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    with rabbitmq.channel(queues.url) as channel:
        channel.exchange_declare(f"{prefix}.order", "topic")
        channel.queue_declare(prefix)
        channel.queue_bind(prefix, f"{prefix}.order", "order-paid")
    url = (
        f"{queues.url}?exchange={prefix}.{{aggregate_type|lower}}&routing_key={{event_type|kebab}}"
    )
    assert publish(url, of_order("orders")) == [DELIVERED]
    [received] = queues.read(prefix)
    assert received.key == "order-paid"
    with rabbitmq.channel(queues.url) as channel:
        channel.queue_delete(prefix)
        channel.exchange_delete(f"{prefix}.order")


def test_a_template_that_the_message_cannot_fill_refuses_it(queues: Queues) -> None:
    topic = queues()
    url = f"{queues.url}?routing_key={{event_type}}"
    [outcome] = publish(url, message(topic, "k", 1))
    assert isinstance(outcome, Refused)
    assert "no header event-type" in outcome.reason


def test_a_body_of_many_frames_arrives_whole(queues: Queues) -> None:
    topic = queues()
    value = bytes(range(256)) * 3000
    messages = [message(topic, "a", 1), message(topic, "b", 2, value), message(topic, "c", 3)]
    assert publish(queues.url, *messages) == [DELIVERED] * 3
    assert [each.value for each in queues.read(topic)] == [each.value for each in messages]


def test_the_default_exchange_leads_to_queues(queues: Queues) -> None:
    queue, missing = queues(bound=False), f"missing-{uuid.uuid4().hex}"
    outcomes = publish(
        f"{queues.url}?exchange=&routing_key={{topic}}",
        message(queue, "k", 1),
        message(missing, "k", 2),
        message(queue, "k", 3),
    )
    assert [outcomes[0], outcomes[2]] == [DELIVERED] * 2
    assert outcomes[1] == Refused(
        f"queue {missing} does not exist: create it or use ?declare=quorum"
    )
    assert ids(queues.read(queue)) == ["k-1", "k-3"]


@pytest.mark.parametrize("kind", ["quorum", "classic", "stream"])
def test_what_is_missing_is_declared_on_request(rabbitmq_url: str, kind: str) -> None:
    queues = Queues(rabbitmq_url, kind)
    name = f"test-declared-{uuid.uuid4().hex[:8]}"
    url = f"{rabbitmq_url}?declare={kind}"
    assert publish(url, message(name, "k", 1)) == [DELIVERED]
    assert publish(url, message(name, "k", 2)) == [DELIVERED]
    assert ids(queues.read(name)) == ["k-1", "k-2"]
    with rabbitmq.channel(rabbitmq_url) as channel:
        arguments = {"x-queue-type": kind}
        channel.queue_declare(name, durable=True, arguments=arguments)  # 406 if it were another
        channel.queue_delete(name)
        channel.exchange_delete(name)


def test_a_binding_that_somebody_removed_is_not_declared_again(queues: Queues) -> None:
    topic = queues(bound=False)
    [outcome] = publish(f"{queues.url}?declare=classic", message(topic, "k", 1))
    assert isinstance(outcome, Refused)


# --- refusals: of that very message --------------------------------------------------------------


def test_only_what_comes_back_is_refused(queues: Queues) -> None:
    bound, unbound = queues(), queues(bound=False)
    messages = [message(unbound if n % 3 == 0 else bound, f"k{n}", n) for n in range(300)]
    outcomes = publish(queues.url, *messages)
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, Refused) if number % 3 == 0 else outcome is DELIVERED
    assert len(queues.read(bound)) == 200


def test_only_what_a_full_queue_rejects_is_refused(queues: Queues) -> None:
    full = queues({"x-max-length": 10, "x-overflow": "reject-publish"})
    roomy = queues()
    messages = [message(full if n % 2 else roomy, f"k{n}", n) for n in range(200)]
    outcomes = publish(queues.url, *messages)
    refused = {m.event_id for m, o in zip(messages, outcomes, strict=True) if o is not DELIVERED}
    assert refused
    reason = f"exchange '{full}', routing key 'k199': a queue rejected it (nack)"
    assert str(outcomes[199]).count(reason) == 1
    assert not refused & {m.event_id for m in messages if m.topic == roomy}
    arrived = set(ids(queues.read(full)) + ids(queues.read(roomy)))
    assert arrived == {m.event_id for m in messages} - refused


def test_a_message_sent_twice_in_one_call_is_never_taken_as_delivered(queues: Queues) -> None:
    """A return names no number but an id: both copies count as returned."""
    bound, unbound = queues(), queues(bound=False)
    twice = [message(unbound, "k", 1), message(bound, "k", 1)]
    first, _second = publish(queues.url, *twice)
    assert isinstance(first, Refused)


def test_an_exchange_that_is_deleted_under_way_is_refused_and_no_other(queues: Queues) -> None:
    deleted, other = queues(), queues()

    async def case(publisher: Publisher) -> None:
        warm = [message(deleted, "a", 1), message(other, "b", 1)]
        assert list(await publisher.publish(warm)) == [DELIVERED] * 2
        with rabbitmq.channel(queues.url) as channel:
            channel.exchange_delete(deleted)
        messages = [message(deleted if n == 50 else other, f"k{n}", n) for n in range(100)]
        calls = [publisher.publish(messages[:60]), publisher.publish(messages[60:])]
        results = await asyncio.gather(*calls)
        outcomes = [outcome for result in results for outcome in result]
        assert isinstance(outcomes[50], Refused)
        assert f"exchange {deleted} does not exist" in outcomes[50].reason
        assert outcomes.count(DELIVERED) == 99

    with_publisher(from_url(queues.url, {}), case)
    assert len(ids(queues.read(other))) == 100


def test_several_messages_that_end_the_channel_are_found_one_by_one(queues: Queues) -> None:
    """The broker closes the channel over each and does not say which it was."""
    topic, internal = queues(), f"test-internal-{uuid.uuid4().hex[:8]}"
    with rabbitmq.channel(queues.url) as channel:
        channel.exchange_declare(internal, "fanout", internal=True)
    guilty = {3, 40, 41, 99}
    messages = [message(internal if n in guilty else topic, f"k{n}", n) for n in range(100)]
    outcomes = publish(queues.url, *messages)
    refused = {n for n, outcome in enumerate(outcomes) if isinstance(outcome, Refused)}
    assert refused == guilty
    assert outcomes.count(DELIVERED) == 96
    assert len(ids(queues.read(topic))) == 96
    with rabbitmq.channel(queues.url) as channel:
        channel.exchange_delete(internal)


def test_what_amqp_cannot_carry_is_refused(queues: Queues) -> None:
    topic = queues()
    long_key = message(topic, "k" * 256, 1)
    surrogate = message(topic, "k", 2)._replace(headers=[("city", "\ud800")])
    huge = message(topic, "k", 3)._replace(headers=[("note", "x" * 200_000)])
    unfit = [long_key, surrogate, huge, message("\ud800", "k", 4), message("x" * 256, "k", 5)]
    *refused, delivered = publish(queues.url, *unfit, message(topic, "k", 6))
    assert all(isinstance(outcome, Refused) for outcome in refused)
    assert delivered is DELIVERED


# --- nobody there, or nobody who wants us ---------------------------------------------------------


def test_a_wrong_login_is_told_and_the_password_is_not(rabbitmq_url: str) -> None:
    wrong = rabbitmq_url.replace("guest:guest", "guest:s3cret")
    with pytest.raises(PublisherError, match="ACCESS_REFUSED") as raised:
        publish(wrong, message("t", "k", 1))
    assert not isinstance(raised.value, BrokerUnreachable)
    assert "s3cret" not in str(raised.value)


def test_a_missing_virtual_host_is_told(rabbitmq_url: str) -> None:
    with pytest.raises(PublisherError, match="vhost nowhere not found"):
        publish(f"{rabbitmq_url}nowhere", message("t", "k", 1))


def test_somebody_who_does_not_speak_amqp_is_no_broker(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def case() -> None:
        server = await asyncio.start_server(_babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        publisher = from_url(f"amqp://127.0.0.1:{port}", {"delivery_timeout_seconds": "2"})
        with pytest.raises(BrokerUnreachable, match="RabbitMQ at 127"):
            await publisher.open()
        server.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(case())
    assert not caplog.records


async def _babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


def test_the_first_host_that_answers_is_taken(queues: Queues) -> None:
    topic = queues()
    url = queues.url.replace("@127", "@127.0.0.1:1,127")
    assert publish(url, message(topic, "k", 1)) == [DELIVERED]


def test_a_blocked_connection_answers_in_time_and_goes_on(
    dedicated_server: Callable[[str], DedicatedServer],
) -> None:
    server = dedicated_server("rabbitmq")
    queues = Queues(server.url)
    topic = queues()

    async def case(publisher: Publisher) -> None:
        await publisher.publish([message(topic, "k", 1)])
        await asyncio.to_thread(rabbitmq.control, server.name, "set_vm_memory_high_watermark", "0")
        for number in (2, 3):
            [outcome] = await publisher.publish([message(topic, "k", number)])
            assert isinstance(outcome, Unreachable)
            assert "takes no messages at the moment (low on memory)" in outcome.reason
        with pytest.raises(BrokerUnreachable, match="low on memory"):
            await publisher.recover()
        waiting = asyncio.create_task(_publish(publisher, message(topic, "k", 4)))
        await asyncio.to_thread(
            rabbitmq.control, server.name, "set_vm_memory_high_watermark", "0.6"
        )
        await waiting
        await publisher.recover()
        assert list(await publisher.publish([message(topic, "k", 5)])) == [DELIVERED]

    with_publisher(from_url(server.url, {"delivery_timeout_seconds": "2"}), case)
    received = ids(queues.read(topic))
    assert (received[0], received[-1]) == ("k-1", "k-5")


async def _publish(publisher: Publisher, *messages: Message) -> Sequence[Outcome]:
    return await publisher.publish(messages)


def test_a_frozen_broker_is_unreachable_in_time(
    dedicated_server: Callable[[str], DedicatedServer],
) -> None:
    server = dedicated_server("rabbitmq")
    topic = Queues(server.url)()

    async def case(publisher: Publisher) -> None:
        await publisher.publish([message(topic, "k", 1)])
        await asyncio.to_thread(server.pause)
        try:
            async with asyncio.timeout(4):
                [outcome] = await publisher.publish([message(topic, "k", 2)])
            assert isinstance(outcome, Unreachable)
            async with asyncio.timeout(6):
                with pytest.raises(BrokerUnreachable):
                    await publisher.recover()
        finally:
            await asyncio.to_thread(server.resume)
        await publisher.recover()
        assert list(await publisher.publish([message(topic, "k", 3)])) == [DELIVERED]

    with_publisher(from_url(server.url, {"delivery_timeout_seconds": "2"}), case)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(request: pytest.FixtureRequest) -> tuple[int, str]:
    """The port, and the authority's certificate, of the server that scripts/services has made."""
    request.getfixturevalue("rabbitmq_url")
    try:
        return rabbitmq.tls_port("rabbitmq"), str(rabbitmq.authority("rabbitmq"))
    except FileNotFoundError:
        pytest.skip("this RabbitMQ is not one of scripts/services: its certificates are unknown")


def test_tls_with_the_right_authority_and_name(tls: tuple[int, str], queues: Queues) -> None:
    port, authority = tls
    topic = queues()
    url = f"amqps://localhost:{port}?cacertfile={authority}"
    value = b"x" * 500_000
    messages = [message(topic, "k", n, value) for n in range(5)]
    assert publish(url, *messages) == [DELIVERED] * 5
    assert [each.value for each in queues.read(topic)] == [value] * 5


def test_tls_with_another_host_name_is_refused(tls: tuple[int, str]) -> None:
    port, authority = tls
    with pytest.raises(PublisherError, match=r"not trusted: IP address mismatch.*host name"):
        publish(f"amqps://127.0.0.1:{port}?cacertfile={authority}", message("t", "k", 1))


def test_tls_with_an_unknown_authority_is_refused(tls: tuple[int, str]) -> None:
    port, _authority = tls
    with pytest.raises(PublisherError, match=r"not trusted: .*certificate.*cacertfile"):
        publish(f"amqps://localhost:{port}", message("t", "k", 1))


def test_plain_text_to_a_tls_port_is_unreachable(tls: tuple[int, str]) -> None:
    port, _authority = tls
    with pytest.raises(BrokerUnreachable, match=f"RabbitMQ at localhost:{port}"):
        publish(f"amqp://localhost:{port}", message("t", "k", 1), delivery_timeout_seconds="2")
