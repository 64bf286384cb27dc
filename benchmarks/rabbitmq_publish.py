"""How much of RabbitMQ's speed is left in the publisher?

    eval "$(scripts/services env)"
    .venv/bin/python benchmarks/rabbitmq_publish.py [--events N] [--payload BYTES] [--json]

The bare senders write frames, a batch in one piece, and count the confirms: they can say how many
messages arrived, not which. On each type of queue.
"""

from __future__ import annotations

from functools import partial

from pipelines import BARE, ENCODED, BareLine, EncodedLine, PublisherLine, main, server

from commitrelay.demo.rabbitmq_topic import RabbitMQTopic
from commitrelay.publishers.rabbitmq.settings import QUEUE_TYPES

URL = server("rabbitmq")


if __name__ == "__main__":
    lines = {BARE: BareLine, ENCODED: EncodedLine, "RabbitMQPublisher": PublisherLine}
    main(
        __doc__, lines, {kind: partial(RabbitMQTopic, URL, queue_type=kind) for kind in QUEUE_TYPES}
    )
