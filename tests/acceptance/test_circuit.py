"""`commitrelay status` says that a relay waits for its broker, and why; as long as it is so."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event
from tests.acceptance.cli import as_json, start, succeed
from tests.acceptance.operating import add
from tests.acceptance.test_monitoring import eventually, free_port
from tests.support.services import DedicatedServer

PASSWORD = "c4n4ry-p4ssw0rd"


class Status:
    """What the real program says of one outbox."""

    def __init__(self, url: str) -> None:
        self._url = url

    def lane(self) -> Any:
        return as_json("status", "--database", self._url)["lanes"][0]

    def text(self) -> str:
        return succeed("status", "--database", self._url)

    def once_circuit_is(self, state: str | None) -> Any:
        def matching() -> Any:
            lane = self.lane()
            return lane if lane["circuit"] == state else None

        return eventually(matching)

    def watched(self) -> Any:
        """The first that `--watch` shows."""
        with running("status", "--watch", "--json", "--database", self._url) as watch:
            assert watch.stdout is not None
            return json.loads(watch.stdout.readline())["lanes"][0]


@contextmanager
def running(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = start(*arguments, **variables)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.fixture
def database(sqlite_path: Path) -> str:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)
    return url


def test_a_broker_that_stops_and_returns(
    database: str, dedicated_server: Callable[[str], DedicatedServer]
) -> None:
    status, server = Status(database), dedicated_server("redis")
    assert status.lane()["circuit"] is None
    with running(
        *("run", "--relay-name", "harbour", "--metrics-listen", "none"),
        COMMITRELAY_DATABASE=database,
        COMMITRELAY_PUBLISH=f"{server.url}?delivery_timeout_seconds=2",
    ):
        add(database, Event("Order", "1", "OrderPaid", {}))
        eventually(lambda: status.lane()["last_published_at"])
        assert status.lane()["circuit"] == "closed"
        server.stop()
        add(database, Event("Order", "2", "OrderPaid", {}))
        lane = status.once_circuit_is("open")
        held_off = lane["open_circuits"]["harbour"]
        address = server.url.rpartition("/")[2]
        assert address in held_off["error"]
        assert held_off["open_seconds"] >= 0
        assert lane["relays"]["harbour"]["buckets"] == 64
        text = status.text()
        assert "circuit open in lane default: relay harbour has waited " in text
        assert held_off["error"] in text
        assert status.watched()["circuit"] == "open"
        server.start()
        lane = status.once_circuit_is("closed")
        assert lane["open_circuits"] == {}
        assert "circuit open" not in status.text()
        eventually(lambda: status.lane()["counts"]["pending"] == 0)
    assert status.lane()["circuit"] is None


def test_a_relay_that_waits_from_its_start_and_is_killed(database: str) -> None:
    """It has no lease yet. What it said is not believed for longer than one."""
    status, port = Status(database), free_port()
    with running(
        *("run", "--relay-name", "harbour", "--metrics-listen", "none", "--lease", "3s"),
        COMMITRELAY_DATABASE=database,
        COMMITRELAY_PUBLISH=f"redis://relay:{PASSWORD}@127.0.0.1:{port}?delivery_timeout_seconds=1",
    ) as relay:
        lane = status.once_circuit_is("open")
        assert lane["relays"] == {}
        assert f"127.0.0.1:{port}" in lane["open_circuits"]["harbour"]["error"]
        text = status.text()
        assert "relay harbour has waited " in text
        assert "No relay is running" not in text
        assert PASSWORD not in json.dumps(lane) + text
        relay.kill()
        status.once_circuit_is(None)
        assert "No relay is running" in status.text()
