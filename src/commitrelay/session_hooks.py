"""Session hooks: a SQLAlchemy Session claims what it added before it commits, and tells after.

No import of SQLAlchemy before there is a session to hook into.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from commitrelay.claim import Claim, Claimer


class SessionHooks:
    """The sessions that have added events, each with its hooks, for as long as it lives."""

    def __init__(self, claimer: Claimer) -> None:
        self._claimer = claimer
        self._watches: WeakKeyDictionary[Any, _Watch] = WeakKeyDictionary()

    def add(self, handle: object, ids: Sequence[str]) -> bool:
        """Claim these when the handle commits; False if it is no session."""
        session, may_wait = session_of(handle)
        if session is None:
            return False
        watch = self._watches.get(session)
        if watch is None:
            watch = self._watches[session] = _Watch(self._claimer, may_wait)
            watch.listen(session)
        watch.added.extend(ids)
        return True


class _Watch:
    def __init__(self, claimer: Claimer, may_wait: bool) -> None:
        self._claimer = claimer
        self._may_wait = may_wait
        self._claim: Claim | None = None
        self.added: list[str] = []

    def listen(self, session: Any) -> None:
        listen = import_module("sqlalchemy.event").listen
        listen(session, "before_commit", self._before_commit)
        listen(session, "after_transaction_end", self._after_transaction_end)

    def _before_commit(self, session: Any) -> None:
        """A savepoint that is released commits nothing: the transaction around it claims."""
        if not self.added or session.in_nested_transaction():
            return
        session.flush()
        ids, self.added = self.added, []
        self._claim = self._claimer.claim(session, ids)

    def _after_transaction_end(self, session: Any, transaction: Any) -> None:
        if transaction.parent is not None:
            return
        self.added = []
        claim, self._claim = self._claim, None
        if claim is not None:
            direct = self._claimer.direct
            direct.pass_on(claim)
            if self._may_wait:
                claim.wait(direct.wait_seconds)


def session_of(handle: object) -> tuple[Any, bool]:
    """The plain Session behind a handle, and whether waiting in it holds up one thread only."""
    names = {
        cls.__name__
        for cls in type(handle).__mro__
        if cls.__module__.partition(".")[0] == "sqlalchemy"
    }
    session: Any = handle
    if "scoped_session" in names or "async_scoped_session" in names:
        session = session()
        return session_of(session)
    if "AsyncSession" in names:
        return session.sync_session, False
    return (session, True) if "Session" in names else (None, True)
