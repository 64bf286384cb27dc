"""What differs between SQS and SNS: names, addresses, and the call that sends a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from botocore.exceptions import ClientError

from commitrelay.publishers.sqs.entry import Entry
from commitrelay.publishers.sqs.settings import SqsSettings

USUAL_BYTES = 262_144
"""What every queue and topic takes, in one message or in one batch."""


class Destination(NamedTuple):
    """A queue or a topic."""

    address: str
    most_bytes: int  # of one message, and of a batch


class Service(Protocol):
    body_field: str

    async def find(self, client: Any, name: str) -> Destination:
        """Look it up; a `ClientError` if it is not there."""

    async def send(
        self, client: Any, destination: Destination, entries: Sequence[Entry]
    ) -> dict[str, Any]:
        """What AWS answers: `Successful` and `Failed`."""


class Sqs(Service):
    body_field = "MessageBody"

    def __init__(self, settings: SqsSettings) -> None:
        self._owner = {"QueueOwnerAWSAccountId": settings.account} if settings.account else {}

    async def find(self, client: Any, name: str) -> Destination:
        found = await client.get_queue_url(QueueName=name, **self._owner)
        address = str(found["QueueUrl"])
        try:
            answer = await client.get_queue_attributes(
                QueueUrl=address, AttributeNames=["MaximumMessageSize"]
            )
        except ClientError:  # to send is a right of its own
            return Destination(address, USUAL_BYTES)
        limit = answer.get("Attributes", {}).get("MaximumMessageSize", USUAL_BYTES)
        return Destination(address, int(limit))

    async def send(
        self, client: Any, destination: Destination, entries: Sequence[Entry]
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await client.send_message_batch(
            QueueUrl=destination.address, Entries=entries
        )
        return answer


class Sns(Service):
    body_field = "Message"

    def __init__(self, settings: SqsSettings) -> None:
        partition = "aws-cn" if settings.region.startswith("cn-") else "aws"
        if settings.region.startswith("us-gov-"):
            partition = "aws-us-gov"
        self._prefix = f"arn:{partition}:sns:{settings.region}:{settings.account}:"

    async def find(self, client: Any, name: str) -> Destination:
        arn = self._prefix + name
        await client.get_topic_attributes(TopicArn=arn)
        return Destination(arn, USUAL_BYTES)

    async def send(
        self, client: Any, destination: Destination, entries: Sequence[Entry]
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await client.publish_batch(
            TopicArn=destination.address, PublishBatchRequestEntries=entries
        )
        return answer
