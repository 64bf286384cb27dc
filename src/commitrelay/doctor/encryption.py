"""Does anything travel unencrypted to another machine?"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from commitrelay.doctor.check import Check, Finding
from commitrelay.doctor.patient import Patient, PatientLane
from commitrelay.urls import hosts_of, redact

ENCRYPTED_SCHEMES = ("amqps", "rediss", "https", "sqs", "sns")
PLAIN_SCHEMES = {
    "amqp": "use amqps://",
    "redis": "use rediss://",
    "http": "use https://",
    "nats": "use ?tls=true",
    "kafka": "use ?security.protocol=SSL or SASL_SSL",
}


async def examine(patient: Patient) -> Sequence[Finding]:
    findings = [
        Finding(
            f"lane {lane.name}: {redact(lane.url)} is another machine, and the way is not "
            "encrypted: anybody on it can read and change events",
            PLAIN_SCHEMES[lane.scheme],
        )
        for lane in patient.lanes
        if lane.scheme in PLAIN_SCHEMES and _is_remote(lane.url) and not _asks_for_tls(lane)
    ]
    if patient.dialect != "sqlite" and _is_remote(patient.url):
        findings += await _database(patient)
    return findings


async def _database(patient: Patient) -> list[Finding]:
    rows = await patient.ask("encryption")
    if any(row.get("encrypted") or row.get("value") for row in rows):
        return []
    return [
        Finding(
            f"{redact(patient.url)} is another machine, and the connection is not encrypted",
            "use ?sslmode=verify-full" if patient.dialect == "postgres" else "use ?ssl=on",
        )
    ]


def _asks_for_tls(lane: PatientLane) -> bool:
    options = {**lane.settings.publisher_options(), **_query(lane.url)}
    if lane.scheme == "kafka":
        return options.get("security.protocol", "").upper() in ("SSL", "SASL_SSL")
    return options.get("tls", "").lower() in ("true", "1", "yes") or "tls_ca_file" in options


def _query(url: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in url.partition("?")[2].split("&"))
    return {name: value for name, _, value in pairs}


def _is_remote(url: str) -> bool:
    return any(not is_loopback(host) for host in hosts_of(url))


def is_loopback(host: str) -> bool:
    """A socket, this machine by name, or an address of the loopback interface."""
    if not host or host.startswith(("/", "%2F", "%2f")) or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


CHECK = Check("encryption", "nothing goes to another machine in the clear", examine)
