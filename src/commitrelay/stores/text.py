"""What stores do to text before it goes into a column, or after it came out of one."""

from __future__ import annotations

import json
from typing import Any

from commitrelay.store import UNREADABLE_HEADERS

MAX_ERROR_LENGTH = 2000
"""Characters of an error that the queue keeps."""


def clean_error(error: str) -> str:
    """An error as a queue row can hold it: no NUL, valid Unicode, not too long."""
    cut = error[:MAX_ERROR_LENGTH].replace("\x00", "")
    return cut.encode("utf-8", "replace").decode()


def readable_headers(headers: Any) -> dict[str, str]:
    """Headers as an operator sees them, also those that a plain INSERT got wrong."""
    try:
        parsed = json.loads(headers) if isinstance(headers, str) else headers
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return {UNREADABLE_HEADERS: str(headers)}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in parsed.items()
    }
