"""commitrelay: the transactional outbox for Python. Commit it, and it is delivered."""

from commitrelay.errors import (
    BrokerUnreachable,
    CommitrelayError,
    ConfigError,
    InvalidEvent,
    InvalidHandle,
    LeaseLost,
    MissingExtra,
    NotInTransaction,
    PublisherError,
    SchemaMissing,
    StoreError,
    StoreUnreachable,
)
from commitrelay.event import Event
from commitrelay.outbox import Added, Outbox

__version__ = "0.1.0"

__all__ = [
    "Added",
    "BrokerUnreachable",
    "CommitrelayError",
    "ConfigError",
    "Event",
    "InvalidEvent",
    "InvalidHandle",
    "LeaseLost",
    "MissingExtra",
    "NotInTransaction",
    "Outbox",
    "PublisherError",
    "SchemaMissing",
    "StoreError",
    "StoreUnreachable",
]
