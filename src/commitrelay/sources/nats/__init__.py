"""NATS JetStream: `nats://host:4222?topic=orders`, on a thin client of our own.

settings.py  the URL and the options
record.py    who reads a topic for the group, and how far: one key, changed by compare-and-set
pull.py      messages of a stream from a sequence on, in order
seat.py      one topic in our hands
source.py    the source
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.sources.nats.settings import NatsSourceSettings
from commitrelay.sources.nats.source import NatsSource

__all__ = ["NatsSource", "NatsSourceSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> NatsSource:
    """`nats://[user:password@]host:4222?topic=…&group=…`; see `NatsSourceSettings`."""
    return NatsSource(NatsSourceSettings.from_url(url, options))
