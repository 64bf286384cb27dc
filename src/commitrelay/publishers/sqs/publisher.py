"""SqsPublisher: batches of ten to SQS or SNS, with an outcome for each entry.

It does not stop at a failure, so the relay keeps one unacknowledged event per key. Batches travel
side by side, and no two of them hold messages of one key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    SSLError,
)

from commitrelay.errors import BrokerUnreachable, ConfigError, PublisherError
from commitrelay.publisher import (
    DELIVERED,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.publishers.dispatcher import Dispatcher
from commitrelay.publishers.sqs.entry import Entry, entry_of, size_of
from commitrelay.publishers.sqs.outcomes import MISSING, outcome_of_entry, outcome_of_error
from commitrelay.publishers.sqs.services import Destination, Service, Sns, Sqs
from commitrelay.publishers.sqs.settings import SqsSettings, Unsendable

BATCH_ENTRIES = 10
LOOK_AGAIN_SECONDS = 60.0
"""After so long a queue is looked up again: its limit may have been changed."""

PROBE = "commitrelay-probe.fifo"
"""A name to ask for where the real ones are not known yet: that it is missing is an answer too."""


class _Job(NamedTuple):
    position: int
    entry: Entry
    size: int


class SqsPublisher:
    """Sends to FIFO queues or topics. They are looked up before their first message."""

    capabilities = PublisherCapabilities(stops_at_failure=False)

    def __init__(self, settings: SqsSettings) -> None:
        self.settings = settings
        self.delivery_timeout_seconds = settings.delivery_timeout_seconds
        self._service: Service = Sqs(settings) if settings.service == "sqs" else Sns(settings)
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._known: dict[str, tuple[float, Destination]] = {}
        self._dispatcher = Dispatcher(
            self._send,
            senders=settings.concurrency,
            batch_size=BATCH_ENTRIES,
            delivery_timeout_seconds=settings.delivery_timeout_seconds,
        )

    def __str__(self) -> str:
        return str(self.settings)

    async def open(self) -> None:
        if self._client is None:
            self._client = await self._connect()
        outcome = await self._reach()
        if isinstance(outcome, Refused):
            raise ConfigError(outcome.reason)
        if isinstance(outcome, Unreachable):
            raise BrokerUnreachable(outcome.reason)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        if self._client is None:
            return [Unreachable(f"{self}: the publisher is not open")] * len(messages)
        return await self._dispatcher.dispatch(messages)

    async def recover(self) -> None:
        self._known.clear()
        outcome = await self._reach()
        if isinstance(outcome, Unreachable):
            raise BrokerUnreachable(outcome.reason)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._dispatcher.close()
            await self._stack.aclose()

    # --- connecting ---------------------------------------------------------------------------

    async def _connect(self) -> Any:
        seconds = 0.45 * self.delivery_timeout_seconds
        config = AioConfig(
            connect_timeout=seconds,
            read_timeout=seconds,
            retries={"total_max_attempts": 1, "mode": "standard"},  # the relay tries again
            max_pool_connections=self.settings.concurrency,
        )
        try:
            context = get_session().create_client(
                self.settings.service,
                region_name=self.settings.region,
                endpoint_url=self.settings.endpoint_url,
                verify=self.settings.ca_file or True,
                config=config,
            )
            return await self._stack.enter_async_context(context)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"{self}: {error}") from None

    async def _reach(self) -> Outcome:
        """Ask for the queue, or for any: DELIVERED stands for an answer."""
        fixed = not self.settings.is_template
        name = self.settings.name if fixed else PROBE
        try:
            async with asyncio.timeout(self.delivery_timeout_seconds / 2):
                await self._find(name)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in MISSING and not fixed:
                return DELIVERED
            return outcome_of_error(f"{name} of {self}", error.response)
        except (NoCredentialsError, PartialCredentialsError, NoRegionError) as error:
            raise PublisherError(f"{self}: {error}: see AWS's own places for credentials") from None
        except (BotoCoreError, OSError) as error:
            return self._outage(error)
        return DELIVERED

    async def _find(self, name: str) -> Destination:
        looked_at, known = self._known.get(name, (0.0, None))
        if known is not None and time.monotonic() < looked_at + LOOK_AGAIN_SECONDS:
            return known
        found = await self._service.find(self._client, name)
        self._known[name] = (time.monotonic(), found)
        return found

    def _outage(self, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self} did not answer in time")
        if isinstance(error, SSLError):
            cause = getattr(error.kwargs.get("error"), "certificate_error", error)
            said = getattr(cause, "verify_message", str(cause)).rstrip(".")
            return Unreachable(
                f"{self}: the certificate of {error.kwargs.get('endpoint_url')} is not trusted "
                f"({said}): correct endpoint_url, or name the CA with ca_file"
            )
        return Unreachable(f"{self}: {' '.join(str(error).split())}")

    # --- sending ------------------------------------------------------------------------------

    async def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [Unreachable(f"{self} did not answer in time")] * len(messages)
        by_name: dict[str, list[_Job]] = {}
        body_field = self._service.body_field
        for position, message in enumerate(messages):
            try:
                name = self.settings.name_for(message.topic)
            except Unsendable as error:
                outcomes[position] = Refused(str(error))
                continue
            entry = entry_of(message, body_field)
            job = _Job(position, entry, size_of(entry, body_field))
            by_name.setdefault(name, []).append(job)
        for name, jobs in by_name.items():
            await self._send_to(name, jobs, outcomes)
        return outcomes

    async def _send_to(self, name: str, jobs: list[_Job], outcomes: list[Outcome]) -> None:
        try:
            destination = await self._find(name)
        except ClientError as error:
            verdict: Outcome = outcome_of_error(f"{name} of {self}", error.response)
        except (BotoCoreError, OSError) as error:
            verdict = self._outage(error)
        else:
            fitting = []
            for job in jobs:
                if job.size <= destination.most_bytes:
                    fitting.append(job)
                else:
                    outcomes[job.position] = _too_large(name, job, destination)
            for batch in _batches(fitting, destination.most_bytes):
                await self._send_batch(name, destination, batch, outcomes)
            return
        for job in jobs:
            outcomes[job.position] = verdict

    async def _send_batch(
        self, name: str, destination: Destination, batch: list[_Job], outcomes: list[Outcome]
    ) -> None:
        where = f"{name} of {self}"
        entries = [{"Id": str(job.position), **job.entry} for job in batch]
        try:
            answer = await self._service.send(self._client, destination, entries)
        except ClientError as error:
            self._known.pop(name, None)
            verdict = outcome_of_error(where, error.response)
            missing = error.response.get("Error", {}).get("Code") in MISSING
            if isinstance(verdict, Refused) and len(batch) > 1 and not missing:
                for job in batch:  # one of them is at fault: only that one is to pay
                    await self._send_batch(name, destination, [job], outcomes)
                return
        except (BotoCoreError, OSError) as error:
            verdict = self._outage(error)
        else:
            successful = {each["Id"] for each in answer.get("Successful", ())}
            failed = {each["Id"]: each for each in answer.get("Failed", ())}
            for job in batch:
                number = str(job.position)
                if number in failed:
                    outcomes[job.position] = outcome_of_entry(where, failed[number])
                elif number in successful:
                    outcomes[job.position] = DELIVERED
            return
        for job in batch:
            outcomes[job.position] = verdict


def _batches(jobs: list[_Job], most_bytes: int) -> Iterator[list[_Job]]:
    """In their order, as many in a batch as its size allows; there are never more than ten."""
    batch: list[_Job] = []
    size = 0
    for job in jobs:
        if batch and size + job.size > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += job.size
    if batch:
        yield batch


def _too_large(name: str, job: _Job, destination: Destination) -> Refused:
    return Refused(
        f"{name} takes {destination.most_bytes} bytes and the event with its headers has "
        f"{job.size}: store a reference instead of a large payload"
    )
