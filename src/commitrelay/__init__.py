"""commitrelay: the transactional outbox for Python. Commit it, and it is delivered.

Whoever only writes events imports `Event` and `Outbox` and pays for nothing else: the relay's
names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from commitrelay.errors import (
    BrokerUnreachable,
    ClaimExpired,
    CommitrelayError,
    ConfigError,
    InProgress,
    InvalidEvent,
    InvalidHandle,
    LeaseLost,
    MissingExtra,
    NotInTransaction,
    NotOpen,
    PublisherError,
    SchemaMissing,
    StoreError,
    StoreUnreachable,
    UnknownEvent,
)
from commitrelay.event import Event
from commitrelay.outbox import Added, Outbox

if TYPE_CHECKING:
    from commitrelay.connect import open_publisher, open_source, open_store
    from commitrelay.consumer import Consumer, ConsumerOptions, ConsumerStats, Received
    from commitrelay.direct import DirectPass
    from commitrelay.direct_worker import DirectStats
    from commitrelay.format import Plain
    from commitrelay.format.cloudevents import CloudEvents, StructuredCloudEvents
    from commitrelay.format.debezium import Debezium
    from commitrelay.inbox import Inbox
    from commitrelay.options import RelayOptions, RelayStats
    from commitrelay.redis_inbox import RedisInbox
    from commitrelay.relay import Relay
    from commitrelay.retry import RetryPolicy
    from commitrelay.route import Route

__version__ = "0.1.0"

__all__ = [
    "Added",
    "BrokerUnreachable",
    "ClaimExpired",
    "CloudEvents",
    "CommitrelayError",
    "ConfigError",
    "Consumer",
    "ConsumerOptions",
    "ConsumerStats",
    "Debezium",
    "DirectPass",
    "DirectStats",
    "Event",
    "InProgress",
    "Inbox",
    "InvalidEvent",
    "InvalidHandle",
    "LeaseLost",
    "MissingExtra",
    "NotInTransaction",
    "NotOpen",
    "Outbox",
    "Plain",
    "PublisherError",
    "Received",
    "RedisInbox",
    "Relay",
    "RelayOptions",
    "RelayStats",
    "RetryPolicy",
    "Route",
    "SchemaMissing",
    "StoreError",
    "StoreUnreachable",
    "StructuredCloudEvents",
    "UnknownEvent",
    "open_publisher",
    "open_source",
    "open_store",
]

_LAZY = {
    "CloudEvents": "format.cloudevents",
    "Consumer": "consumer",
    "ConsumerOptions": "consumer",
    "ConsumerStats": "consumer",
    "Debezium": "format.debezium",
    "DirectPass": "direct",
    "DirectStats": "direct_worker",
    "Inbox": "inbox",
    "Plain": "format",
    "Received": "consumer",
    "RedisInbox": "redis_inbox",
    "Relay": "relay",
    "RelayOptions": "options",
    "RelayStats": "options",
    "RetryPolicy": "retry",
    "Route": "route",
    "StructuredCloudEvents": "format.cloudevents",
    "open_publisher": "connect",
    "open_source": "connect",
    "open_store": "connect",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'commitrelay' has no attribute {name!r}")
    return getattr(import_module(f"commitrelay.{_LAZY[name]}"), name)
