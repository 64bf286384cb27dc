"""What a redis:// URL says, and what an error of Redis means."""

from __future__ import annotations

import pytest

from commitrelay.errors import ConfigError
from commitrelay.publisher import Refused, Unreachable
from commitrelay.publishers.redis import RedisSettings
from commitrelay.publishers.redis.outcomes import outcome_of


def test_everything_in_a_url() -> None:
    settings = RedisSettings.from_url(
        "rediss://re%40lay:p%3Ass@host:6380/3?streams=8&maxlen=1000&wait_replicas=1",
        {"delivery_timeout_seconds": "7"},
    )
    assert (settings.host, settings.port, settings.database) == ("host", 6380, 3)
    assert (settings.user, settings.password) == ("re@lay", "p:ss")
    assert (settings.streams, settings.max_length, settings.wait_replicas) == (8, 1000, 1)
    assert settings.delivery_timeout_seconds == 7
    assert settings.tls is not None
    assert "p:ss" not in repr(settings) + str(settings)


def test_nothing_is_trimmed_encrypted_or_waited_for_by_default() -> None:
    settings = RedisSettings.from_url("redis://:secret@host", {})
    assert (settings.port, settings.database, settings.user) == (6379, 0, None)
    assert (settings.streams, settings.max_length, settings.wait_replicas) == (1, None, 0)
    assert settings.tls is None
    assert not settings.cluster


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://", "names no server: write redis://host:6379"),
        ("redis://host:port", "names no server"),
        ("redis://host/first", "no number as database"),
        ("redis://host/1?cluster=true", "database 0 only"),
        ("redis://host?maxlen=0", "maxlen='0'"),
        ("redis://host?max_len=5", "has no setting 'max_len'"),
        ("redis://host?tls_ca_file=/x.pem", "write rediss://"),
        ("rediss://host?tls_ca_file=/nowhere.pem", "TLS cannot be set up with /nowhere.pem"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        RedisSettings.from_url(url, {})
    assert reason in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "error",
    [
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down",
        "MOVED 3999 127.0.0.1:6381",
        "ASK 3999 127.0.0.1:6381",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "NOAUTH Authentication required.",
        "BUSY Redis is busy running a script.",
    ],
)
def test_errors_about_the_server_spend_no_attempt(error: str) -> None:
    assert isinstance(outcome_of(error, "orders"), Unreachable)


@pytest.mark.parametrize(
    "error",
    [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "NOPERM this user has no permissions to access one of the keys",
        "ERR unknown command 'XADD'",
    ],
)
def test_errors_about_the_message_refuse_it(error: str) -> None:
    outcome = outcome_of(error, "orders")
    assert isinstance(outcome, Refused)
    assert "orders" in outcome.reason
