"""What a running relay shows and tells: metrics, probes, alerts, dead letters."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from standardwebhooks import Webhook

from commitrelay import Event, Outbox
from tests.acceptance import operating
from tests.acceptance.cli import commitrelay, start, succeed
from tests.support.webhooks import Receiver

T = TypeVar("T")
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PATIENCE_SECONDS = 60.0


def eventually(ask: Callable[[], T | None]) -> T:
    """What `ask` answers as soon as it is anything; fails if that takes a minute."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends_at:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"nothing for {PATIENCE_SECONDS:g} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Page:
    """The endpoint of a running relay."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float | None:
        for line in self.get("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            if series == name:
                return float(value)
        return None


@pytest.fixture
def outbox(sqlite_path: Path) -> str:
    url = f"sqlite:///{sqlite_path}"
    succeed("init", "--database", url)
    return url


def add(url: str, *events: Event) -> list[str]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)) as connection:
        added = Outbox().add(connection, *events)
        connection.commit()
    return [str(each) for each in added]


@contextmanager
def running(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = start("run", *arguments, **variables)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def test_metrics_and_probes(outbox: str, tmp_path: Path) -> None:
    port = free_port()
    page = Page(port)
    arguments = ("--database", outbox, "--publish", f"file://{tmp_path}/topics")
    with running(*arguments, "--metrics-listen", f"127.0.0.1:{port}"):
        eventually(lambda: page.get("/readyz")[0] == 200)
        assert page.get("/livez") == (200, "ok\n")
        assert page.get("/")[0] == 404
        add(outbox, *(Event("Order", number, "OrderPlaced", {}) for number in range(5)))
        eventually(lambda: page.metric('outbox_published_total{lane="default"}') == 5)
        text = page.get("/metrics")[1]
    lines = text.splitlines()
    for line in (
        'outbox_relay_up{lane="default"} 1',
        'outbox_messages{lane="default",status="dead"} 0',
        'outbox_blocked_keys{lane="default"} 0',
        'outbox_publish_failures_total{lane="default",reason="refused"} 0',
        'outbox_lease_lost_total{lane="default"} 0',
        'outbox_delivery_latency_seconds_count{lane="default"} 5',
        'outbox_in_flight{lane="default"} 0',
    ):
        assert line in lines
    assert "OrderPlaced" not in text


def test_not_ready_while_the_database_does_not_answer(tmp_path: Path) -> None:
    port = free_port()
    page = Page(port)
    listen = ("--metrics-listen", f"127.0.0.1:{port}")
    database = f"postgresql://u:c4n4ry@127.0.0.1:{free_port()}/d"
    with running("--publish", f"file://{tmp_path}", *listen, COMMITRELAY_DATABASE=database):
        eventually(lambda: page.get("/livez")[0] == 200)
        assert page.get("/readyz")[0] == 503
        text = page.get("/metrics")[1]
        assert 'outbox_relay_up{lane="default"} 0' in text
        assert "outbox_messages{" not in text
        assert "c4n4ry" not in text


@pytest.mark.parametrize("kind", ["postgres_database", "mariadb_database"])
def test_a_dead_letter_from_every_database(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(kind)
    succeed("init", "--database", url)
    settings = tmp_path / "relay.toml"
    settings.write_text(f"""
        database = "{url}"
        publish = "file://{tmp_path}/topics?max_message_bytes=100"
        retry_delays = ["50ms"]
        dead_letter_topic = "dead"
        dead_letter_publish = "file://{tmp_path}/dead"
    """)
    payload = json.dumps("é" * 200, ensure_ascii=False)
    [bad, _good] = operating.add(
        url, Event("Order", "42", "OrderPlaced", payload), Event("Order", "43", "OrderPlaced", {})
    )
    succeed("run", "--drain", "--config", str(settings))
    [line] = (tmp_path / "dead" / "dead.jsonl").read_text("utf-8").splitlines()
    letter = json.loads(line)
    assert letter["headers"]["event-id"] == bad
    assert len(json.loads(letter["headers"]["dead-letter-history"])) == 1
    assert letter["headers"]["created-at"].endswith("Z")
    assert letter["payload"] == payload


def test_a_dead_letter_is_sent_and_alerted_until_it_is_gone(outbox: str, tmp_path: Path) -> None:
    receiver = Receiver()
    told = tmp_path / "told.jsonl"
    (tmp_path / "tell").write_text(f"#!/bin/sh\ncat >> {told}\n")
    (tmp_path / "tell").chmod(0o755)
    settings = tmp_path / "relay.toml"
    settings.write_text(f"""
        database = "{outbox}"
        publish = "file://{tmp_path}/topics?max_message_bytes=100"
        retry_delays = ["50ms"]
        metrics_listen = "none"
        dead_letter_topic = "{{aggregate_type|lower}}.dead"
        dead_letter_publish = "file://{tmp_path}/dead"
        alert_webhook = "{receiver.url}/hook#allow_private=true&secret={SECRET}"
        alert_command = "{tmp_path}/tell"
        alert_interval = "200ms"
    """)
    [event_id] = add(outbox, Event("Order", "42", "OrderPlaced", "x" * 200, headers={"a": "b"}))
    with running("--config", str(settings)):
        raised = eventually(lambda: receiver.taken and receiver.taken[0])
        body = json.loads(raised.body)
        Webhook(SECRET).verify(raised.body, raised.headers)
        assert (body["status"], body["alert"], body["lane"]) == ("raised", "dead_letter", "default")
        assert body["events"][0]["id"] == event_id
        assert body["events"][0]["aggregate_id"] == "42"
        with closing(sqlite3.connect(outbox.removeprefix("sqlite:///"), timeout=20)) as connection:
            connection.execute("DELETE FROM outbox_queue")
            connection.commit()
        cleared = eventually(lambda: len(receiver.taken) > 1 and receiver.taken[1])
        eventually(lambda: told.exists() and len(told.read_text().splitlines()) == 2)
    receiver.close()
    assert json.loads(cleared.body)["status"] == "cleared"
    assert json.loads(cleared.body)["incident"] == body["incident"]
    assert [json.loads(line)["status"] for line in told.read_text().splitlines()] == [
        "raised",
        "cleared",
    ]
    [line] = (tmp_path / "dead" / "order.dead.jsonl").read_text("utf-8").splitlines()
    letter: dict[str, Any] = json.loads(line)
    headers = letter["headers"]
    assert headers["event-id"] == event_id
    assert headers["a"] == "b"
    assert "bytes" in headers["dead-letter-error"]
    assert headers["dead-letter-attempts"] == "2"
    assert headers["dead-letter-lane"] == "default"
    assert [each["attempt"] for each in json.loads(headers["dead-letter-history"])] == [1]


def test_systemd_is_told(outbox: str, tmp_path: Path) -> None:
    """Ready, alive and stopping, over the socket that systemd would listen on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_SECONDS)
        watched = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1500000"}
        arguments = ("--database", outbox, "--publish", f"file://{tmp_path}/topics")
        with running(*arguments, "--metrics-listen", "none", **watched):
            told = [manager.recv(1000) for _ in range(3)]
            assert sorted(each.split(b"\n")[0] for each in told) == [
                b"READY=1",
                b"WATCHDOG=1",
                b"WATCHDOG=1",
            ]
        while not told[-1].startswith(b"STOPPING=1"):
            told.append(manager.recv(1000))


