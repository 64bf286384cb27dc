"""Appends the lines of each batch to a file that stays open, and syncs it: no lock, no repair."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from json.encoder import encode_basestring as quoted
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from commitrelay.bench.encoded_sender import EncodedSender
from commitrelay.publishers.file import LOCK_NAME, SUFFIX
from commitrelay.publishers.jsonline import escaped
from commitrelay.publishers.settings import Settings


class Sender(EncodedSender):
    def __init__(self, url: str, topic: str, options: dict[str, str]) -> None:
        parts = urlsplit(url)
        self._path = Path(unquote(parts.path)) / f"{topic}{SUFFIX}"
        self._topic = quoted(topic)
        self._is_synced = Settings("file", options, parts.query).boolean("fsync", True)
        self._thread = ThreadPoolExecutor(1)
        self._kinds: dict[tuple[str, str, str], tuple[str, str]] = {}

    async def open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        (self._path.parent / LOCK_NAME).touch()  # nobody reads a directory without one
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        kinds = self._kinds
        lines: list[bytes] = []
        for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows:
            shared = kinds.get((event_type, kind, content_type))
            before, after = shared or self._learn(event_type, kind, content_type)
            name = quoted(key)
            head = (
                f'{{"id":"{event_id}","topic":{self._topic},"key":{name},"headers":{{'
                f'"event-id":"{event_id}",{before}{name},{after}"{created_at}"}},"payload":"'
            )
            lines += (head.encode(), escaped(payload), b'"}\n')
        return b"".join(lines)

    async def send(self, rows: list[tuple[Any, ...]]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, lambda: self._append(self.encode(rows)))

    async def write(self, encoded: bytes, count: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._append, encoded)

    async def close(self) -> None:
        self._thread.shutdown()
        os.close(self._file)

    def _learn(self, event_type: str, kind: str, content_type: str) -> tuple[str, str]:
        """What lies between the id, the key and the time of every event of a kind."""
        before = f'"event-type":{quoted(event_type)},"aggregate-type":{quoted(kind)},'
        after = f'"content-type":{quoted(content_type)},"created-at":'
        made = self._kinds[event_type, kind, content_type] = f'{before}"aggregate-id":', after
        return made

    def _append(self, encoded: bytes) -> None:
        rest = memoryview(encoded)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        if self._is_synced:
            os.fsync(self._file)
