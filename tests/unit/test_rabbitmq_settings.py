"""What an amqp:// URL says."""

from __future__ import annotations

import pytest

from commitrelay import registry
from commitrelay.errors import ConfigError
from commitrelay.publishers.rabbitmq import RabbitMQSettings, from_url


def read(url: str, **options: str) -> RabbitMQSettings:
    return RabbitMQSettings.from_url(url, options)


def test_everything_that_a_url_may_say() -> None:
    settings = read(
        "amqp://re%40lay:s%2Fcret@one:5673,two,[::1]/my%2Fhost?exchange=events"
        "&routing_key={event_type}&declare=quorum&exchange_type=fanout&heartbeat=0"
    )
    assert settings.hosts == (("one", 5673), ("two", 5672), ("::1", 5672))
    assert (settings.user, settings.password) == ("re@lay", "s/cret")
    assert (settings.vhost, settings.exchange) == ("my/host", "events")
    assert (settings.routing_key, settings.declare) == ("{event_type}", "quorum")
    assert (settings.exchange_type, settings.heartbeat_seconds) == ("fanout", 0)


def test_defaults() -> None:
    settings = read("amqp://host")
    assert settings == read("amqp://host/") == read("amqp://guest:guest@host:5672/%2F")
    assert (settings.vhost, settings.exchange, settings.routing_key) == ("/", "{topic}", "{key}")
    assert settings.declare is None
    assert not settings.tls
    assert read("amqps://host").hosts == (("host", 5671),)


def test_the_password_is_not_shown() -> None:
    settings = read("amqp://relay:s3cret@host/")
    assert "s3cret" not in repr(settings) + str(settings)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("amqp://", "names no broker"),
        ("amqp://host:port/", "names no broker"),
        ("amqp://host:70000/", "names no broker"),
        ("amqp://host?declare=tape", "quorum"),
        ("amqp://host?exchange_type=direct", "topic or fanout"),
        ("amqp://host?exchnge=x", "no setting 'exchnge'"),
        ("amqp://host?routing_key={colour}", "unknown field 'colour'"),
        ("amqps://host?cacertfile=/nowhere.pem", "/nowhere.pem"),
    ],
)
def test_a_wrong_url_is_told_in_one_line(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        from_url(url, {})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_the_registry_knows_it(scheme: str) -> None:
    assert str(registry.publisher(f"{scheme}://host:1")) == "RabbitMQ at host:1"
