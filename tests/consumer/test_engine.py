"""The engine's promises, on a broker and a database in memory, under a virtual clock."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest

from commitrelay.consumer.received import Received
from commitrelay.publisher import Refused
from commitrelay.retry import RetryPolicy
from tests.consumer.memory import (
    UNREACHABLE,
    Broker,
    MemoryDatabase,
    MemoryLetters,
    Stage,
    run_virtually,
)

QUICK = RetryPolicy(delays_seconds=(1.0, 1.0), jitter=0.0)


class Log:
    """A handler that notes what it gets, and does what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.running: set[str] = set()
        self.most_running = 0
        self.failing: dict[str, int] = {}  # event id -> how often it still fails
        self.held: dict[str, asyncio.Event] = {}

    async def __call__(self, handle: Any, event: Received[Any]) -> None:
        assert event.aggregate_id not in self.running, "two of one key at a time"
        self.running.add(event.aggregate_id)
        self.most_running = max(self.most_running, len(self.running))
        try:
            if event.id in self.held:
                await self.held[event.id].wait()
            await asyncio.sleep(0.01)
            if self.failing.get(event.id, 0) > 0:
                self.failing[event.id] -= 1
                raise RuntimeError(f"no luck with {event.id}")
            self.seen.append((event.aggregate_id, event.payload))
        finally:
            self.running.discard(event.aggregate_id)

    def by_key(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for key, number in self.seen:
            found[key].append(number)
        return dict(found)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def database() -> MemoryDatabase:
    return MemoryDatabase()


@pytest.fixture
def log() -> Log:
    return Log()


def play(case: Coroutine[Any, Any, None]) -> None:
    run_virtually(case)


def fill(broker: Broker, keys: int, each: int, partitions: int = 1) -> None:
    for number in range(each):
        for key in range(keys):
            broker.put(str(key), number, f"p{key % partitions}")


def test_each_event_is_handled_in_the_order_of_its_key(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=7, each=30, partitions=3)

    async def case() -> None:
        stage = Stage(broker, database, log, concurrency=4, window=20)
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {str(key): list(range(30)) for key in range(7)}
        assert log.most_running == 4
        assert stage.source.closed
        assert (stage.stats.handled, stage.stats.duplicates) == (210, 0)

    play(case())


def test_reading_stops_while_the_window_is_full(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=100)
    log.held["0-0"] = asyncio.Event()

    async def case() -> None:
        stage = Stage(broker, database, log, window=10)
        await asyncio.sleep(60)
        assert stage.source.most_unacknowledged == 10
        log.held["0-0"].set()
        await stage.until_done()
        await stage.stop()

    play(case())


def test_a_slow_key_holds_up_neither_the_others_nor_their_reading(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    broker.put("slow", 0)
    fill(broker, keys=5, each=50)
    for number in range(50):
        broker.put("0", 50 + number, "p")
    log.held["slow-0"] = asyncio.Event()

    async def case() -> None:
        stage = Stage(broker, database, log, window=10)
        await stage.until(lambda: len(log.seen) == 300)
        assert broker.acknowledged["p"] == 0, "what precedes is not done"
        assert broker.acknowledged["p0"] == 250
        log.held["slow-0"].set()
        await stage.until_done()
        await stage.stop()

    play(case())


def test_handled_events_that_wait_for_an_earlier_one_are_bounded(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    broker.put("slow", 0)
    for number in range(100):
        broker.put(str(number), 0)
    log.held["slow-0"] = asyncio.Event()

    async def case() -> None:
        stage = Stage(broker, database, log, window=10, max_unacknowledged=30)
        await asyncio.sleep(60)
        assert 30 <= stage.source.most_unacknowledged <= 41
        log.held["slow-0"].set()
        await stage.until_done()
        await stage.stop()

    play(case())


def test_what_was_handled_before_is_only_acknowledged(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=10)
    database.done += [f"0-{number}" for number in range(10)]

    async def case() -> None:
        stage = Stage(broker, database, log)
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"1": list(range(10))}
        assert (stage.stats.handled, stage.stats.duplicates) == (10, 10)

    play(case())


def test_a_handler_that_fails_is_tried_again_while_only_its_key_waits(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=3, each=5)
    log.failing = {"1-0": 2}
    attempts: list[int] = []

    async def handle(handle: Any, event: Received[Any]) -> None:
        if event.id == "1-0":
            attempts.append(event.attempt)
        await log(handle, event)

    async def case() -> None:
        stage = Stage(broker, database, handle, retry=QUICK, concurrency=1)
        await stage.until(lambda: len(log.seen) == 10)
        assert "1" not in log.by_key()
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {str(key): list(range(5)) for key in range(3)}
        assert attempts == [1, 2, 3]
        stats = stage.stats
        assert (stats.failed, stats.retried, stats.dead_lettered) == (2, 2, 0)

    play(case())


def test_out_of_attempts_an_event_goes_to_the_dead_letters_and_its_key_goes_on(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=3)
    log.failing = {"1-0": 99}
    letters = MemoryLetters()
    letters.outcomes = [UNREACHABLE, UNREACHABLE]

    async def case() -> None:
        stage = Stage(broker, database, log, letters=letters, retry=QUICK)
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"0": [0, 1, 2], "1": [1, 2]}
        assert log.failing["1-0"] == 96
        assert letters.recovered == 2
        (message,) = letters.messages
        assert (message.topic, message.key, message.value) == ("orders.dead", "1", b"0")
        headers = dict(message.headers)
        assert headers["event-id"] == message.event_id == "1-0"
        assert headers["dead-error-type"] == "RuntimeError"
        assert headers["dead-error"] == "no luck with 1-0"
        assert headers["dead-attempts"] == "3"
        assert headers["dead-consumer"] == "c"
        assert (headers["dead-topic"], headers["dead-partition"]) == ("orders", "p0")
        assert (headers["dead-position"], headers["dead-at"][-1]) == ("1", "Z")
        assert "1-0" not in database.done, "whoever sends it again wants it handled"

    play(case())


def test_nothing_is_done_before_the_dead_letter_is_published(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=2)
    log.failing = {"0-0": 99}
    letters = MemoryLetters()
    letters.outcomes = [Refused("too large")] * 3

    async def case() -> None:
        stage = Stage(broker, database, log, letters=letters, retry=QUICK)
        await stage.until(lambda: len(letters.outcomes) == 2)
        assert broker.acknowledged["p0"] == 0
        (stopped,) = stage.engine.health().stopped
        assert stopped.event_id == "0-0"
        await stage.until_done()
        assert stage.engine.health().stopped == []
        await stage.stop()
        assert len(letters.messages) == 1
        assert log.failing["0-0"] == 96, "it is not handled again meanwhile"

    play(case())


def test_without_dead_letters_the_key_stands_still_and_is_tried_for_ever(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=3)
    log.failing = {"1-1": 20}

    async def case() -> None:
        stage = Stage(broker, database, log, retry=QUICK)
        await asyncio.sleep(10)
        assert log.by_key() == {"0": [0, 1, 2], "1": [0]}
        health = stage.engine.health()
        (stopped,) = health.stopped
        assert (stopped.aggregate_id, stopped.event_id, stopped.topic) == ("1", "1-1", "orders")
        assert stopped.error == "no luck with 1-1"
        assert stopped.attempts > 3
        assert health.last_error == "no luck with 1-1"
        assert health.oldest_in_hand_seconds > 9
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"0": [0, 1, 2], "1": [0, 1, 2]}

    play(case())


