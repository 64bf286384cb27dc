"""Dead letters on Kafka and RabbitMQ: they arrive with their story; where they cannot, the events
are dead all the same, to be seen in the outbox, and the log says it once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from commitrelay import Event
from commitrelay.testing.publisher_suite import Received
from tests.acceptance.cli import as_json, commitrelay, succeed
from tests.acceptance.operating import add
from tests.support import kafka, kafka_reader
from tests.support.rabbitmq import Queues

LARGE = "x" * 20_000


class Broker(Protocol):
    """Makes topics that take everything, and topics that refuse what is large."""

    url: str

    def taking(self) -> str: ...
    def refusing(self) -> str: ...
    def read(self, topic: str) -> list[Received]: ...
    def close(self) -> None: ...


class Kafka:
    def __init__(self, bootstrap: str) -> None:
        self.url = f"kafka://{bootstrap}"
        self._bootstrap = bootstrap
        self._topics = kafka.Topics(bootstrap, is_mock=False)
        self.close = self._topics.delete_all

    def taking(self) -> str:
        return self._topics(partitions=1)

    def refusing(self) -> str:
        return self._topics(partitions=1, config={"max.message.bytes": "10000"})

    def read(self, topic: str) -> list[Received]:
        return kafka_reader.consume(self._bootstrap, topic)


class Rabbitmq:
    def __init__(self, url: str) -> None:
        self.url = url
        self._queues = Queues(url)
        self.taking, self.read = self._queues, self._queues.read
        self.close = self._queues.delete_all

    def refusing(self) -> str:
        return self._queues({"x-max-length": 0, "x-overflow": "reject-publish"})


@pytest.fixture(params=["kafka", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    broker: Broker
    if request.param == "kafka":
        broker = Kafka(request.getfixturevalue("real_kafka"))
    else:
        broker = Rabbitmq(request.getfixturevalue("rabbitmq_url"))
    yield broker
    broker.close()


@pytest.fixture
def outbox(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/outbox.db"
    succeed("init", "--database", url)
    return url


def relay(outbox: str, broker: Broker, dead_letters: str) -> list[dict[str, Any]]:
    """Let it deliver what it can, to a topic that refuses; what it logged."""
    done = commitrelay(
        "run", "--drain", "--topic", broker.refusing(), "--dead-letter-topic", dead_letters,
        timeout=120,
        COMMITRELAY_DATABASE=outbox,
        COMMITRELAY_PUBLISH=broker.url,
        COMMITRELAY_RETRY_DELAYS="10ms",
        COMMITRELAY_METRICS_LISTEN="none",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def states(outbox: str) -> dict[str, str]:
    events = as_json("list", "--database", outbox)["events"]
    return {event["id"]: event["deliveries"][0]["status"] for event in events}


@pytest.mark.servers
def test_a_dead_letter_arrives_with_its_story(outbox: str, broker: Broker) -> None:
    dead, after = add(outbox, *(Event("Order", "42", "Placed", LARGE) for _ in range(2)))
    letters = broker.taking()
    lines = relay(outbox, broker, letters)
    *_, letter = broker.read(letters)  # at least once: a slow answer brings another
    assert letter.value == LARGE.encode()
    assert (letter.headers["event-id"], letter.headers["aggregate-id"]) == (dead, "42")
    shown = as_json("show", dead, "--database", outbox)
    [delivery] = shown["deliveries"]
    assert delivery["status"] == "dead"
    assert letter.headers["dead-letter-error"] == delivery["last_error"]
    assert letter.headers["dead-letter-attempts"] == str(delivery["attempts"])
    assert letter.headers["dead-letter-lane"] == "default"
    history = json.loads(letter.headers["dead-letter-history"])
    assert [each["attempt"] for each in history] == [*range(1, delivery["attempts"])]
    assert {each["error"] for each in history} == {delivery["last_error"]}
    assert states(outbox) == {dead: "dead", after: "parked"}
    assert [line["event_id"] for line in lines if "sent dead event" in line["message"]] == [dead]


@pytest.mark.servers
@pytest.mark.parametrize("why", ["missing", "refusing"])
def test_where_no_letter_can_arrive_the_event_is_dead(
    outbox: str, broker: Broker, why: str
) -> None:
    dead, after = add(outbox, *(Event("Order", "42", "Placed", LARGE) for _ in range(2)))
    letters = broker.refusing() if why == "refusing" else f"missing-{uuid.uuid4().hex}"
    lines = relay(outbox, broker, letters)
    assert states(outbox) == {dead: "dead", after: "parked"}
    assert as_json("show", dead, "--database", outbox)["payload"] == LARGE
    [key] = as_json("blocked", "--database", outbox)["keys"]
    assert (key["id"], key["waiting"]) == (dead, 1)
    [line] = [line for line in lines if "dead letter of event" in line["message"]]
    assert (line["level"], line["event_id"], line["key"]) == ("error", dead, "Order/42")
    assert f"dead letter of event {dead} of Order/42 refused: " in line["message"]
