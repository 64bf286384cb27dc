"""RabbitMQ: `amqp://host:5672/vhost?queue=orders`, on our own client for AMQP 0-9-1.

settings.py  the URL and the options
message.py   what was delivered -> arrival
seat.py      one queue in our hands
meeting.py   where the readers of a group hear of each other
source.py    the source
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.sources.rabbitmq.settings import RabbitMQSourceSettings
from commitrelay.sources.rabbitmq.source import RabbitMQSource

__all__ = ["RabbitMQSource", "RabbitMQSourceSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> RabbitMQSource:
    """`amqp://[user:password@]host[:5672]/vhost?queue=…`; see `RabbitMQSourceSettings`."""
    return RabbitMQSource(RabbitMQSourceSettings.from_url(url, options))
