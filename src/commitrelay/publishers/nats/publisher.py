"""NatsPublisher: acknowledged by JetStream, deduplicated by the event's id."""

from __future__ import annotations

from commitrelay.publishers.nats.connection import NatsConnection
from commitrelay.publishers.nats.link import NatsLink
from commitrelay.publishers.nats.login import log_in
from commitrelay.publishers.nats.settings import NatsSettings
from commitrelay.publishers.nats.streams import check_stream
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.publishers.pipelined import Link, PipelinedPublisher


class NatsPublisher(PipelinedPublisher):
    """Publishes to JetStream. Which stream takes a subject is the server's business."""

    def __init__(self, settings: NatsSettings) -> None:
        super().__init__(delivery_timeout_seconds=settings.delivery_timeout_seconds)
        self.settings = settings
        self._subjects = Subjects(settings.subject)

    def __str__(self) -> str:
        return str(self.settings)

    async def open(self) -> None:
        await super().open()
        try:
            await self._within_time(self._check_stream())
        except BaseException:
            self._drop(f"{self}: not opened")
            raise

    async def _connect(self) -> Link:
        links: list[NatsLink] = []

        def make(name: str) -> NatsConnection:
            links.append(NatsLink(name, self._subjects, self.settings.stream))
            return links[-1].connection

        await log_in(self.settings, make)
        return links[-1]

    async def _check_stream(self) -> None:
        stream = self.settings.stream
        if stream is None:
            return
        assert isinstance(self._link, NatsLink), "connected before"
        await check_stream(self._link.connection, self.settings, stream)
