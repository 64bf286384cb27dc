"""Relays that are killed and stopped while others go on."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from tests.faults.scene import (
    RelayProcess,
    add,
    first_deliveries,
    in_order,
    initialise,
    read_topic,
    relays,
    wait_until,
    watched,
)
from tests.support.kafka import Topics

EVENTS = 20_000
KEYS = 500
LEASE_SECONDS = 3.0


@pytest.mark.parametrize("strategy", ["partitioned", "competing"])
def test_four_relays_one_killed_one_stopped(
    postgres_database: str, real_kafka: str, kafka_topic: Topics, tmp_path: Path, strategy: str
) -> None:
    """Nothing is lost, first deliveries are in order, and the stopped one changes no row."""
    initialise(postgres_database)
    topic = kafka_topic("orders", partitions=4)
    four = [
        RelayProcess(
            f"relay-{number}",
            tmp_path,
            database=postgres_database,
            kafka=f"kafka://{real_kafka}",
            topic=topic,
            refuse=0.05,
            strategy=strategy,
            lease_seconds=LEASE_SECONDS,
            delivery_timeout_seconds="2",
        )
        for number in range(4)
    ]
    writer = threading.Thread(target=_write, args=(postgres_database,))
    with watched(postgres_database) as database, relays(*four):
        wait_until(
            lambda: database.value("SELECT count(*) FROM outbox_lease") == 4, 30, "four leases"
        )
        writer.start()
        wait_until(lambda: database.published > 1000, 60, "1,000 events published")
        four[1].send(signal.SIGSTOP)
        four[2].send(signal.SIGKILL)
        time.sleep(3 * LEASE_SECONDS)
        taken_over = "SELECT count(*) FROM outbox_lease WHERE relay = 'relay-1'"
        wait_until(lambda: database.value(taken_over) == 0, 30, "the stopped one's lease ended")
        four[1].send(signal.SIGCONT)
        wait_until(lambda: database.value(taken_over) == 1, 30, "it joined again")
        writer.join()
        wait_until(lambda: database.queued == 0, 120, "everything delivered")
        assert database.published == EVENTS
        assert database.settled_more_than_once() == 0
        assert "lost" in four[1].log
        assert [relay.end() for relay in (four[0], four[1], four[3])] == [0, 0, 0]
    arrived = first_deliveries(read_topic(real_kafka, topic))
    assert arrived == in_order(EVENTS, KEYS)


def test_a_leader_that_was_stopped_is_shut_out_by_the_broker(
    postgres_database: str, real_kafka: str, kafka_topic: Topics, tmp_path: Path
) -> None:
    """With transactions, full pipelining keeps strict order through a change of leaders."""
    initialise(postgres_database)
    topic = kafka_topic("orders", partitions=4)
    two = [
        RelayProcess(
            f"relay-{number}",
            tmp_path,
            database=postgres_database,
            kafka=f"kafka://{real_kafka}?transactional.id={topic}",
            topic=topic,
            refuse=0.0,
            strategy="leader",
            lease_seconds=LEASE_SECONDS,
            delivery_timeout_seconds="2",
        )
        for number in range(2)
    ]
    leader_is = "SELECT relay FROM outbox_lease WHERE cardinality(buckets) > 0"
    writer = threading.Thread(target=_write, args=(postgres_database,))
    with watched(postgres_database) as database, relays(*two):
        wait_until(lambda: database.value(leader_is) is not None, 30, "there is a leader")
        leader, standby = sorted(two, key=lambda relay: relay.name != database.value(leader_is))
        writer.start()
        wait_until(lambda: database.published > 1000, 60, "1,000 events published")
        leader.send(signal.SIGSTOP)
        wait_until(lambda: database.value(leader_is) == standby.name, 30, "the standby leads")
        published = database.published
        wait_until(lambda: database.published > published, 30, "the new leader publishes")
        leader.send(signal.SIGCONT)
        writer.join()
        wait_until(lambda: database.queued == 0, 120, "everything delivered")
        assert database.published == EVENTS
        assert database.settled_more_than_once() == 0
        assert [relay.end() for relay in two] == [0, 0]
    arrived = first_deliveries(read_topic(real_kafka, topic))
    assert arrived == in_order(EVENTS, KEYS)


def _write(url: str) -> None:
    """20,000 events within about ten seconds, so that faults hit relays at work."""
    for start in range(0, EVENTS, 100):
        add(url, range(start, start + 100), KEYS)
        time.sleep(0.05)