def test_a_port_that_is_taken_matters_only_if_it_was_chosen(outbox: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ("--database", outbox, "--publish", f"file://{tmp_path}/topics")
        done = commitrelay("run", *arguments, "--metrics-listen", where)
        assert done.returncode == 2
        assert f"cannot listen on {where}" in done.stderr
        job = commitrelay("run", *arguments, "--metrics-listen", where, "--once")
        assert job.returncode == 0


@pytest.mark.parametrize("job", [(), ("--drain",)])
def test_spans_go_to_a_collector(job: tuple[str, ...], outbox: str, tmp_path: Path) -> None:
    collector = Receiver()
    add(outbox, Event("Order", "1", "OrderPlaced", {}, headers={"traceparent": TRACEPARENT}))
    arguments = ("--database", outbox, "--publish", f"file://{tmp_path}/topics", "--tracing", "on")
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "COMMITRELAY_METRICS_LISTEN": "none",
    }
    with running(*arguments, *job, **variables):
        hook = eventually(lambda: collector.taken and collector.taken[0])
    collector.close()
    assert hook.path == "/v1/traces"
    for part in (b"send order.events", b"messaging.destination.name", b"commitrelay"):
        assert part in hook.body
    assert bytes.fromhex(TRACEPARENT.split("-")[1]) in hook.body
