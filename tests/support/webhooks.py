"""A webhook receiver for tests: a real HTTP server in a thread, which can go away and come back."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import unquote

from aiohttp import web


class Hook(NamedTuple):
    """A request as the receiver got it."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return unquote(self.headers["commitrelay-key"])

    @property
    def topic(self) -> str:
        return unquote(self.headers["commitrelay-topic"])


Answer = Callable[[Hook], Awaitable[web.StreamResponse | None]]


class Receiver:
    """Takes every POST and answers 200, or what `answer` says. `taken` are those with 200."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.taken: list[Hook] = []
        self.requests: list[Hook] = []
        self.answer: Answer | None = None
        self.port = 0
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://localhost:{self.port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    def stop(self) -> None:
        """Close the port and every connection."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self.port, ssl_context=self._tls, reuse_address=True
        )
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        hook = Hook(request.raw_path, headers, await request.read())
        self.requests.append(hook)
        answer = await self.answer(hook) if self.answer is not None else None
        if answer is None:
            self.taken.append(hook)
            return web.Response(text="thank you")
        return answer
