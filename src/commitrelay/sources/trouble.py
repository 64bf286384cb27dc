"""Trouble: a broker that does not answer, said once and when it is over."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger("commitrelay.source")


class Trouble:
    """The state of one broker; `goes_on` may be called as often as it fails."""

    def __init__(self, broker: object) -> None:
        self._broker = broker
        self._began: float | None = None

    def goes_on(self, reason: object) -> None:
        if self._began is None:
            self._began = time.monotonic()
            logger.warning("%s unreachable, waiting for it: %s", self._broker, reason)

    def is_over(self) -> None:
        began, self._began = self._began, None
        if began is not None:
            logger.warning("%s is back after %.1f s", self._broker, time.monotonic() - began)
