"""docs/tutorial/exactly-once.md, done step by step, ends as the page says."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "exactly-once.md"
STEPS = re.split(r"^## \d\. ", PAGE.read_text("utf-8"), flags=re.M)[1:]


def do(step: str, directory: Path) -> str:
    """Save the step's files and run its commands; what they printed."""
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", step, re.S):
        (directory / name).write_text(text, "utf-8")
    printed = ""
    for script in re.findall(r"```sh\n(.*?)```", step, re.S):
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=directory,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout
    return printed


def test_from_a_lost_event_to_exactly_once(tmp_path: Path) -> None:
    lose, outbox, twice, once, _workflow = STEPS
    told = int(do(lose, tmp_path).split()[0])
    assert 900 < told < 1000
    assert do(outbox, tmp_path).split()[-2] == "1000"
    do(twice, tmp_path)
    assert len((tmp_path / "topics" / "order.events.jsonl").read_text().splitlines()) == 2000
    assert "(1000, 1000)" in do(once, tmp_path)


def test_the_inbox_in_three_lines(tmp_path: Path) -> None:
    (example,) = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
        if "inbox = Inbox" in block
    ]  # fmt: skip
    database = tmp_path / "billing.db"
    subprocess.run(
        [sys.executable, "-m", "commitrelay", "init", "--database", f"sqlite:///{database}"],
        check=True,
    )
    from commitrelay import Inbox  # noqa: PLC0415

    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE charges (id INTEGER)")
        for _delivery in range(3):
            exec(example, {"Inbox": Inbox, "db": db, "event_id": "e-1", "order": 7})
        assert db.execute("SELECT count(*) FROM charges").fetchone() == (1,)


@pytest.mark.parametrize("picture", re.findall(r"\((pictures/[^)]+)\)", PAGE.read_text("utf-8")))
def test_its_pictures_are_there(picture: str) -> None:
    assert (PAGE.parent / picture).is_file()
