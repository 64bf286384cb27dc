"""What stores do to text before it goes into a column."""

from __future__ import annotations

MAX_ERROR_LENGTH = 2000
"""Characters of an error that the queue keeps."""


def clean_error(error: str) -> str:
    """An error as a queue row can hold it: no NUL, valid Unicode, not too long."""
    cut = error[:MAX_ERROR_LENGTH].replace("\x00", "")
    return cut.encode("utf-8", "replace").decode()
