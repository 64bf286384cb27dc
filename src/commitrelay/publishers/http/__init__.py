"""HTTP webhooks: `https://hooks.example.com/events`, one signed POST per event.

settings.py   the URL and the options
address.py    which addresses may be connected to
signature.py  Standard Webhooks: id, timestamp, HMAC
request.py    a message as a URL and headers
answer.py     what an answer means for a message
publisher.py  the publisher
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import MissingExtra

try:
    import aiohttp  # noqa: F401
except ImportError:
    raise MissingExtra("http", "publishing to webhooks") from None

from commitrelay.publishers.http.publisher import HttpPublisher
from commitrelay.publishers.http.settings import HttpSettings

__all__ = ["HttpPublisher", "HttpSettings", "from_url"]


def from_url(url: str, options: Mapping[str, str]) -> HttpPublisher:
    """`https://host/path#setting=…`; see `HttpSettings`."""
    return HttpPublisher(HttpSettings.from_url(url, options))
