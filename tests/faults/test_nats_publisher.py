"""What can go wrong between us and NATS, on the real server."""

from __future__ import annotations

import asyncio
import socket
import ssl
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import nkeys
import pytest

from commitrelay.errors import BrokerUnreachable, PublisherError
from commitrelay.publisher import DELIVERED, Message, Outcome, Refused, Unreachable
from commitrelay.publishers.nats import NatsPublisher, from_url
from commitrelay.testing.publisher_suite import ids, message
from tests.support import nats
from tests.support.certificates import Authority
from tests.support.nats_operator import Keys, Operator
from tests.support.services import DedicatedServer

StartServer = Callable[[str], DedicatedServer]


@pytest.fixture
def streams(nats_url: str) -> Iterator[nats.Streams]:
    made = nats.Streams(nats_url)
    yield made
    made.delete_all()


def with_publisher(url: str, case: Callable[[NatsPublisher], Awaitable[None]]) -> None:
    async def main() -> None:
        publisher = from_url(url, {"delivery_timeout_seconds": "5"})
        await publisher.open()
        try:
            async with asyncio.timeout(60):
                await case(publisher)
        finally:
            await publisher.close()

    asyncio.run(main())


def all_delivered(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome is DELIVERED for outcome in outcomes)


# --- streams and subjects -----------------------------------------------------------------------


def test_no_stream_is_refused_with_what_to_do(nats_url: str) -> None:
    subject = f"nobody.{uuid.uuid4().hex}"

    async def case(publisher: NatsPublisher) -> None:
        outcomes = await publisher.publish([message(subject, f"k{n}", n) for n in range(3)])
        for outcome in outcomes:
            assert isinstance(outcome, Refused)
            assert outcome.reason.startswith(f"no JetStream stream takes subject {subject}: create")

    with_publisher(nats_url, case)


def test_without_jetstream_nothing_is_refused(dedicated_server: StartServer) -> None:
    """A server whose JetStream does not answer is an outage, not the message's fault."""
    server = dedicated_server("nats")
    server.configure(
        "nats.conf", "accounts { NONE { users: [{user: u, password: p}] } }\nno_auth_user: u\n"
    )

    async def case(publisher: NatsPublisher) -> None:
        [outcome] = await publisher.publish([message("orders", "k", 1)])
        assert isinstance(outcome, Unreachable)
        assert "JetStream" in outcome.reason

    with_publisher(server.url, case)


def test_another_stream_than_the_expected_one_is_refused(
    nats_url: str, streams: nats.Streams
) -> None:
    async def case_with(stream: str, subject: str) -> None:
        publisher = from_url(f"{nats_url}?stream={stream}", {})
        await publisher.open()
        [own, foreign] = await publisher.publish(
            [message(stream, "k", 1), message(subject, "k", 1)]
        )
        await publisher.close()
        assert own is DELIVERED
        assert isinstance(foreign, Refused)
        assert "expected stream" in foreign.reason
        assert "stream=" in foreign.reason

    async def main() -> None:
        first, second = await streams.make(), await streams.make()
        await case_with(first, second)
        assert await streams.read(second) == []

    asyncio.run(main())


def test_a_named_stream_that_is_missing_stops_the_start(nats_url: str) -> None:
    async def main() -> None:
        with pytest.raises(PublisherError, match="has no stream nowhere-to-be-found: create it"):
            await from_url(f"{nats_url}?stream=nowhere-to-be-found", {}).open()

    asyncio.run(main())


def test_a_stream_is_created_on_request(nats_url: str, streams: nats.Streams) -> None:
    name = f"made-{uuid.uuid4().hex[:12]}"
    url = f"{nats_url}?stream={name}&create_stream={name}.>"

    async def case(publisher: NatsPublisher) -> None:
        assert all_delivered(await publisher.publish([message(f"{name}.a.b", "k", 1)]))

    with_publisher(url, case)
    with_publisher(url, case)  # it is there already
    assert ids(asyncio.run(streams.read(name))) == ["k-1"]  # and the second one was a duplicate
    asyncio.run(streams.delete(name))


