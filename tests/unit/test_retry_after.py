"""Retry-After, as HTTP allows it to be written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from commitrelay.publishers.http.answer import MOST_RETRY_AFTER_SECONDS, retry_after_seconds

NOW = datetime(2026, 11, 15, 20, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        ("0", 0.0),
        ("Sun, 15 Nov 2026 20:00:30 GMT", 30.0),
        ("Sun, 15 Nov 2026 19:00:00 GMT", 0.0),
        ("99999999", MOST_RETRY_AFTER_SECONDS),
        ("9" * 400, MOST_RETRY_AFTER_SECONDS),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("²", None),
        ("", None),
    ],
)
def test_seconds_or_a_date_or_nothing(text: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(text, NOW) == seconds
