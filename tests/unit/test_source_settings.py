"""What the URLs of sources say, and what they must not say."""

from __future__ import annotations

import pytest

from commitrelay import open_source
from commitrelay.errors import ConfigError
from commitrelay.sources.kafka import KafkaSourceSettings
from commitrelay.sources.nats import NatsSourceSettings
from commitrelay.sources.rabbitmq import RabbitMQSourceSettings
from commitrelay.sources.redis import RedisSourceSettings

GROUP = {"group": "billing"}
SCHEMES = ("kafka", "amqp", "nats", "redis")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_topic_and_group_are_needed(scheme: str) -> None:
    with pytest.raises(ConfigError, match="nothing to read"):
        open_source(f"{scheme}://host", group="billing")
    with pytest.raises(ConfigError, match="belongs to no group"):
        open_source(f"{scheme}://host?topic=orders")


@pytest.mark.parametrize("scheme", ["amqp", "nats", "redis"])
def test_an_unknown_setting_is_told(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"source has no setting 'tpoic'"):
        open_source(f"{scheme}://host?topic=orders&tpoic=x", group="billing")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_url_says_more_than_the_consumer(scheme: str) -> None:
    source = open_source(f"{scheme}://host?topic=orders&group=mine", group="billing")
    assert source.settings.group == "mine"  # type: ignore[attr-defined]


def test_topics_are_listed_once_each() -> None:
    settings = KafkaSourceSettings.from_url("kafka://host?topic=a, b,,a", GROUP)
    assert settings.topics == ("a", "b")


def test_settings_of_librdkafka_pass_and_ours_do_not() -> None:
    settings = KafkaSourceSettings.from_url(
        "kafka://host?topic=a&session.timeout.ms=7000&isolation.level=read_uncommitted", GROUP
    )
    config = settings.consumer()
    assert config["session.timeout.ms"] == "7000"
    assert config["isolation.level"] == "read_uncommitted"
    assert config["enable.auto.commit"] is False
    for wrong in ("enable.auto.commit=true", "group.id=x", "revoke_timeout_seconds=300"):
        with pytest.raises(ConfigError):
            KafkaSourceSettings.from_url(f"kafka://host?topic=a&{wrong}", GROUP)


def test_a_queue_may_be_called_a_topic() -> None:
    for name in ("queue", "topic"):
        settings = RabbitMQSourceSettings.from_url(f"amqp://host?{name}=a,b", GROUP)
        assert settings.queues == ("a", "b")
        assert settings.is_exclusive
    for relaxed in ("order=relaxed", "single_active=true"):
        assert not RabbitMQSourceSettings.from_url(
            f"amqp://h?queue=a&{relaxed}", GROUP
        ).is_exclusive
    with pytest.raises(ConfigError, match="stream"):
        RabbitMQSourceSettings.from_url("amqp://host?queue=a&declare=stream", GROUP)


def test_the_streams_of_a_topic_are_named_as_the_publisher_does() -> None:
    settings = RedisSourceSettings.from_url("redis://host?topic=a&streams=2", GROUP)
    assert settings.streams == {"a:0": "a", "a:1": "a"}
    assert RedisSourceSettings.from_url("redis://host?topic=a", GROUP).streams == {"a": "a"}


@pytest.mark.parametrize(
    ("template", "subject"),
    [
        ("{topic}", "orders.eu"),
        ("{topic}.{key}", "orders.eu.*"),
        ("{key}.{topic}.x", "*.orders.eu.x"),
    ],
)
def test_the_subjects_of_a_topic_are_those_of_the_publisher(template: str, subject: str) -> None:
    settings = NatsSourceSettings.from_url(f"nats://host?topic=a&subject={template}", GROUP)
    assert settings.subject_of("orders.eu") == subject


def test_a_key_within_a_token_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match="between dots"):
        NatsSourceSettings.from_url("nats://host?topic=a&subject=orders-{key}", GROUP)
