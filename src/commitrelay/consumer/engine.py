"""Engine: read → handle → acknowledge. The consumer's inside, and the file to read first.

* ``_feed``        reads while there is room in the `Window` of events in hand;
* ``_start_ready`` starts what may be started: one event of a key at a time, several keys at once;
* ``_handle``      passes one event through its transaction, and decides what a failure means;
* ``_acknowledge`` tells the source which events are done, each partition's in order without gaps;
* ``_on_revoked``  lets go of partitions that another reader gets.

An event is done when its transaction has committed, when it was one before, when nobody handles
its type, or when it is among the dead letters. Until then it is not acknowledged, and neither is
what follows it in its partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

from commitrelay.consumer.database import Database, Failed, TakenBack, Trouble, Unanswered, Unfit
from commitrelay.consumer.dead_letters import DeadLetters, described, shown
from commitrelay.consumer.handlers import Handler, Handlers
from commitrelay.consumer.marks import Marks, Past
from commitrelay.consumer.options import ConsumerOptions, ConsumerStats, Health, StoppedKey
from commitrelay.consumer.received import Received
from commitrelay.consumer.window import Entry, Partition, Window
from commitrelay.errors import (
    BrokerUnreachable,
    CommitrelayError,
    ConfigError,
    InvalidEvent,
    StoreUnreachable,
    first_of,
)
from commitrelay.format.reading import Reader
from commitrelay.mention import key_of, mention
from commitrelay.outage import Outage
from commitrelay.publisher import DELIVERED, Refused
from commitrelay.source import Arrival, Source

logger = logging.getLogger("commitrelay.consumer")

T = TypeVar("T")

READ_LIMIT = 500
MAX_CONFLICTS = 20
"""Transactions of one event that the database takes back in a row; then it counts as a failure."""

STAND_BY_SECONDS = 60.0
"""With no partition to read, how long a run until idle waits for one: its reader may be dead."""

RELEASE_SECONDS = 5.0
"""For the marks of a partition that another reader waits for."""


class KillsItsReader(CommitrelayError):
    """An event was started several times and its handling never ended."""


class Engine:
    """One run of a consumer."""

    def __init__(
        self,
        source: Source,
        database: Database,
        handlers: Handlers,
        *,
        marks: Marks,
        read: Reader,
        options: ConsumerOptions,
        stats: ConsumerStats,
        dead_letters: DeadLetters | None = None,
        check: Callable[[], Awaitable[None]] | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.stats = stats
        self._source = source
        self._database = database
        self._handlers = handlers
        self._marks = marks
        self._read = read
        self._dead_letters = dead_letters
        self._check = check
        self._random = random or Random()  # noqa: S311 - jitter, not secrets
        self._now = asyncio.get_running_loop().time
        self._window = Window(options.window, options.max_unacknowledged)
        self._limit = 1 if database.one_at_a_time else options.concurrency
        self._stopping = asyncio.Event()
        self._feed_stirred = asyncio.Event()
        self._ack_stirred = asyncio.Event()
        self._ack_lock = asyncio.Lock()
        self._started: set[asyncio.Task[None]] = set()
        self._running: dict[Entry, asyncio.Task[None]] = {}
        self.abandoned = 0  # handlers that did not end in time, and whose threads run on
        self._is_open = False
        self._is_over = False
        self._commits_are_seen = not database.is_applications
        self._outage = self._new_outage("database")
        self._letters_outage = self._new_outage("dead letters")
        self._is_jammed = False
        self._closed_until = 0.0  # while the database does not answer, nothing is started
        self._database_is_away = False
        self._last_error: tuple[str, datetime] | None = None
        self._at_the_end: Health | None = None

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            letters = self._dead_letters
            opened = (
                (self._check is None or await self._patiently("database", self._check))
                and (letters is None or await self._patiently("dead letters", letters.open))
                and await self._patiently("broker", self._open_source)
            )
            if opened:
                self._is_open = True
                await self._consume()
        finally:
            self._is_open = False
            self._is_over = True
            self.abandoned = self._database.in_threads
            await self._source.close()
            if self._dead_letters is not None:
                await self._dead_letters.close()
            await self._database.close()

    def stop(self) -> None:
        self._stopping.set()
        self._feed_stirred.set()

    async def lag(self) -> int | None:
        return await self._source.lag() if self._is_open else None

    def health(self) -> Health:
        """How it is, or after the end how it was then."""
        if self._at_the_end is not None:
            return replace(self._at_the_end, running=False)
        now = self._now()
        entries = [*self._window.entries]
        return Health(
            running=self._is_open,
            database_answers=not self._database_is_away,
            last_error=self._last_error and self._last_error[0],
            last_error_at=self._last_error and self._last_error[1],
            stopped=[_stopped(entry, entry.stopped_by) for entry in entries if entry.stopped_by],
            oldest_in_hand_seconds=max((now - entry.taken_at for entry in entries), default=0.0),
        )

    async def _open_source(self) -> None:
        await self._source.open(self._on_revoked)

    async def _consume(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                feed = self._start(self._feed())
                self._start(self._acknowledge())
                self._start(self._report())
                await self._stopping.wait()
                await feed
                await self._wind_down()
                for task in [*self._started]:
                    task.cancel()
        except BaseExceptionGroup as group:
            raise first_of(group) from None

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(self._vital(work))
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task

    async def _vital(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever raises ends the run: nothing is started from then on."""
        try:
            await work
        except BaseException:
            self._is_over = True
            raise

    async def _wind_down(self) -> None:
        """Let running handlers end, acknowledge what is done, and leave no mark."""
        if self._running:
            await asyncio.wait([*self._running.values()], timeout=self.options.stop_seconds)
        self._at_the_end = self.health()
        self._is_over = True
        for task in self._running.values():
            task.cancel()
        await self._let_go([each.name for each in self._window.partitions], wait_seconds=0)

    async def _patiently(self, what: str, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Try until it answers; False if the consumer is to stop before that."""
        outage = self._new_outage(what)
        while not self._stopping.is_set():
            try:
                await attempt()
            except (StoreUnreachable, BrokerUnreachable) as error:
                self._note(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(outage.goes_on(error)):
                        await self._stopping.wait()
            else:
                outage.is_over()
                return True
        return False

    def _new_outage(self, what: str) -> Outage:
        return Outage(what, clock=self._now, random=self._random)

    def _note(self, error: BaseException) -> None:
        self._last_error = (described(error), datetime.now(UTC))

    # --- read -----------------------------------------------------------------------------

    async def _feed(self) -> None:
        self._fed_at = self._now()
        while not self._stopping.is_set():
            self._feed_stirred.clear()
            if self._window.room <= 0:
                self._complain_of_a_jam()
                await self._feed_stirred.wait()
                continue
            limit = min(self._window.room, READ_LIMIT)
            arrivals = await self._source.read(limit, self.options.wait_seconds)
            for arrival in arrivals:
                self._take(arrival)
                self._fed_at = self._now()
            if not arrivals:
                for partition in self._window.trust_idle():
                    self._outlive(partition)
                if self.options.until == "idle" and await self._is_idle():
                    self.stop()
                await asyncio.sleep(0)
            self._start_ready()

    def _complain_of_a_jam(self) -> None:
        """Reading pauses now and then; behind keys that stand still it may do so for ever."""
        stopped = any(entry.stopped_by is not None for entry in self._window.entries)
        if stopped and not self._is_jammed:
            logger.error(
                "reading pauses: %d events wait and %d are handled but not acknowledged, behind "
                "keys that stand still",
                self._window.in_hand,
                self._window.unacknowledged,
            )
        self._is_jammed = stopped

    async def _is_idle(self) -> bool:
        """Whether nothing is left but what stands still."""
        entries = [*self._window.entries]
        stopped = {entry.key for entry in entries if entry.stopped_by is not None}
        if self._running or any(entry.key not in stopped for entry in entries):
            return False
        lag = await self._source.lag()
        if lag is None:
            return bool(stopped) or self._now() >= self._fed_at + STAND_BY_SECONDS
        return not lag or bool(stopped)

    def _take(self, arrival: Arrival) -> None:
        partition, is_new = self._window.partition(arrival.partition)
        read, unreadable = None, None
        try:
            read = self._read(arrival)
        except InvalidEvent as error:
            unreadable = error
        except Exception as error:  # whatever a stranger sends must not end the consumer
            unreadable = InvalidEvent(f"the message cannot be read: {described(error)}")
        self._window.take(Entry(arrival, partition, read, unreadable, self._now()))
        self.stats.in_hand = self._window.in_hand
        if is_new:
            self._start(self._enter(partition))

    async def _enter(self, partition: Partition) -> None:
        """Leave a mark, and learn how the last reader ended."""
        talk = self._marks.enter(partition.name, self.options.deaths_to_suspect)
        past = await self._persistently(talk)
        if not self._commits_are_seen:
            if not await self._persistently(self._marks.is_reading(partition.name)):
                raise ConfigError(
                    "what database= returns does not commit: pass a callable whose transactions "
                    "do, such as sessionmaker.begin or engine.begin"
                )
            self._commits_are_seen = True
        if partition.revoked:
            await self._release(partition)
            return
        if past is Past.DIED:
            logger.warning("the last reader of %s died", partition.name)
        elif past is Past.DIED_OFTEN:
            logger.warning(
                "several readers of %s died in a row: one event at a time, each start is recorded, "
                "until it is clear which of them kills",
                partition.name,
            )
        self._window.enter(
            partition, doubtful=past is not Past.CLEAN, careful=past is Past.DIED_OFTEN
        )
        self._start_ready()

    async def _persistently(self, talk: Any) -> Any:
        """Have the conversation, however long the database does not answer."""
        while True:
            try:
                answer = await self._database.transact(talk)
            except Trouble as trouble:
                await asyncio.sleep(self._close_gate(trouble))
            else:
                self._database_answered()
                return answer

    # --- handle ---------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Start what may be started now. Called whenever that may have changed."""
        if self._now() < self._closed_until:
            return  # whoever closed the gate comes back here
        while len(self._running) < self._limit and not (self._stopping.is_set() or self._is_over):
            entry = self._window.start()
            if entry is None:
                break
            self._running[entry] = self._start(self._handle(entry))
        self.stats.in_hand = self._window.in_hand

    async def _handle(self, entry: Entry) -> None:
        try:
            await self._advance(entry)
        finally:
            del self._running[entry]
        self._feed_stirred.set()
        self._start_ready()

    async def _advance(self, entry: Entry) -> None:
        if entry.burial is not None:
            await self._bury(entry, entry.burial)
            return
        careful = entry.partition.careful
        try:
            outcome = await self._attempt(entry, careful=careful)
        except Unanswered as trouble:
            self._resume_later(entry, self._close_gate(trouble))
        except TakenBack as trouble:
            await self._give_way(entry, trouble)
        except (Failed, Unfit) as trouble:
            if careful:
                await self._end_start(entry)
            self._trust(entry)
            await self._fail(entry, trouble.reason, hopeless=isinstance(trouble, Unfit))
        except KillsItsReader as error:
            await self._fail(entry, error, hopeless=True)
        else:
            if outcome != "skipped":
                self._database_answered()
            if outcome != "duplicates":
                self._trust(entry)
            self._finish(entry, outcome)

    async def _attempt(self, entry: Entry, *, careful: bool) -> str:
        """Handle it once; the name of the count that it adds to."""
        if entry.read is None:
            assert entry.unreadable is not None
            raise Unfit(entry.unreadable)
        handler = self._handlers.find(entry.read.event_type)
        if handler is None:
            if self.options.unhandled == "skip":
                return "skipped"
            raise Unfit(InvalidEvent(f"no handler for events of type {entry.read.event_type!r}"))
        event = _received(entry, handler)
        if careful:
            talk = self._marks.start(event.id, self.options.starts_to_set_aside)
            if not await self._database.transact(talk):
                raise KillsItsReader(
                    f"event {event.id} was started {self.options.starts_to_set_aside} times and "
                    "its handling never ended: it seems to kill the process"
                )
        first = await self._database.perform(handler, event, careful=careful)
        return "handled" if first else "duplicates"

    def _finish(self, entry: Entry, count: str) -> None:
        setattr(self.stats, count, getattr(self.stats, count) + 1)
        if entry.stopped_by is not None:
            logger.info("its key goes on", extra=_about(entry))
            entry.stopped_by = None
        self._window.finish(entry)
        self._ack_stirred.set()

    def _resume_later(self, entry: Entry, seconds: float) -> None:
        self._window.pause(entry)
        asyncio.get_running_loop().call_later(seconds, self._resume, entry)

    def _resume(self, entry: Entry) -> None:
        self._window.resume(entry)
        if not self._is_over:
            self._start_ready()

    def _close_gate(self, trouble: Trouble) -> float:
        """The database did not answer: start nothing for a while, and say for how long."""
        now = self._now()
        if now >= self._closed_until:
            self._note(trouble.reason)
            self._database_is_away = True
            self._closed_until = now + self._outage.goes_on(described(trouble.reason))
        return self._closed_until - now + 0.001

    def _database_answered(self) -> None:
        self._database_is_away = False
        self._outage.is_over()

    async def _give_way(self, entry: Entry, trouble: TakenBack) -> None:
        entry.conflicts += 1
        if entry.conflicts >= MAX_CONFLICTS:
            entry.conflicts = 0
            await self._fail(entry, trouble.reason, hopeless=False)
        else:
            self._resume_later(entry, self._random.uniform(0, 0.01 * 2 ** min(entry.conflicts, 6)))

    # --- failures -------------------------------------------------------------------------

    async def _fail(self, entry: Entry, error: BaseException, *, hopeless: bool) -> None:
        entry.failures += 1
        self.stats.failed += 1
        self._note(error)
        delay = None if hopeless else self._delay_seconds(entry)
        if delay is not None:
            self.stats.retried += 1
            logger.warning(
                "attempt %d failed, again in %.1f s: %s: %s",
                entry.failures, delay, type(error).__name__, described(error),
                extra=_about(entry), exc_info=error if entry.failures == 1 else None,
            )  # fmt: skip
            self._resume_later(entry, delay)
        elif self.options.on_failure == "dead_letter":
            await self._bury(entry, error)
        else:
            self._stop_key(entry, error)

    def _delay_seconds(self, entry: Entry) -> float | None:
        return self.options.retry.delay_seconds(entry.failures, self._random)

    def _stop_key(self, entry: Entry, error: BaseException) -> None:
        if entry.stopped_by is None:
            logger.error(
                "its key stands still after %d attempts: %s: %s",
                entry.failures, type(error).__name__, described(error), extra=_about(entry),
            )  # fmt: skip
        entry.stopped_by = error
        if isinstance(error, KillsItsReader):
            self._window.pause(entry)  # never again: it would take the others with it
        else:
            self._resume_later(entry, self.options.longest_delay_seconds)

    async def _bury(self, entry: Entry, error: BaseException) -> None:
        """Publish it to the dead letters; only then is it done."""
        assert self._dead_letters is not None
        entry.burial = error
        outcome = await self._dead_letters.send(entry, error)
        if outcome is DELIVERED:
            self._letters_outage.is_over()
            logger.error(
                "dead letter after %d attempts: %s: %s",
                entry.failures, type(error).__name__, described(error), extra=_about(entry),
            )  # fmt: skip
            if isinstance(error, KillsItsReader):
                await self._end_start(entry)
                self._trust(entry)
            self._finish(entry, "dead_lettered")
        elif isinstance(outcome, Refused):
            self._note(CommitrelayError(f"the dead letters refuse an event: {outcome.reason}"))
            logger.error("the dead letters refuse it: %s", outcome.reason, extra=_about(entry))
            entry.stopped_by = error
            self._resume_later(entry, self.options.longest_delay_seconds)
        else:
            reason = getattr(outcome, "reason", "it was not sent")
            self._resume_later(entry, self._letters_outage.goes_on(reason))

    # --- doubt ----------------------------------------------------------------------------

    def _trust(self, entry: Entry) -> None:
        if self._window.trust(entry.partition):
            self._outlive(entry.partition)

    def _outlive(self, partition: Partition) -> None:
        logger.info("%s is past what its last reader had in hand", partition.name)
        self._start(self._try(self._marks.outlive(partition.name)))

    async def _end_start(self, entry: Entry) -> None:
        if entry.read is not None:
            await self._try(self._marks.end(entry.read.id))

    async def _release(self, partition: Partition) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._try(self._marks.leave(partition.name))

    async def _try(self, talk: Any) -> None:
        """What is good to have. A mark that stays makes the next reader careful, no more."""
        try:
            await self._database.transact(talk)
        except Trouble as trouble:
            logger.info("a mark could not be changed: %s", described(trouble.reason))

    # --- acknowledge ----------------------------------------------------------------------

    async def _acknowledge(self) -> None:
        while True:
            await self._ack_stirred.wait()
            self._ack_stirred.clear()
            async with self._ack_lock:
                arrivals = self._window.take_done()
                if arrivals:
                    await self._source.ack(arrivals)
            self._feed_stirred.set()
            await asyncio.sleep(self.options.ack_seconds)

    async def _on_revoked(self, names: Collection[str]) -> None:
        await self._let_go(names, wait_seconds=self.options.revoke_seconds)

    async def _let_go(self, names: Collection[str], *, wait_seconds: float) -> None:
        """Start nothing more of these partitions, acknowledge what is done, forget the rest."""
        partitions = self._window.revoke(names)
        running = [task for entry, task in self._running.items() if entry.partition in partitions]
        try:
            if running and wait_seconds:
                await asyncio.wait(running, timeout=wait_seconds)
            async with self._ack_lock:
                arrivals = self._window.take_done(partitions)
                if arrivals:
                    await self._source.ack(arrivals)
        finally:
            self._window.forget(partitions)
        ended = [each for each in partitions if each.entered and not each.running]
        await asyncio.gather(*(self._release(partition) for partition in ended))
        self._feed_stirred.set()
        if not self._is_over:
            self._start_ready()

    async def _report(self) -> None:
        told: tuple[Any, ...] = ()
        while True:
            await asyncio.sleep(self.options.report_seconds)
            stats = self.stats
            stats.lag = await self._source.lag()
            counts = {
                name: getattr(stats, name)
                for name in ("handled", "duplicates", "failed", "dead_lettered", "in_hand", "lag")
            }
            if tuple(counts.values()) != told:
                logger.info("consuming", extra=counts)
                told = tuple(counts.values())


def _received(entry: Entry, handler: Handler) -> Received[Any]:
    read = entry.read
    assert read is not None
    try:
        payload = handler.decode(read.payload, read.content_type)
    except InvalidEvent as error:
        raise Unfit(error) from None
    except Exception as error:  # whatever a type's own checks do
        raise Unfit(InvalidEvent(f"the payload cannot be read: {described(error)}")) from error
    return Received(
        id=read.id,
        event_type=read.event_type,
        aggregate_type=read.aggregate_type,
        aggregate_id=read.aggregate_id,
        payload=payload,
        raw=bytes(read.payload),
        content_type=read.content_type,
        headers=read.headers,
        created_at=_moment(read.created_at),
        idempotency_key=read.idempotency_key,
        topic=entry.arrival.topic,
        attempt=entry.failures + 1,
    )


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except (ValueError, TypeError):
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _about(entry: Entry) -> dict[str, object]:
    if entry.read is None:
        return {"partition": entry.arrival.partition, "position": shown(entry.arrival.position)}
    key = key_of(entry.read.aggregate_type, entry.read.aggregate_id)
    return {**mention(entry.read.id, key), "event_type": entry.read.event_type}


def _stopped(entry: Entry, error: BaseException) -> StoppedKey:
    read = entry.read
    return StoppedKey(
        aggregate_type=read.aggregate_type if read else "",
        aggregate_id=read.aggregate_id if read else entry.arrival.key,
        event_id=read.id if read else "",
        event_type=read.event_type if read else "",
        topic=entry.arrival.topic,
        attempts=entry.failures,
        error=described(error),
    )
