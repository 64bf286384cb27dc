"""Many events are edited, while somebody else edits one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commitrelay import acts as acts_module
from commitrelay.acts import EDIT, Acts, Selection
from commitrelay.revision import Revision
from commitrelay.store import EventRecord
from commitrelay.testing.store_cases.scene import opened
from tests.support.stores import SqliteHarness


def test_what_somebody_else_edits_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts_module, "EDITED_AT_ONCE", 2)

    async def case() -> None:
        async with opened(SqliteHarness(tmp_path / "outbox.db")) as scene:
            seqs = scene.add(*"abcde")
            for seq in seqs:
                await scene.fail(seq, None)
            store: Any = scene.store
            read = store.read_events
            other = Acts(await scene.another_store(), "bob")  # type: ignore[arg-type]

            async def read_late(wanted: Sequence[int]) -> Sequence[EventRecord]:
                events: Sequence[EventRecord] = await read(wanted)
                for event in events:
                    if event.seq == seqs[2]:
                        await other.edit(event, Revision(b"[]").of(event), edits=0)
                return events

            monkeypatch.setattr(store, "read_events", read_late)
            acts = Acts(store, "alice")
            plan = await acts.plan(EDIT, Selection())
            done = await acts.edit_all(plan, Revision(set_headers={"a": "1"}))
            assert (done.changed, done.left_alone) == (4, {"changed meanwhile": 1})
            assert [target.seq for target in done.edited] == [*seqs[:2], *seqs[3:]]
            monkeypatch.undo()
            after = {event.seq: event for event in await read(seqs)}
            assert (after[seqs[2]].payload, after[seqs[2]].headers) == (b"[]", {})
            assert all(after[seq].headers == {"a": "1"} for seq in seqs if seq != seqs[2])

    asyncio.run(case())
