"""The inbox in Redis: what it promises, and what it tells when it could not keep it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from commitrelay import BrokerUnreachable, ClaimExpired, ConfigError, InProgress, RedisInbox
from tests.support.redis import client
from tests.support.services import DedicatedServer

Case = Callable[[RedisInbox, RedisInbox], Awaitable[None]]


@pytest.fixture
def consumer() -> str:
    return f"billing:{uuid4().hex}"


def play(url: str, consumer: str, case: Case, **settings: float) -> None:
    """The case with two consumers of the same name; the settings are those of the first."""

    async def run() -> None:
        async with (
            RedisInbox(url, consumer, **settings) as one,  # type: ignore[arg-type]
            RedisInbox(url, consumer) as other,
        ):
            await case(one, other)

    asyncio.run(run())


async def first(inbox: RedisInbox, event_id: str) -> bool:
    async with inbox.once(event_id) as answer:
        return answer


def test_first_then_in_progress_then_duplicate(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        async with one.once("a") as answer:
            assert answer is True
            with pytest.raises(InProgress, match="event a is being handled"):
                await first(other, "a")
            assert await first(other, "b")
        assert await first(other, "a") is False
        assert await first(one, "a") is False

    play(redis_url, consumer, case)


def test_what_the_body_raises_gives_the_claim_back(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        with pytest.raises(ZeroDivisionError):
            async with one.once("a"):
                raise ZeroDivisionError
        assert await first(other, "a") is True

    play(redis_url, consumer, case)


def test_consumers_are_told_apart(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, _other: RedisInbox) -> None:
        assert await first(one, "x:a")
        async with RedisInbox(redis_url, f"{consumer}:x") as third:
            assert await first(third, "a")

    play(redis_url, consumer, case)


def test_a_mark_and_a_claim_end_by_themselves(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, _other: RedisInbox) -> None:
        keys: Any = client(redis_url)
        name = f"inbox:{consumer.replace(':', '%3A')}:a"
        async with one.once("a"):
            assert 0 < keys.pttl(name) <= 60_000
        assert 60_000 < keys.pttl(name) <= 7 * 86_400_000
        keys.close()

    play(redis_url, consumer, case)


async def expired(url: str, consumer: str) -> None:
    """Return when the claim on event a is gone."""
    keys: Any = client(url)
    async with asyncio.timeout(30):
        while keys.exists(f"inbox:{consumer.replace(':', '%3A')}:a"):
            await asyncio.sleep(0.01)
    keys.close()


def test_a_claim_that_expired_is_told_and_the_other_ones_mark_stays(
    redis_url: str, consumer: str
) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        with pytest.raises(ClaimExpired, match="the effect may have happened twice") as told:
            async with one.once("a"):
                await expired(redis_url, consumer)
                assert await first(other, "a") is True
        assert "\n" not in str(told.value)
        assert await first(one, "a") is False

    play(redis_url, consumer, case, claim_seconds=0.3)


def test_a_claim_that_expired_does_not_end_that_of_its_successor(
    redis_url: str, consumer: str
) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        slow = one.once("a")
        assert await slow.__aenter__()
        await expired(redis_url, consumer)
        async with other.once("a") as answer:
            assert answer
            with pytest.raises(ClaimExpired):
                await slow.__aexit__(None, None, None)
            with pytest.raises(InProgress):
                await first(one, "a")
        assert await first(one, "a") is False

    play(redis_url, consumer, case, claim_seconds=0.3)


def test_a_claim_that_expired_and_failed_takes_nothing_from_its_successor(
    redis_url: str, consumer: str
) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        with pytest.raises(ZeroDivisionError):
            async with one.once("a"):
                await expired(redis_url, consumer)
                assert await first(other, "a") is True
                raise ZeroDivisionError
        assert await first(one, "a") is False

    play(redis_url, consumer, case, claim_seconds=0.3)


def test_a_claim_that_expired_unnoticed_is_told_and_marked(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        with pytest.raises(ClaimExpired):
            async with one.once("a"):
                await expired(redis_url, consumer)
        assert await first(other, "a") is False

    play(redis_url, consumer, case, claim_seconds=0.3)


def test_a_connection_that_is_lost_in_between_is_made_again(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        async with one.once("a"):
            assert one._connection is not None
            one._connection.drop("cut by the test")
        assert await first(other, "a") is False

    play(redis_url, consumer, case)


def test_a_mark_whose_answer_is_lost_is_no_expired_claim(redis_url: str, consumer: str) -> None:
    async def case(one: RedisInbox, other: RedisInbox) -> None:
        async with one.once("a"):
            connection: Any = one._connection
            call = connection.call

            async def lose_the_answer(*arguments: Any) -> None:
                await call(*arguments)
                connection.drop("cut by the test")
                raise BrokerUnreachable("cut by the test")

            connection.call = lose_the_answer
        assert await first(other, "a") is False

    play(redis_url, consumer, case)


def test_ten_deliveries_from_four_processes_have_one_effect(redis_url: str, consumer: str) -> None:
    """As long as nobody dies and no claim expires, that is."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.inbox.redis_process", redis_url, consumer, tasks, "30"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for tasks in "3322"
    ]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    effects: list[int] = []
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        effects += map(int, output.split())
    assert sorted(effects) == list(range(30))


def test_a_server_that_is_not_there_is_one_line_without_the_password(consumer: str) -> None:
    async def case() -> None:
        inbox = RedisInbox("redis://user:hunter2@127.0.0.1:1", consumer)
        with pytest.raises(BrokerUnreachable) as told:
            await first(inbox, "a")
        assert "127.0.0.1:1" in str(told.value)
        assert "hunter2" not in str(told.value)
        assert "\n" not in str(told.value)

    asyncio.run(case())


@pytest.mark.parametrize(
    ("url", "settings", "named"),
    [
        ("redis://localhost?cluster=true", {}, "one server"),
        ("redis://localhost", {"claim_seconds": 0}, "claim_seconds 0 has to be more than 0"),
        ("redis://localhost", {"claim_seconds": 9, "done_seconds": 9}, "less than done_seconds 9"),
        ("redis://", {}, "names no server"),
    ],
)
def test_what_is_wrong_is_refused(url: str, settings: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        RedisInbox(url, "billing", **settings)  # type: ignore[arg-type]


def test_a_server_that_stands_still_is_given_up(
    dedicated_server: Callable[[str], DedicatedServer], consumer: str
) -> None:
    server = dedicated_server("redis")

    async def case() -> None:
        url = f"{server.url}?delivery_timeout_seconds=1"
        async with RedisInbox(url, consumer) as inbox:
            server.pause()
            try:
                with pytest.raises(BrokerUnreachable, match="did not answer within 1 s"):
                    await first(inbox, "a")
            finally:
                server.resume()
            assert await first(inbox, "b")

    asyncio.run(case())
