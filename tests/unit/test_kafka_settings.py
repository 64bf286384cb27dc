from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from commitrelay.errors import ConfigError
from commitrelay.publisher import NOT_SENT, Refused, Unreachable
from commitrelay.publishers.kafka import (
    KafkaPublisher,
    KafkaSettings,
    TransactionalKafkaPublisher,
    from_url,
)
from commitrelay.publishers.kafka.outcomes import outcome_of

PASSWORD = "hunter2-canary"


def test_a_url_with_everything_in_it() -> None:
    settings = KafkaSettings.from_url(
        "kafka://me%40corp:s%2Fcret@a:9092,b:9093?security.protocol=SASL_PLAINTEXT"
        "&sasl.mechanisms=SCRAM-SHA-512&linger.ms=7&create_topics=true&partitions=12",
        {"linger.ms": "1", "compression.type": "lz4", "delivery_timeout_seconds": "4"},
    )
    assert settings.bootstrap == "a:9092,b:9093"
    assert settings.create_topics
    assert (settings.partitions, settings.replication) == (12, -1)
    config = settings.producer()
    assert config["bootstrap.servers"] == "a:9092,b:9093"
    assert (config["sasl.username"], config["sasl.password"]) == ("me@corp", "s/cret")
    assert (config["linger.ms"], config["compression.type"]) == ("7", "lz4")
    assert (config["acks"], config["enable.idempotence"]) == ("all", "true")
    assert config["partitioner"] == "murmur2_random"
    assert config["message.timeout.ms"] == 2500
    assert "s/cret" not in f"{settings!r} {settings}"


def test_transactional_is_another_publisher() -> None:
    assert isinstance(from_url("kafka://a:9092", {}), KafkaPublisher)
    assert isinstance(
        from_url("kafka://a:9092?transactional.id=shop", {}), TransactionalKafkaPublisher
    )
    assert not KafkaPublisher.capabilities.stops_at_failure
    assert TransactionalKafkaPublisher.capabilities.stops_at_failure
    assert TransactionalKafkaPublisher.capabilities.max_in_flight == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("linger.millis=5", "linger.millis"),
        ("linger.ms=soon", "linger.ms"),
        ("acks=1", "acks has to be all"),
        ("enable.idempotence=false", "enable.idempotence has to be true"),
        ("message.timeout.ms=5", "message.timeout.ms is set by commitrelay"),
        ("security.protocol=TLS", "security.protocol"),
        ("partitions=0", "partitions='0'"),
        ("create_topics=maybe", "create_topics='maybe'"),
        ("ssl.ca.location=/no/such/file&security.protocol=SSL", "ssl.ca.location"),
        (f"sasl.password={PASSWORD}&linger.ms={PASSWORD}", "linger.ms"),
    ],
)
def test_a_wrong_setting_is_named_and_no_password_is_shown(query: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_url(f"kafka://me:{PASSWORD}@a:9092?{query}", {})
    assert said in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_url_without_a_broker() -> None:
    with pytest.raises(ConfigError, match="names no broker") as caught:
        from_url(f"kafka://me:{PASSWORD}@/?linger.ms=1", {})
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ],
)
def test_what_is_the_messages_own_fault_is_refused(code: int) -> None:
    outcome = outcome_of(KafkaError(code), "orders")
    assert isinstance(outcome, Refused)
    assert "orders" in outcome.reason


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError._AUTHENTICATION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN,
    ],
)
def test_what_is_the_brokers_fault_spends_no_attempt(code: int) -> None:
    assert isinstance(outcome_of(KafkaError(code), "orders"), Unreachable)


def test_the_neighbour_of_an_invalid_record_was_not_sent() -> None:
    assert outcome_of(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), "orders") is NOT_SENT
