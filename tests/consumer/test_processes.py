"""`commitrelay consume` as people run it: killed in the middle, stopped, started wrongly."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any

import pytest

from commitrelay import Consumer
from commitrelay.consumer import prometheus
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.service import Service
from tests.acceptance.cli import as_json, commitrelay, start, the_error
from tests.consumer import services

HANDLERS = """
import os, time
from pathlib import Path
from commitrelay import Consumer, ConsumerOptions, Event, Outbox, Received, RetryPolicy

consumer = Consumer("billing", options=ConsumerOptions(
    retry=RetryPolicy(delays_seconds=(0.05, 0.05)), stop_seconds=15))
outbox = Outbox()

@consumer.on("Counted")
def handle(connection, event: Received) -> None:
    number = event.payload["number"]
    connection.cursor().execute(
        os.environ["INSERT"], (number, event.aggregate_id))
    outbox.add(connection, Event("Payment", event.aggregate_id, "Taken", {"number": number}))
    if number in map(int, os.environ.get("FAIL", "").split()):
        raise RuntimeError(f"no luck with {number}")
    if number in map(int, os.environ.get("POISON", "").split()):
        os._exit(9)
    if os.environ.get("STARTED"):
        Path(os.environ["STARTED"]).touch()
    time.sleep(float(os.environ.get("SECONDS", "0.002")))
