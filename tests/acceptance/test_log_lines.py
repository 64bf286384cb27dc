"""Every line that a daemon logs about an event names it, by fields that machines can search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event
from tests.acceptance.cli import commitrelay, succeed
from tests.acceptance.operating import add
from tests.consumer import services

HANDLERS = """
from commitrelay import Consumer, ConsumerOptions, RetryPolicy

retry = RetryPolicy(delays_seconds=(0.01,))
consumer = Consumer("billing", options=ConsumerOptions(retry=retry))

@consumer.on("Placed")
def placed(connection, event):
    raise RuntimeError("no more")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/outbox.db"
    succeed("init", "--database", url)
    return url


def relay(url: str, form: str, tmp_path: Path, letters: str) -> list[str]:
    """What it logs about an event that is too large and dies."""
    return commitrelay(
        "run", "--drain", "--log-format", form,
        COMMITRELAY_DATABASE=url,
        COMMITRELAY_PUBLISH=f"file://{tmp_path}/topics?max_message_bytes=100",
        COMMITRELAY_RETRY_DELAYS="10ms",
        COMMITRELAY_DEAD_LETTER_TOPIC="dead",
        COMMITRELAY_DEAD_LETTER_PUBLISH=letters,
        COMMITRELAY_METRICS_LISTEN="none",
    ).stderr.splitlines()  # fmt: skip


def parsed(lines: list[str], word: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in entries if word in entry["message"]]


@pytest.mark.parametrize("letters", ["taken", "refused"])
def test_a_relay_names_event_key_and_lane(url: str, tmp_path: Path, letters: str) -> None:
    [event_id] = add(url, Event("Order", "42", "Placed", "x" * 500))
    room = 100 if letters == "refused" else 100_000
    lines = relay(url, "json", tmp_path, f"file://{tmp_path}/letters?max_message_bytes={room}")
    told = parsed(lines, event_id)
    says = [
        f"Placed {event_id} of Order/42 refused, again in",
        f"Placed {event_id} of Order/42 is dead after 2 attempts",
        f"dead letter of event {event_id} of Order/42 refused"
        if letters == "refused"
        else f"sent dead event {event_id} of Order/42 to dead",
    ]
    assert len(told) == len(says)
    for entry, start in zip(told, says, strict=True):
        assert entry["message"].startswith(start)
        named = {"event_id": event_id, "key": "Order/42", "lane": "default"}
        assert named.items() <= entry.items()


def test_on_a_terminal_it_names_them_once(url: str, tmp_path: Path) -> None:
    [event_id] = add(url, Event("Order", "42", "Placed", "x" * 500))
    lines = relay(url, "text", tmp_path, f"file://{tmp_path}/letters")
    told = [line for line in lines if event_id in line]
    assert len(told) == 3
    for line in told:
        assert (line.count(event_id), line.count("Order/42")) == (1, 1)
        assert line.endswith("  lane=default")


@pytest.mark.parametrize("on_failure", ["stop", "dead_letter"])
def test_a_consumer_names_event_and_key(url: str, tmp_path: Path, on_failure: str) -> None:
    event = Event("Order", "42", "Placed", {})
    (tmp_path / "handlers.py").write_text(HANDLERS)
    services.publish(tmp_path / "topics", [event], topic="orders")
    letters = {"COMMITRELAY_DEAD_LETTER": f"file://{tmp_path}/dead"}
    done = commitrelay(
        "consume", "--module", "handlers", "--until-idle", cwd=tmp_path,
        COMMITRELAY_DATABASE=url,
        COMMITRELAY_FROM=f"file://{tmp_path}/topics?topic=orders",
        COMMITRELAY_METRICS_LISTEN="none",
        **(letters if on_failure == "dead_letter" else {}),
    )  # fmt: skip
    told = parsed(done.stderr.splitlines(), "attempt")
    assert len(told) == 2, done.stderr
    for entry in told:
        assert (entry["event_id"], entry["key"]) == (str(event.id), "Order/42")
        assert entry["event_type"] == "Placed"
