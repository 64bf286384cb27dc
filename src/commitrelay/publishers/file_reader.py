"""TopicReader: follows the topics that the file publisher writes, whole lines only."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commitrelay.errors import PublisherError
from commitrelay.publishers.file import LOCK_NAME, SUFFIX, locked
from commitrelay.publishers.jsonline import decode_line

DEFAULT_POLL_BYTES = 8 * 1024 * 1024


class FileMessage(NamedTuple):
    """One line of a topic: the message, and where it starts in the file."""

    topic: str
    key: str
    value: bytes
    headers: list[tuple[str, str]]
    event_id: str
    offset: int


class TopicReader:
    """Reads one topic of a directory, or all of them, from the start or from given offsets."""

    def __init__(
        self,
        directory: str | Path,
        topic: str | None = None,
        *,
        offsets: dict[str, int] | None = None,
        poll_bytes: int = DEFAULT_POLL_BYTES,
        lock_timeout_seconds: float = 10.0,
    ) -> None:
        self.directory = Path(directory)
        self.topic = topic
        self.offsets: dict[str, int] = dict(offsets or {})  # where the next line of each starts
        self._poll_bytes = poll_bytes
        self._lock_timeout_seconds = lock_timeout_seconds

    def poll(self) -> list[FileMessage]:
        """What was appended since the last call, about `poll_bytes` per topic at most."""
        if not (self.directory / LOCK_NAME).exists():
            return []
        # Under the lock no batch is half written, and none that failed is there to be withdrawn.
        with locked(self.directory, fcntl.LOCK_SH, self._lock_timeout_seconds):
            texts = {path.stem: self._read(path) for path in self._paths()}
        messages = [each for topic, text in texts.items() for each in self._parse(topic, text)]
        for topic, text in texts.items():
            self.offsets[topic] = self.offsets.get(topic, 0) + len(text)
        return messages

    def follow(self, idle_seconds: float = 0.02) -> Iterator[FileMessage]:
        """Every message, for ever; sleeps when there is none."""
        while True:
            messages = self.poll()
            yield from messages
            if not messages:
                time.sleep(idle_seconds)

    def _paths(self) -> list[Path]:
        if self.topic is not None:
            path = self.directory / f"{self.topic}{SUFFIX}"
            return [path] if path.exists() else []
        return sorted(self.directory.glob(f"*{SUFFIX}"))

    def _read(self, path: Path) -> bytes:
        """Whole lines from the topic's offset on; at least one if there is one."""
        wanted = self._poll_bytes
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self.offsets.get(path.stem, 0):
                self.offsets[path.stem] = 0  # somebody emptied or replaced the file
            file.seek(self.offsets.get(path.stem, 0))
            text = file.read(wanted)
            while len(text) == wanted and b"\n" not in text:
                text += file.read(wanted)
                wanted *= 2
        return text[: text.rfind(b"\n") + 1]

    def _parse(self, topic: str, text: bytes) -> Iterator[FileMessage]:
        offset = self.offsets.get(topic, 0)
        for line in text.split(b"\n")[:-1]:
            try:
                message = decode_line(line)
            except (ValueError, KeyError, TypeError) as error:
                raise PublisherError(
                    f"{self.directory / topic}{SUFFIX} has a line at byte {offset} that no relay "
                    f"wrote ({error!r}): remove it, or start behind it"
                ) from error
            yield FileMessage(*message, offset)
            offset += len(line) + 1
