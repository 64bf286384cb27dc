"""Check: whether the topics are there and the group may be joined, before anybody waits."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publishers.kafka.topics import Topics
from commitrelay.sources.kafka.settings import KafkaSourceSettings

ASK_SECONDS = 10.0
PAUSE_SECONDS = 0.1

_NO_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""A group gets one when it is first asked for."""


def check(settings: KafkaSourceSettings) -> None:
    """`BrokerUnreachable`, or `ConfigError` for what waiting does not help; blocks."""
    topics = Topics(settings.kafka)
    topics.reach()
    for problem in topics.look_up(settings.topics).values():
        raise ConfigError(f"{settings}: {problem}")
    _check_group(settings)


def _check_group(settings: KafkaSourceSettings) -> None:
    admin = AdminClient(settings.kafka.client())
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        error = _complaint(admin, settings.group)
        if error is None:
            return
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise ConfigError(
                f"{settings}: group {settings.group}: {error.str()}: "
                "give the consumer's user the right to READ it"
            )
        if error.code() not in _NO_COORDINATOR or time.monotonic() > deadline:
            text = settings.kafka.hide_secrets(error.str())
            raise BrokerUnreachable(f"{settings} does not answer: {text}")
        time.sleep(PAUSE_SECONDS)


def _complaint(admin: AdminClient, group: str) -> KafkaError | None:
    asked = admin.describe_consumer_groups([group], request_timeout=ASK_SECONDS)[group]
    try:
        asked.result(ASK_SECONDS + 1)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        return None if problem.code() == KafkaError.GROUP_ID_NOT_FOUND else problem
    return None
