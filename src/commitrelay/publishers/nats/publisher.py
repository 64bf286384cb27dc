"""NatsPublisher: acknowledged by JetStream, deduplicated by the event's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commitrelay.publisher import Message
from commitrelay.publishers.nats.connection import NatsConnection, must
from commitrelay.publishers.nats.link import NatsLink
from commitrelay.publishers.nats.login import log_in
from commitrelay.publishers.nats.settings import NatsSettings
from commitrelay.publishers.nats.streams import check_stream
from commitrelay.publishers.nats.subjects import Subjects
from commitrelay.publishers.pipelined import Link, PipelinedPublisher

STREAM_NOT_FOUND = 10059
NANOSECONDS = 1e9


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

    async def duplicate_windows(self, messages: Sequence[Message]) -> Mapping[str, float]:
        """For how many seconds the streams of these messages remember ids; need not be open."""
        await super().open()
        try:
            return await self._within_time(self._ask_windows(messages))
        finally:
            self._drop(f"{self}: asked")

    async def _ask_windows(self, messages: Sequence[Message]) -> Mapping[str, float]:
        assert isinstance(self._link, NatsLink), "connected before"
        connection = self._link.connection
        streams = set() if self.settings.stream is None else {self.settings.stream}
        for message in messages if not streams else ():
            subject = self._subjects(message.topic, message.key).decode()
            answer = await connection.api("STREAM.NAMES", {"subject": subject})
            streams |= set(must(answer, f"{self}: streams").get("streams") or ())
        windows = {}
        for stream in sorted(streams):
            answer = must(await connection.api(f"STREAM.INFO.{stream}"), f"{self}: {stream}")
            windows[stream] = answer["config"].get("duplicate_window", 0) / NANOSECONDS
        return windows

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
