"""What an error of AWS means for a message: its own fault, or the service's?"""

from __future__ import annotations

from typing import Any

from commitrelay.publisher import Outcome, Refused, Unreachable

MISSING = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "NotFound",
        "NotFoundException",
    }
)
"""There is no such queue or topic."""

_OF_THE_SERVICE = (
    *(
        "Throttl",
        "RequestThrottled",
        "OverLimit",
        "KmsThrottled",
        "KMSThrottling",
        "TooManyRequests",
    ),
    *("AccessDenied", "AuthorizationError", "AuthFailure", "InvalidClientTokenId", "Signature"),
    *("ExpiredToken", "UnrecognizedClient", "MissingAuthenticationToken", "InvalidAccessKeyId"),
    *("IncompleteSignature", "InvalidSecurity", "RequestExpired", "OptInRequired", "KmsDisabled"),
    *("KMSDisabled", "KmsAccessDenied", "KMSAccessDenied", "KmsNotFound", "KMSNotFound"),
)
"""How codes begin that speak of rights, keys and rates: whoever is sent, the answer is the same."""


def outcome_of_error(where: str, response: dict[str, Any]) -> Outcome:
    """The outcome of a whole request that was answered with an error."""
    error = response.get("Error", {})
    code, text = str(error.get("Code", "")), str(error.get("Message", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    if code in MISSING:
        return Refused(f"{where} does not exist: create it")
    return _outcome(where, code, text, is_senders_fault=400 <= status < 500)


def outcome_of_entry(where: str, failed: dict[str, Any]) -> Outcome:
    """The outcome of one entry of `Failed`."""
    code, text = str(failed.get("Code", "")), str(failed.get("Message", ""))
    return _outcome(where, code, text, is_senders_fault=bool(failed.get("SenderFault")))


def _outcome(where: str, code: str, text: str, *, is_senders_fault: bool) -> Outcome:
    said = " ".join(f"{where}: {code} {text}".split())
    bare_code = code.removeprefix("AWS.SimpleQueueService.")
    if not is_senders_fault or bare_code.startswith(_OF_THE_SERVICE):
        return Unreachable(said)
    return Refused(said)
