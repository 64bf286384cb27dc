"""File source: `file:///dir?topic=orders.events`, the topics that the file publisher writes.

A partition is a topic. The group's place in it is a file of its own, replaced as a whole and
fsynced by every acknowledgement; whoever holds the lock beside it reads the topic, the others of
the group stand by.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publishers.file import SUFFIX
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.publishers.settings import Settings
from commitrelay.source import Arrival, OnRevoked, Source
from commitrelay.sources.options import group_of
from commitrelay.sources.trouble import Trouble

GROUPS = ".groups"
POLL_BYTES = 256 * 1024
DEFAULT_POLL_SECONDS = 0.05
STAND_BY_SECONDS = 0.5

T = TypeVar("T")


class FileSource:
    """Reads topics of a directory for one group; none named means all that there are."""

    def __init__(
        self,
        directory: str | Path,
        group: str,
        topics: Collection[str] = (),
        *,
        state: str | Path | None = None,
        poll_seconds: float = DEFAULT_POLL_SECONDS,
    ) -> None:
        self.directory = Path(directory)
        self._state = Path(state or self.directory / GROUPS) / quote(group, safe="")
        self._topics = tuple(topics)
        self._poll_seconds = poll_seconds
        self._held: dict[str, _Topic] = {}
        self._look_at = 0.0
        self._trouble = Trouble(self)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commitrelay-file-source")

    def __str__(self) -> str:
        return f"directory {self.directory}"

    async def open(self, on_revoked: OnRevoked) -> None:
        await self._call(self._open)

    async def read(self, limit: int, wait_seconds: float) -> Sequence[Arrival]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            if loop.time() >= self._look_at:
                await self._call(self._take_topics)
                self._look_at = loop.time() + STAND_BY_SECONDS
            arrivals = await self._call(lambda: self._read(limit))
            pause = min(self._poll_seconds, deadline - loop.time())
            if arrivals or pause <= 0:
                return arrivals
            await asyncio.sleep(pause)

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        places = {each.topic: each.position for each in arrivals}
        await self._call(lambda: self._ack(places))

    async def lag(self) -> int | None:
        return await self._call(lambda: sum(topic.lag() for topic in self._held.values()))

    async def close(self) -> None:
        await self._call(self._let_go)
        self._thread.shutdown(wait=False)

    def _call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        if not self.directory.is_dir():
            raise BrokerUnreachable(f"there is no directory {self.directory}: has a relay written?")
        try:
            self._state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BrokerUnreachable(
                f"cannot create {self._state} ({error.strerror}): check the path and its owner"
            ) from error

    def _take_topics(self) -> None:
        """Take each topic that nobody else of the group holds."""
        found = self._topics or sorted(path.stem for path in self.directory.glob(f"*{SUFFIX}"))
        for name in found:
            if name not in self._held:
                topic = _Topic(self.directory, self._state, name)
                if topic.acquire():
                    self._held[name] = topic

    def _read(self, limit: int) -> list[Arrival]:
        arrivals: list[Arrival] = []
        try:
            for topic in self._held.values():
                arrivals += topic.read(limit - len(arrivals))
        except (BrokerUnreachable, OSError) as error:
            self._trouble.goes_on(error)
        else:
            self._trouble.is_over()
        return arrivals

    def _ack(self, places: Mapping[str, object]) -> None:
        for name, place in places.items():
            if name in self._held:
                self._held[name].keep_place(int(str(place)))

    def _let_go(self) -> None:
        for topic in self._held.values():
            topic.release()
        self._held.clear()


class _Topic:
    """One topic, its lock and the group's place in it."""

    def __init__(self, directory: Path, state: Path, name: str) -> None:
        self.name = name
        self._path = directory / f"{name}{SUFFIX}"
        self._place_path = state / f"{name}.offset"
        self._lock_path = state / f"{name}.lock"
        self._directory = directory
        self._state = state
        self._lock = -1
        self._place = 0  # where the first line starts that is not acknowledged
        self._buffer: deque[Arrival] = deque()

    def acquire(self) -> bool:
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        self._place = self._kept_place()
        offsets = {self.name: self._place}
        self._reader = TopicReader(
            self._directory, self.name, offsets=offsets, poll_bytes=POLL_BYTES
        )
        return True

    def release(self) -> None:
        os.close(self._lock)  # gives the lock up as well

    def read(self, limit: int) -> Iterator[Arrival]:
        if not self._buffer and limit > 0:
            messages = self._reader.poll()
            ends = [*(each.offset for each in messages[1:]), self._reader.offsets.get(self.name, 0)]
            for message, end in zip(messages, ends, strict=False):
                _topic, key, value, headers, _id, _offset = message
                self._buffer.append(Arrival(self.name, self.name, end, key, value, headers))
        while self._buffer and limit > 0:
            limit -= 1
            yield self._buffer.popleft()

    def keep_place(self, place: int) -> None:
        """Written beside and renamed, so that there is always a whole one."""
        draft = self._place_path.with_suffix(".draft")
        with draft.open("w") as file:
            file.write(f"{place}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._place_path)
        directory = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._place = place

    def lag(self) -> int:
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
        except FileNotFoundError:
            return 0

    def _kept_place(self) -> int:
        try:
            text = self._place_path.read_text()
        except FileNotFoundError:
            return 0
        if not text.strip().isdigit():
            raise ConfigError(f"{self._place_path} holds no offset: remove it to start over")
        return int(text)


def from_url(url: str, options: Mapping[str, str]) -> Source:
    """`file:///dir?topic=a,b&group=…&state=/dir&poll_seconds=…`."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise ConfigError(f"{url!r} names no directory: write file:///path/to/directory")
    settings = Settings("file", options, parts.query, role="source")
    listed = [each.strip() for each in settings.text("topic", "").split(",")]
    source = FileSource(
        unquote(parts.path),
        group_of(settings),
        tuple(dict.fromkeys(filter(None, listed))),
        state=settings.text("state", "") or None,
        poll_seconds=settings.seconds("poll_seconds", DEFAULT_POLL_SECONDS),
    )
    settings.refuse_unknown()
    return source
