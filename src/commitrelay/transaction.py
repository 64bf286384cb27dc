"""Transaction: `with outbox.transaction(connection):` begins, claims for the direct pass, commits.

One function for each driver begins a transaction on a connection, or a savepoint if one is open,
and tells which it was: only the outermost one commits, and only that claims.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any

from commitrelay.claim import Claim, Claimer
from commitrelay.errors import InvalidHandle

_IDLE = 0  # libpq's PQTRANS_IDLE: connected, and no transaction is open


class Notes:
    """What the open transactions of an outbox have added so far, by the handle they run on."""

    def __init__(self) -> None:
        self._added: dict[int, list[str]] = {}

    def begin(self, handle: object) -> None:
        self._added[id(handle)] = []

    def add(self, handle: object, ids: Sequence[str]) -> bool:
        """False if no transaction of this outbox is open on the handle."""
        added = self._added.get(id(handle))
        if added is None:
            return False
        added.extend(ids)
        return True

    def added(self, handle: object) -> list[str]:
        return self._added.get(id(handle), [])

    def end(self, handle: object) -> None:
        self._added.pop(id(handle), None)


class Transaction:
    """A transaction on the caller's connection, for ``with`` or ``async with``."""

    def __init__(self, handle: object, notes: Notes, claimer: Claimer | None) -> None:
        self._handle = handle
        self._notes = notes
        self._claimer = claimer
        self._sync: AbstractContextManager[None] | None = None
        self._async: AbstractAsyncContextManager[None] | None = None

    def __enter__(self) -> None:
        begin = _find(SYNC, self._handle, "with")
        self._sync = self._run(begin)
        self._sync.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(kind, error, traceback)

    async def __aenter__(self) -> None:
        begin = _find(ASYNC, self._handle, "async with")
        self._async = self._run_async(begin)
        await self._async.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, traceback)

    @contextmanager
    def _run(self, begin: Begin) -> Iterator[None]:
        handle, claimer = self._handle, self._claimer
        claim: Claim | None = None
        is_outermost = False
        try:
            with begin(handle) as is_outermost:
                if is_outermost:
                    self._notes.begin(handle)
                yield
                if is_outermost and claimer is not None:
                    claim = claimer.claim(handle, self._notes.added(handle))
        finally:
            self._ended(claim, is_outermost)
        if claim is not None and claimer is not None:
            claim.wait(claimer.direct.wait_seconds)

    @asynccontextmanager
    async def _run_async(self, begin: BeginAsync) -> AsyncIterator[None]:
        handle, claimer = self._handle, self._claimer
        claim: Claim | None = None
        is_outermost = False
        try:
            async with begin(handle) as is_outermost:
                if is_outermost:
                    self._notes.begin(handle)
                yield
                if is_outermost and claimer is not None:
                    claim = await claimer.claim_async(handle, self._notes.added(handle))
        finally:
            self._ended(claim, is_outermost)
        if claim is not None and claimer is not None:
            await claim.wait_async(claimer.direct.wait_seconds)

    def _ended(self, claim: Claim | None, is_outermost: bool) -> None:
        """Also when the commit failed: its answer may be lost, and the direct pass will look."""
        if is_outermost:
            self._notes.end(self._handle)
        if claim is not None and self._claimer is not None:
            self._claimer.direct.pass_on(claim)


# --- one function for each driver ----------------------------------------------------------

Begin = Callable[[Any], AbstractContextManager[bool]]
BeginAsync = Callable[[Any], AbstractAsyncContextManager[bool]]


@contextmanager
def psycopg_transaction(connection: Any) -> Iterator[bool]:
    is_outermost = connection.pgconn.transaction_status == _IDLE
    with connection.transaction():
        yield is_outermost


@asynccontextmanager
async def psycopg_async_transaction(connection: Any) -> AsyncIterator[bool]:
    is_outermost = connection.pgconn.transaction_status == _IDLE
    async with connection.transaction():
        yield is_outermost


@asynccontextmanager
async def asyncpg_transaction(connection: Any) -> AsyncIterator[bool]:
    is_outermost = not connection.is_in_transaction()
    async with connection.transaction():
        yield is_outermost


@contextmanager
def sqlite3_transaction(connection: Any) -> Iterator[bool]:
    if getattr(connection, "autocommit", None) is False:
        raise InvalidHandle(
            "this sqlite3 connection has autocommit=False, where a transaction is always open: "
            "connect without it to use outbox.transaction(…), or commit by yourself"
        )
    is_outermost = not connection.in_transaction
    begin, commit, roll_back = _SQLITE_WORDS[is_outermost]
    connection.execute(begin)
    try:
        yield is_outermost
        connection.execute(commit)
    except BaseException:
        if connection.in_transaction:
            for text in roll_back:
                connection.execute(text)
        raise


@asynccontextmanager
async def aiosqlite_transaction(connection: Any) -> AsyncIterator[bool]:
    is_outermost = not connection.in_transaction
    begin, commit, roll_back = _SQLITE_WORDS[is_outermost]
    await connection.execute(begin)
    try:
        yield is_outermost
        await connection.execute(commit)
    except BaseException:
        if connection.in_transaction:
            for text in roll_back:
                await connection.execute(text)
        raise


_SQLITE_WORDS = {
    True: ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",)),
    False: (
        "SAVEPOINT commitrelay",
        "RELEASE commitrelay",
        ("ROLLBACK TO commitrelay", "RELEASE commitrelay"),
    ),
}

SYNC: dict[tuple[str, str], Begin] = {
    ("psycopg", "Connection"): psycopg_transaction,
    ("sqlite3", "Connection"): sqlite3_transaction,
}
ASYNC: dict[tuple[str, str], BeginAsync] = {
    ("psycopg", "AsyncConnection"): psycopg_async_transaction,
    ("asyncpg", "Connection"): asyncpg_transaction,
    ("asyncpg", "PoolConnectionProxy"): asyncpg_transaction,
    ("aiosqlite", "Connection"): aiosqlite_transaction,
}


def _find(known: dict[tuple[str, str], Any], handle: object, word: str) -> Any:
    for cls in type(handle).__mro__:
        name = cls.__module__.partition(".")[0], cls.__name__
        if name in known:
            return known[name]
    listed = " or ".join(f"{module}'s {name}" for module, name in known)
    raise InvalidHandle(
        f"`{word} outbox.transaction(…)` knows no {type(handle).__name__}: pass {listed}; "
        "a SQLAlchemy session needs only session.begin()"
    )
