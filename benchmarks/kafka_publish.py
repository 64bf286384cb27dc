"""How much of librdkafka's speed is left in the Kafka publishers? Decision record 0001 quotes this.

    make services && eval "$(scripts/services env)"
    .venv/bin/python benchmarks/kafka_publish.py [--events N] [--payload BYTES] [--json]

The bare sender produces with a counting callback and promises nothing. The transactional publisher
takes one batch at a time.
"""

from __future__ import annotations

from functools import partial

from pipelines import BARE, BareLine, PublisherLine, main, server

from commitrelay.demo.topic import topic_of

URL = server("kafka")


if __name__ == "__main__":
    lines = {
        BARE: BareLine,
        "KafkaPublisher": PublisherLine,
        "transactional": partial(PublisherLine, options={"transactional.id": "bench"}),
    }
    main(__doc__, lines, {"topic": partial(topic_of, URL)})
