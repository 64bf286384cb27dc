"""Every error that commitrelay raises on purpose.

    CommitrelayError
    ├── InvalidEvent (ValueError)        the event itself cannot be stored or sent
    ├── InvalidHandle (TypeError)        what was passed to add() is no handle that it knows
    ├── NotInTransaction                 the handle would commit the event on its own
    ├── InProgress                       somebody else is handling the same event right now
    ├── ClaimExpired                     …because this one took longer than its claim
    ├── UnknownEvent (LookupError)       the outbox has no such event
    ├── NotOpen                          the event was not begun, or is completed already
    ├── ConfigError                      a URL, a setting or a template is wrong
    │   └── MissingExtra                 …because a package is not installed
    ├── StoreError                       the database said no
    │   ├── StoreUnreachable             …or nothing at all: try again later
    │   └── SchemaMissing                …because `commitrelay init` was not run
    ├── PublisherError                   the broker said no
    │   └── BrokerUnreachable            …or nothing at all: try again later
    └── LeaseLost                        another relay owns these keys now

Each message is one line: what happened, to what, and what to do next. None holds a password.
"""

from __future__ import annotations

from typing import Self


class CommitrelayError(Exception):
    """The root of all errors that commitrelay raises on purpose."""


class InvalidEvent(CommitrelayError, ValueError):
    """The event cannot be stored or sent as it is; nothing reached the database."""


class InvalidHandle(CommitrelayError, TypeError):
    """The connection or session is not one that this call can use."""


class NotInTransaction(CommitrelayError):
    """The handle is in autocommit mode: the event would not share your transaction's fate."""

    reason = remedy = ""

    @classmethod
    def because(cls, reason: str, remedy: str, *, what: str = "the event") -> Self:
        made = cls(f"{reason}, so {what} would not be rolled back with your data: {remedy}")
        made.reason, made.remedy = reason, remedy
        return made

    def about(self, what: str) -> Self:
        """The same of something else than an event."""
        return self.because(self.reason, self.remedy, what=what)


class InProgress(CommitrelayError):
    """The same event is being handled elsewhere: leave it alone, and let it be delivered again."""


class ClaimExpired(CommitrelayError):
    """The claim on an event ended while its handler ran: its effect may have happened twice."""


class UnknownEvent(CommitrelayError, LookupError):
    """The outbox has no such event: it was never committed there, or purged."""


class NotOpen(CommitrelayError):
    """An event cannot be completed that was not begun, or is completed already."""


class ConfigError(CommitrelayError):
    """A URL, a setting or a template is wrong."""


class MissingExtra(ConfigError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs the "{extra}" extra: pip install "commitrelay[{extra}]"')
        self.extra = extra


class StoreError(CommitrelayError):
    """The database refused a statement."""


class StoreUnreachable(StoreError):
    """The database did not answer; the relay waits and tries again."""


class SchemaMissing(StoreError):
    """The outbox tables are missing or older than this version."""


class PublisherError(CommitrelayError):
    """The broker or its client refused."""


class BrokerUnreachable(PublisherError):
    """The broker did not answer; the relay waits and tries again."""


class LeaseLost(CommitrelayError):
    """This relay's lease ended and another one may own its keys: it must not write any more."""


def first_of(error: BaseException) -> BaseException:
    """One error says it; a group of them, as task groups raise it, is for programs."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
