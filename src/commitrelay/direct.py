"""DirectPass: publishes events from the application's own process, as soon as they are committed.

The relay stays, and needs to know nothing: what the direct pass does not claim, or claims and does
not deliver, is the relay's. The application never waits for the broker but for `wait_seconds`, and
never sees its errors.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self, cast

from commitrelay.claim import MAX_EVENTS_PER_CLAIM, Claim
from commitrelay.direct_worker import DirectStats, DirectWorker
from commitrelay.errors import CommitrelayError, ConfigError, first_of
from commitrelay.format import Composer, Plain
from commitrelay.publisher import Publisher
from commitrelay.route import Route
from commitrelay.sql import Names
from commitrelay.store import DirectStore, Store

logger = logging.getLogger("commitrelay.direct")


class DirectPass:
    """The short way to the broker, with the relay as the fallback::

        direct = DirectPass(open_store(database), open_publisher(broker))
        outbox = Outbox(direct=direct)

    It connects in a thread of its own when the first transaction commits, or at `start`. A claim
    that is not settled after ``claim_seconds`` is the relay's. At most ``max_waiting`` events are
    in hand: beyond that, transactions leave theirs to the relay. A transaction waits up to
    ``wait_seconds`` for the broker's answer. ``compose`` is the relay's, so that consumers cannot
    tell who has sent a message.
    """

    def __init__(
        self,
        store: DirectStore | Store,
        publisher: Publisher,
        *,
        lane: str = "default",
        compose: Composer | None = None,
        claim_seconds: float = 30.0,
        max_waiting: int = 1000,
        wait_seconds: float = 0.0,
        name: str | None = None,
    ) -> None:
        if not hasattr(store, "take_claimed"):
            raise ConfigError(
                f"{type(store).__name__} has no direct pass: use PostgreSQL or SQLite, "
                "or leave `direct` out"
            )
        _check(publisher, claim_seconds)
        self.lane = lane
        self.claim_seconds = claim_seconds
        self.max_waiting = max_waiting
        self.stats = DirectStats()
        self._wait_seconds = wait_seconds
        self._store = cast(DirectStore, store)
        self._publisher = publisher
        self._compose: Composer = compose or Plain(Route())
        self._name = name
        self._pid: int | None = None  # of the process that it runs in
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._worker: DirectWorker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: CommitrelayError | None = None
        self._closed = False

    # --- life -----------------------------------------------------------------------------

    def start(self, timeout_seconds: float = 0.0) -> bool:
        """Connect now instead of at the first commit; whether it is ready within the time."""
        self._ensure_started()
        ends_at = time.monotonic() + timeout_seconds
        while not self.is_ready and self._error is None and time.monotonic() < ends_at:
            time.sleep(0.005)
        if self._error is not None:
            raise self._error
        return self.is_ready

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Settle what is at the broker, let the rest go to the relay, disconnect."""
        self._closed = True
        thread, loop, worker = self._thread, self._loop, self._worker
        if thread is None or self._pid != os.getpid():
            return
        if loop is not None and worker is not None and thread.is_alive():
            _call(loop, worker.stop)
            thread.join(timeout_seconds)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_ready(self) -> bool:
        """Whether transactions that end now are passed directly."""
        worker = self._worker
        return worker is not None and worker.is_ready and self._pid == os.getpid()

    @property
    def wait_seconds(self) -> float:
        return self._wait_seconds

    def check(self, names: Names) -> None:
        own = self._store.names
        if own.prefix != names.prefix or (
            own.schema != names.schema and None not in (own.schema, names.schema)
        ):
            raise ConfigError(
                f"the outbox is {names.key}, the direct pass's store is {own.key}: "
                "give open_store the same schema and prefix"
            )

    # --- claims ---------------------------------------------------------------------------

    def begin(self, ids: Sequence[str]) -> Claim | None:
        self._ensure_started()
        reason = self._objection(len(ids))
        if reason is not None:
            self.left(len(ids), reason)
            return None
        assert self._worker is not None
        with self._lock:
            self.stats.in_hand += len(ids)
        return Claim(ids, time.monotonic(), self.lane, self._token, self.claim_seconds)

    def _objection(self, count: int) -> str | None:
        if count > MAX_EVENTS_PER_CLAIM:
            return "bulk"
        if self.stats.in_hand + count > self.max_waiting:
            return "full"
        return None if self.is_ready else "not ready"

    def pass_on(self, claim: Claim) -> None:
        self.left(len(claim.ids) - claim.count, "not head")
        if not claim.count or not self._hand_over(claim):
            self._ended(claim)

    def _hand_over(self, claim: Claim) -> bool:
        worker, loop = self._worker, self._loop
        return worker is not None and loop is not None and _call(loop, worker.hand_over, claim)

    def left(self, count: int, reason: str) -> None:
        if count:
            with self._lock:
                self.stats.left_to_relay[reason] += count

    def _ended(self, claim: Claim) -> None:
        with self._lock:
            self.stats.in_hand -= len(claim.ids)
        claim.end()

    # --- the thread -----------------------------------------------------------------------

    def _ensure_started(self) -> None:
        if self._pid is not None or self._closed:
            return
        with self._lock:
            if self._pid is None:
                self._pid = os.getpid()
                self._token = -(secrets.randbits(62) | 1)
                self._thread = threading.Thread(
                    target=self._run, name="commitrelay-direct", daemon=True
                )
                self._thread.start()
                _at_exit(self.close)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except CommitrelayError as error:
            self._error = error
            logger.error("the direct pass has ended, the relay delivers: %s", error)
        except Exception:
            logger.exception("the direct pass has ended, the relay delivers")

    async def _main(self) -> None:
        host, pid = socket.gethostname(), os.getpid()
        worker = DirectWorker(
            self._store,
            self._publisher,
            lane=self.lane,
            compose=self._compose,
            name=self._name or f"direct-{host}-{pid}-{os.urandom(2).hex()}",
            token=self._token,
            stats=self.stats,
            on_ended=self._ended,
            clock=time.monotonic,
            random=Random(),  # noqa: S311 - jitter, not secrets
        )
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        if self._closed:
            worker.stop()
        try:
            await worker.run()
        except BaseExceptionGroup as group:
            raise first_of(group) from None


def _check(publisher: Publisher, claim_seconds: float) -> None:
    if publisher.capabilities.one_owner:
        raise ConfigError(
            f"{publisher} lets only one process deliver at a time: a direct pass and a relay are "
            "two; leave the transactional id out"
        )
    timeout = publisher.delivery_timeout_seconds
    if claim_seconds < 1.5 * timeout:
        raise ConfigError(
            f"a claim of {claim_seconds:g} s is too short for a delivery timeout of {timeout:g} s, "
            f"a relay could take over in mid-delivery: make claim_seconds at least "
            f"{1.5 * timeout:g}, or the timeout shorter"
        )


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> bool:
    """Run it in the loop's thread; False if the loop has ended."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _at_exit(close: Callable[[], None]) -> None:
    """Before the interpreter ends its threads, which `atexit` alone does not promise."""
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close)
