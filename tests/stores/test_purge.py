"""A purge with an archive: in files first, and nothing deleted that is in none."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from commitrelay.archive import FileArchive, payload_of, read_archive
from commitrelay.errors import ConfigError
from commitrelay.purge import Purge, Purged
from commitrelay.testing import Scene, opened
from tests.support.stores import SqliteHarness

Case = Callable[[Scene], Awaitable[None]]


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def play(sqlite_path: Path) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        async def scene() -> None:
            async with opened(SqliteHarness(sqlite_path)) as each:
                await case(each)

        asyncio.run(scene())

    return run


async def settled(scene: Scene, number: int) -> list[int]:
    """So many events that are delivered and old."""
    seqs = scene.add(*(str(each) for each in range(number)), headers='{"a": "ä"}')
    await scene.deliver(*seqs)
    scene.harness.pass_time(60)
    return seqs


def purge(scene: Scene, archive: Any = None, **options: Any) -> Purge:
    return Purge(
        scene.store,
        retention_seconds=30,
        archive=archive,
        pause_seconds=0,
        **{"page": 10, **options},
    )


def archived(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("outbox-*")) for row in read_archive(path)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_archived_is_read_back_byte_for_byte(
    play: Callable[[Case], None], tmp_path: Path, kind: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")

    async def case(scene: Scene) -> None:
        with scene.connected() as connection:
            connection.execute(
                "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload,"
                " headers, idempotency_key) VALUES ('Ördér', '1', 'Paid', x'ff00', '{}', 'k'),"
                " ('Ördér', '1', 'Paid', '{\"é\":1}', '{\"x\":\"y\"}', NULL)"
            )
        await scene.deliver(1, 2)
        scene.harness.pass_time(60)
        archive = FileArchive(scene.store, tmp_path, kind)
        assert await purge(scene, archive).run() == Purged(deleted=2, archived=2)
        binary, text = archived(tmp_path)
        assert (payload_of(binary), payload_of(text)) == (b"\xff\x00", '{"é":1}'.encode())
        assert (binary["aggregate_type"], binary["idempotency_key"]) == ("Ördér", "k")
        assert '"published"' in str(binary["deliveries"]).replace("'", '"')
        assert "x" in text["headers"]

    play(case)


def test_many_events_are_archived_in_files_of_bounded_size(
    play: Callable[[Case], None], tmp_path: Path
) -> None:
    async def case(scene: Scene) -> None:
        seqs = await settled(scene, 250)
        (pending,) = scene.add("pending")
        done = await purge(scene, FileArchive(scene.store, tmp_path)).run()
        assert done == Purged(deleted=250, archived=250)
        assert [row["seq"] for row in archived(tmp_path)] == seqs
        assert scene.query("SELECT seq FROM @event") == [(pending,)]

    play(case)
    first, *others = sorted(tmp_path.glob("outbox-*"))
    assert len(others) == 1, "20 pages make a file"
    with gzip.open(first) as lines:
        assert lines.readline().startswith(b'{"seq":')


def test_a_file_is_on_disk_before_anything_is_deleted(
    play: Callable[[Case], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def recorded_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == tmp_path or path.name.startswith("outbox-"):
            happened.append("folder" if path == tmp_path else "file")
        fsync(descriptor)

    def recorded_rename(path: Path, target: Path) -> Path:
        happened.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)

    async def case(scene: Scene) -> None:
        await settled(scene, 3)
        delete = scene.store.delete_settled

        async def recorded_delete(seqs: Sequence[int]) -> int:
            happened.append("delete")
            return await delete(seqs)

        monkeypatch.setattr(scene.store, "delete_settled", recorded_delete)
        await purge(scene, FileArchive(scene.store, tmp_path)).run()

    play(case)
    assert happened == ["file", "rename", "folder", "delete"]


@pytest.mark.parametrize("point", ["writing", "renaming", "deleting", "between two deletes"])
def test_a_crash_loses_nothing(
    play: Callable[[Case], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async def case(scene: Scene) -> None:
        seqs = await settled(scene, 30)
        archive = FileArchive(scene.store, tmp_path)
        with monkeypatch.context() as patch:
            break_at(point, scene, archive, patch)
            with pytest.raises(Crash):
                await purge(scene, archive).run()
        left = {seq for (seq,) in scene.query("SELECT seq FROM @event")}
        safe = {row["seq"] for row in archived_whole(tmp_path)}
        assert left | safe == set(seqs), "every event is here or there"
        again = FileArchive(scene.store, tmp_path)
        assert (await purge(scene, again).run()).deleted == len(left)
        assert {row["seq"] for row in archived(tmp_path)} == set(seqs)

    play(case)
    assert not list(tmp_path.glob("*.part"))


def break_at(point: str, scene: Scene, archive: FileArchive, patch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise Crash

    deletes = iter([True, False])
    delete = scene.store.delete_settled

    async def deletes_once(seqs: Sequence[int]) -> int:
        if point == "between two deletes" and next(deletes):
            return await delete(seqs)
        raise Crash

    def half_written(path: Path, _rows: Any) -> None:
        path.write_bytes(b"half a fi")
        raise Crash

    if point == "writing":
        patch.setattr(archive, "_write", half_written)
    elif point == "renaming":
        patch.setattr(Path, "rename", crash)
    else:
        patch.setattr(scene.store, "delete_settled", deletes_once)


def archived_whole(folder: Path) -> list[dict[str, Any]]:
    paths = [path for path in sorted(folder.glob("outbox-*")) if path.suffix != ".part"]
    return [row for path in paths for row in read_archive(path)]


def test_an_archive_that_cannot_be_written_deletes_nothing(
    play: Callable[[Case], None], tmp_path: Path
) -> None:
    async def case(scene: Scene) -> None:
        await settled(scene, 3)
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ConfigError, match="nothing of it was deleted"):
            await purge(scene, FileArchive(scene.store, tmp_path / "file" / "x")).run()
        assert scene.added() == 3

    play(case)


def test_only_what_was_archived_is_deleted(play: Callable[[Case], None], tmp_path: Path) -> None:
    class Forgetful(FileArchive):
        async def keep(self, seqs: Sequence[int]) -> Sequence[int]:
            return await super().keep(seqs[1:])

    async def case(scene: Scene) -> None:
        first, *_ = await settled(scene, 5)
        assert (await purge(scene, Forgetful(scene.store, tmp_path)).run()).deleted == 4
        assert scene.query("SELECT seq FROM @event") == [(first,)]

    play(case)


def test_counting_stops_at_the_cap(play: Callable[[Case], None]) -> None:
    async def case(scene: Scene) -> None:
        await settled(scene, 25)
        assert await purge(scene).count(cap=100) == 25
        assert await purge(scene).count(cap=15) == 15
        assert scene.added() == 25

    play(case)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'csv'"):
        FileArchive(None, tmp_path, "csv")  # type: ignore[arg-type]
