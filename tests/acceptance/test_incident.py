"""An incident from the first refusal to the last delivery, with nothing but the real program.

A broker refuses one order's event. Operators see which key stands still and what waits behind it,
mend the event, and try it again; the order of the key holds, and the event tells its story. An
alert has told them, and another one tells that it is over.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from commitrelay import Event
from tests.acceptance.cli import as_json, start, succeed
from tests.acceptance.operating import add
from tests.support.webhooks import Hook, Receiver

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="


def eventually(ask: Callable[[], T | None]) -> T:
    """What `ask` answers as soon as it is anything; fails if that takes a minute."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends_at:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"nothing for {PATIENCE_SECONDS:g} s")


async def refuse_negative_totals(hook: Hook) -> web.Response | None:
    """The consumer's own rule: it answers 422 to what it cannot take."""
    return (
        web.Response(status=422, text="total must not be negative") if b"-" in hook.body else None
    )


@pytest.fixture
def broker() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.answer = refuse_negative_totals
    yield receiver
    receiver.close()


@pytest.fixture
def pager() -> Iterator[Receiver]:
    """Who is woken by alerts."""
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('sqlite_path')}"
    else:
        url = str(request.getfixturevalue("postgres_database"))
    succeed("init", "--database", url)
    return url


@contextmanager
def relay(database: str, broker: Receiver, pager: Receiver) -> Iterator[None]:
    program = start(
        *("run", "--database", database, "--publish", f"{broker.url}/events#allow_private=true"),
        *("--retry-delays", "50ms", "--relay-name", "relay-1", "--log-level", "error"),
        *("--alert-webhook", f"{pager.url}/#allow_private=true&secret={SECRET}"),
        *("--alert-interval", "200ms", "--metrics-listen", "none"),
    )
    try:
        yield
        program.send_signal(signal.SIGTERM)
        _, log = program.communicate(timeout=60)
        assert program.returncode == 0, log
    finally:
        program.kill()
        program.communicate()


def paid(order: int, *totals: int) -> list[Event]:
    return [Event("Order", order, "OrderPaid", {"total": total}) for total in totals]


def test_from_the_first_refusal_to_the_last_delivery(
    database: str, broker: Receiver, pager: Receiver, tmp_path: Path
) -> None:
    def ask(*arguments: str, **options: Any) -> Any:
        return as_json(*arguments, "--database", database, COMMITRELAY_ACTOR="alice", **options)

    def taken(order: str) -> list[str]:
        return [hook.headers["webhook-id"] for hook in broker.taken if hook.key == order]

    def alert(number: int) -> dict[str, Any]:
        hook = eventually(lambda: len(pager.taken) > number and pager.taken[number])
        Webhook(SECRET).verify(hook.body, hook.headers)
        told: dict[str, Any] = json.loads(hook.body)
        return told

    with relay(database, broker, pager):
        bad, *waiting = add(database, *paid(1, -10, 20, 30))
        others = add(database, *paid(2, 1, 2))
        eventually(lambda: taken("2") == others)

        raised = alert(0)
        assert (raised["status"], raised["alert"]) == ("raised", "dead_letter")
        assert raised["lane"] == "default"
        assert [(dead["id"], dead["aggregate_id"]) for dead in raised["events"]] == [(bad, "1")]

        def standing() -> Any:
            keys = ask("blocked")["keys"]
            return keys if keys and keys[0]["state"] == "dead" and keys[0]["waiting"] == 2 else None

        (key,) = eventually(standing)
        assert (key["aggregate_type"], key["aggregate_id"], key["id"]) == ("Order", "1", bad)
        assert "422" in key["last_error"]
        assert taken("1") == []

        stuck = ask("show", waiting[0])["story"]["stuck_behind"]
        assert [(behind["id"], behind["state"]) for behind in stuck] == [(bad, "dead")]

        new = tmp_path / "mended.json"
        new.write_text('{"total": 10}', "utf-8")
        assert ask("edit", bad, "--payload-file", str(new))["changed"] == 1
        assert ask("retry", bad)["changed"] == 1

        eventually(lambda: taken("1") == [bad, *waiting])
        assert next(hook.body for hook in broker.taken if hook.key == "1") == b'{"total": 10}'
        eventually(lambda: ask("blocked")["keys"] == [])

        event = ask("show", bad)
        assert event["deliveries"][0]["status"] == "published"
        story = event["story"]
        assert [tried["attempt"] for tried in story["attempts"]] == [1, 2]
        assert all("422" in tried["error"] for tried in story["attempts"])
        assert [(act["action"], act["actor"]) for act in story["acts"]] == [
            ("edit", "alice"),
            ("retry", "alice"),
        ]
        assert [edit["old_payload"] for edit in story["edits"]] == ['{"total":-10}']
        assert [(done["status"], done["by"]) for done in story["settled"]] == [
            ("published", "relay-1")
        ]
        moments = [story["attempts"][-1]["at"], *(act["at"] for act in story["acts"])]
        moments.append(story["settled"][0]["at"])
        assert moments == sorted(moments)
        acts = ask("audit")["acts"]
        assert [(act["action"], act["events"]) for act in acts] == [("retry", 1), ("edit", 1)]

        cleared = alert(1)
        assert (cleared["status"], cleared["alert"]) == ("cleared", "dead_letter")
        assert cleared["incident"] == raised["incident"]
    assert len(pager.taken) == 2
    assert taken("2") == others
