"""Alerts where no relay delivers: none has reached its broker yet, or none serves the lane."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event
from tests.acceptance.cli import as_json, commitrelay, succeed
from tests.acceptance.operating import add
from tests.acceptance.test_monitoring import Page, eventually, free_port, running
from tests.support.services import DedicatedServer
from tests.support.webhooks import Receiver

EVENT = Event("Order", "1", "OrderPaid", {})


class Pager:
    """Hears the alerts of any number of relays."""

    def __init__(self) -> None:
        self._receiver = Receiver()
        self.settings = {
            "COMMITRELAY_ALERT_WEBHOOK": f"{self._receiver.url}/#allow_private=true",
            "COMMITRELAY_ALERT_INTERVAL": "200ms",
            "COMMITRELAY_ALERT_STANDING": "1s",
            "COMMITRELAY_ALERT_LAG": "1s",
        }

    def heard(self, status: str) -> list[tuple[str, str]]:
        """Alert and lane of each notice."""
        notices = [json.loads(hook.body) for hook in list(self._receiver.taken)]
        return [(each["alert"], each["lane"]) for each in notices if each["status"] == status]

    def summary(self) -> str:
        """Of the first notice."""
        return str(json.loads(self._receiver.taken[0].body)["summary"])

    def close(self) -> None:
        self._receiver.close()


@pytest.fixture
def pager() -> Iterator[Pager]:
    pager = Pager()
    yield pager
    pager.close()


@pytest.fixture(params=["sqlite", "postgres_database", "mariadb_database"])
def database(request: pytest.FixtureRequest, sqlite_path: Path) -> str:
    kind = request.param
    url = f"sqlite:///{sqlite_path}" if kind == "sqlite" else request.getfixturevalue(kind)
    succeed("init", "--database", url)
    return str(url)


def status_of(database: str, lane: str) -> Any:
    lanes = as_json("status", "--database", database)["lanes"]
    return next(each for each in lanes if each["lane"] == lane)


def test_relays_that_never_reached_their_broker_alert_once(
    database: str, pager: Pager, dedicated_server: Callable[[str], DedicatedServer]
) -> None:
    server = dedicated_server("redis")
    server.stop()
    settings = {
        **pager.settings,
        "COMMITRELAY_DATABASE": database,
        "COMMITRELAY_PUBLISH": f"{server.url}?delivery_timeout_seconds=2",
        "COMMITRELAY_METRICS_LISTEN": "none",
    }
    expected = [("lag", "default"), ("standing", "default")]
    with running("--relay-name", "a", **settings):
        with running("--relay-name", "b", **settings):
            eventually(lambda: set(status_of(database, "default")["open_circuits"]) == {"a", "b"})
            add(database, EVENT)
            eventually(lambda: set(expected) <= set(pager.heard("raised")))
            assert status_of(database, "default")["relays"] == {}
            time.sleep(1)  # that the other one would speak up
        server.start()
        eventually(lambda: set(expected) <= set(pager.heard("cleared")))
    assert sorted(pager.heard("raised")) == expected
    assert sorted(pager.heard("cleared")) == expected


def test_a_lane_that_no_relay_serves(database: str, pager: Pager, tmp_path: Path) -> None:
    succeed("lanes", "add", "audit", "--database", database)
    page = Page(port := free_port())
    settings = {
        **pager.settings,
        "COMMITRELAY_DATABASE": database,
        "COMMITRELAY_PUBLISH": f"file://{tmp_path}/topics",
        "COMMITRELAY_ALERT_LAG": "1h",
    }
    listening = f"127.0.0.1:{port}"
    waiting = "No relay serves lane audit: 1 event waits. Start one with `commitrelay run --lane"
    doctor = ("doctor", "--check", "relays", "--database", database)
    add(database, EVENT)
    text = succeed("status", "--database", database)
    assert "No relay is running" in text
    assert "No relay serves" not in text
    succeed(*doctor)
    with running("--metrics-listen", listening, **settings):
        eventually(lambda: pager.heard("raised"))
        assert pager.summary().startswith("no relay serves lane audit: 1 event waits")
        assert waiting in succeed("status", "--database", database)
        assert page.metric('outbox_messages{lane="audit",status="pending"}') == 1
        assert "lane audit: 1 event waits" in commitrelay(*doctor).stdout
        with running("--lane", "audit", "--metrics-listen", "none", **settings):
            eventually(lambda: pager.heard("cleared"))
            assert "No relay serves" not in succeed("status", "--database", database)
            succeed(*doctor)
            gone = 'outbox_messages{lane="audit",status="pending"}'
            eventually(lambda: page.metric(gone) is None)
    assert pager.heard("raised") == pager.heard("cleared") == [("standing", "audit")]
