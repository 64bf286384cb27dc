"""NATS in operator mode: an operator, an account and a user, as `nsc` would make them."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

import nkeys

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **UNLIMITED,
    **{"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1},
    **{"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1},
}


class Keys:
    def __init__(self, kind: int) -> None:
        self.seed = nkeys.encode_seed(secrets.token_bytes(32), kind)
        self._pair = nkeys.from_seed(self.seed)
        self.public = self._pair.public_key.decode()

    def sign(self, subject: str, kind: str, **claims: Any) -> str:
        """A JWT about somebody."""
        head = _encoded({"typ": "JWT", "alg": "ed25519-nkey"})
        body = _encoded(
            {
                "jti": secrets.token_hex(16),
                "iat": 1_700_000_000,
                "iss": self.public,
                "sub": subject,
                "name": kind,
                "nats": {"type": kind, "version": 2, **claims},
            }
        )
        text = f"{head}.{body}"
        return f"{text}.{_unpadded(self._pair.sign(text.encode()))}"


class Operator:
    """`settings` for the server, and credentials for a user of its account."""

    def __init__(self) -> None:
        operator = Keys(nkeys.PREFIX_BYTE_OPERATOR)
        system, self._account = (Keys(nkeys.PREFIX_BYTE_ACCOUNT) for _ in range(2))
        accounts = "\n".join(
            f"{keys.public}: {operator.sign(keys.public, 'account', limits=limits)}"
            for keys, limits in (
                (system, UNLIMITED | {"conn": -1}),
                (self._account, ACCOUNT_LIMITS),
            )
        )
        self.settings = (
            f"operator: {operator.sign(operator.public, 'operator')}\n"
            f"system_account: {system.public}\nresolver: MEMORY\n"
            f"resolver_preload: {{\n{accounts}\n}}\n"
        )

    def write_credentials(self, path: Path, *, signed_by: Keys | None = None) -> Path:
        user = Keys(nkeys.PREFIX_BYTE_USER)
        jwt = (signed_by or self._account).sign(user.public, "user", **UNLIMITED)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
            "------END USER NKEY SEED------\n"
        )
        return path


def _encoded(claims: dict[str, Any]) -> str:
    return _unpadded(json.dumps(claims, separators=(",", ":")).encode())


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
