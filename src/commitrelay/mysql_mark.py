"""MysqlMarks: marks and completions on MySQL or MariaDB, made by one transaction at a time.

Two transactions that wait for a row which a third one has inserted are a deadlock when that one
rolls back: both inherit a lock on the gap where it was, and neither may insert. So those who wait
pass a turnstile, a lock of the session that is given back as soon as the row is had. MariaDB can
try without waiting first, and needs the turnstile only if that fails.
"""

from __future__ import annotations

from hashlib import sha256

from commitrelay.conversation import Conversation, Step, Value
from commitrelay.mark import Mark
from commitrelay.mysql_add import DUPLICATE, mysql_code
from commitrelay.sql import Names
from commitrelay.statement import Style, step

LOCK_WAIT_TIMEOUT = 1205
ENDLESS = 31_536_000
"""Seconds at the turnstile; the session's own lock time-out is shorter."""


class MysqlMarks:
    """Makes the marks of one inbox and remembers what server it is on."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._is_mariadb: bool | None = None

    def mark(self, made: Mark, style: Style, *, wait: bool) -> Conversation[bool]:
        """Returns whether the event was not marked before."""
        values = made.values("mysql")
        name = sha256(f"{made.consumer}\x1f{made.event_id}".encode()).hexdigest()
        try:
            if not (yield from self._insert("mark", values, name, style, wait=wait)):
                raise made.in_progress()
        except Exception as error:
            if mysql_code(error) != DUPLICATE:
                raise
            return False
        return True

    def begin(self, event_id: str, style: Style) -> Conversation[None]:
        """Take the row of the event's completion, if the outbox has such an event."""
        yield from self._insert("begin_event", {"id": event_id}, event_id, style, wait=True)

    def _insert(
        self, query: str, values: dict[str, Value], name: str, style: Style, *, wait: bool
    ) -> Conversation[bool]:
        """Returns False if somebody else has the row, and we are not to wait."""
        if self._is_mariadb is None:
            self._is_mariadb = bool((yield self._step("is_mariadb", {}, style)))
        if self._is_mariadb:
            if (yield from self._try(f"{query}_at_once", values, style)):
                return True
            if not wait:
                return False
        turnstile: dict[str, Value] = {"name": name, "seconds": ENDLESS if wait else 0}
        entered = yield self._step("enter_turnstile", turnstile, style)
        if not (entered or wait):
            return False
        insert = self._wait if wait else self._try_briefly
        talk = insert(query, values, style)
        if not entered:
            return (yield from talk)
        return (yield from _and_then(talk, self._step("leave_turnstile", turnstile, style)))

    def _wait(self, query: str, values: dict[str, Value], style: Style) -> Conversation[bool]:
        yield self._step(query, values, style)
        return True

    def _try_briefly(
        self, query: str, values: dict[str, Value], style: Style
    ) -> Conversation[bool]:
        yield self._step("shorten_waits", {}, style)
        talk = self._try(query, values, style)
        return (yield from _and_then(talk, self._step("restore_waits", {}, style)))

    def _try(self, query: str, values: dict[str, Value], style: Style) -> Conversation[bool]:
        try:
            yield self._step(query, values, style)
        except Exception as error:
            if mysql_code(error) != LOCK_WAIT_TIMEOUT:
                raise
            return False
        return True

    def _step(self, query: str, values: dict[str, Value], style: Style) -> Step:
        return step(query, values, "mysql", style, self._names)


def _and_then(talk: Conversation[bool], last: Step) -> Conversation[bool]:
    """Whatever becomes of the talk, this is said at its end."""
    try:
        result = yield from talk
    except Exception:
        yield last
        raise
    yield last
    return result
