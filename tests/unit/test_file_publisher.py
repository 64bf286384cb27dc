from __future__ import annotations

import asyncio
import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitrelay.errors import BrokerUnreachable, ConfigError, PublisherError
from commitrelay.publisher import DELIVERED, NOT_SENT, Outcome, Refused, Unreachable
from commitrelay.publishers import file
from commitrelay.publishers.file import FilePublisher, from_url
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.publishers.jsonline import encode_line
from commitrelay.publishers.stdout import StdoutPublisher
from commitrelay.testing.publisher_suite import message


async def publish_once(directory: Path, *numbers: int, topic: str = "t") -> list[Outcome]:
    publisher = FilePublisher(directory)
    await publisher.open()
    try:
        return list(await publisher.publish([message(topic, "k", number) for number in numbers]))
    finally:
        await publisher.close()


def read_ids(directory: Path, topic: str | None = None) -> list[str]:
    return [each.event_id for each in TopicReader(directory, topic).poll()]


# --- a crash in mid-line --------------------------------------------------------------------


@pytest.mark.parametrize("torn", [b'{"id":"k-9","to', b"x", b"x" * 200_000])
def test_a_torn_last_line_is_cut_before_the_next_batch(tmp_path: Path, torn: bytes) -> None:
    asyncio.run(publish_once(tmp_path, 1, 2))
    with (tmp_path / "t.jsonl").open("ab") as topic:
        topic.write(torn)
    assert read_ids(tmp_path) == ["k-1", "k-2"]
    asyncio.run(publish_once(tmp_path, 3))
    assert read_ids(tmp_path) == ["k-1", "k-2", "k-3"]


def test_a_file_of_nothing_but_a_torn_line_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"x" * 70_000)
    asyncio.run(publish_once(tmp_path, 1))
    assert read_ids(tmp_path) == ["k-1"]


def test_a_killed_relay_leaves_whole_lines_for_the_next(tmp_path: Path) -> None:
    """Killed in the middle of a write: the size limit of the process cuts it off, then SIGXFSZ."""
    script = f"""
import asyncio, resource, signal
from pathlib import Path
from tests.unit.test_file_publisher import publish_once
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
asyncio.run(publish_once(Path({str(tmp_path)!r}), *range(100)))
"""
    dead = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path.cwd())
    assert dead.returncode == -signal.SIGXFSZ
    assert not (tmp_path / "t.jsonl").read_bytes().endswith(b"\n")
    seen = read_ids(tmp_path)
    assert seen == [f"k-{number}" for number in range(len(seen))]
    asyncio.run(publish_once(tmp_path, 100))
    assert read_ids(tmp_path) == [*seen, "k-100"]


# --- a disk that says no ----------------------------------------------------------------------


def test_a_full_disk_takes_a_batch_back_and_stops_until_recover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 10_000
    real_write = os.write

    def write(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real_write(descriptor, data[:room])
        room -= written
        return written

    async def case() -> None:
        nonlocal room
        publisher = FilePublisher(tmp_path)
        await publisher.open()
        assert list(await publisher.publish([message("a", "k", 1)])) == [DELIVERED]
        batch = [message("b", "j", 1), message("a", "k", 2)]
        room = len(encode_line(batch[0])) + 10  # the first file takes its line, the second not
        outcomes = await publisher.publish(batch)
        assert all(isinstance(outcome, Unreachable) for outcome in outcomes)
        assert "No space left" in str(outcomes[0])
        room = 10_000
        assert list(await publisher.publish([message("c", "i", 1)])) == [NOT_SENT]
        assert read_ids(tmp_path) == ["k-1"]
        await publisher.recover()
        assert list(await publisher.publish(batch)) == [DELIVERED, DELIVERED]
        await publisher.close()

    monkeypatch.setattr(file.os, "write", write)
    asyncio.run(case())
    assert read_ids(tmp_path, "a") == ["k-1", "k-2"]
    assert read_ids(tmp_path, "b") == ["j-1"]


def test_a_batch_is_synced_before_it_counts_as_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    asyncio.run(publish_once(tmp_path, 1))
    monkeypatch.setattr(file.os, "fsync", fail)
    [outcome] = asyncio.run(publish_once(tmp_path, 2))
    assert isinstance(outcome, Unreachable)
    assert read_ids(tmp_path) == ["k-1"]


def test_a_lock_that_somebody_keeps_is_answered_in_time(tmp_path: Path) -> None:
    async def case() -> Sequence[Outcome]:
        publisher = FilePublisher(tmp_path, delivery_timeout_seconds=0.4)
        await publisher.open()
        with file.locked(tmp_path, fcntl.LOCK_EX, 1):
            outcomes = await publisher.publish([message("t", "k", 1)])
        await publisher.close()
        return outcomes

    [outcome] = asyncio.run(case())
    assert isinstance(outcome, Unreachable)
    assert "held by another process" in outcome.reason


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["../t", "/etc/t", ".hidden", "a/b", "", "t\n", "x" * 201, "ü"])
def test_a_topic_that_is_no_file_name_is_refused(tmp_path: Path, topic: str) -> None:
    [outcome] = asyncio.run(publish_once(tmp_path / "topics", 1, topic=topic))
    assert isinstance(outcome, Refused)
    assert [path.name for path in tmp_path.iterdir()] == ["topics"]
    assert not list((tmp_path / "topics").iterdir())


