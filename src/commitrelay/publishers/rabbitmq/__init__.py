"""RabbitMQ: `amqp://host:5672/vhost`, on a client of our own for AMQP 0-9-1.

settings.py    the URL and the options
wire.py        frames and values as bytes
content.py     a message as the frames that publish it
confirms.py    which message a confirm or a return is about
channel.py     a conversation: questions, messages, what the broker says
connection.py  handshake, heartbeats, back-pressure, loss
address.py     message -> exchange and routing key
places.py      whether exchange and queue are there; made if asked for
sending.py     one call on its way
publisher.py   the publisher
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.publishers.rabbitmq.publisher import RabbitMQPublisher
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings

__all__ = ["RabbitMQPublisher", "RabbitMQSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> RabbitMQPublisher:
    """`amqp://[user:password@]host[:5672][,host2]/vhost?setting=…`; see `RabbitMQSettings`."""
    return RabbitMQPublisher(RabbitMQSettings.from_url(url, options))
