"""RelayThread: a relay beside the rest of a process, as an application might embed it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from commitrelay.daemon import relay_of, run_async
from commitrelay.relay import Relay
from commitrelay.settings import LaneSettings, Settings


class RelayThread:
    """A relay in a thread with an event loop of its own."""

    def __init__(self, settings: Settings) -> None:
        self.failure: Exception | None = None
        self._settings = settings
        self._relay: Relay | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="relay")

    @property
    def published(self) -> int:
        return 0 if self._relay is None else self._relay.stats.published

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def wake(self) -> None:
        if self._relay is not None:
            self._relay.wake()

    def stop(self) -> None:
        """Finish what is in flight, and wait for that."""
        if self._loop is not None and self._relay is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._relay.stop)
            self._thread.join()

    def _serve(self) -> None:
        try:
            run_async(self._deliver())
        except Exception as error:
            self.failure = error
        finally:
            self._ready.set()

    async def _deliver(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._relay = relay_of(LaneSettings("default", self._settings))
        self._ready.set()
        await self._relay.run()
