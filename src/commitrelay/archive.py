"""Archive: events in files, before they are deleted from the log.

A file holds the events of one chunk. It is written under another name, forced to disk, renamed,
and the folder is forced to disk: a file that bears its own name is whole. What a crash left under
the other name is removed by the next archive that is opened in that folder.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from commitrelay.errors import ConfigError, MissingExtra
from commitrelay.store import EventRecord

UNFINISHED = ".part"
MAX_NAMES = 10_000


class Events(Protocol):
    """Where the events are read from."""

    async def read_events(self, seqs: Sequence[int]) -> Sequence[EventRecord]: ...


class FileArchive:
    """Writes `outbox-<first seq>-<last seq>.jsonl.gz` (or `.parquet`) into a folder."""

    def __init__(self, events: Events, folder: Path, kind: str = "jsonl") -> None:
        if kind not in WRITERS:
            raise ConfigError(f"there is no archive format {kind!r}: use {' or '.join(WRITERS)}")
        self._ending, self._write = WRITERS[kind]
        if kind == "parquet":
            _parquet()
        self._events = events
        self._folder = folder
        self.files: list[Path] = []

    async def keep(self, seqs: Sequence[int]) -> Sequence[int]:
        """Write these events away; when it returns, those that it names are on disk."""
        events = await self._events.read_events(seqs)
        if events:
            path = await asyncio.to_thread(self._keep, [as_row(event) for event in events])
            self.files.append(path)
        return [event.seq for event in events]

    def _keep(self, rows: list[dict[str, Any]]) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._clear()
            path = self._free_name(rows[0]["seq"], rows[-1]["seq"])
            unfinished = path.with_name(path.name + UNFINISHED)
            self._write(unfinished, rows)
            _force(unfinished)
            unfinished.rename(path)
            _force(self._folder)
        except OSError as error:
            raise ConfigError(
                f"cannot write the archive {self._folder}: {error.strerror or error}; "
                "nothing of it was deleted"
            ) from None
        return path

    def _free_name(self, first: int, last: int) -> Path:
        name = f"outbox-{first:019d}-{last:019d}"
        for number in range(MAX_NAMES):
            suffix = f"-{number}" if number else ""
            path = self._folder / f"{name}{suffix}.{self._ending}"
            if not path.exists():
                return path
        raise ConfigError(f"{self._folder} is full of archives of {name}: move them away")

    def _clear(self) -> None:
        for path in self._folder.glob(f"outbox-*{UNFINISHED}"):
            path.unlink(missing_ok=True)


def read_archive(path: Path) -> Iterator[dict[str, Any]]:
    """The events of an archive file, in seq order, as `FileArchive` wrote them."""
    if path.suffix == ".parquet":
        yield from _parquet().read_table(path).to_pylist()
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def payload_of(row: dict[str, Any]) -> bytes:
    """The payload of an archived event, byte for byte."""
    if row["payload"] is None:
        return base64.b64decode(row["payload_base64"])
    text: str | bytes = row["payload"]
    return text if isinstance(text, bytes) else text.encode()


def as_row(event: EventRecord) -> dict[str, Any]:
    """An event as it is archived; a payload that is no UTF-8 text comes as base64 instead."""
    payload = event.payload or b""
    try:
        text, encoded = payload.decode(), None
    except UnicodeDecodeError:
        text, encoded = None, base64.b64encode(payload).decode()
    return {
        "seq": event.seq,
        "id": event.id,
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
        "event_type": event.event_type,
        "content_type": event.content_type,
        "headers": event.headers,
        "idempotency_key": event.idempotency_key,
        "created_at": _moment(event.created_at),
        "deliver_at": _moment(event.deliver_at),
        "payload": text,
        "payload_base64": encoded,
        "deliveries": [
            {name: _plain(value) for name, value in delivery._asdict().items()}
            for delivery in event.deliveries
        ],
    }


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """One column per field; headers and deliveries as JSON, the payload as bytes."""
    import pyarrow  # noqa: PLC0415

    flat = [
        {
            **{name: row[name] for name in _TEXTS},
            "seq": row["seq"],
            "headers": json.dumps(row["headers"], ensure_ascii=False),
            "deliveries": json.dumps(row["deliveries"], ensure_ascii=False),
            "payload": payload_of(row),
        }
        for row in rows
    ]
    schema = pyarrow.schema(
        [
            ("seq", pyarrow.int64()),
            *((name, pyarrow.string()) for name in _TEXTS),
            ("headers", pyarrow.string()),
            ("deliveries", pyarrow.string()),
            ("payload", pyarrow.binary()),
        ]
    )
    _parquet().write_table(pyarrow.Table.from_pylist(flat, schema=schema), path)


WRITERS: dict[str, tuple[str, Callable[[Path, list[dict[str, Any]]], None]]] = {
    "jsonl": ("jsonl.gz", _write_lines),
    "parquet": ("parquet", _write_parquet),
}
_TEXTS = (
    *("id", "aggregate_type", "aggregate_id", "event_type", "content_type"),
    *("idempotency_key", "created_at", "deliver_at"),
)


def _parquet() -> Any:
    try:
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("parquet", "an archive of Parquet files") from None
    return pyarrow.parquet


def _force(path: Path) -> None:
    """To disk: what is written to a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    return _moment(value) if isinstance(value, datetime) else value
