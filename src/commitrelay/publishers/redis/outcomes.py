"""What an error reply of Redis means for the message that it answers."""

from __future__ import annotations

from commitrelay.publisher import Outcome, Refused, Unreachable

_OUTAGES = frozenset(
    {
        "OOM",  # full: so it is for every message, until somebody makes room
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "MISCONF",
        "NOREPLICAS",
        "BUSY",
        "NOAUTH",
        "WRONGPASS",
        "UNBLOCKED",
    }
)

_ADVICE = {
    "WRONGTYPE": ": that key holds something else, use another topic",
    "NOPERM": ": give the relay's user the right to XADD to it",
    "OOM": ": raise maxmemory, or remove what has been read",
}


def outcome_of(error: str, stream: str) -> Outcome:
    """An error about the server is an outage, any other one is about this message."""
    code = error.split(" ", 1)[0]
    text = f"stream {stream}: {error}{_ADVICE.get(code, '')}"
    return Unreachable(text) if code in _OUTAGES else Refused(text)
