"""I8 on the file topic: whatever is published is read back byte for byte."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from commitrelay.publisher import DELIVERED, Message
from commitrelay.publishers.file import FilePublisher
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.publishers.jsonline import decode_line, encode_line

text = st.text(st.characters(exclude_categories=["Cs"]))
payloads = st.one_of(st.binary(), text.map(str.encode))
topics = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)
messages = st.builds(
    Message,
    topic=topics,
    key=text,
    value=payloads,
    headers=st.lists(st.tuples(text, text), max_size=4),
    event_id=st.uuids().map(str),
)

PLAIN_NAMES = [
    "event-id",
    "event-type",
    "aggregate-type",
    "aggregate-id",
    "content-type",
    "created-at",
]


@st.composite
def nearly_plain(draw: st.DrawFn) -> Message:
    """As the relay makes them, or with a name or a value that is not where it mostly is."""
    event_id, key = draw(text), draw(text)
    values = [event_id, "OrderPaid", "Order", key, draw(text), draw(text)]
    names = [*PLAIN_NAMES]
    if draw(st.booleans()):
        names[draw(st.integers(0, 5))] = draw(st.sampled_from(PLAIN_NAMES))
    if draw(st.booleans()):
        values[draw(st.integers(0, 5))] = draw(text)
    headers = list(zip(names, values, strict=True))
    return Message(draw(st.sampled_from(["orders", "ü"])), key, draw(payloads), headers, event_id)


@given(messages | nearly_plain())
def test_a_line_gives_back_its_message(message: Message) -> None:
    line = encode_line(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line) == message


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(messages, max_size=5), max_size=4))
def test_a_directory_gives_back_its_messages_in_order(batches: list[list[Message]]) -> None:
    async def publish(directory: Path) -> None:
        publisher = FilePublisher(directory, fsync=False)
        await publisher.open()
        for batch in batches:
            assert all(outcome is DELIVERED for outcome in await publisher.publish(batch))
        await publisher.close()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        asyncio.run(publish(directory))
        sent = [message for batch in batches for message in batch]
        for topic in {message.topic for message in sent}:
            read = [Message(*each[:5]) for each in TopicReader(directory, topic).poll()]
            assert read == [message for message in sent if message.topic == topic]
