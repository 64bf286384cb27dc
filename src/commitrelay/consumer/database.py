"""Database: where handlers do their work. One transaction for an event, its mark and its effect.

It is made from a URL, or from whatever begins a transaction in the user's application, such as
`sessionmaker.begin`. Errors come out sorted by what is to be done about them.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

from commitrelay.consumer.handlers import Handler
from commitrelay.consumer.marks import Marks
from commitrelay.consumer.received import Received
from commitrelay.consumer.trouble import is_conflict, is_schema_missing, is_unreachable
from commitrelay.errors import CommitrelayError, ConfigError, InvalidEvent, SchemaMissing
from commitrelay.handles import Talk, run_on, run_on_async
from commitrelay.inbox import Inbox
from commitrelay.transactions import Transactions

T = TypeVar("T")

Begin = Callable[[], Any]
"""Returns a context manager, asynchronous or not, that is one transaction and yields a handle."""


class Trouble(Exception):
    """The root of what keeps an event from being handled; `reason` is the error itself."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Unanswered(Trouble):
    """The database did not do its part. The handler is not to blame."""


class TakenBack(Trouble):
    """Another transaction was in the way."""


class Failed(Trouble):
    """The handler raised, or what it did could not be committed."""


class Unfit(Trouble):
    """The event itself is wrong: another attempt would end the same."""


class Database:
    def __init__(
        self, transactions: Transactions | Begin, inbox: Inbox, marks: Marks, *, threads: int
    ) -> None:
        self._transactions = transactions
        self._inbox = inbox
        self._marks = marks
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="commitrelay-handler")
        self._own_threads = ThreadPoolExecutor(2, thread_name_prefix="commitrelay-marks")
        self._in_threads: set[str] = set()  # ids of events whose handlers run in threads

    @property
    def one_at_a_time(self) -> bool:
        return not callable(self._transactions) and self._transactions.one_at_a_time

    @property
    def is_applications(self) -> bool:
        """Whether the application begins the transactions, so that we do not know how they end."""
        return callable(self._transactions)

    @property
    def in_threads(self) -> int:
        """Handlers that run in threads, which nobody can end."""
        return len(self._in_threads)

    async def perform(self, handler: Handler, event: Received[Any], *, careful: bool) -> bool:
        """Handle the event unless that was done before; whether it was the first time."""
        try:
            transaction = self._begin(handler.is_async, handler.name)
        except Exception as error:
            raise _sorted(error, entered=False) from error
        if handler.is_async:
            return await self._perform_async(handler, event, careful, transaction)
        return await _in_thread(
            self._threads, lambda: self._perform(handler, event, careful, transaction)
        )

    def _perform(
        self,
        handler: Handler,
        event: Received[Any],
        careful: bool,
        transaction: AbstractContextManager[Any],
    ) -> bool:
        entered = False
        self._in_threads.add(event.id)
        try:
            with transaction as handle:
                with self._inbox.once(handle, event.id) as first:
                    if first:
                        entered = True
                        _refuse_awaitable(handler.function(handle, event), handler)
                if careful:
                    run_on(handle, self._marks.end(event.id))
        except (Exception, SystemExit) as error:
            raise _sorted(error, entered=entered) from error
        finally:
            self._in_threads.discard(event.id)
        return first

    async def _perform_async(
        self,
        handler: Handler,
        event: Received[Any],
        careful: bool,
        transaction: AbstractAsyncContextManager[Any],
    ) -> bool:
        entered = False
        try:
            async with transaction as handle:
                async with self._inbox.once(handle, event.id) as first:
                    if first:
                        entered = True
                        await handler.function(handle, event)
                if careful:
                    await run_on_async(handle, self._marks.end(event.id))
        except (Exception, SystemExit) as error:
            raise _sorted(error, entered=entered) from error
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            # The handler awaited something that was cancelled: its failure, not our end.
            raise _sorted(error, entered=entered) from error
        return first

    async def transact(self, talk: Talk) -> Any:
        """Have one conversation, in a transaction of its own."""
        try:
            transaction = self._begin(None, "")
            if not hasattr(transaction, "__aenter__"):
                return await _in_thread(self._own_threads, lambda: _converse(transaction, talk))
            async with transaction as handle:
                return await run_on_async(handle, talk)
        except Exception as error:
            raise _sorted(error, entered=False) from error

    async def close(self) -> None:
        self._threads.shutdown(wait=False)
        self._own_threads.shutdown(wait=False)
        if not callable(self._transactions):
            await self._transactions.close()

    def _begin(self, is_async: bool | None, handler: str) -> Any:
        """A transaction of that kind; None: of the kind that there is."""
        if not callable(self._transactions):
            begin = self._transactions.begin_async if is_async else self._transactions.begin
            return begin()
        transaction = self._transactions()
        kinds = {False: hasattr(transaction, "__enter__"), True: hasattr(transaction, "__aenter__")}
        if not any(kinds.values()):
            raise ConfigError(
                f"what database= returns is no transaction but a {type(transaction).__name__}: "
                "pass a URL, or a callable such as sessionmaker.begin or engine.begin"
            )
        if is_async is not None and not kinds[is_async]:
            words = ("async", "synchronous") if is_async else ("synchronous", "async")
            raise ConfigError(
                "handler {} is {}, but what database= returns is {}: "
                "make them the same, or pass a URL".format(handler, *words)
            )
        return transaction


def _refuse_awaitable(result: object, handler: Handler) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"handler {handler.name} returns an awaitable: make it an async def")


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _converse(transaction: AbstractContextManager[Any], talk: Talk) -> Any:
    with transaction as handle:
        return run_on(handle, talk)


def _sorted(error: BaseException, *, entered: bool) -> Exception:
    """What to do about it: `entered` says whether the handler was called."""
    if is_conflict(error):
        return TakenBack(error)
    if is_unreachable(error):
        return Unanswered(error)
    if entered:
        return Failed(error)
    if isinstance(error, InvalidEvent):
        return Unfit(error)
    if is_schema_missing(error) and not isinstance(error, SchemaMissing):
        text = " ".join(str(error).split())
        return SchemaMissing(
            f"the consumer's database lacks a part of the outbox ({text}): run commitrelay init"
        )
    return error if isinstance(error, CommitrelayError) else Unanswered(error)


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, context.run, work)
