"""Which addresses may be connected to: public ones, unless the settings allow the others.

The name is resolved here and the connection is made to an address that was checked: a name that
answers differently the second time (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressForbidden(OSError):
    """The host has no address that may be connected to."""


class CheckedResolver(AbstractResolver):
    """Resolves names, and leaves out the addresses that may not be connected to."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        results = [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=each_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each_family, _type, protocol, _name, address in found
            if self._allow_private or is_public(str(address[0]))
        ]
        if not results:
            raise AddressForbidden(forbidden(host))
        return results

    async def close(self) -> None:
        return


def forbidden(host: str) -> str:
    return (
        f"{host} is a private, loopback or link-local address, which webhooks must not reach: "
        "set allow_private=true if it is meant"
    )


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(text: str) -> bool:
    """Whether an address belongs to the open Internet, also if wrapped in another one."""
    address: IpAddress = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_global and not address.is_multicast
