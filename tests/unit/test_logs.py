"""Logs: lines for people, objects for machines, passwords for nobody."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from commitrelay import logs


@pytest.fixture
def stream() -> Iterator[StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("commitrelay")
    before = (root.handlers[:], root.level, ours.level)
    yield StringIO()
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_json_lines_carry_extras_and_no_password(stream: StringIO) -> None:
    logs.set_up("info", "auto", stream=stream)
    logging.getLogger("commitrelay.relay").info(
        "waiting for %s\npassword=c4n4ry",
        "postgresql://u:c4n4ry@h/d",
        extra={"lane": "default", "url": "kafka://u:c4n4ry@h:1", "count": 3},
    )
    (line,) = stream.getvalue().splitlines()
    assert "c4n4ry" not in line
    entry = json.loads(line)
    assert entry["message"] == "waiting for postgresql://u:***@h/d password=***"
    assert (entry["level"], entry["lane"], entry["count"]) == ("info", "default", 3)


def test_text_lines(stream: StringIO) -> None:
    logs.set_up("warning", "text", stream=stream)
    logger = logging.getLogger("commitrelay.relay")
    logger.info("not shown")
    logger.warning("broker is down", extra={"url": "kafka://u:c4n4ry@h:1"})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("warning  broker is down  url=kafka://u:***@h:1")


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_password_in_a_traceback(stream: StringIO, form: str) -> None:
    logs.set_up("info", form, stream=stream)
    try:
        raise RuntimeError("cannot reach postgresql://u:c4n4ry@h/d")
    except RuntimeError:
        logging.getLogger("commitrelay.relay").exception("it broke")
    assert "RuntimeError" in stream.getvalue()
    assert "c4n4ry" not in stream.getvalue()
