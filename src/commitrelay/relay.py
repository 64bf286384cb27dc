"""Relay: claim → publish → settle. The engine, and the file to read first.

Five loops run beside each other and talk through the `Window` of events in hand:

* ``_feed``    claims deliverable events while there is room;
* ``_send``    hands ready events to the publisher, several batches at a time;
* `Settler`    writes what became of them, joining finished batches into one transaction;
* ``_hold``    keeps the lease alive and the share of buckets fair;
* ``_recover`` waits out a broker that fails, then starts afresh.

No transaction is open while a message is at the broker, but for the read-only snapshot of a
sweep (0.3 s at most). Whatever goes wrong, the answer is the same: forget what is in hand, and
claim it again in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

from commitrelay.circuit import Circuit
from commitrelay.errors import BrokerUnreachable, ConfigError, LeaseLost, StoreUnreachable, first_of
from commitrelay.format import Composer, Plain
from commitrelay.guard import guarded_publish
from commitrelay.leases import ALL_BUCKETS, MIN_LEASE_SHARE, Leases
from commitrelay.maintenance import purge_forever
from commitrelay.mention import key_of, mention
from commitrelay.options import RelayOptions, RelayStats
from commitrelay.outage import Outage
from commitrelay.publisher import DELIVERED, Outcome, Publisher, Refused, Unreachable
from commitrelay.purge import Archive
from commitrelay.route import Route
from commitrelay.settler import Settler
from commitrelay.store import (
    ATTEMPTS,
    BLOCKED,
    SEQ,
    SWEEP_SECONDS,
    ClaimRequest,
    Failure,
    Queued,
    State,
    Store,
)
from commitrelay.unparking import UNPARK_LIMIT, Unparking
from commitrelay.urls import scrub
from commitrelay.window import Item, Key, Window

logger = logging.getLogger("commitrelay.relay")

FIRST_NAP_SECONDS = 0.005
"""After finding something, a relay looks again this soon; then ever later, up to the poll."""

LEAST_PAUSE_SECONDS = 0.1
"""A broker that asks to be tried again at once is not tried more often than this."""


class Composed(NamedTuple):
    """What a claim has brought."""

    items: list[Item]
    blocked: list[int]  # seqs that have to wait behind another event of their key
    unfit: dict[Key, tuple[Queued, str]]  # that no message can be made of, and why not


class Relay:
    """Delivers the committed events of one lane. Run it with `run`, or embed it::

    async with Relay(store, publisher):
        ...  # your application
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        options: RelayOptions | None = None,
        *,
        compose: Composer | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.options = options or RelayOptions()
        self._archive = archive
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(2).hex()}"
        self.stats = RelayStats()
        self._store = store
        self._publisher = publisher
        self._compose: Composer = compose or Plain(Route())
        self._clock = clock
        self._random = random or Random()  # noqa: S311 - jitter, not secrets
        self._competing = self.options.strategy == "competing"
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._halted = asyncio.Event()
        self._feed_stirred = asyncio.Event()
        self._send_stirred = asyncio.Event()
        self._hold_stirred = asyncio.Event()
        self._own_stirred = asyncio.Event()
        capabilities = self._publisher.capabilities
        strict = self.options.order == "strict"
        batch_size, window = self.options.batch_size, self.options.window
        self._halts_at_failure = capabilities.stops_at_failure
        self._max_publishing = min(window, capabilities.max_in_flight or window)
        # Where few calls may overlap they are larger, and as much is read ahead meanwhile.
        self._call_size = batch_size * (window // self._max_publishing)
        self._window = Window(
            capacity=batch_size * (window + 1) + self._call_size,
            one_per_key=strict and not capabilities.stops_at_failure,
            key_limit=max(16, batch_size // 8),
        )
        self._publishing: set[asyncio.Task[None]] = set()
        self._epoch = 0  # grows when all in hand is given up: results of older ones are void
        self._settler = Settler(
            self._store,
            self._window,
            fence=lambda: self._leases.fence,
            outage=self._outage("database"),
            on_settled=self._feed_stirred.set,
            on_lease_lost=self._lose_everything,
        )
        self._claim_lock = asyncio.Lock()
        self._claims_valid_until = 0.0
        self._unparking = Unparking(self._clock)
        self._sweep_ends_at = 0.0
        self._swept_buckets: frozenset[int] = frozenset()
        self._halt_reason: Unreachable | None = None
        self._broker_outage = self._outage("broker", most_seconds=15.0)
        self._circuit = Circuit(self._clock)

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until `stop` is called, or until the work is done (`RelayOptions.until`).

        Cancelling it gives up what is at the broker: that is delivered again later.
        """
        self._check_options()
        try:
            if await self._patiently("database", self._open_store):
                valid_seconds = self.options.lease_seconds
                async with self._circuit.told(self._store, self._lane.id, self.name, valid_seconds):
                    if await self._patiently("broker", self._open_publisher):
                        await self._deliver()
        finally:
            await self._publisher.close()
            await self._store.close()

    def stop(self) -> None:
        """Finish what is at the broker, settle it, and end `run`. Call it in the loop's thread."""
        self._stopping.set()
        self._feed_stirred.set()
        self._store.wake()

    def wake(self) -> None:
        """Look for new events now; from any thread."""
        self._store.wake()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"relay {self.options.lane}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self.stop()
        await self._task

    async def _open_store(self) -> None:
        await self._store.open()
        self._lane = await self._store.lane(self.options.lane)

    async def _open_publisher(self) -> None:
        try:
            await self._publisher.open()
        except BrokerUnreachable as error:
            self._circuit.open(str(error))
            raise
        self._circuit.close()

    async def _deliver(self) -> None:
        self._leases = Leases(
            self._store,
            lane=self._lane.id,
            relay=self.name,
            strategy=self.options.strategy,
            lease_seconds=self.options.lease_seconds,
            delivery_timeout_seconds=self._publisher.delivery_timeout_seconds,
            clock=self._clock,
        )
        try:
            async with asyncio.TaskGroup() as self._tasks:
                feed = self._tasks.create_task(self._feed())
                rest = [
                    self._tasks.create_task(loop())
                    for loop in (
                        self._send,
                        self._settler.run,
                        self._hold,
                        self._recover,
                        self._purge,
                    )
                ]
                await self._stopping.wait()
                await feed
                await self._wind_down()
                for task in rest:
                    task.cancel()
        except BaseExceptionGroup as group:
            raise first_of(group) from None

    async def _wind_down(self) -> None:
        """Finish what is at the broker, settle it, and let others have the buckets."""
        with contextlib.suppress(TimeoutError, StoreUnreachable):
            async with asyncio.timeout(self.options.lease_seconds):
                while self._publishing:
                    await asyncio.wait(self._publishing)
                self._forget_unsent()
                await self._settler.all_settled()
                await self._leases.leave()

    def _check_options(self) -> None:
        if self._publisher.capabilities.one_owner and self.options.strategy != "leader":
            raise ConfigError(
                f"{self._publisher} lets only one relay deliver at a time: use strategy leader"
            )
        timeout = self._publisher.delivery_timeout_seconds
        if self.options.lease_seconds < MIN_LEASE_SHARE * timeout:
            raise ConfigError(
                f"a lease of {self.options.lease_seconds:g} s is too short for a delivery "
                f"timeout of {timeout:g} s, another relay could take over in mid-delivery: "
                f"make the lease at least {MIN_LEASE_SHARE * timeout:g} s, or the timeout shorter"
            )

    async def _patiently(self, what: str, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Try until it answers; False if the relay is to stop before that."""
        outage = self._outage(what)
        while not self._stopping.is_set():
            try:
                await attempt()
            except (StoreUnreachable, BrokerUnreachable) as error:
                await self._pause(outage.goes_on(error))
            else:
                outage.is_over()
                return True
        return False

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _outage(self, what: str, most_seconds: float = 5.0) -> Outage:
        return Outage(what, clock=self._clock, random=self._random, most_seconds=most_seconds)

    # --- claim ----------------------------------------------------------------------------

    async def _feed(self) -> None:
        outage = self._outage("database")
        nap_seconds = FIRST_NAP_SECONDS
        while not self._stopping.is_set():
            self._feed_stirred.clear()
            epoch = self._epoch
            found = exhausted = False
            try:
                if self._may_claim():
                    found, exhausted = await self._claim_some()
                else:
                    await self._stirred(self._feed_stirred, at_most_seconds=1.0)
                if self._has_nothing_to_send(looked=exhausted):
                    self._circuit.close()
                if not found and await self._is_finished(looked=exhausted):
                    self.stop()
            except StoreUnreachable as error:
                await self._pause(outage.goes_on(error))
                continue
            except LeaseLost:
                self._lose_lease(epoch)
                continue
            outage.is_over()
            if found:
                nap_seconds = FIRST_NAP_SECONDS
            if exhausted and not self._stopping.is_set():
                await self._nap(nap_seconds)
                nap_seconds = min(nap_seconds * 2, self.options.poll_seconds)

    def _may_claim(self) -> bool:
        if self._halted.is_set() or self._leases.paused or not self._owns_something():
            return False
        if not self._window.has_room_for(self.options.batch_size):
            return False
        if self._competing:  # a claim must be sent at once, or it is kept from others in vain
            return not self._window.ready and len(self._publishing) < self._max_publishing
        return True

    async def _claim_some(self) -> tuple[bool, bool]:
        """Whether events were found, and whether there is nothing more to be found now."""
        async with self._claim_lock:
            self._begin_sweep_if_due()
            if self._window.at_sweep_start:
                await self._unpark_if_due()
            rows: Sequence[Queued] = ()
            request = self._window.request(self.options.batch_size, self._leases.buckets)
            try:
                rows = await self._claim(request)
            finally:
                self._take_in(rows)
        is_short = len(rows) < self.options.batch_size
        return bool(rows), is_short and request.above_seq == 0

    def _begin_sweep_if_due(self) -> None:
        now, buckets = self._clock(), self._leases.buckets
        if now >= self._sweep_ends_at or not buckets <= self._swept_buckets:
            self._window.end_sweep()
        self._swept_buckets = buckets
        if self._window.at_sweep_start:
            self._sweep_ends_at = now + SWEEP_SECONDS

    async def _claim(self, request: ClaimRequest) -> Sequence[Queued]:
        if not self._competing:
            return await self._store.claim(self._leases.fence, request)
        valid_seconds = self.options.lease_seconds
        self._claims_valid_until = self._clock() + valid_seconds
        return await self._store.claim_heads(self._leases.fence, request.limit, valid_seconds)

    def _take_in(self, rows: Sequence[Queued]) -> None:
        if self._window.claim_is_void:
            self._window.accept(())
            self._release([row.seq for row in rows])
            return
        taken = self._composed(rows)
        self._window.accept(taken.items)
        for row, reason in taken.unfit.values():
            self._refuse(row, Refused(reason), flying=False)
        if len(rows) < self.options.batch_size:
            self._window.end_sweep()
        elif rows[-1].state == State.PENDING:
            self._window.raise_floor(rows[-1].seq)
        if taken.blocked:
            self._settler.park(taken.blocked)
            self._unparking.parked()
        self._send_stirred.set()

    def _composed(self, rows: Sequence[Queued]) -> Composed:
        """In one go where nothing is blocked or unfit, which is nearly always."""
        if not any(map(itemgetter(BLOCKED), rows)):
            with contextlib.suppress(Exception):
                return Composed([*zip(rows, map(self._compose, rows), strict=True)], [], {})
        return self._composed_one_by_one(rows)

    def _composed_one_by_one(self, rows: Sequence[Queued]) -> Composed:
        taken = Composed([], [], {})
        for row in rows:
            if row.blocked or row.key in taken.unfit:
                taken.blocked.append(row.seq)
                self._window.skip(row.key)
                continue
            try:
                taken.items.append((row, self._compose(row)))
            except Exception as error:  # whatever a template or a stored header does
                taken.unfit[row.key] = (row, str(error))
        return taken

    async def _unpark_if_due(self) -> None:
        """Let followers of keys that nothing blocks any more back into the hot scan.

        Before a sweep and never within one, which may have read past them: a later event of
        their key would overtake them. (Afterwards is too late to know: the reply may be lost.)
        """
        if self._unparking.is_due:
            now = self._clock()
            buckets = ALL_BUCKETS if self._competing else self._leases.buckets
            freed = await self._store.unpark(self._leases.fence, buckets, UNPARK_LIMIT)
            self._unparking.looked(now, freed)

    async def _is_finished(self, *, looked: bool) -> bool:
        """Whether the work is done: nothing in hand, and nothing found by the last look."""
        until = self.options.until
        leases = self._leases
        if until == "stopped" or not leases.settled_down or self._window:
            return False
        if not self._settler.is_idle:
            return False
        if leases.paused:
            return True
        if self._owns_something() and not looked:
            return False
        return until == "once" or await self._store.idle(self._lane.id)

    def _has_nothing_to_send(self, *, looked: bool) -> bool:
        """Whether it is idle, not for the broker's sake: what it had was taken from it, say."""
        if self._halted.is_set() or self._window or self._publishing:
            return False
        return looked or self._leases.paused

    async def _nap(self, seconds: float) -> None:
        """Until there may be more to claim, or the time is up."""
        if not self._window.skips:
            await self._store.sleep(seconds)
            return
        patience_ends_at = self._clock() + self.options.poll_seconds
        while not self._window.skips_in_vain and self._clock() < patience_ends_at:
            await self._stirred(self._feed_stirred, self.options.poll_seconds)
            self._feed_stirred.clear()

    async def _stirred(self, stirred: asyncio.Event, at_most_seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_seconds):
                await stirred.wait()

    # --- publish --------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            await self._send_stirred.wait()
            self._send_stirred.clear()
            while self._may_send():
                batch = self._window.take(self._call_size)
                task = self._tasks.create_task(self._publish(batch, self._epoch))
                self._publishing.add(task)
            self.stats.in_flight = self._window.flying

    def _may_send(self) -> bool:
        if (
            not self._window.ready
            or len(self._publishing) >= self._max_publishing
            or self._halted.is_set()
            or self._stopping.is_set()
            or self._leases.paused
            or not self._leases.may_send()
        ):
            return False
        timeout = self._publisher.delivery_timeout_seconds
        if self._competing and self._clock() + timeout >= self._claims_valid_until:
            self._halt(None)
            return False
        return True

    async def _publish(self, batch: list[Item], epoch: int) -> None:
        messages = [message for _row, message in batch]
        try:
            outcomes = await guarded_publish(self._publisher, messages)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._publishing.discard(task)
        if epoch == self._epoch:
            self._digest(batch, outcomes)
        self._send_stirred.set()
        self._feed_stirred.set()

    def _digest(self, batch: list[Item], outcomes: Sequence[Outcome]) -> None:
        """Sort what was delivered from what was not."""
        if outcomes.count(DELIVERED) == len(batch):
            delivered = batch
        else:
            delivered = self._digest_failures(batch, outcomes)
        self._window.landed(delivered, len(delivered))
        self._settler.deliver([row[SEQ] for row, _message in delivered])
        attempts = [row[ATTEMPTS] for row, _message in delivered]
        if any(attempts):
            self._unparking.freed()
        self.stats.published += len(delivered)
        if delivered and not self._halted.is_set():
            self._broker_outage.is_over()
            self._circuit.close()

    def _digest_failures(self, batch: list[Item], outcomes: Sequence[Outcome]) -> list[Item]:
        delivered: list[Item] = []
        came_back: list[int] = []
        unreachable: Unreachable | None = None
        for item, outcome in zip(batch, outcomes, strict=True):
            if outcome is DELIVERED:
                delivered.append(item)
            elif isinstance(outcome, Refused):
                self._refuse(item[0], outcome, flying=True)
            else:
                came_back.append(item[0].seq)
                if isinstance(outcome, Unreachable):
                    unreachable = outcome
        self._window.come_back(len(came_back))
        self._release(came_back)
        if came_back or self._halts_at_failure:
            self.stats.unreachable += unreachable is not None
            self._halt(unreachable)
        return delivered

    def _refuse(self, row: Queued, refused: Refused, *, flying: bool) -> None:
        waiting = self._window.refuse(row, flying=flying)
        attempts = row.attempts + 1
        reason, not_before = scrub(refused.reason), refused.retry_after_seconds or 0.0
        retry = self.options.retry
        delay = retry.delay_seconds(attempts, self._random, at_least_seconds=not_before)
        blocks = self.options.on_dead == "block"
        self._settler.fail(row, Failure(row.seq, reason, delay, blocks, row.attempts), waiting)
        self.stats.refused += 1
        key = key_of(row.aggregate_type, row.aggregate_id)
        event = f"{row.event_type} {row.id} of {key}"
        about = mention(row.id, key, self.options.lane)
        if delay is None:
            self.stats.dead += 1
            logger.error("%s is dead after %d attempts: %s", event, attempts, reason, extra=about)
        else:
            self.stats.retried += 1
            logger.warning("%s refused, again in %.1f s: %s", event, delay, reason, extra=about)

    # --- lease ----------------------------------------------------------------------------

    async def _hold(self) -> None:
        outage = self._outage("database")
        while True:
            self._hold_stirred.clear()
            epoch, owned = self._epoch, self._owns_something()
            try:
                kept = await self._renew()
            except StoreUnreachable as error:
                await asyncio.sleep(outage.goes_on(error))
                continue
            outage.is_over()
            if kept:
                if not owned:  # a publisher that can shut a former owner out does it now
                    self._halt(None)
                self._own_stirred.set()
                self._feed_stirred.set()
                self._send_stirred.set()
                await self._stirred(self._hold_stirred, self._leases.renew_in_seconds)
            else:
                self._lose_lease(epoch)

    def _owns_something(self) -> bool:
        return self._leases.may_send() and (self._competing or bool(self._leases.buckets))

    async def _renew(self) -> bool:
        if not self._leases.yielding:
            return await self._leases.renew(self._window.buckets)
        async with self._claim_lock:  # no bucket is given up while a claim may bring its events
            return await self._leases.renew(self._window.buckets)

    def _lose_lease(self, epoch: int) -> None:
        """As `_lose_everything`, unless that has happened since `epoch`."""
        if epoch == self._epoch:
            self._lose_everything()

    def _lose_everything(self) -> None:
        """The lease is lost: another relay owns these keys now. Forget them, then join again."""
        logger.warning("lease of %s lost: another relay took over", self.name)
        self.stats.lease_lost += 1
        self._epoch += 1
        self._leases.lose()
        self._window.clear()
        self._settler.forget()
        self._halt(None)
        self._hold_stirred.set()

    # --- recover --------------------------------------------------------------------------

    def _halt(self, outage: Unreachable | None) -> None:
        """Send nothing more until what is at the broker has come back and is settled."""
        self._halt_reason = outage or self._halt_reason
        self._halted.set()

    async def _recover(self) -> None:
        while True:
            await self._halted.wait()
            while self._publishing:
                await asyncio.wait(self._publishing)
            await self._settler.all_settled()
            self._forget_unsent()
            await self._settler.all_settled()
            reason, self._halt_reason = self._halt_reason, None
            if reason is not None:
                pause = self._broker_outage.goes_on(reason.reason)
                self._circuit.open(reason.reason)
                asked = reason.retry_after_seconds
                await self._pause(pause if asked is None else max(asked, LEAST_PAUSE_SECONDS))
            while not self._owns_something():
                await self._stirred(self._own_stirred, at_most_seconds=1.0)
                self._own_stirred.clear()
                if not self._owns_something():
                    self._circuit.close()
            if self._stopping.is_set():
                return
            try:
                await self._publisher.recover()
            except BrokerUnreachable as error:
                self._halt_reason = Unreachable(str(error))
                continue
            self._halted.clear()
            self._feed_stirred.set()
            self._send_stirred.set()

    def _forget_unsent(self) -> None:
        """What was claimed and not sent is pending still, and will be claimed again."""
        self._release(self._window.clear())

    def _release(self, seqs: list[int]) -> None:
        """In the competing strategy, what was claimed is marked so and has to be let go."""
        if self._competing:
            self._settler.release(seqs)

    # --- duties ---------------------------------------------------------------------------

    async def _purge(self) -> None:
        options = self.options
        if (options.retention_seconds, options.inbox_retention_seconds) == (None, None):
            return
        await purge_forever(
            self._store,
            retention_seconds=options.retention_seconds,
            inbox_retention_seconds=options.inbox_retention_seconds,
            is_my_duty=lambda: self._leases.leads,
            archive=self._archive,
        )
