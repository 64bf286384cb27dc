"""TracedPublisher: a `send` span for each batch and topic, linked to the spans of its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commitrelay.publisher import DELIVERED, Message, Outcome, Publisher, Refused, Unreachable
from commitrelay.tracing import (
    BATCH_COUNT,
    DESTINATION,
    ERROR_TYPE,
    MESSAGE_ID,
    OPERATION,
    OPERATION_TYPE,
    SYSTEM,
    Tracing,
)
from commitrelay.wrapped import WrappedPublisher

MOST_LINKS = 128
"""As many as an SDK keeps of a span by default."""

SYSTEMS = {"amqp": "rabbitmq", "amqps": "rabbitmq", "rediss": "redis", "sqs": "aws_sqs"} | {
    "sns": "aws.sns",
    "https": "http",
}
"""How the conventions call the broker behind a URL's scheme, where it is not the scheme itself."""


class TracedPublisher(WrappedPublisher):
    def __init__(self, inner: Publisher, tracing: Tracing, scheme: str) -> None:
        super().__init__(inner)
        self._tracing = tracing
        self._system = SYSTEMS.get(scheme, scheme)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        by_topic: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            by_topic.setdefault(message.topic, []).append(number)
        spans = {
            topic: self._span(topic, [messages[number] for number in numbers])
            for topic, numbers in by_topic.items()
        }
        try:
            outcomes = await self._inner.publish(messages)
            for topic, numbers in by_topic.items():
                _judge(spans[topic], [outcomes[number] for number in numbers])
        finally:
            for span in spans.values():
                span.end()
        return outcomes

    def _span(self, topic: str, messages: Sequence[Message]) -> Any:
        attributes: dict[str, str | int] = {
            SYSTEM: self._system,
            OPERATION: "send",
            OPERATION_TYPE: "send",
            DESTINATION: topic,
        }
        if len(messages) == 1:
            attributes[MESSAGE_ID] = messages[0].event_id
        else:
            attributes[BATCH_COUNT] = len(messages)
        links = (self._tracing.link(message.headers) for message in messages[:MOST_LINKS])
        return self._tracing.tracer.start_span(
            f"send {topic}",
            kind=self._tracing.send_kind,
            attributes=attributes,
            links=[link for link in links if link is not None],
        )


def _judge(span: Any, outcomes: Sequence[Outcome]) -> None:
    """A span is in error if some message was not taken; the text of the error stays out."""
    for outcome in outcomes:
        if outcome is not DELIVERED:
            kind = {Refused: "refused", Unreachable: "unreachable"}.get(type(outcome), "not_sent")
            span.set_attribute(ERROR_TYPE, kind)
            span.set_status(_error_status(kind))
            return


def _error_status(kind: str) -> Any:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    return Status(StatusCode.ERROR, kind)
