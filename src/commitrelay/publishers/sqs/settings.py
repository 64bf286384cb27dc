"""SqsSettings: which queue or topic, where, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from commitrelay.errors import ConfigError
from commitrelay.publishers.settings import Settings
from commitrelay.urls import redact

TOPIC_FIELD = "{topic}"
LONGEST_QUEUE_NAME = 80
LONGEST_TOPIC_NAME = 256

_ACCOUNT = re.compile(r"\d{12}")
_REGION = re.compile(r"[a-z0-9-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]+\.fifo")


class Unsendable(ValueError):
    """The message cannot be sent as it is; the text says why."""


@dataclass(frozen=True)
class SqsSettings:
    """Everything that the publisher has to know. Credentials are found as AWS's tools find them."""

    service: str  # sqs or sns
    region: str
    name: str  # of the queue or topic; {topic} stands for the event's topic
    account: str | None = None
    endpoint_url: str | None = None
    ca_file: str | None = None
    concurrency: int = 8
    delivery_timeout_seconds: float = 10.0

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> SqsSettings:
        """Read `sqs://region/[account/]queue.fifo?…` or `sns://region/account/topic.fifo?…`."""
        address, _, query = url.partition("?")
        parts = urlsplit(address)
        if "@" in parts.netloc:
            raise ConfigError(
                f"{redact(address)!r} holds credentials: leave them to AWS's own places "
                "(AWS_ACCESS_KEY_ID, a profile, the role of the machine)"
            )
        account, name = _path(parts.scheme, parts.path, address)
        if not _REGION.fullmatch(parts.netloc):
            raise ConfigError(f"{address!r} names no region: write {_example(parts.scheme)}")
        settings = Settings(parts.scheme, options, query)
        ca_file = settings.text("ca_file", "") or None
        if ca_file is not None and not Path(ca_file).is_file():
            raise ConfigError(f"ca_file {ca_file} is not there: name a file of PEM certificates")
        result = cls(
            service=parts.scheme,
            region=parts.netloc,
            name=name,
            account=account,
            endpoint_url=settings.text("endpoint_url", "") or None,
            ca_file=ca_file,
            concurrency=settings.integer("concurrency", 8),
            delivery_timeout_seconds=settings.seconds("delivery_timeout_seconds", 10.0),
        )
        settings.refuse_unknown()
        return result

    def __str__(self) -> str:
        return f"{self.service.upper()} in {self.region}"

    @property
    def is_template(self) -> bool:
        return TOPIC_FIELD in self.name

    def name_for(self, topic: str) -> str:
        """The queue or topic for an event; names have no dots, so a dot becomes a hyphen."""
        name = self.name.replace(TOPIC_FIELD, topic.replace(".", "-"))
        longest = LONGEST_QUEUE_NAME if self.service == "sqs" else LONGEST_TOPIC_NAME
        if not _NAME.fullmatch(name) or len(name) > longest:
            raise Unsendable(
                f"{name!r} cannot be a name in {self}: it has up to {longest} letters, digits, "
                "- and _; choose another route"
            )
        return name


def _path(service: str, path: str, address: str) -> tuple[str | None, str]:
    steps = path.strip("/").split("/")
    name = steps.pop()
    account = steps.pop() if steps else None
    example = _example(service)
    if steps or (account is not None and not _ACCOUNT.fullmatch(account)):
        raise ConfigError(f"{address!r} has a wrong path: write {example}")
    if not _NAME.fullmatch(name.replace(TOPIC_FIELD, "x")):
        raise ConfigError(
            f"{address!r} names no FIFO queue or topic, and only those keep the order: "
            f"write {example}"
        )
    if service == "sns" and account is None:
        raise ConfigError(f"{address!r} names no account: write {example}")
    return account, name


def _example(service: str) -> str:
    account = "123456789012/" if service == "sns" else ""
    return f"{service}://eu-west-1/{account}orders.fifo"
