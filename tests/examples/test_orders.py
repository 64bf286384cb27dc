"""The workflow of examples/orders: one charge and one shipment, or one refusal and one
compensation, whoever is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.orders import place
from examples.orders.audit import audit
from examples.orders.checkout import price_of
from examples.orders.database import execute, transaction
from examples.orders.payments import LIMIT_CENTS

ROOT = Path(__file__).parents[2]


def play(*words: str, orders: int, **more: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", "--orders", str(orders), "--json", *words],
        check=False,
        cwd=ROOT,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check(report: dict[str, Any], orders: int) -> None:
    refused = sum(price_of(number) > LIMIT_CENTS for number in range(1, orders + 1))
    assert 0 < refused < orders
    assert report["placed"] == report["right"] == orders
    assert report["refused"] == report["compensated"] == refused
    assert report["paid"] == report["shipped"] == orders - refused
    assert report["wrong"] == report["under_way"] == 0


def test_embedded(tmp_path: Path) -> None:
    check(play(orders=60, TMPDIR=str(tmp_path)), 60)
    assert list(tmp_path.iterdir()) == []


def test_embedded_with_kills() -> None:
    report = play("--kill-every", "0.7", "--seed", "1", orders=400)
    check(report, 400)
    assert report["kills"] > 0


def test_kafka_with_kills(postgres_url: str, real_kafka: str) -> None:
    places = ("--database", postgres_url, "--broker", f"kafka://{real_kafka}")
    report = play(*places, "--kill-every", "2", "--seed", "2", orders=300)
    check(report, 300)
    assert report["kills"] > 0


def test_rabbitmq_with_kills(postgres_url: str, rabbitmq_url: str) -> None:
    places = ("--database", postgres_url, "--broker", rabbitmq_url)
    report = play(*places, "--kill-every", "2", "--seed", "3", orders=300)
    check(report, 300)
    assert report["kills"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--broker", "ftp://x"), "unknown scheme 'ftp'"),
        (("--database", "postgresql://u:c4n4ry@127.0.0.1:1/x"), "refused"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing(
    tmp_path: Path, words: tuple[str, str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", *words],
        check=False,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr
    assert "c4n4ry" not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shop() -> Any:
    made = place.make(None, None)
    yield made.databases
    place.remove(made)


@pytest.mark.parametrize(
    "wrong",
    [
        ("payments", "INSERT INTO charge VALUES (1, 100)"),
        ("shipping", "INSERT INTO shipment VALUES (1)"),
        ("orders", "INSERT INTO stock_move VALUES (1, 1)"),
        ("orders", "UPDATE orders SET status = 'cancelled'"),
        ("payments", "INSERT INTO refusal VALUES (1, 'no')"),
        ("payments", "INSERT INTO charge VALUES (2, 100)"),
    ],
)
def test_the_audit_finds_what_happened_twice_or_out_of_nothing(
    shop: dict[str, str], wrong: tuple[str, str]
) -> None:
    for name, statement in (
        ("orders", "INSERT INTO orders VALUES (1, 100, 'shipped')"),
        ("orders", "INSERT INTO stock_move VALUES (1, -1)"),
        ("payments", "INSERT INTO charge VALUES (1, 100)"),
        ("shipping", "INSERT INTO shipment VALUES (1)"),
    ):
        run(shop[name], statement)
    assert audit(shop).right == 1
    name, statement = wrong
    run(shop[name], statement)
    assert len(audit(shop).wrong) == 1


def run(url: str, statement: str) -> None:
    with transaction(url) as conn:
        execute(conn, statement)


def test_the_process_list_shows_no_password() -> None:
    from examples.orders.stage import _commands  # noqa: PLC0415

    secret = "amqp://shop:c4n4ry@broker"
    where = place.Place(
        Path("/nowhere"),
        dict.fromkeys(place.SERVICES, "postgresql://shop:c4n4ry@db/shop"),
        secret,
        dict.fromkeys(place.SERVICES, secret),
        None,
    )
    words = Counter(word for command in _commands(where, 1).values() for word in command.words)
    assert not any("c4n4ry" in word for word in words)
