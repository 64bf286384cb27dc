"""Dispatcher: messages of different keys side by side, those of one key one after the other.

For publishers that ask and wait for an answer, one message or a small batch at a time. A number of
senders take what is ready: the first waiting message of every key that has none on its way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from commitrelay.publisher import NOT_SENT, Message, Outcome, Unreachable

Send = Callable[[Sequence[Message]], Awaitable[Sequence[Outcome]]]
"""Sends messages of different keys; answers within half of the delivery timeout, or is ended."""

Key = tuple[str, str]


class _Call:
    """One call of `dispatch`: what has become of its messages so far."""

    __slots__ = ("done", "missing", "outcomes", "over", "send_before")

    def __init__(self, size: int, send_before: float) -> None:
        self.outcomes: list[Outcome] = [NOT_SENT] * size
        self.missing = size
        self.send_before = send_before
        self.done = asyncio.get_running_loop().create_future()
        self.over = False

    def answer(self, position: int, outcome: Outcome) -> None:
        if self.over:
            return
        self.outcomes[position] = outcome
        self.missing -= 1
        if not self.missing:
            self.over = True
            self.done.set_result(None)


class _Job(NamedTuple):
    message: Message
    position: int
    call: _Call


class Dispatcher:
    """Sends with at most `senders` requests under way, each with up to `batch_size` messages.

    After an outage nothing more is begun: what waits is given back as not sent. So is what could
    not be begun in the first half of the delivery timeout, because its answer could come too late.
    """

    def __init__(
        self, send: Send, *, senders: int, batch_size: int, delivery_timeout_seconds: float
    ) -> None:
        self._send = send
        self._senders = senders
        self._batch_size = batch_size
        self._timeout = delivery_timeout_seconds
        self._waiting: dict[Key, deque[_Job]] = {}  # the first may be on its way
        self._ready: deque[Key] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def dispatch(self, messages: Sequence[Message]) -> list[Outcome]:
        """One outcome per message, within the delivery timeout."""
        if not messages:
            return []
        call = _Call(len(messages), time.monotonic() + self._timeout / 2)
        for position, message in enumerate(messages):
            self._enqueue(_Job(message, position, call))
        self._start_senders()
        try:
            async with asyncio.timeout(self._timeout):
                await call.done
        except TimeoutError:
            pass
        finally:
            call.over = True
        return call.outcomes

    async def close(self) -> None:
        """Give back what waits, and let what is on its way come to its end."""
        self._give_back()
        if self._running:
            _done, late = await asyncio.wait(self._running, timeout=self._timeout / 2)
            for task in late:
                task.cancel()

    def _enqueue(self, job: _Job) -> None:
        key = (job.message.topic, job.message.key)
        line = self._waiting.get(key)
        if line is None:
            self._waiting[key] = deque([job])
            self._ready.append(key)
        else:
            line.append(job)

    def _start_senders(self) -> None:
        useful = -(-len(self._ready) // self._batch_size)
        for _ in range(min(useful, self._senders - len(self._running))):
            task = asyncio.create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self) -> None:
        while jobs := self._take():
            messages = [job.message for job in jobs]
            no_answer = Unreachable(f"no answer within {self._timeout / 2:g} s")
            outcomes: Sequence[Outcome] = [no_answer] * len(jobs)
            try:
                async with asyncio.timeout(self._timeout / 2):
                    outcomes = await self._send(messages)
            except TimeoutError:
                pass
            finally:
                self._finish(jobs, outcomes)

    def _take(self) -> list[_Job]:
        """The next messages to send, at most one of each key."""
        jobs: list[_Job] = []
        now = time.monotonic()
        while self._ready and len(jobs) < self._batch_size:
            key = self._ready.popleft()
            job = self._waiting[key][0]
            if job.call.over or now > job.call.send_before:
                self._finish([job], [NOT_SENT])
            else:
                jobs.append(job)
        return jobs

    def _finish(self, jobs: Sequence[_Job], outcomes: Sequence[Outcome]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            key = (job.message.topic, job.message.key)
            line = self._waiting[key]
            line.popleft()
            if line:
                self._ready.append(key)
            else:
                del self._waiting[key]
            job.call.answer(job.position, outcome)
        if any(isinstance(outcome, Unreachable) for outcome in outcomes):
            self._give_back()

    def _give_back(self) -> None:
        """Answer everything that waits and is not on its way: not sent."""
        unsent = set(self._ready)
        self._ready.clear()
        for key in list(self._waiting):
            line = self._waiting[key]
            on_its_way = [] if key in unsent else [line.popleft()]
            for job in line:
                job.call.answer(job.position, NOT_SENT)
            if on_its_way:
                self._waiting[key] = deque(on_its_way)
            else:
                del self._waiting[key]