def test_a_jam_behind_a_key_that_stands_still_is_said_once(
    broker: Broker, database: MemoryDatabase, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, keys=1, each=30)
    log.failing = {"0-0": 100}

    async def case() -> None:
        stage = Stage(broker, database, log, retry=QUICK, window=10)
        await stage.until_done()
        await stage.stop()

    play(case())
    said = [record for record in caplog.records if "reading pauses: 10 events" in record.message]
    assert len(said) == 1


def test_a_database_that_is_away_costs_no_attempt(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=50, each=2)

    async def case() -> None:
        stage = Stage(broker, database, log, retry=RetryPolicy(()), concurrency=5)
        await stage.until(lambda: len(log.seen) > 3)
        database.unreachable = True
        before = database.transactions
        await asyncio.sleep(1800)
        assert not stage.engine.health().ready
        assert database.transactions - before < 3600, "it waits, and then a few look"
        database.unreachable = False
        await stage.until_done()
        assert stage.engine.health().ready
        await stage.stop()
        assert log.by_key() == {str(key): [0, 1] for key in range(50)}
        assert stage.stats.failed == 0

    play(case())


def test_a_database_that_is_away_at_the_start_is_waited_for(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=2)
    database.unreachable = True

    async def case() -> None:
        stage = Stage(broker, database, log)
        await asyncio.sleep(100)
        database.unreachable = False
        await stage.until_done()
        await stage.stop()

    play(case())


