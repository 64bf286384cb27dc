"""HttpPublisher: one signed POST per event to one host.

It does not stop at a failure, so the relay keeps one unacknowledged event per key.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import aiohttp
from yarl import URL

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publisher import (
    DELIVERED,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.publishers.dispatcher import Dispatcher
from commitrelay.publishers.http.address import AddressForbidden, CheckedResolver
from commitrelay.publishers.http.answer import outcome_of
from commitrelay.publishers.http.request import Unsendable, headers_of, target_of
from commitrelay.publishers.http.settings import HttpSettings
from commitrelay.publishers.http.signature import Signer

MOST_RESPONSE_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0
"""How long a host that has said 2xx may take to finish its answer, before it is hung up on."""

USER_AGENT = "commitrelay"


class HttpPublisher:
    """Posts to a webhook. Addresses are checked, redirects not followed, answers capped."""

    capabilities = PublisherCapabilities(stops_at_failure=False)

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.delivery_timeout_seconds = settings.delivery_timeout_seconds
        self._request_seconds = 0.45 * settings.delivery_timeout_seconds
        self._signer = Signer(settings.secrets)
        self._session: aiohttp.ClientSession | None = None
        self._ssl = settings.ssl_context()
        self._resolver = CheckedResolver(allow_private=settings.allow_private)
        self._last_answer_to = 0.0  # when the latest request began that got any answer
        self._dispatcher = Dispatcher(
            self._send,
            senders=settings.concurrency,
            batch_size=1,
            delivery_timeout_seconds=settings.delivery_timeout_seconds,
        )

    def __str__(self) -> str:
        return str(self.settings)

    async def open(self) -> None:
        if self._session is None:
            self._session = self._new_session()
        try:
            await self._reach()
        except AddressForbidden as error:
            raise ConfigError(str(error)) from None
        except OSError as error:
            raise BrokerUnreachable(self._trouble(error)) from None

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        if self._session is None:
            return [Unreachable(f"{self}: the publisher is not open")] * len(messages)
        return await self._dispatcher.dispatch(messages)

    async def recover(self) -> None:
        try:
            await self._reach()
        except OSError as error:
            raise BrokerUnreachable(self._trouble(error)) from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._dispatcher.close()
            await session.close()

    # --- connecting ---------------------------------------------------------------------------

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self.settings.concurrency,
            resolver=self._resolver,
            ssl=self._ssl if self._ssl is not None else True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=self._request_seconds),
            skip_auto_headers=("accept-encoding", "accept"),
        )

    async def _reach(self) -> None:
        """Connect once, to say at the start what is wrong with a name, an address or a TLS set-up.

        Nothing is asked: what a webhook answers to anything but a webhook means nothing.
        """
        host, port = self.settings.host, self.settings.port
        async with asyncio.timeout(self._request_seconds):
            # Literal addresses are checked with the settings; the resolver lets them pass.
            [address, *_] = await self._resolver.resolve(host, port)
            _reader, writer = await asyncio.open_connection(
                address["host"],
                port,
                ssl=self._ssl,
                server_hostname=host if self._ssl is not None else None,
            )
        writer.close()

    def _trouble(self, error: BaseException) -> str:
        """One line on why the host cannot be reached."""
        cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        cause = cause or error
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = cause.verify_message.rstrip(".")
            return (
                f"{self}: its certificate is not trusted ({said}): correct the URL, "
                "or name the CA with ca_file"
            )
        if isinstance(cause, TimeoutError):
            return f"{self} did not answer within {self._request_seconds:g} s"
        return f"{self}: {' '.join(str(cause).split()) or type(cause).__name__}"

    # --- sending ------------------------------------------------------------------------------

    async def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        [message] = messages
        try:
            url = self._url(message)
            headers = headers_of(message)
        except Unsendable as error:
            return [Refused(str(error))]
        began = time.monotonic()
        try:
            return [await self._post(url, headers, message, began)]
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return [Unreachable(self._trouble(error))]
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return [self._no_answer(self._trouble(error), began)]

    async def _post(
        self, url: URL, headers: dict[str, str], message: Message, began: float
    ) -> Outcome:
        try:
            return await self._post_once(url, headers, message, began)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
            # The host may close a connection that was idle just when it is used again.
            return await self._post_once(url, headers, message, began)

    async def _post_once(
        self, url: URL, headers: dict[str, str], message: Message, began: float
    ) -> Outcome:
        assert self._session is not None
        signed = self._signer.headers(message.event_id, int(time.time()), message.value)
        async with self._session.post(
            url,
            data=message.value,
            headers={**headers, **signed, **self._own_headers()},
            allow_redirects=False,
        ) as response:
            body = self.settings.hide_credentials(await _start_of(response))
            where = f"{self}{url.raw_path}"
            outcome = outcome_of(where, response.status, response.headers, body, datetime.now(UTC))
        if response.status == 504 and isinstance(outcome, Unreachable):
            return self._no_answer(outcome.reason, began, outcome.retry_after_seconds)
        if outcome is DELIVERED:
            self._last_answer_to = max(self._last_answer_to, began)
        return outcome

    def _no_answer(
        self, reason: str, began: float, retry_after_seconds: float | None = None
    ) -> Outcome:
        """Who is to blame if nothing came back: the host, unless it took what was sent later."""
        if self._last_answer_to > began:
            return Refused(f"{reason}, while later events were taken", retry_after_seconds)
        return Unreachable(reason, retry_after_seconds)

    def _own_headers(self) -> dict[str, str]:
        authorization = self.settings.authorization
        own = {"authorization": authorization} if authorization else {}
        return {**own, "user-agent": USER_AGENT}

    def _url(self, message: Message) -> URL:
        target = target_of(self.settings.target, message.topic)
        return URL(f"{self.settings}{target}", encoded=True)


async def _start_of(response: aiohttp.ClientResponse) -> bytes:
    """As much of the answer as is looked at. What was said with 2xx stands without it."""
    body = bytearray()
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while len(body) < MOST_RESPONSE_BYTES:
                chunk = await response.content.read(MOST_RESPONSE_BYTES - len(body))
                if not chunk:
                    return bytes(body)
                body += chunk
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass
    response.close()
    return bytes(body)
