"""Tracing: a `create` span at add, a `send` span at the relay, linked; off and free otherwise."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from commitrelay import Event, Outbox
from commitrelay.options import RelayOptions
from commitrelay.publisher import Message, Outcome, PublisherCapabilities, Refused
from commitrelay.publishers.file import from_url
from commitrelay.relay import Relay
from commitrelay.stores.sqlite.store import SqliteStore
from commitrelay.traced import TracedPublisher
from commitrelay.tracing import Tracing

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider)


def outbox_with(tracing: Tracing) -> Outbox:
    outbox = Outbox()
    outbox._tracing = tracing
    return outbox


@pytest.fixture
def path(sqlite_path: Path) -> Path:
    async def create() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(create())
    return sqlite_path


def stored_headers(path: Path) -> list[dict[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT headers FROM outbox_event ORDER BY seq").fetchall()
    return [json.loads(text) for (text,) in rows]


def add(path: Path, outbox: Outbox, *events: Event) -> None:
    with closing(sqlite3.connect(path)) as connection:
        outbox.add(connection, *events)
        connection.commit()


def test_from_create_to_send(
    path: Path, tmp_path: Path, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    parent = tracing.tracer.start_span("place order")
    with trace.use_span(parent, end_on_exit=True):
        events = [
            Event("Order", 1, "Placed", {}),
            Event("Order", 2, "Placed", {}, headers={"a": "b"}),
            Event("Bill", 3, "Sent", {}, headers={"TraceParent": THEIRS}),
        ]
        add(path, outbox_with(tracing), *events)
    first, second, theirs = stored_headers(path)
    assert second["a"] == "b"
    assert theirs == {"TraceParent": THEIRS}

    publisher = TracedPublisher(from_url(f"file://{tmp_path}/t", {}), tracing, "file")
    asyncio.run(Relay(SqliteStore(str(path)), publisher, RelayOptions(until="drained")).run())
    spans: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        spans.setdefault(span.name, []).append(span)

    created = spans["create"]
    assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
    assert [span.parent for span in created] == [parent.get_span_context()] * 2
    assert created[0].attributes == {
        "messaging.system": "commitrelay",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.message.id": str(events[0].id),
        "commitrelay.aggregate.type": "Order",
        "commitrelay.event.type": "Placed",
    }
    assert first["traceparent"].startswith(_traceparent(created[0]))

    [orders] = spans["send order.events"]
    assert orders.kind == SpanKind.CLIENT
    assert orders.attributes == {
        "messaging.system": "file",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "order.events",
        "messaging.batch.message_count": 2,
    }
    assert [link.context.span_id for link in orders.links] == [
        span.get_span_context().span_id for span in created
    ]
    [bills] = spans["send bill.events"]
    assert bills.attributes is not None
    assert bills.attributes["messaging.message.id"] == str(events[2].id)
    assert [f"{link.context.span_id:x}" for link in bills.links] == ["b7ad6b7169203331"]
    assert orders.status.status_code == StatusCode.UNSET


def _traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-"


class Refusing:
    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    async def open(self) -> None: ...
    async def recover(self) -> None: ...
    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return [Refused("payload says c4n4ry")] * len(messages)


def test_a_refusal_is_an_error_without_its_text(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    publisher = TracedPublisher(Refusing(), tracing, "amqps")
    message = Message("t", "k", b"", [("traceparent", "garbage")], "id")
    asyncio.run(publisher.publish([message]))
    [span] = exporter.get_finished_spans()
    assert span.status.status_code == StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "refused"
    assert span.attributes["messaging.system"] == "rabbitmq"
    assert span.links == ()
    assert "c4n4ry" not in span.to_json()


def test_off_nothing_is_imported_and_no_header_is_written(path: Path) -> None:
    add(path, Outbox(), Event("Order", 1, "Placed", {}))
    assert stored_headers(path) == [{}]
    code = (
        "import sys, commitrelay; commitrelay.Outbox()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_on_without_a_provider_no_header_is_written(path: Path) -> None:
    add(path, Outbox(tracing=True), Event("Order", 1, "Placed", {}))
    assert stored_headers(path) == [{}]


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import commitrelay\n"
        "try: commitrelay.Outbox(tracing=True)\n"
        "except commitrelay.MissingExtra as error: assert error.extra == 'otel'\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
