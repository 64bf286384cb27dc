"""Spans of the daemon: where they go is told by OpenTelemetry's own variables (OTEL_…)."""

from __future__ import annotations

from commitrelay.errors import MissingExtra
from commitrelay.tracing import SCOPE, Tracing


def exporting_tracing() -> Tracing:
    """Tracing whose spans are sent by OTLP over HTTP in the background."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("otel", "tracing") from None
    resource = Resource({SERVICE_NAME: SCOPE}).merge(Resource.create())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
