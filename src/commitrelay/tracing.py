"""Tracing with OpenTelemetry: a `create` span where an event is added, to be linked to later.

The context of that span travels in the event's headers (`traceparent`, `tracestate`). An event
that has a `traceparent` already keeps it: its context is the user's. Names and attributes are
those of the semantic conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from commitrelay.errors import MissingExtra
from commitrelay.event import Event

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext, TracerProvider

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
DESTINATION = "messaging.destination.name"
BATCH_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"

TRACEPARENT = "traceparent"
SCOPE = "commitrelay"


class Tracing:
    """The tracer of this library, and the W3C form of its contexts."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace  # noqa: PLC0415
            from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
                TraceContextTextMapPropagator,
            )
        except ImportError:
            raise MissingExtra("otel", "tracing") from None
        self._trace: Any = trace
        self._provider = provider
        self._propagator = TraceContextTextMapPropagator()
        self.send_kind = trace.SpanKind.CLIENT
        self.tracer = trace.get_tracer(SCOPE, tracer_provider=provider)

    def flush(self) -> None:
        """Send what is still to be sent, if the provider is our own."""
        shutdown = getattr(self._provider, "shutdown", None)
        if shutdown is not None:
            shutdown()

    def created(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """The events, each with the context of its `create` span in its headers."""
        return tuple(self._created(event) for event in events)

    def _created(self, event: Event) -> Event:
        if not isinstance(event, Event):
            return event  # whoever stores it complains
        headers = dict(event.headers or {})
        if any(name.lower() == TRACEPARENT for name in headers):
            return event
        attributes = {
            SYSTEM: SCOPE,
            OPERATION: "create",
            OPERATION_TYPE: "create",
            MESSAGE_ID: str(event.id),
            "commitrelay.aggregate.type": event.aggregate_type,
            "commitrelay.event.type": event.event_type,
        }
        kind = self._trace.SpanKind.PRODUCER
        span = self.tracer.start_span("create", kind=kind, attributes=attributes)
        try:
            self._propagator.inject(headers, self._trace.set_span_in_context(span))
        finally:
            span.end()
        return replace(event, headers=headers) if TRACEPARENT in headers else event

    def link(self, headers: Sequence[tuple[str, str]]) -> Link | None:
        """A link to the context in a message's headers, if there is one."""
        carrier: Mapping[str, str] = {
            name.lower(): value
            for name, value in headers
            if name.lower() in (TRACEPARENT, "tracestate")
        }
        if TRACEPARENT not in carrier:
            return None
        context = self._propagator.extract(carrier)
        found: SpanContext = self._trace.get_current_span(context).get_span_context()
        return self._trace.Link(found) if found.is_valid else None