"""


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        found = f"sqlite:///{tmp_path}/consumer.db"
    else:
        found = request.getfixturevalue(f"{request.param}_database")
    services.initialise(found)
    return found


class Place:
    """A directory with handlers and topics, and a database."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.topics = directory / "topics"
        (directory / "handlers.py").write_text(HANDLERS)
        self.variables = {
            "COMMITRELAY_DATABASE": url,
            "COMMITRELAY_FROM": f"file://{self.topics}?topic=orders",
            "COMMITRELAY_MODULE": "handlers",
            "INSERT": services.insert("?" if url.startswith("sqlite") else "%s"),
        }

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return start("consume", *arguments, cwd=self.directory, **{**self.variables, **variables})

    @contextmanager
    def started(self, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        process = self.start(*arguments, **variables)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def finish(self, **variables: str) -> dict[str, int]:
        """Run it to the end; what it did."""
        given = {**self.variables, **variables}
        found: dict[str, int] = as_json("consume", "--until-idle", cwd=self.directory, **given)
        return found

    def count(self, table: str = "effects") -> int:
        return int(services.query(self.url, f"SELECT count(*) FROM {table}")[0][0])


@pytest.fixture
def place(tmp_path: Path, url: str) -> Place:
    return Place(tmp_path, url)


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    url = f"sqlite:///{tmp_path}/consumer.db"
    services.initialise(url)
    return Place(tmp_path, url)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def test_killed_in_the_middle_each_event_has_one_effect(place: Place) -> None:
    total, keys = 500, 20
    services.publish(place.topics, services.counted(range(total), keys))
    random = Random(5)
    for round_number in range(4):
        goal = (round_number + 1) * 60 + random.randrange(20)
        with place.started() as process:
            wait_until(lambda: place.count() >= goal, f"{goal} effects")  # noqa: B023
            process.send_signal(signal.SIGKILL)
            process.wait(30)
    done = place.finish()
    assert services.effects(place.url) == services.in_order(total, keys)
    assert place.count("outbox_event") == place.count("outbox_inbox") == total
    assert done["handled"] < total
    assert place.count("outbox_reader") == place.count("outbox_start") == 0
    assert place.finish()["handled"] == 0


def test_an_event_that_kills_the_process_is_set_aside(place: Place) -> None:
    services.publish(place.topics, services.counted(range(40), keys=4))
    letters = {"COMMITRELAY_DEAD_LETTER": f"file://{place.directory}/dead", "POISON": "13"}
    deaths = 0
    while True:
        done = commitrelay(
            "consume", "--until-idle", cwd=place.directory, **{**place.variables, **letters}
        )
        if done.returncode != 9:
            break
        deaths += 1
        assert deaths < 20
    assert done.returncode == 0, done.stderr
    assert deaths == 5, "two until suspicion, three with care"
    wanted = services.in_order(40, 4)
    wanted["1"].remove(13)
    assert services.effects(place.url) == wanted
    (message,) = TopicReader(place.directory / "dead").poll()
    assert (message.topic, json.loads(message.value)) == ("orders.dead", {"number": 13})
    assert dict(message.headers)["dead-error-type"] == "KillsItsReader"
    assert place.count("outbox_start") == 0


def test_a_failing_handler_sends_its_event_to_the_dead_letters(sqlite_place: Place) -> None:
    place = sqlite_place
    services.publish(place.topics, services.counted(range(8), keys=2))
    letters = {"COMMITRELAY_DEAD_LETTER": f"file://{place.directory}/dead", "FAIL": "3"}
    letters["COMMITRELAY_DEAD_LETTER_TOPIC"] = "{consumer}-dead"
    done = place.finish(**letters)
    assert (done["handled"], done["failed"], done["dead_lettered"]) == (7, 3, 1)
    assert services.effects(place.url) == {"0": [0, 2, 4, 6], "1": [1, 5, 7]}
    (message,) = TopicReader(place.directory / "dead", "billing-dead").poll()
    assert dict(message.headers)["dead-error"] == "no luck with 3"


def test_without_dead_letters_its_key_stands_still_and_the_job_fails(sqlite_place: Place) -> None:
    place = sqlite_place
    services.publish(place.topics, services.counted(range(8), keys=2))
    done = commitrelay(
        "consume", "--until-idle", cwd=place.directory, **{**place.variables, "FAIL": "3"}
    )
    assert done.returncode == 1
    assert "its key stands still" in done.stderr
    assert services.effects(place.url) == {"0": [0, 2, 4, 6], "1": [1]}
    assert place.finish()["handled"] == 3, "when it is mended it goes on"
    assert services.effects(place.url) == services.in_order(8, 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_handler_end(sqlite_place: Place, number: signal.Signals) -> None:
    place = sqlite_place
    mark = place.directory / "started"
    services.publish(place.topics, services.counted(range(8), keys=8))
    with place.started("--json", SECONDS="1.5", STARTED=str(mark)) as process:
        wait_until(mark.exists, "a handler runs")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["handled"] == place.count() == 1
    assert place.count("outbox_reader") == 0
    assert place.finish()["duplicates"] == 0, "what was done was acknowledged"


def test_a_second_signal_ends_it_at_once(sqlite_place: Place) -> None:
    place = sqlite_place
    mark = place.directory / "started"
    services.publish(place.topics, services.counted(range(8), keys=8))
    with place.started(SECONDS="300", STARTED=str(mark)) as process:
        wait_until(mark.exists, "a handler runs")
        process.terminate()
        assert process.stderr is not None
        while "stopping: running handlers may end" not in process.stderr.readline():
            pass
        process.terminate()
        assert process.wait(30) == 1
    assert place.count() == 0
    assert place.finish()["handled"] == 8


def test_a_second_process_of_the_group_takes_over(sqlite_place: Place) -> None:
    place = sqlite_place
    services.publish(place.topics, services.counted(range(400), keys=4))
    with place.started() as first, place.started() as second:
        wait_until(lambda: place.count() > 50, "the first of them works")
        first.kill()
        wait_until(lambda: place.count() == 400, "the second one goes on")
        second.terminate()
        assert second.wait(30) == 0 or first.poll() is not None
    assert services.effects(place.url) == services.in_order(400, 4)


# --- started wrongly -----------------------------------------------------------------------


def run(place: Place, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {**place.variables, "COMMITRELAY_LOG_LEVEL": "error", **variables}
    return commitrelay("consume", *arguments, cwd=place.directory, **given)


def test_mistakes_are_one_line(sqlite_place: Place) -> None:
    place = sqlite_place
    (place.directory / "empty.py").write_text("x = 1")
    (place.directory / "broken.py").write_text("import nowhere_at_all")
    (place.directory / "wrong.py").write_text("1 / 0")
    services.publish(place.topics, services.counted(range(1), keys=1))
    wrong = {
        "no module with handlers": {"COMMITRELAY_MODULE": ""},
        "there is no module absent, looked for from": {"COMMITRELAY_MODULE": "absent"},
        "module empty holds no consumer": {"COMMITRELAY_MODULE": "empty"},
        "module broken cannot be imported: No module named 'nowhere_at_all'": {
            "COMMITRELAY_MODULE": "broken"
        },
        "module wrong cannot be imported: ZeroDivisionError": {"COMMITRELAY_MODULE": "wrong"},
        "holds no consumer": {"COMMITRELAY_MODULE": "handlers:outbox"},
        "consumer 'billing' has no source: pass source=, or --from": {"COMMITRELAY_FROM": ""},
        "consumer 'billing' has no database": {"COMMITRELAY_DATABASE": ""},
        "unknown scheme 'kafak'": {"COMMITRELAY_FROM": "kafak://localhost"},
        "is no template": {
            "COMMITRELAY_DEAD_LETTER": "stdout:",
            "COMMITRELAY_DEAD_LETTER_TOPIC": "{nothing}",
        },
    }
    for complaint, variables in wrong.items():
        assert complaint in the_error(run(place, **variables), 2)
    assert "holds no consumer named 'other', but billing" in the_error(
        run(place, "--name", "other"), 2
    )
    missing = f"sqlite:///{place.directory}/missing.db"
    assert "run commitrelay init" in the_error(run(place, COMMITRELAY_DATABASE=missing), 1)


def test_what_the_code_says_holds_unless_a_flag_says_otherwise(sqlite_place: Place) -> None:
    place = sqlite_place
    services.publish(place.topics, services.counted(range(3), keys=1))
    code = HANDLERS.replace(
        'Consumer("billing",', f'Consumer("billing", source="file://{place.topics}",'
    )
    (place.directory / "handlers.py").write_text(code)
    elsewhere = f"file://{place.directory}/elsewhere"
    done = place.finish(COMMITRELAY_FROM=elsewhere)
    assert done["handled"] == 3
    services.publish(place.directory / "elsewhere", services.counted(range(3, 5), keys=1))
    found = as_json(
        "consume", "--until-idle", "--from", elsewhere, cwd=place.directory, **place.variables
    )
    assert found["handled"] == 2
    assert (place.directory / "elsewhere" / ".groups" / "billing").is_dir()


def test_probes_and_metrics(sqlite_place: Place) -> None:
    services.publish(sqlite_place.topics, services.counted(range(20), 4))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with sqlite_place.started("--metrics-listen", address, FAIL="19"):
        wait_until(lambda: answer(address, "/readyz") is not None, "it listens")
        wait_until(lambda: "1 keys stand still" in (answer(address, "/readyz") or ""), "stopped")
        assert answer(address, "/livez") == "ok\n"
        metrics = (answer(address, "/metrics") or "").splitlines()
    assert 'commitrelay_consumer_handled_total{consumer="billing"} 19' in metrics
    assert 'commitrelay_consumer_stopped_keys{consumer="billing"} 1' in metrics
    assert 'commitrelay_consumer_lag{consumer="billing"} 1' in metrics


def answer(address: str, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as reply:
            text: str = reply.read().decode()
            return text
    except OSError:
        return None


def test_the_metrics_of_several_consumers_are_one_text() -> None:
    text = prometheus(Consumer("a"), Consumer("b"))
    assert text.count("# TYPE commitrelay_consumer_up gauge") == 1
    assert 'up{consumer="a"} 0' in text and 'up{consumer="b"} 0' in text


def test_a_consumer_is_ready_while_it_runs_and_its_database_answers() -> None:
    async def status(**health: bool) -> HTTPStatus:
        consumer = Consumer("a")
        consumer.health = lambda: replace(Consumer("a").health(), **health)  # type: ignore[method-assign]
        return (await Service([consumer])._ready()).status

    async def case() -> None:
        assert await status(running=True, database_answers=True) == HTTPStatus.OK
        for away in ("running", "database_answers"):
            both = {"running": True, "database_answers": True, away: False}
            assert await status(**both) == HTTPStatus.SERVICE_UNAVAILABLE

    asyncio.run(case())
