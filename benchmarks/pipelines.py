"""What the benchmarks of publishers share: no database, only events on their way to a broker.

The bare senders are those of `commitrelay bench`. Each run has a topic of its own; time counts from
the first batch to the last acknowledgement, with batches of 1000, up to 8 of them at a time. All
subjects take turns, and every round begins with another one; a share is taken round by round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from commitrelay import registry
from commitrelay.bench.bare import BareEvent, sender_of
from commitrelay.bench.encoded_sender import EncodedSender
from commitrelay.bench.job import Job
from commitrelay.bench.sample import Sample, ratio
from commitrelay.demo.topic import Topic
from commitrelay.publisher import DELIVERED, Message

BATCH, WINDOW, KEYS = 1000, 8, 10_000
BARE, ENCODED = "bare", "bare, encoded before"

Rows = list[tuple[Any, ...]]


def server(kind: str) -> str:
    """The URL of the broker to measure."""
    variable = f"COMMITRELAY_{kind.upper()}_URL"
    if variable not in os.environ:
        sys.exit(f'{variable} is not set: run eval "$(scripts/services env)" first')
    return os.environ[variable]


class Line(Protocol):
    """One way to send: what has to be done before the time counts, and what counts."""

    window: int

    async def open(self) -> None: ...

    def prepare(self, rows: Rows) -> Any:
        """A batch, in whatever form `send` takes it."""

    async def send(self, batch: Any) -> None:
        """Returns when all of it is acknowledged."""

    async def close(self) -> None: ...


MakeLine = Callable[[Topic], Line]


class BareLine:
    """Encodes as it goes, as the bare loop does."""

    window = WINDOW

    def __init__(self, topic: Topic) -> None:
        job = Job("bare", "", None, "", publish=topic.url, topic=topic.name)
        self._sender = sender_of(job)
        self.open, self.send, self.close = self._sender.open, self._sender.send, self._sender.close

    def prepare(self, rows: Rows) -> Rows:
        return rows


class EncodedLine:
    """Has the bytes of every batch before the time counts."""

    window = WINDOW

    def __init__(self, topic: Topic) -> None:
        sender = sender_of(Job("bare", "", None, "", publish=topic.url, topic=topic.name))
        assert isinstance(sender, EncodedSender)
        self._sender = sender
        self.open, self.close = sender.open, sender.close

    def prepare(self, rows: Rows) -> tuple[bytes, int]:
        return self._sender.encode(rows), len(rows)

    async def send(self, batch: tuple[bytes, int]) -> None:
        await self._sender.write(*batch)


class PublisherLine:
    """Our publisher: says what became of each message."""

    def __init__(self, topic: Topic, options: Mapping[str, str] | None = None) -> None:
        self._publisher = registry.publisher(topic.url, options)
        self._topic = topic.name
        self.window = self._publisher.capabilities.max_in_flight or WINDOW
        self.close = self._publisher.close

    async def open(self) -> None:
        await self._publisher.open()
        await self._publisher.recover()

    def prepare(self, rows: Rows) -> list[Message]:
        return [message_of(BareEvent(*row), self._topic) for row in rows]

    async def send(self, batch: list[Message]) -> None:
        outcomes = await self._publisher.publish(batch)
        assert all(outcome is DELIVERED for outcome in outcomes), set(map(repr, outcomes))


def message_of(event: BareEvent, topic: str) -> Message:
    """As the relay makes it, in the plain format."""
    headers = [
        ("event-id", event.id),
        ("event-type", event.event_type),
        ("aggregate-type", event.aggregate_type),
        ("aggregate-id", event.aggregate_id),
        ("content-type", event.content_type),
        ("created-at", event.created_at),
    ]
    return Message(topic, event.aggregate_id, event.payload, headers, event.id)


def make_rows(count: int, size: int) -> Rows:
    value = b"x" * size
    return [
        (
            number,
            str(uuid.UUID(int=number)),
            "Order",
            str(number % KEYS),
            "OrderPaid",
            value,
            "application/json",
            "2026-11-15T20:33:45.123456Z",
        )
        for number in range(1, count + 1)
    ]


async def run(line: Line, rows: Rows) -> tuple[float, float]:
    """The seconds that it took, and those of the processor."""
    await line.open()
    batches = [line.prepare(rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)]
    places = asyncio.Semaphore(line.window)

    async def send(batch: Any) -> None:
        await line.send(batch)
        places.release()

    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for batch in batches:
            await places.acquire()
            tasks.create_task(send(batch))
    used = time.perf_counter() - began, time.process_time() - cpu
    await line.close()
    return used


@contextmanager
def prepared(topic: Topic) -> Iterator[Topic]:
    topic.prepare()
    try:
        yield topic
    finally:
        topic.close()
        topic.remove()


def fresh_name() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


def measure(
    make_topic: Callable[[str], Topic], lines: Mapping[str, MakeLine], rows: Rows, rounds: int
) -> dict[str, Any]:
    """Each line in each round, on a topic that `make_topic` makes from a name."""
    names = list(lines)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            with prepared(make_topic(fresh_name())) as topic:
                found[name].append(asyncio.run(run(lines[name](topic), rows)))
    count = len(rows)
    rates = {name: Sample.of([count / wall for wall, _ in each]) for name, each in found.items()}
    return {
        name: {
            "events_per_second": rates[name],
            "cpu_us_per_event": Sample.of([cpu / count * 1e6 for _, cpu in each]),
            **{f"of {bare}": ratio(rates[name], rates[bare]) for bare in _bares(rates)},
        }
        for name, each in found.items()
    }


def main(
    text: str | None,
    lines: Mapping[str, MakeLine],
    topics: Mapping[str, Callable[[str], Topic]],
) -> None:
    """`topics`: by a title, what makes a topic from a name."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--payload", type=int, default=1000, help="bytes of each event")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = make_rows(options.events, options.payload)
    found = {
        title: measure(make_topic, lines, rows, options.rounds)
        for title, make_topic in topics.items()
    }
    print(json.dumps(found, indent=2, default=Sample.to_json) if options.json else _table(found))


def _bares(names: Mapping[str, Any]) -> list[str]:
    return [name for name in (BARE, ENCODED) if name in names]


def _table(found: Mapping[str, Mapping[str, Mapping[str, Sample]]]) -> str:
    lines = []
    for title, each in found.items():
        for name, figures in each.items():
            shown = [
                f"{figures['events_per_second'].median:10,.0f}/s",
                f"{figures['cpu_us_per_event'].median:5.1f} µs CPU an event",
                *(f"{figures[f'of {bare}'].median:.2f} of {bare}" for bare in _bares(each)),
                f"±{figures['events_per_second'].spread or 0:.0%}",
            ]
            lines.append(f"{title}: {name:24} {'  '.join(shown)}")
    return "\n".join(lines)
