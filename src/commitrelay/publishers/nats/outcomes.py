"""What JetStream's acknowledgement means for a message."""

from __future__ import annotations

import json
from typing import Any

from commitrelay.publisher import DELIVERED, Outcome, Refused, Unreachable
from commitrelay.publishers.nats.connection import described

WRONG_STREAM = 10060
TOO_LARGE = 10054

_ADVICE = {
    WRONG_STREAM: "another stream than stream=… takes this subject: correct one of them",
    TOO_LARGE: "store a reference instead, or raise the stream's max_msg_size",
}


def outcome_of(payload: bytes, subject: str) -> Outcome:
    """A duplicate is delivered: the stream has had this event id before."""
    try:
        answer: Any = json.loads(payload)
        error = answer.get("error")
        if error is None and answer["stream"]:
            return DELIVERED
    except (ValueError, KeyError, AttributeError):
        return Refused(
            f"subject {subject}: somebody answered who is not JetStream: a service listens there, "
            "use another topic"
        )
    text = f"subject {subject}: {described(error)}"
    if advice := _ADVICE.get(error.get("err_code")):
        return Refused(f"{text}: {advice}")
    # A stream that is full, without leader or short of memory is so for every message; what is
    # said with 4xx is about this one, but for 429, and so is a limit per subject.
    code = error.get("code", 500)
    if code == 429 or (code >= 500 and "per subject" not in text):
        return Unreachable(text)
    return Refused(text)