def test_a_transaction_that_is_taken_back_is_repeated_and_costs_no_attempt(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=2)
    database.conflicts["0-0"] = 15

    async def case() -> None:
        stage = Stage(broker, database, log, retry=RetryPolicy(()))
        await stage.until_done()
        await stage.stop()
        assert stage.stats.failed == 0

    play(case())


def test_a_transaction_that_is_always_taken_back_is_a_failure(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=1)
    database.conflicts["0-0"] = 10_000
    letters = MemoryLetters()

    async def case() -> None:
        stage = Stage(broker, database, log, letters=letters, retry=QUICK)
        await stage.until_done()
        await stage.stop()
        assert len(letters.messages) == 1

    play(case())


@pytest.mark.parametrize("unhandled", ["skip", "fail"])
def test_an_event_that_nobody_handles(
    broker: Broker, database: MemoryDatabase, log: Log, unhandled: str
) -> None:
    broker.put("1", 0, event_type="Unknown")
    broker.put("1", 1)
    letters = MemoryLetters()

    async def case() -> None:
        stage = Stage(
            broker, database, log, letters=letters, types=("Counted",), unhandled=unhandled
        )
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"1": [1]}
        assert stage.stats.skipped == (unhandled == "skip")
        assert len(letters.messages) == (unhandled == "fail")
        assert database.transactions == 1

    play(case())


