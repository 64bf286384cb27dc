"""NATS JetStream: `nats://host:4222`, on a thin client of its own.

settings.py    the URL and the options
subjects.py    topic and key -> subject
connection.py  NATS's protocol: what is asked and answered
login.py       reach a server, encrypt, prove who we are
link.py        messages out, acknowledgements in
streams.py     whether a stream is there; made if asked for
outcomes.py    what an acknowledgement means
publisher.py   the publisher
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.publishers.nats.publisher import NatsPublisher
from commitrelay.publishers.nats.settings import NatsSettings

__all__ = ["NatsPublisher", "NatsSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> NatsPublisher:
    """`nats://[user:password@]host:4222[,host2:4222]?setting=…`; see `NatsSettings`."""
    return NatsPublisher(NatsSettings.from_url(url, options))
