"""Messengers: who takes a notice to people. The log needs none."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
from collections import deque
from contextlib import suppress
from typing import Protocol

from commitrelay.alerts.incidents import Notice
from commitrelay.errors import BrokerUnreachable, CommitrelayError, ConfigError
from commitrelay.publisher import DELIVERED, Message, Publisher, Refused

logger = logging.getLogger("commitrelay.alerts")

MOST_WAITING = 100
COMMAND_SECONDS = 30.0
OPENING_SECONDS = 3.0
TOPIC = "commitrelay.alerts"


class Messenger(Protocol):
    """Takes a notice somewhere; `BrokerUnreachable`: try again, other errors: in vain."""

    async def open(self) -> None:
        """Get ready, if that can be done; `ConfigError` if it never will."""

    async def tell(self, notice: Notice) -> None: ...

    async def close(self) -> None: ...


class Webhook:
    """Posts notices, signed by the publisher if its URL has a secret."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._opened = False

    async def open(self) -> None:
        if not self._opened:
            await self._publisher.open()
            self._opened = True

    async def tell(self, notice: Notice) -> None:
        await self.open()
        headers = [("content-type", "application/json"), ("event-type", "commitrelay.alert")]
        body = notice.as_json().encode()
        message = Message(TOPIC, notice.incident, body, headers, notice.id)
        [outcome] = await self._publisher.publish([message])
        if isinstance(outcome, Refused):
            raise CommitrelayError(outcome.reason)
        if outcome is not DELIVERED:
            raise BrokerUnreachable(getattr(outcome, "reason", "it was not sent"))

    async def close(self) -> None:
        await self._publisher.close()


class Command:
    """Runs a program, without a shell, with the notice on its standard input."""

    def __init__(self, line: str) -> None:
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise ConfigError(f"alert_command cannot be read ({error}): check its quotes") from None
        if not self._words:
            raise ConfigError("alert_command is empty: name a program")

    async def open(self) -> None:
        if shutil.which(self._words[0]) is None:
            raise ConfigError(f"alert_command: there is no program {self._words[0]}")

    async def tell(self, notice: Notice) -> None:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words, stdin=pipe, stdout=null, stderr=null, start_new_session=True
            )
        except OSError as error:
            raise CommitrelayError(f"{self._words[0]}: {error.strerror}") from None
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await process.communicate(notice.as_json().encode() + b"\n")
        except TimeoutError:
            raise CommitrelayError(
                f"{self._words[0]} took longer than {COMMAND_SECONDS:g} s and was ended"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise BrokerUnreachable(f"{self._words[0]} ended with {process.returncode}")

    async def close(self) -> None:
        return


class Outgoing:
    """Notices on their way to one messenger, in order; at most so many wait."""

    def __init__(self, messenger: Messenger) -> None:
        self._messenger = messenger
        self._waiting: deque[Notice] = deque(maxlen=MOST_WAITING)
        self._told_trouble = False

    async def open(self) -> None:
        with suppress(BrokerUnreachable, TimeoutError):
            async with asyncio.timeout(OPENING_SECONDS):
                await self._messenger.open()

    def add(self, notice: Notice) -> None:
        self._waiting.append(notice)

    async def flush(self) -> None:
        while self._waiting:
            notice = self._waiting[0]
            try:
                await self._messenger.tell(notice)
            except BrokerUnreachable as error:
                if not self._told_trouble:
                    logger.warning("alerts cannot be delivered, trying again: %s", error)
                    self._told_trouble = True
                return
            except CommitrelayError as error:
                logger.error("alert %s cannot be delivered: %s", notice.id, error)
            self._told_trouble = False
            if self._waiting and self._waiting[0] is notice:
                self._waiting.popleft()

    async def close(self) -> None:
        await self._messenger.close()
