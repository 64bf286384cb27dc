"""Every error that commitrelay raises on purpose.

    CommitrelayError
    ├── InvalidEvent (ValueError)        the event itself cannot be stored or sent
    ├── InvalidHandle (TypeError)        what was passed to add() is no handle that it knows
    ├── NotInTransaction                 the handle would commit the event on its own
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

    @classmethod
    def because(cls, reason: str, remedy: str) -> Self:
        return cls(f"{reason}, so the event would not be rolled back with your data: {remedy}")


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
