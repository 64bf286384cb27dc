"""File publisher: `file:///dir`, one JSON-lines file per topic, fsynced per batch.

Several relays may append to one directory. Each batch is appended under an advisory lock on
``.lock``: all of it, or, if the disk says no, nothing. A line that a crash left unfinished is cut
off before the next batch, so a reader sees whole lines only.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publisher import DELIVERED, TOPIC, VALUE, Message, Outcome, Publisher
from commitrelay.publishers.jsonline import line_pieces
from commitrelay.publishers.settings import Settings
from commitrelay.publishers.worker import WorkerPublisher

LOCK_NAME = ".lock"
SUFFIX = ".jsonl"
DEFAULT_MAX_MESSAGE_BYTES = 2 * 1024 * 1024

_TOPIC = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,200}")
_MAX_REMEMBERED = 4096
_TAIL_BYTES = 64 * 1024
_LOCK_RETRY_SECONDS = 0.001


class FilePublisher(WorkerPublisher):
    """Appends each message as one line to ``<directory>/<topic>.jsonl``."""

    def __init__(
        self,
        directory: str | Path,
        *,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        delivery_timeout_seconds: float = 10.0,
        fsync: bool = True,
    ) -> None:
        super().__init__(delivery_timeout_seconds=delivery_timeout_seconds)
        self.directory = Path(directory)
        self._max_message_bytes = max_message_bytes
        self._sync = os.fsync if fsync else _no_sync
        self._file_names: set[str] = set()  # topics that can be one

    def __str__(self) -> str:
        return f"directory {self.directory}"

    async def open(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BrokerUnreachable(
                f"cannot create {self.directory} ({error.strerror}): check the path and its owner"
            ) from error
        await super().open()

    def _connect(self) -> None:
        # A directory that was there and is gone may be a lost mount: it is not made anew.
        if not os.access(self.directory, os.R_OK | os.W_OK | os.X_OK):
            raise BrokerUnreachable(
                f"cannot write to {self.directory}: check that it exists, and its owner"
            )

    def _refusal(self, message: Message) -> str | None:
        if len(message.value) > self._max_message_bytes:
            return (
                f"the payload has {len(message.value)} bytes, the limit of {self} is "
                f"{self._max_message_bytes}: raise max_message_bytes"
            )
        if message.topic not in self._file_names:
            if not _TOPIC.fullmatch(message.topic):
                return (
                    f"topic {message.topic!r} cannot be a file name: use 1 to 200 letters, digits, "
                    "'.', '_' and '-', not starting with a dot"
                )
            if len(self._file_names) >= _MAX_REMEMBERED:
                self._file_names.clear()
            self._file_names.add(message.topic)
        return None

    def _all_fit(self, messages: Sequence[Message]) -> bool:
        largest = max([len(message[VALUE]) for message in messages])
        topics = {message[TOPIC] for message in messages}
        return largest <= self._max_message_bytes and topics <= self._file_names

    def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        lines: defaultdict[str, list[bytes]] = defaultdict(list)
        for message in messages:
            lines[message[TOPIC]] += line_pieces(message)
        with locked(self.directory, fcntl.LOCK_EX, self.delivery_timeout_seconds / 2):
            self._append({topic: b"".join(each) for topic, each in lines.items()})
        return [DELIVERED] * len(messages)

    def _append(self, texts: Mapping[str, bytes]) -> None:
        files: list[tuple[int, int]] = []
        try:
            for topic, text in texts.items():
                file = self._open_topic(topic)
                files.append((file, _cut_torn_line(file)))
                _write_all(file, text)
            for file, _ in files:
                self._sync(file)
        except OSError:
            for file, length in files:
                os.ftruncate(file, length)
            raise
        finally:
            for file, _ in files:
                os.close(file)

    def _open_topic(self, topic: str) -> int:
        path = self.directory / f"{topic}{SUFFIX}"
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            file = os.open(path, flags | os.O_CREAT, 0o666)
            self._sync_directory()
            return file

    def _sync_directory(self) -> None:
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._sync(directory)
        finally:
            os.close(directory)


@contextmanager
def locked(directory: Path, mode: int, timeout_seconds: float) -> Iterator[None]:
    """Hold the directory's lock: exclusive while a batch is appended, shared while one reads."""
    access = os.O_RDONLY if mode == fcntl.LOCK_SH else os.O_RDWR | os.O_CREAT
    lock = os.open(directory / LOCK_NAME, access | os.O_CLOEXEC, 0o666)
    try:
        _acquire(lock, mode, timeout_seconds, directory)
        yield
    finally:
        os.close(lock)  # gives the lock up as well


def from_url(url: str, options: Mapping[str, str]) -> Publisher:
    """`file:///dir?max_message_bytes=…&delivery_timeout_seconds=…&fsync=false`."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise ConfigError(f"{url!r} names no directory: write file:///path/to/directory")
    settings = Settings("file", options, parts.query)
    publisher = FilePublisher(
        unquote(parts.path),
        max_message_bytes=settings.integer("max_message_bytes", DEFAULT_MAX_MESSAGE_BYTES),
        delivery_timeout_seconds=settings.seconds("delivery_timeout_seconds", 10.0),
        fsync=settings.boolean("fsync", True),
    )
    settings.refuse_unknown()
    return publisher


def _acquire(lock: int, mode: int, timeout_seconds: float, directory: Path) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(lock, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BrokerUnreachable(
                    f"{directory / LOCK_NAME} is held by another process: end it, or wait"
                ) from None
            time.sleep(_LOCK_RETRY_SECONDS)
        else:
            return


def _cut_torn_line(file: int) -> int:
    """Remove what follows the last newline; the length of the file then."""
    size = os.fstat(file).st_size
    end = size
    while end > 0:
        start = max(0, end - _TAIL_BYTES)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(file, end)
    return end


def _write_all(file: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(file, rest) :]


def _no_sync(_file: int) -> None:
    pass