def test_a_stream_that_appears_takes_the_next_attempt(nats_url: str, streams: nats.Streams) -> None:
    prefix = uuid.uuid4().hex

    async def case(publisher: NatsPublisher) -> None:
        [before] = await publisher.publish([message(f"{prefix}.a", "k", 1)])
        assert isinstance(before, Refused)
        await streams.make(subjects=[f"{prefix}.>"])
        assert all_delivered(await publisher.publish([message(f"{prefix}.a", "k", 1)]))

    with_publisher(nats_url, case)


def test_a_full_stream_spends_no_attempt(nats_url: str, streams: nats.Streams) -> None:
    async def case(publisher: NatsPublisher) -> None:
        topic = await streams.make(max_msgs=2, discard="new")
        outcomes = await publisher.publish([message(topic, f"k{n}", n) for n in range(4)])
        assert all_delivered(outcomes[:2])
        for outcome in outcomes[2:]:
            assert isinstance(outcome, Unreachable)
            assert "maximum messages exceeded" in outcome.reason

    with_publisher(nats_url, case)


def test_what_an_event_holds_never_becomes_a_wildcard_or_a_command(
    nats_url: str, streams: nats.Streams
) -> None:
    prefix = uuid.uuid4().hex

    async def case(publisher: NatsPublisher) -> None:
        stream = await streams.make(subjects=[f"{prefix}.>"])
        sent = [
            message(f"{prefix}.big order", "a.b", 1),
            message(f"{prefix}.x", "*", 2),
            message(f"{prefix}.x", "Zürich >", 3),
            message("$JS.API.STREAM.DELETE." + stream, "k", 4),
            message(f"{prefix}..x", "k", 5),
            message(f"{prefix}.{'y' * 2000}", "k", 6),
        ]
        outcomes = await publisher.publish(sent)
        assert all_delivered(outcomes[:3])
        assert [type(each) for each in outcomes[3:]] == [Refused] * 3
        subjects = [subject for subject, _ in await streams.read_subjects(stream)]
        assert subjects == [
            f"{prefix}.big%20order.a%2Eb",
            f"{prefix}.x.%2A",
            f"{prefix}.x.Zürich%20%3E",
        ]

    with_publisher(nats_url + "?subject={topic}.{key}", case)


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ("k\r\nNats-Rollup: all", []),
        ("k", [("a", "b\r\nNats-Rollup: all")]),
        ("k", [("a", "b\nNats-Rollup: all")]),
        ("k", [("a", "b\rNats-Rollup: all")]),
        ("k", [("nats-rollup", "all")]),
        ("k", [("with space", "x")]),
        ("k", [("with:colon", "x")]),
        ("k", [("größe", "x")]),
        ("k", [("", "x")]),
    ],
)
def test_no_event_gives_the_server_orders_in_its_headers(
    nats_url: str, streams: nats.Streams, key: str, headers: list[tuple[str, str]]
) -> None:
    async def case(publisher: NatsPublisher) -> None:
        topic = await streams.make(allow_rollup_hdrs=True)
        good = message(topic, "good", 1)
        bad = Message(topic, key, b"{}", headers, "bad")
        outcomes = await publisher.publish([good, bad, message(topic, "good", 2)])
        assert outcomes[0] is outcomes[2] is DELIVERED
        assert isinstance(outcomes[1], Refused)
        assert ids(await streams.read(topic)) == ["good-1", "good-2"]

    with_publisher(nats_url, case)


def test_the_event_id_dedupes_what_is_sent_again(nats_url: str, streams: nats.Streams) -> None:
    async def case(publisher: NatsPublisher) -> None:
        topic = await streams.make()
        messages = [message(topic, f"k{n}", n) for n in range(10)]
        assert all_delivered(await publisher.publish(messages))
        assert all_delivered(await publisher.publish(messages))  # acknowledged as duplicates
        assert len(await streams.read(topic)) == 10

    with_publisher(nats_url, case)


