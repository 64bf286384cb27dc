"""The servers that the tests run on: one small file each, with the shape below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from servers.instance import Instance


class Server(Protocol):
    #: The names of the ports it listens on; the first is the one that clients use.
    ports: ClassVar[Sequence[str]]
    #: Whether it refuses to run as root.
    unprivileged: ClassVar[bool]
    #: Asks it to stop at once, without waiting for its clients.
    stop_signal: ClassVar[int]

    def install(self) -> None:
        """Make the software available, once per machine; raises Unavailable."""

    def create(self, instance: Instance) -> None:
        """Fill the empty directory `instance.data`."""

    def prepare(self, instance: Instance) -> None:
        """What has to be done before each start."""

    def command(self, instance: Instance) -> list[str]:
        """The server as one process in the foreground."""

    def is_ready(self, instance: Instance) -> bool:
        """Whether clients are served."""

    def url(self, instance: Instance) -> str: ...


ON_REQUEST = {"mysql"}
"""Started only by name: the rest is what `make test` needs."""


def all_servers() -> dict[str, Server]:
    from servers.kafka import Kafka  # noqa: PLC0415 - they import this package
    from servers.mariadb import Mariadb  # noqa: PLC0415
    from servers.mysql import Mysql  # noqa: PLC0415
    from servers.nats import Nats  # noqa: PLC0415
    from servers.postgres import Postgres  # noqa: PLC0415
    from servers.rabbitmq import RabbitMQ  # noqa: PLC0415
    from servers.redis import Redis  # noqa: PLC0415

    return {
        "postgres": Postgres(),
        "mariadb": Mariadb(),
        "mysql": Mysql(),
        "kafka": Kafka(),
        "nats": Nats(),
        "redis": Redis(),
        "rabbitmq": RabbitMQ(),
    }
