"""Wire: one TCP or TLS connection in the event loop, for protocols that pipeline.

Bytes go out with back-pressure and come in through `data_received`; whatever ends the connection
is told once, to `ended`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

from commitrelay.errors import BrokerUnreachable, ConfigError


class Wire(asyncio.Protocol, ABC):
    """`lost` says why the connection is of no more use; None while it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost: str | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @abstractmethod
    def ended(self, reason: str) -> None:
        """The connection is gone: answer whoever waits."""

    def write(self, data: bytes) -> None:
        if self._transport is not None and self.lost is None:
            self._transport.write(data)

    async def writable(self) -> None:
        """Wait while the other side reads too slowly."""
        if not self._writable.is_set():
            await self._writable.wait()

    def drop(self, reason: str) -> None:
        """End the connection at once; what was not written yet never will be."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        """Go on encrypted, after a beginning in the clear."""
        assert self._transport is not None, "connected before"
        loop = asyncio.get_running_loop()
        started = await loop.start_tls(self._transport, self, context, server_hostname=hostname)
        self._transport = cast(asyncio.Transport, started)

    # --- what the event loop calls ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection was lost{'' if exc is None else f' ({exc})'}")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end(self, reason: str) -> None:
        if self.lost is None:
            self.lost = f"{self.name}: {reason}"
            self._writable.set()
            self.ended(self.lost)


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust the server, and how it is to trust us. No file: the machine's own CAs."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Always checks the certificate and the host name; `ConfigError` for an unusable file."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = (self.ca_file, self.certificate_file, self.key_file)
            names = ", ".join(each for each in files if each)
            raise ConfigError(
                f"TLS cannot be set up with {names} ({error}): check that they exist, are PEM, "
                "and that key and certificate belong together"
            ) from None
        return context


async def dial(wire: Wire, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
    """Connect; `BrokerUnreachable` says why that failed."""
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: wire, host, port, ssl=context)
    except (OSError, ssl.SSLError) as error:
        raise unreachable(wire.name, error) from None


def unreachable(name: str, error: OSError) -> BrokerUnreachable:
    """What went wrong while connecting, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerUnreachable(
            f"{name} is not to be trusted: {error.verify_message}: "
            "check the host name in the URL, and the CA file"
        )
    if isinstance(error, ssl.SSLError):
        return BrokerUnreachable(
            f"{name}: no TLS connection ({error.reason or error}): "
            "check that this port speaks TLS, and its certificates"
        )
    # asyncio puts the address into strerror, where one looks for the reason.
    number = error.errno or 0
    text = os.strerror(number) if number > 0 else error.strerror or str(error)
    return BrokerUnreachable(
        f"cannot connect to {name} ({text}): check its address, and that it runs"
    )
