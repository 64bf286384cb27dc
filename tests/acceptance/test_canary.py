"""A canary password in every URL: nowhere to be found in what the program shows of itself."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from commitrelay import Event, Outbox
from tests.acceptance.canary import (
    BROKERS,
    CANARY,
    DATABASES,
    Shown,
    closed_port,
    relay,
    start_and_stop,
)
from tests.acceptance.cli import PROGRAM, commitrelay, environment
from tests.acceptance.test_monitoring import SECRET, Page, eventually, free_port
from tests.support.webhooks import Receiver


def test_of_a_relay_that_works_dies_and_alerts(
    canary_database: str, tmp_path: Path, shown: Shown
) -> None:
    """Metrics, probes, alerts, dead letters and log of a relay that has something to tell."""
    receiver = Receiver()
    told = tmp_path / "told"
    database = canary_database
    port = free_port()
    page = Page(port)
    with psycopg.connect(database) as connection:
        Outbox().add(
            connection,
            Event("Order", "1", "Placed", "x" * 500),
            Event("Order", "2", "Placed", f"a payload that says {CANARY}"),
        )
    hook = f"http://user:{CANARY}@localhost:{receiver.port}/#allow_private=true&secret={SECRET}"
    settings = {
        "COMMITRELAY_DATABASE": database,
        "COMMITRELAY_PUBLISH": f"file://{tmp_path}/topics?max_message_bytes=100",
        "COMMITRELAY_RETRY_DELAYS": "10ms",
        "COMMITRELAY_DEAD_LETTER_TOPIC": "dead",
        "COMMITRELAY_DEAD_LETTER_PUBLISH": f"nats://user:{CANARY}@127.0.0.1:{closed_port()}",
        "COMMITRELAY_ALERT_WEBHOOK": hook,
        "COMMITRELAY_ALERT_COMMAND": f"tee -a {told}",
        "COMMITRELAY_ALERT_INTERVAL": "200ms",
        "COMMITRELAY_ALERT_LAG": "100ms",
        "COMMITRELAY_METRICS_LISTEN": f"127.0.0.1:{port}",
    }
    with relay(shown, **settings):
        eventually(lambda: page.metric('outbox_published_total{lane="default"}') == 1)
        eventually(lambda: receiver.taken)
        for path in ("/metrics", "/readyz", "/livez", "/"):
            shown.add(path, page.get(path)[1])
        for command in ("status", "list", "blocked", "audit", "lanes", "init", "sql"):
            done = commitrelay(command, "--json", COMMITRELAY_DATABASE=database)
            assert done.returncode == 0, done.stderr
            shown.add(command, done.stdout + done.stderr)
    shown.add("alert", receiver.taken[0].body.decode())
    shown.add("alert by command", told.read_text())
    receiver.close()
    shown.commit()


@pytest.mark.parametrize("name", BROKERS)
@pytest.mark.parametrize("where", ["nobody listens", "nobody answers"])
def test_of_every_broker_that_cannot_be_reached(
    name: str, where: str, sqlite_path: Path, shown: Shown, tmp_path: Path
) -> None:
    database = f"sqlite:///{sqlite_path}"
    assert commitrelay("init", "--database", database).returncode == 0
    with closing(sqlite3.connect(sqlite_path)) as connection:
        Outbox().add(connection, Event("Order", "1", "Placed", {}))
        connection.commit()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if where == "nobody answers":
            silent.listen()
        port = int(silent.getsockname()[1])
        url = BROKERS[name].format(password=CANARY, port=port)
        secret = tmp_path / "publish.url"
        secret.write_text(url)
        done = start_and_stop(
            shown,
            COMMITRELAY_DATABASE=database,
            COMMITRELAY_PUBLISH_FILE=str(secret),
            AWS_ACCESS_KEY_ID="relay",
            AWS_SECRET_ACCESS_KEY=CANARY,
            COMMITRELAY_METRICS_LISTEN="none",
        )
    assert "relay started" in done
    shown.commit()


@pytest.mark.parametrize("name", DATABASES)
def test_of_every_database_that_cannot_be_reached(name: str, shown: Shown) -> None:
    url = DATABASES[name].format(password=CANARY, port=closed_port())
    for command in ("init", "status", "list"):
        done = commitrelay(command, "--json", "--traceback", COMMITRELAY_DATABASE=url)
        assert done.returncode == 1, done.stderr
        assert "Traceback" in done.stderr
        shown.add(command, done.stdout + done.stderr)
    log = start_and_stop(
        shown,
        COMMITRELAY_DATABASE=url,
        COMMITRELAY_PUBLISH="stdout:",
        COMMITRELAY_METRICS_LISTEN="none",
    )
    assert "relay started" in log
    shown.commit()


WRONG: dict[str, Callable[[str], dict[str, str]]] = {
    "scheme": lambda url: {"COMMITRELAY_DATABASE": url.replace("postgresql", "postgrsql")},
    "slash": lambda url: {"COMMITRELAY_DATABASE": url.replace(CANARY, f"{CANARY}/x#y?z")},
    "publish scheme": lambda url: {"COMMITRELAY_PUBLISH": f"kafak://u:{CANARY}@h"},
    "publish option": lambda url: {"COMMITRELAY_PUBLISH": f"redis://u:{CANARY}@h?no.such=1"},
    "webhook": lambda url: {"COMMITRELAY_ALERT_WEBHOOK": f"ftp://u:{CANARY}@h"},
    "secret": lambda url: {"COMMITRELAY_ALERT_WEBHOOK": f"https://h/#secret={CANARY}"},
    "private": lambda url: {"COMMITRELAY_ALERT_WEBHOOK": f"https://u:{CANARY}@127.0.0.1/"},
    "dead letters": lambda url: {
        "COMMITRELAY_DEAD_LETTER_TOPIC": "dead",
        "COMMITRELAY_DEAD_LETTER_PUBLISH": f"amqp://u:{CANARY}@h?no.such=1",
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_of_a_setting_that_is_wrong(name: str, shown: Shown) -> None:
    url = f"postgresql://user:{CANARY}@127.0.0.1:{closed_port()}/shop"
    given = {"COMMITRELAY_DATABASE": url, "COMMITRELAY_PUBLISH": "stdout:", **WRONG[name](url)}
    given["COMMITRELAY_METRICS_LISTEN"] = "none"
    done = commitrelay("run", "--log-level", "debug", "--traceback", "--json", **given)
    assert done.returncode in (1, 2), done.stderr
    shown.add(name, done.stdout + done.stderr)
    shown.commit()


def test_a_password_on_the_command_line_is_warned_of(tmp_path: Path) -> None:
    # Not the canary: another test may be looking at the list of processes for that.
    url = f"postgresql://user:p4ssw0rd@127.0.0.1:{closed_port()}/shop"
    process = subprocess.Popen(
        [*PROGRAM, "run", "--database", url, "--publish", "stdout:", "--metrics-listen", "none"],
        env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    warning = json.loads(process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert "--database holds a password" in warning["message"]
    assert "--database-file" in warning["message"]
    assert "p4ssw0rd" not in warning["message"] + rest
