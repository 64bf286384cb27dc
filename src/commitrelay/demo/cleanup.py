"""Cleanup: what a run has made goes away with it, as far as that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable


def tolerant(remove: Callable[[], None]) -> None:
    """What cannot be removed is no reason to hide the result."""
    try:
        remove()
    except Exception as error:
        logging.getLogger("commitrelay.demo").warning("could not clean up: %s", error)
