"""Standard Webhooks (standardwebhooks.com): who sent this, when, and that nobody changed it."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence

from commitrelay.errors import ConfigError

PREFIX = "whsec_"
LEAST_BYTES = 24
MOST_BYTES = 64


class Signer:
    """Signs with every secret that it is given: two of them while the receiver changes over."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)

    def headers(self, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
        if self._secrets:
            content = f"{message_id}.{timestamp}.".encode() + body
            signatures = [_signature(secret, content) for secret in self._secrets]
            headers["webhook-signature"] = " ".join(signatures)
        return headers


def read_secret(name: str, text: str) -> bytes:
    """The key in `whsec_…`; the error does not show it."""
    wrong = f"{name} of the http publisher is not whsec_ and the base64 of 24 to 64 bytes"
    try:
        secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(wrong) from None
    if not text.startswith(PREFIX) or not LEAST_BYTES <= len(secret) <= MOST_BYTES:
        raise ConfigError(wrong)
    return secret


def _signature(secret: bytes, content: bytes) -> str:
    digest = hmac.digest(secret, content, "sha256")
    return f"v1,{base64.b64encode(digest).decode()}"
