"""What a nats:// URL says, and subjects."""

from __future__ import annotations

import pytest

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.publishers.nats import NatsSettings
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.urls import redact


def test_everything_in_a_url() -> None:
    settings = NatsSettings.from_url(
        "nats://re%40lay:p%3Ass@a,b:5222?stream=S&subject={topic}.{key}&create_stream=x.>,y"
        "&replicas=3",
        {"delivery_timeout_seconds": "7"},
    )
    assert settings.servers == (("a", 4222), ("b", 5222))
    assert (settings.user, settings.password, settings.token) == ("re@lay", "p:ss", None)
    assert (settings.stream, settings.subject) == ("S", "{topic}.{key}")
    assert (settings.create_stream, settings.replicas) == (("x.>", "y"), 3)
    assert settings.delivery_timeout_seconds == 7
    assert settings.tls is None
    assert "p:ss" not in repr(settings) + str(settings)


def test_a_token_is_a_setting_and_never_shown() -> None:
    url = "nats://host?token=s3cret"
    settings = NatsSettings.from_url(url, {})
    assert (settings.user, settings.token) == (None, "s3cret")
    assert "s3cret" not in repr(settings) + str(settings) + redact(url)
    with pytest.raises(ConfigError, match=r"a token as \?token=") as failure:
        NatsSettings.from_url("nats://s3cret@host", {})
    assert "s3cret" not in str(failure.value)


def test_an_address_of_version_6() -> None:
    assert NatsSettings.from_url("nats://[::1]:4333", {}).servers == (("::1", 4333),)
    assert NatsSettings.from_url("nats://[::1]", {}).servers == (("::1", 4222),)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nats://", "names no server: write nats://host:4222"),
        ("nats://host:port", "names no server"),
        ("nats://host?stream=a.b", "no name of a stream"),
        ("nats://host?create_stream=a", "create_stream needs stream=NAME"),
        ("nats://host?subject={nothing}", "no subject"),
        ("nats://host?subject=a..b", "no subject"),
        ("nats://host?subject=a.*", "no subject"),
        ("nats://host?steam=S", "has no setting 'steam'"),
        ("nats://host?tls_ca_file=/nowhere.pem", "TLS cannot be set up with /nowhere.pem"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        NatsSettings.from_url(url, {})
    assert reason in str(failure.value)
    assert "\n" not in str(failure.value)


def test_subjects_keep_different_texts_different() -> None:
    subjects = Subjects("{topic}.{key}")
    keys = ["a.b", "a b", "a%2Eb", "a*b", "a>b", "a\tb", "a\x00b", "a\u2028b", "ab", "{topic}"]
    made = [subjects("orders", key) for key in keys]
    assert len(set(made)) == len(keys)
    for subject in made:
        text = subject.decode()
        assert text.split(".", 1)[0] == "orders"
        assert text.count(".") == 1
        assert not set(text) & set(" *>\t\r\n\x00")


@pytest.mark.parametrize("topic", ["", ".a", "a.", "a..b", "$JS.API.x", "$SYS", "_INBOX.x"])
def test_what_cannot_be_a_subject_is_refused(topic: str) -> None:
    with pytest.raises(InvalidEvent):
        Subjects()(topic, "k")