def test_more_than_a_server_buffers_is_held_back_in_order(
    nats_url: str, streams: nats.Streams
) -> None:
    """Servers drop what exceeds 10,000 unacknowledged messages of a stream."""

    async def case(publisher: NatsPublisher) -> None:
        topic = await streams.make(storage="memory")
        first = [message(topic, "k", number) for number in range(20_000)]
        calls = [asyncio.create_task(publisher.publish(first))]
        number = len(first)
        while not calls[0].done() and number < 22_000:  # these must not pass the first call
            calls.append(asyncio.create_task(publisher.publish([message(topic, "k", number)])))
            number += 1
            await asyncio.sleep(0)
            assert publisher._link.unacknowledged <= 8000
        for outcomes in await asyncio.gather(*calls):
            assert all_delivered(outcomes)
        assert ids(await streams.read(topic)) == [f"k-{each}" for each in range(number)]

    with_publisher(nats_url, case)


# --- who may do what ----------------------------------------------------------------------------


def test_a_wrong_password_is_told_without_showing_it(dedicated_server: StartServer) -> None:
    server = dedicated_server("nats")
    server.configure("nats.conf", "authorization { user: relay, password: right }\n")
    address = urlsplit(server.url).netloc

    async def main() -> None:
        with pytest.raises(BrokerUnreachable, match="refuses the login") as failure:
            await from_url(f"nats://relay:wr0ng@{address}", {}).open()
        assert "wr0ng" not in str(failure.value)
        publisher = from_url(f"nats://relay:right@{address}", {})
        await publisher.open()
        await publisher.close()

    asyncio.run(main())


def test_a_login_with_a_token(dedicated_server: StartServer) -> None:
    server = dedicated_server("nats")
    server.configure("nats.conf", "authorization { token: right }\n")

    async def main() -> None:
        publisher = from_url(f"{server.url}?token=right", {})
        await publisher.open()
        await publisher.close()
        with pytest.raises(BrokerUnreachable, match="refuses the login") as failure:
            await from_url(f"{server.url}?token=wr0ng", {}).open()
        assert "wr0ng" not in str(failure.value)

    asyncio.run(main())


