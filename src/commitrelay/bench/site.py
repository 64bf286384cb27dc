"""Site: where one run of the benchmark takes place. Its tables and topics go away with it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from commitrelay import registry
from commitrelay.bench import usage
from commitrelay.bench.ground import Ground
from commitrelay.bench.job import Job
from commitrelay.bench.plan import Plan
from commitrelay.demo.cleanup import tolerant
from commitrelay.demo.topic import Topic, topic_of
from commitrelay.errors import StoreError
from commitrelay.urls import scheme_of

BARE = "bare loop"
DRAINING_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: the bare loop, or the relay with certain settings."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


class Site:
    """`with Site(plan) as site: …`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._name = f"commitrelay_bench_{uuid4().hex[:8]}"
        self._directory = Path(tempfile.gettempdir()) / self._name
        self._undo = ExitStack()
        self._topics = 0
        database = plan.database or f"sqlite:///{self._directory / 'outbox.db'}"
        self.publish = plan.publish or (self._directory / "topics").as_uri()
        self.ground = Ground(database, self._name)
        self.broker = ""  # its title, once it was reached
        self.database_pid = usage.server_pid(database)
        self.broker_pid = usage.server_pid(self.publish)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._directory.mkdir()
            undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
            with self.topic() as topic:  # who cannot make one shall know before anything is made
                self.broker = topic.title
            self.ground.prepare()
            undo.callback(tolerant, self.ground.remove)
            self.ground.create()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    @contextmanager
    def topic(self) -> Iterator[Topic]:
        """A new topic, removed at the end."""
        topic = self._topic()
        try:
            topic.prepare()
        except KeyboardInterrupt:  # it may be there by now
            tolerant(topic.remove)
            raise
        try:
            yield topic
        finally:
            tolerant(topic.close)
            tolerant(topic.remove)

    def job(self, subject: Subject, topic: Topic, **more: Any) -> Job:
        settings: dict[str, Any] = {
            "role": "bare" if subject.name == BARE else "relay",
            "database": self.ground.url,
            "schema": self.ground.names.schema,
            "prefix": self.ground.names.prefix,
            "publish": topic.url,
            "topic": topic.name,
            "batch_size": self.plan.batch_size,
            "window": self.plan.window,
        }
        return Job(**{**settings, **subject.settings, **more})

    def writing(self, **more: Any) -> Job:
        return Job(
            role="write",
            database=self.ground.url,
            schema=self.ground.names.schema,
            prefix=self.ground.names.prefix,
            keys=self.plan.keys,
            payload_bytes=self.plan.payload_bytes,
            **more,
        )

    def await_drained(self) -> None:
        deadline = time.monotonic() + DRAINING_SECONDS
        while not self.ground.is_drained:
            if time.monotonic() > deadline:
                raise StoreError(f"the backlog was not delivered within {DRAINING_SECONDS:g} s")
            time.sleep(0.05)

    def subjects(self) -> list[Subject]:
        """The bare loop, then the relay in every order that the publisher offers."""
        if registry.publisher(self.publish).capabilities.stops_at_failure:
            return [Subject(BARE), Subject("strict")]
        found = [
            Subject(BARE),
            Subject("strict, one per key"),
            Subject("relaxed", {"order": "relaxed"}),
        ]
        if scheme_of(self.publish) == "kafka":
            options = {"transactional.id": self._name}
            settings = {"strategy": "leader", "publisher_options": options}
            found.append(Subject("strict, transactional", settings))
        return found

    def turns(self, round_number: int) -> list[Subject]:
        """All subjects, each round beginning with another one: nobody always goes first."""
        subjects = self.subjects()
        first = round_number % len(subjects)
        return subjects[first:] + subjects[:first]

    def _topic(self) -> Topic:
        self._topics += 1
        name = self._name.replace("_", "-")
        return topic_of(self.publish, f"{name}-{self._topics}")
