"""A relay purges what is past its retention, archived first if it has an archive."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from commitrelay import maintenance
from commitrelay.archive import read_archive
from commitrelay.daemon import Daemon
from commitrelay.settings import Settings
from commitrelay.testing import opened
from tests.support.stores import SqliteHarness


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PURGE_SECONDS", 0.05)


def settings(path: Path, folder: Path, **more: Any) -> Settings:
    return Settings(
        database=f"sqlite:///{path}",
        publish=(folder / "topics").as_uri(),
        retention=0.01,
        metrics_listen=None,
        **more,
    )


async def run_until(daemon: Daemon, condition: Any) -> None:
    task = asyncio.create_task(daemon.run())
    async with asyncio.timeout(60):
        while not condition():
            assert not task.done(), task.exception()
            await asyncio.sleep(0.02)
    daemon.stop()
    await task


def test_what_a_relay_deletes_is_archived_if_asked(sqlite_path: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"

    async def case() -> None:
        async with opened(SqliteHarness(sqlite_path)) as scene:
            await scene.store.leave(scene.fence)
            seqs = scene.add("a", "b", "c")
            daemon = Daemon(settings(sqlite_path, tmp_path, archive=str(archive)))
            await run_until(daemon, lambda: scene.added() == 0)
            kept = [row for path in archive.iterdir() for row in read_archive(path)]
            assert sorted(row["seq"] for row in kept) == seqs
            assert {row["deliveries"][0]["status"] for row in kept} == {"published"}

    asyncio.run(case())


def test_without_an_archive_it_just_deletes(sqlite_path: Path, tmp_path: Path) -> None:
    async def case() -> None:
        async with opened(SqliteHarness(sqlite_path)) as scene:
            await scene.store.leave(scene.fence)
            scene.add("a", "b", "c")
            await run_until(Daemon(settings(sqlite_path, tmp_path)), lambda: scene.added() == 0)

    asyncio.run(case())
    assert not (tmp_path / "archive").exists()


def test_an_archive_that_fails_keeps_events_and_the_relay_going(
    sqlite_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    caplog.set_level(logging.WARNING, "commitrelay.maintenance")

    async def case() -> None:
        async with opened(SqliteHarness(sqlite_path)) as scene:
            await scene.store.leave(scene.fence)
            scene.add("a", "b", "c")
            daemon = Daemon(settings(sqlite_path, tmp_path, archive=str(tmp_path / "file" / "x")))
            await run_until(daemon, lambda: "purge put off" in caplog.text)
            assert scene.added() == 3

    asyncio.run(case())
    topic = tmp_path / "topics" / "order.events.jsonl"
    assert len([json.loads(line) for line in topic.read_text().splitlines()]) == 3