def test_a_message_that_is_no_event_is_a_dead_letter_at_once(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    broker.put_raw("p", "1", b"what?", [("colour", "red"), ("dead-error", "of an earlier life")])
    broker.put("1", 1, "p")
    letters = MemoryLetters()

    async def case() -> None:
        stage = Stage(broker, database, log, letters=letters)
        await stage.until_done()
        await stage.stop()
        (message,) = letters.messages
        assert message.value == b"what?"
        assert message.headers[0] == ("colour", "red")
        assert [name for name, _ in message.headers].count("dead-error") == 1
        assert message.event_id == "p@0"
        assert stage.stats.retried == 0

    play(case())


def test_a_payload_that_does_not_fit_is_not_tried_again(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    headers = [
        ("event-id", "1"), ("event-type", "X"), ("aggregate-id", "1"),
        ("content-type", "application/json"),
    ]  # fmt: skip
    broker.put_raw("p", "1", b"{", headers)
    letters = MemoryLetters()

    async def case() -> None:
        stage = Stage(broker, database, log, letters=letters)
        await stage.until_done()
        await stage.stop()
        assert dict(letters.messages[0].headers)["dead-attempts"] == "1"
        assert database.transactions == 0

    play(case())


# --- revocation and the end ----------------------------------------------------------------


def test_a_revoked_partition_is_finished_acknowledged_and_forgotten(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    for number in range(3):
        for key in ("a", "b"):
            broker.put(key, number, "p1")
        broker.put("c", number, "p2")
    log.held["a-0"] = asyncio.Event()

    async def case() -> None:
        stage = Stage(broker, database, log, concurrency=2)
        await stage.until(lambda: ("b", 0) in log.seen and broker.acknowledged["p2"] == 3)
        revoking = asyncio.create_task(stage.source.revoke("p1"))
        await asyncio.sleep(1)
        assert not revoking.done(), "a handler runs"
        seen = [*log.seen]
        log.held["a-0"].set()
        await revoking
        assert log.seen == [*seen, ("a", 0)], "nothing more was started"
        done = broker.acknowledged["p1"]
        assert done >= 2
        assert [row[1] for row in database.rows("reader")] == ["p2"]
        await asyncio.sleep(10)
        assert broker.acknowledged["p1"] == done
        stage.source.assign("p1")
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {key: [0, 1, 2] for key in "abc"}

    play(case())


def test_what_is_done_is_acknowledged_before_the_partition_goes(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=5)

    async def case() -> None:
        stage = Stage(broker, database, log, ack_seconds=1000)
        await stage.until(lambda: len(database.done) == 5, 100)
        assert broker.acknowledged["p0"] < 5
        await stage.source.revoke("p0")
        assert broker.acknowledged["p0"] == 5
        await stage.stop()

    play(case())


def test_a_partition_that_goes_before_it_was_entered_leaves_no_mark(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=5)
    database.unreachable = True

    async def case() -> None:
        stage = Stage(broker, database, log)
        await stage.until(lambda: stage.stats.in_hand == 5)
        await stage.source.revoke("p0")
        database.unreachable = False
        await asyncio.sleep(100)
        assert (log.seen, database.rows("reader")) == ([], [])
        await stage.stop()

    play(case())


def test_a_late_result_of_a_revoked_partition_is_not_acknowledged(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    broker.put("a", 0, "p1")
    broker.put("a", 1, "p1")
    log.held["a-0"] = asyncio.Event()

    async def case() -> None:
        stage = Stage(broker, database, log, revoke_seconds=5)
        await stage.until(lambda: log.running == {"a"})
        await stage.source.revoke("p1")
        assert log.running == {"a"}, "it waited no longer than it was allowed to"
        log.held["a-0"].set()
        await stage.until(lambda: ("a", 0) in log.seen)
        await asyncio.sleep(10)
        assert broker.acknowledged["p1"] == 0
        assert stage.stats.in_hand == 0
        stage.source.assign("p1")
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"a": [0, 1]}
        assert stage.stats.duplicates == 1

    play(case())


def test_what_waits_for_its_next_attempt_is_forgotten_with_its_partition(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    broker.put("a", 0, "p1")
    broker.put("a", 1, "p1")
    log.failing = {"a-0": 1}

    async def case() -> None:
        stage = Stage(broker, database, log, retry=RetryPolicy((50.0,), jitter=0.0))
        await stage.until(lambda: stage.stats.retried == 1)
        await stage.source.revoke("p1")
        await asyncio.sleep(100)
        assert (log.seen, stage.stats.in_hand) == ([], 0)
        stage.source.assign("p1")
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"a": [0, 1]}

    play(case())


def test_a_handler_that_fails_while_its_partition_goes_is_forgotten(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    broker.put("a", 0, "p1")
    broker.put("a", 0, "p2")  # the same key, and behind it
    log.failing = {"a-0": 1}
    log.held["a-0"] = asyncio.Event()

    async def case() -> None:
        stage = Stage(broker, database, log, retry=QUICK)
        await stage.until(lambda: log.running == {"a"})
        revoking = asyncio.create_task(stage.source.revoke("p1"))
        await asyncio.sleep(0.1)
        log.held["a-0"].set()
        await revoking
        await stage.until(lambda: broker.acknowledged["p2"] == 1, 5)
        assert broker.acknowledged["p1"] == 0
        await stage.stop()

    play(case())


def test_stop_lets_handlers_end_and_acknowledges_them(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=3)
    log.held = {"0-0": asyncio.Event(), "1-0": asyncio.Event()}

    async def case() -> None:
        stage = Stage(broker, database, log)
        await stage.until(lambda: len(log.running) == 2)
        stage.engine.stop()
        await asyncio.sleep(5)
        assert not stage.task.done()
        log.held["0-0"].set()
        log.held["1-0"].set()
        await stage.task
        assert log.seen == [("0", 0), ("1", 0)]
        assert broker.acknowledged["p0"] == 2
        assert database.rows("reader") == []
        assert not stage.engine._running

    play(case())


def test_stop_waits_no_longer_than_it_is_allowed_to(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=1)
    log.held = {"0-0": asyncio.Event()}

    async def case() -> None:
        stage = Stage(broker, database, log, stop_seconds=20)
        await stage.until(lambda: log.running == {"0"})
        stage.engine.stop()
        async with asyncio.timeout(25):
            await stage.task
        assert (log.seen, log.running) == ([], set()), "it was cancelled"
        assert broker.acknowledged["p0"] == 0

    play(case())


def test_it_stops_also_while_the_database_is_away(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=3)
    database.unreachable = True

    async def case() -> None:
        stage = Stage(broker, database, log)
        await stage.until(lambda: stage.stats.in_hand == 6)
        async with asyncio.timeout(60):
            await stage.stop()

    play(case())


def test_until_idle_ends_when_all_was_handled(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=3, each=10)
    log.failing = {"2-3": 1}

    async def case() -> None:
        stage = Stage(broker, database, log, until="idle")
        async with asyncio.timeout(100):
            await stage.task
        assert broker.is_done

    play(case())


# --- events that kill ----------------------------------------------------------------------


def test_in_normal_operation_no_start_is_recorded(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=2, each=5)
    statements: list[str] = []
    database.marks.set_trace_callback(statements.append)

    async def case() -> None:
        stage = Stage(broker, database, log)
        await stage.until_done()
        await stage.stop()
        assert not [text for text in statements if "outbox_start" in text]
        assert len([text for text in statements if "outbox_reader" in text]) == 3

    play(case())


@pytest.mark.parametrize("has_letters", [True, False])
def test_an_event_that_kills_its_reader_is_set_aside_and_the_rest_flows(
    broker: Broker, database: MemoryDatabase, log: Log, has_letters: bool
) -> None:
    fill(broker, keys=6, each=10, partitions=2)
    letters = MemoryLetters() if has_letters else None
    killing = asyncio.Event()
    poison_starts = 0

    async def handle(handle: Any, event: Received[Any]) -> None:
        nonlocal poison_starts
        if event.id == "3-4":
            poison_starts += 1
            killing.set()
            await asyncio.Event().wait()
        await log(handle, event)

    async def case() -> None:
        deaths = 0
        while True:
            stage = Stage(
                broker, database, handle, letters=letters, reader_name=f"reader {deaths}", window=20
            )
            dying = asyncio.create_task(killing.wait())
            done = asyncio.create_task(
                stage.until(lambda: len(database.done) == 59 - 5 * (letters is None))
            )
            await asyncio.wait([dying, done], return_when=asyncio.FIRST_COMPLETED)
            if not killing.is_set():
                break
            done.cancel()
            log.running.clear()
            await stage.kill()
            deaths += 1
            killing.clear()
        dying.cancel()
        assert deaths == poison_starts == 5, "two until suspicion, three with care"
        if letters is not None:
            await stage.until_done()
            (message,) = letters.messages
            assert message.event_id == "3-4"
            assert dict(message.headers)["dead-error-type"] == "KillsItsReader"
            assert database.rows("start") == []
        else:
            await asyncio.sleep(1000)
            assert poison_starts == 5, "it is never started again"
            (stopped,) = stage.engine.health().stopped
            assert stopped.event_id == "3-4"
        await stage.stop()
        assert f"reader {deaths}" not in [row[2] for row in database.rows("reader")]
        assert {key: numbers for key, numbers in log.by_key().items() if key != "3"} == {
            str(key): list(range(10)) for key in range(6) if key != 3
        }

    play(case())


def test_while_care_is_needed_one_event_runs_at_a_time(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=6, each=10, partitions=3)

    async def case() -> None:
        for number in range(2):
            stage = Stage(broker, database, log, reader_name=str(number))
            await stage.until(lambda: len(log.running) > 1)
            log.running.clear()
            await stage.kill()
        log.most_running = 0
        stage = Stage(broker, database, log, reader_name="careful", window=15, concurrency=6)
        await stage.until(lambda: len(database.done) > 20)
        assert log.most_running == 1
        await stage.until_done()
        fill(broker, keys=6, each=10, partitions=3)
        broker_done = len(database.done)
        for key in range(6):
            for number in range(10, 20):
                broker.put(str(key), number, f"p{key % 3}")
        await stage.until_done()
        assert log.most_running > 1, "it is over when what was in doubt is done"
        assert broker_done == 60
        assert all(row[3] == 0 for row in database.rows("reader"))
        await stage.stop()

    play(case())


def test_suspects_come_first(broker: Broker, database: MemoryDatabase, log: Log) -> None:
    async def case() -> None:
        broker.put("suspect", 0, "p1")
        for number in range(2):
            stage = Stage(broker, database, log, reader_name=str(number))
            await stage.until(lambda: log.running == {"suspect"})
            log.running.clear()
            await stage.kill()
        for number in range(50):
            broker.put("clean", number, "p0")
            broker.put("suspect", number + 1, "p1")
        stage = Stage(broker, database, log, reader_name="last", window=40)
        await stage.until(lambda: len(log.seen) > 30)
        assert sum(key == "clean" for key, _ in log.seen) <= 2
        await stage.until_done()
        await stage.stop()

    play(case())


def test_duplicates_do_not_end_the_care(broker: Broker, database: MemoryDatabase, log: Log) -> None:
    """What the dead readers had in hand comes behind what they had done and not acknowledged."""
    database.done += [broker.put(str(number), 0) for number in range(50)]
    for number in range(50, 60):
        broker.put(str(number), 0)

    async def case() -> None:
        for number in range(2):
            stage = Stage(broker, database, log, reader_name=str(number), window=10)
            log.held = {str(each) + "-0": asyncio.Event() for each in range(50, 60)}
            broker.acknowledged["p"] = 0
            await stage.until(lambda: len(log.running) > 1)
            log.running.clear()
            await stage.kill()
        broker.acknowledged["p"] = 0
        log.held, log.most_running = {}, 0
        stage = Stage(broker, database, log, reader_name="last", window=10)
        await stage.until_done()
        assert len(log.seen) == 10
        assert log.most_running == 1
        await stage.stop()

    play(case())


def test_a_reader_that_died_once_is_followed_without_care(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=6, each=10)

    async def case() -> None:
        stage = Stage(broker, database, log, reader_name="first")
        await stage.until(lambda: len(log.running) > 1)
        log.running.clear()
        await stage.kill()
        log.most_running = 0
        stage = Stage(broker, database, log, reader_name="second")
        await stage.until_done()
        assert log.most_running > 1
        await stage.until(lambda: all(row[3] == 0 for row in database.rows("reader")))
        await stage.stop()

    play(case())


def test_a_careful_start_that_fails_as_others_do_leaves_no_mark(
    broker: Broker, database: MemoryDatabase, log: Log
) -> None:
    fill(broker, keys=1, each=3)
    log.failing = {"0-0": 3}

    async def case() -> None:
        for number in range(2):
            log.held = {"0-0": asyncio.Event()}
            stage = Stage(broker, database, log, reader_name=str(number))
            await stage.until(lambda: log.running == {"0"})
            log.running.clear()
            await stage.kill()
        log.held = {}
        stage = Stage(broker, database, log, reader_name="last")
        await stage.until(lambda: stage.stats.failed == 1)
        await stage.until(lambda: database.rows("start") == [], 5)
        await stage.until_done()
        await stage.stop()
        assert log.by_key() == {"0": [0, 1, 2]}

    play(case())
