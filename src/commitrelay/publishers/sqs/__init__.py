"""SQS and SNS, FIFO: `sqs://eu-west-1/orders.fifo`, `sns://eu-west-1/123456789012/orders.fifo`.

settings.py   the URL and the options
entry.py      a message as an entry of a batch
services.py   what differs between SQS and SNS
outcomes.py   what an error of AWS means for a message
publisher.py  the publisher
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import MissingExtra

try:
    import aiobotocore  # noqa: F401
except ImportError:
    raise MissingExtra("sqs", "publishing to SQS or SNS") from None

from commitrelay.publishers.sqs.publisher import SqsPublisher
from commitrelay.publishers.sqs.settings import SqsSettings

__all__ = ["SqsPublisher", "SqsSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> SqsPublisher:
    """`sqs://region/[account/]queue.fifo?setting=…`; see `SqsSettings`."""
    return SqsPublisher(SqsSettings.from_url(url, options))