def test_a_refusal_holds_back_its_key_only(tmp_path: Path) -> None:
    async def case() -> None:
        publisher = FilePublisher(tmp_path)
        await publisher.open()
        outcomes = await publisher.publish(
            [message("..", "bad", 1), message("t", "bad", 2), message("t", "good", 1)]
        )
        assert isinstance(outcomes[0], Refused)
        assert list(outcomes[1:]) == [NOT_SENT, DELIVERED]
        assert list(await publisher.publish([message("t", "bad", 2)])) == [NOT_SENT]
        await publisher.recover()
        assert list(await publisher.publish([message("t", "bad", 2)])) == [DELIVERED]
        await publisher.close()

    asyncio.run(case())


def test_a_link_in_place_of_a_topic_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "t.jsonl").symlink_to(tmp_path / "victim")
    [outcome] = asyncio.run(publish_once(tmp_path / "topics", 1))
    assert isinstance(outcome, Unreachable)
    assert not (tmp_path / "victim").exists()


# --- several writers, and readers ---------------------------------------------------------------


def _write_many(directory: Path, writer: int) -> None:
    async def case() -> None:
        publisher = FilePublisher(directory, fsync=False)
        await publisher.open()
        for start in range(0, 400, 20):
            batch = [message("t", f"w{writer}", number) for number in range(start, start + 20)]
            assert all(outcome is DELIVERED for outcome in await publisher.publish(batch))
        await publisher.close()

    asyncio.run(case())


def test_several_processes_append_whole_lines_in_order(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(tmp_path, n)) for n in range(3)]
    for writer in writers:
        writer.start()
    reader = TopicReader(tmp_path, poll_bytes=1000)
    seen: dict[str, list[int]] = {}
    writing, messages = True, []
    while writing or messages:
        writing = any(writer.is_alive() for writer in writers)
        messages = reader.poll()
        for each in messages:
            seen.setdefault(each.key, []).append(int(dict(each.headers)["number"]))
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert seen == {f"w{n}": list(range(400)) for n in range(3)}


def test_a_reader_goes_on_where_it_stopped(tmp_path: Path) -> None:
    reader = TopicReader(tmp_path)
    assert reader.poll() == []
    asyncio.run(publish_once(tmp_path, 1, 2))
    first, second = reader.poll()
    assert reader.poll() == []
    asyncio.run(publish_once(tmp_path, 3))
    [third] = reader.poll()
    assert (first.offset, third.event_id) == (0, "k-3")
    again = TopicReader(tmp_path, offsets={"t": second.offset})
    assert [each.event_id for each in again.poll()] == ["k-2", "k-3"]
    assert next(TopicReader(tmp_path).follow()).event_id == "k-1"


def test_a_line_longer_than_a_poll_is_read_whole(tmp_path: Path) -> None:
    asyncio.run(publish_once(tmp_path, 1, 2))
    reader = TopicReader(tmp_path, poll_bytes=16)
    assert [each.event_id for each in reader.poll() + reader.poll()] == ["k-1", "k-2"]


def test_a_line_that_no_relay_wrote_is_named_and_nothing_is_skipped(tmp_path: Path) -> None:
    asyncio.run(publish_once(tmp_path, 1))
    size = (tmp_path / "t.jsonl").stat().st_size
    with (tmp_path / "t.jsonl").open("ab") as topic:
        topic.write(b"garbage\n")
    reader = TopicReader(tmp_path)
    for _ in range(2):
        with pytest.raises(PublisherError, match=rf"t\.jsonl has a line at byte {size} "):
            reader.poll()


# --- where and how --------------------------------------------------------------------------------


def test_from_url(tmp_path: Path) -> None:
    publisher = from_url(f"file://{tmp_path}/a%20b?max_message_bytes=5", {"fsync": "false"})
    assert isinstance(publisher, FilePublisher)
    assert publisher.directory == tmp_path / "a b"


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("file:///", {}, "names no directory"),
        ("file://host/dir", {}, "names no directory"),
        ("file:///dir?max_bytes=5", {}, "no setting 'max_bytes': use delivery_timeout_seconds"),
        ("file:///dir", {"max_message_bytes": "big"}, "max_message_bytes='big'"),
        ("file:///dir?fsync=perhaps", {}, "fsync='perhaps'"),
        ("file:///dir?delivery_timeout_seconds=0", {}, "seconds above 0"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_url(url, options)


def test_a_directory_that_cannot_be_made_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerUnreachable, match="cannot create"):
        asyncio.run(FilePublisher(tmp_path / "file" / "topics").open())


def test_a_closed_pipe_is_unreachable_for_good() -> None:
    async def case() -> None:
        reading, writing = os.pipe()
        publisher = StdoutPublisher(writing)
        await publisher.open()
        os.close(reading)
        [outcome] = await publisher.publish([message("t", "k", 1)])
        assert isinstance(outcome, Unreachable)
        with pytest.raises(BrokerUnreachable, match="reader has gone away"):
            await publisher.recover()
        await publisher.close()
        os.close(writing)

    asyncio.run(case())


def test_a_payload_too_large_is_refused_on_a_topic_that_is_known_as_well(tmp_path: Path) -> None:
    async def case() -> None:
        publisher = FilePublisher(tmp_path, max_message_bytes=10)
        await publisher.open()
        small = message("t", "k", 1)._replace(value=b"x" * 10)
        large = message("t", "k", 2)._replace(value=b"x" * 11)
        assert list(await publisher.publish([small])) == [DELIVERED]
        (outcome,) = await publisher.publish([large])
        assert isinstance(outcome, Refused)
        await publisher.close()

    asyncio.run(case())
    assert read_ids(tmp_path) == ["k-1"]
