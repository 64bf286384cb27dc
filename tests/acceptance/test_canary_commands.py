"""A canary password in the URLs of every command: in no output, no error, no stored text."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from commitrelay import Event
from commitrelay.cli import app
from tests.acceptance.canary import (
    BROKERS,
    CANARY,
    DATABASES,
    Shown,
    closed_port,
    processes,
    start_and_stop,
)
from tests.acceptance.cli import commitrelay
from tests.acceptance.operating import add, connect
from tests.consumer import services
from tests.support import mariadb
from tests.support.webhooks import Hook, Receiver

FORMS = {"plain": (), "json": ("--json",)}
QUICK = ("--events", "100", "--keys", "10", "--rounds", "1", "--seconds", "0.2", "--parts", "drain")

HANDLERS = f"""
from commitrelay import Consumer, ConsumerOptions, RetryPolicy

consumer = Consumer("billing", options=ConsumerOptions(retry=RetryPolicy(delays_seconds=(0.01,))))

@consumer.on("Placed")
def placed(connection, event):
    raise RuntimeError("cannot reach postgresql://shop:{CANARY}@db/shop, password={CANARY}")
"""


def commands(dead: Sequence[str], url: str) -> list[tuple[str, ...]]:
    """Every command, in an order in which all of them have something to do."""
    edited, discarded, resolved = dead
    return [
        ("init",),
        ("sql",),
        ("status",),
        ("list",),
        ("show", edited),
        ("blocked",),
        ("tail", "--no-follow"),
        ("doctor", "--publish", BROKERS["rabbitmq"].format(password=CANARY, port=closed_port())),
        ("edit", edited, "--set-header", "tenant=acme"),
        ("show", edited),
        ("retry", edited, "--yes"),
        ("discard", discarded, "--yes"),
        ("resolve", resolved, "--yes"),
        ("replay", discarded, "--lane", "default", "--yes"),
        ("lanes", "add", "other"),
        ("lanes",),
        ("lanes", "filter", "other", "--event-types", "OrderPaid", "--yes"),
        ("lanes", "remove", "other", "--yes"),
        ("pause",),
        ("resume",),
        ("drain", "--timeout", "1s"),
        ("purge", "--retention", "1s", "--yes"),
        ("audit",),
        ("bench", "--database", url, *QUICK),
    ]


ANSWERS = {"doctor": (1,), "drain": (0, 3)}

BEYOND = {"demo", "run", "consume"}
"""They do not end by themselves, or take long: tested by themselves."""


@pytest.fixture(params=["postgresql", "mysql"])
def outbox(request: pytest.FixtureRequest) -> Iterator[str]:
    """An outbox whose account has the canary for its password."""
    if request.param == "postgresql":
        yield request.getfixturevalue("canary_database")
        return
    server: str = request.getfixturevalue("mariadb_url")
    database: str = request.getfixturevalue("mariadb_database")
    user = f"canary_{os.urandom(4).hex()}"
    accounts = [f"{user}@'%'", f"{user}@localhost"]
    for account in accounts:
        mariadb.run(
            server,
            f"CREATE USER {account} IDENTIFIED BY '{CANARY}'",
            f"GRANT ALL ON *.* TO {account}",
        )
    parts = urlsplit(database)
    url = parts._replace(netloc=f"{user}:{CANARY}@{parts.hostname}:{parts.port}").geturl()
    assert commitrelay("init", COMMITRELAY_DATABASE=url).returncode == 0
    yield url
    mariadb.run(server, f"DROP USER {', '.join(accounts)}")


@pytest.fixture
def indiscreet() -> Iterator[Receiver]:
    """A receiver that refuses everything and repeats whatever it was told."""

    async def repeat(hook: Hook) -> web.Response:
        kind, _, told = hook.headers["authorization"].partition(" ")
        if kind == "Basic":
            told += " " + base64.b64decode(told).decode()
        return web.Response(status=401, text=f"{told} is unknown; see postgresql://u:{CANARY}@h/d")

    receiver = Receiver()
    receiver.answer = repeat
    yield receiver
    receiver.close()


def stored(url: str) -> str:
    """Every row of every table."""
    texts = []
    here = "current_schema()" if url.startswith("postgres") else "DATABASE()"
    with connect(url) as connection:
        cursor = connection.cursor()
        cursor.execute(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = {here}"
        )
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT * FROM {name}")
            texts.append(f"{name}: {cursor.fetchall()}")
    return "\n".join(texts)


@pytest.mark.servers
def test_of_every_command(
    outbox: str, indiscreet: Receiver, shown: Shown, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    dead = {
        "plain": add(outbox, *(Event("Order", f"a{key}", "Placed", {}) for key in range(3))),
        "json": add(outbox, *(Event("Order", f"b{key}", "Placed", {}) for key in range(3))),
    }
    here = f"localhost:{indiscreet.port}/#allow_private=true"
    let_them_die(outbox, f"http://user:{CANARY}@{here}", shown)
    assert app.main(["retry", "--all", "--yes", "--database", outbox]) == 0
    let_them_die(outbox, f"http://{here}&bearer_token={CANARY}", shown)
    monkeypatch.setenv("COMMITRELAY_DATABASE", outbox)
    tried = set()
    for form, flags in FORMS.items():
        for words in commands(dead[form], outbox):
            if words[0] == "bench" and form == "plain":
                continue  # it takes its time
            code = app.main([*words, *flags])
            out, err = capfd.readouterr()
            assert code in ANSWERS.get(words[0], (0,)), (words, out, err)
            shown.add(f"{words} {form}", out + err)
            tried.add(words[0])
    assert tried | BEYOND == {*app.NAMES}
    shown.add("what is stored", stored(outbox))
    shown.add("process list", processes())
    assert "is unknown" in stored(outbox)
    shown.commit()


def let_them_die(url: str, hook: str, shown: Shown) -> None:
    done = commitrelay(
        "run", "--drain",
        COMMITRELAY_DATABASE=url,
        COMMITRELAY_PUBLISH=hook,
        COMMITRELAY_RETRY_DELAYS="1ms",
        COMMITRELAY_METRICS_LISTEN="none",
    )  # fmt: skip
    assert "is unknown" in done.stderr
    shown.add("log", done.stderr)
    shown.add("last errors", stored(url))


@pytest.fixture(params=["nobody listens", "wrong password"])
def port(request: pytest.FixtureRequest, kind: str) -> int:
    if request.param == "nobody listens":
        return closed_port()
    fixture = {"postgresql": "postgres_url", "mysql": "mariadb_url"}[kind]
    port = urlsplit(request.getfixturevalue(fixture)).port
    assert port is not None
    return port


@pytest.mark.servers
@pytest.mark.parametrize("kind", DATABASES)
def test_of_every_command_that_fails(
    kind: str, port: int, shown: Shown, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    url = DATABASES[kind].format(password=CANARY, port=port)
    monkeypatch.setenv("COMMITRELAY_DATABASE", url)
    dead = ["01932b5e-7a3c-7c1e-9f50-3d1c9a4d2f10"] * 3
    failing = [("demo", "--database", url), *commands(dead, url)]
    for flags in FORMS.values():
        for words in failing:
            code = app.main([*words, *flags, "--traceback"])
            out, err = capfd.readouterr()
            assert (code == 0) == (words[0] == "sql"), (words, out, err)
            shown.add(f"{words} {flags}", out + err)
    shown.commit()


def test_of_a_consumer_that_buries(tmp_path: Path, canary_database: str, shown: Shown) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    services.publish(tmp_path / "topics", [Event("Order", "1", "Placed", {})], topic="orders")
    for flags in FORMS.values():
        done = commitrelay(
            "consume", "--module", "handlers", "--until-idle", *flags, cwd=tmp_path,
            COMMITRELAY_DATABASE=canary_database,
            COMMITRELAY_FROM=f"file://{tmp_path}/topics?topic=orders",
            COMMITRELAY_DEAD_LETTER=f"file://{tmp_path}/dead",
            COMMITRELAY_METRICS_LISTEN="none",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        shown.add("consume", done.stdout + done.stderr)
    letters = (tmp_path / "dead/orders.dead.jsonl").read_text("utf-8")
    assert "cannot reach" in letters
    shown.add("dead letters", letters)
    shown.add("what is stored", stored(canary_database))
    shown.commit()


@pytest.mark.parametrize("which", ["database", "broker"])
def test_of_a_consumer_that_waits(tmp_path: Path, which: str, shown: Shown) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    services.publish(tmp_path / "topics", [Event("Order", "1", "Placed", {})], topic="orders")
    outbox = f"sqlite:///{tmp_path}/outbox.db"
    assert commitrelay("init", "--database", outbox).returncode == 0
    away = DATABASES["postgresql"].format(password=CANARY, port=closed_port())
    broker = BROKERS["kafka"].format(password=CANARY, port=closed_port())
    start_and_stop(
        shown, "consume", "--module", "handlers", cwd=tmp_path,
        COMMITRELAY_DATABASE=away if which == "database" else outbox,
        COMMITRELAY_FROM=f"file://{tmp_path}/topics?topic=orders"
        if which == "database" else f"{broker}&topic=orders",
        COMMITRELAY_METRICS_LISTEN="none",
    )  # fmt: skip
    shown.commit()