def test_a_login_with_a_key(dedicated_server: StartServer, tmp_path: Path) -> None:
    seed = nkeys.encode_seed(b"0123456789abcdef0123456789abcdef", nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(seed).public_key.decode()
    (tmp_path / "seed").write_bytes(seed)
    other = nkeys.encode_seed(b"fedcba9876543210fedcba9876543210", nkeys.PREFIX_BYTE_USER)
    (tmp_path / "other").write_bytes(other)
    server = dedicated_server("nats")
    server.configure("nats.conf", f"authorization {{ users: [{{nkey: {public}}}] }}\n")

    async def main() -> None:
        publisher = from_url(f"{server.url}?nkey_file={tmp_path / 'seed'}", {})
        await publisher.open()
        await publisher.close()
        with pytest.raises(BrokerUnreachable, match="refuses the login"):
            await from_url(f"{server.url}?nkey_file={tmp_path / 'other'}", {}).open()

    asyncio.run(main())


def test_a_login_with_credentials(dedicated_server: StartServer, tmp_path: Path) -> None:
    operator = Operator()
    server = dedicated_server("nats")
    server.configure("nats.conf", operator.settings)
    right = operator.write_credentials(tmp_path / "right.creds")
    stranger = Keys(nkeys.PREFIX_BYTE_ACCOUNT)
    wrong = operator.write_credentials(tmp_path / "wrong.creds", signed_by=stranger)

    async def main() -> None:
        publisher = from_url(
            f"{server.url}?credentials_file={right}&stream=orders&create_stream=orders", {}
        )
        await publisher.open()
        assert all_delivered(await publisher.publish([message("orders", "k", 1)]))
        await publisher.close()
        with pytest.raises(BrokerUnreachable, match="refuses the login"):
            await from_url(f"{server.url}?credentials_file={wrong}", {}).open()

    asyncio.run(main())


def test_a_missing_right_refuses_that_subject_only(dedicated_server: StartServer) -> None:
    server = dedicated_server("nats")
    rights = '{publish: ["mine", "$JS.API.>"], subscribe: ["_INBOX.>"]}'
    server.configure(
        "nats.conf",
        f"authorization {{ users: [{{user: relay, password: p, permissions: {rights}}},"
        " {user: admin, password: p}] }\n",
    )
    address = urlsplit(server.url).netloc

    async def main() -> None:
        streams = nats.Streams(f"nats://admin:p@{address}")
        stream = await streams.make(subjects=["mine", "theirs"])
        publisher = from_url(f"nats://relay:p@{address}", {"delivery_timeout_seconds": "5"})
        await publisher.open()
        outcomes = await publisher.publish(
            [message("mine", "a", 1), message("theirs", "b", 1), message("mine", "c", 1)]
        )
        await publisher.close()
        assert outcomes[0] is outcomes[2] is DELIVERED
        assert isinstance(outcomes[1], Refused)
        assert "the right to publish" in outcomes[1].reason
        assert len(await streams.read(stream)) == 2

    asyncio.run(main())


# --- TLS -----------------------------------------------------------------------------------------


def test_tls_trusts_only_the_right_host_and_authority(
    dedicated_server: StartServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "stranger")
    own = authority.sign("localhost")
    server = dedicated_server("nats")
    server.configure(
        "nats.conf", f'tls {{ cert_file: "{own.certificate}", key_file: "{own.key}" }}\n'
    )
    port = urlsplit(server.url).port

    async def main() -> None:
        streams = nats.Streams(f"nats://localhost:{port}", tls=_context(authority))
        topic = await streams.make()
        publisher = from_url(f"nats://localhost:{port}?tls_ca_file={authority.certificate}", {})
        await publisher.open()
        messages = [message(topic, f"k{n}", n, b"x" * 1000) for n in range(2000)]
        assert all_delivered(await publisher.publish(messages))
        await publisher.close()
        assert len(await streams.read(topic)) == 2000
        for url, reason in {
            f"nats://127.0.0.1:{port}?tls_ca_file={authority.certificate}": "IP address mismatch",
            f"nats://localhost:{port}?tls_ca_file={stranger.certificate}": "unable to get local",
            f"nats://localhost:{port}": "not to be trusted",  # the server asks, we do not know it
        }.items():
            with pytest.raises(BrokerUnreachable, match=reason):
                await from_url(url, {}).open()

    asyncio.run(main())


def test_tls_that_was_asked_for_is_not_done_without(nats_url: str) -> None:
    async def main() -> None:
        with pytest.raises(BrokerUnreachable, match="offers no TLS"):
            await from_url(f"{nats_url}?tls=true", {}).open()

    asyncio.run(main())


def _context(authority: Authority) -> object:
    return ssl.create_default_context(cafile=str(authority.certificate))


# --- something else listens there -----------------------------------------------------------------


def test_what_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        async def main() -> None:
            url = f"nats://127.0.0.1:{port}?delivery_timeout_seconds=1"
            with pytest.raises(BrokerUnreachable, match="did not answer within 1 s"):
                await from_url(url, {}).open()

        asyncio.run(main())


def test_a_second_server_is_tried(nats_url: str) -> None:
    address = urlsplit(nats_url).netloc

    async def main() -> None:
        publisher = from_url(f"nats://127.0.0.1:1,{address}", {})
        await publisher.open()
        await publisher.close()

    asyncio.run(main())
