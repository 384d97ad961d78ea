# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Addresses of servers: what gRPC would take for others, and which are reached without a proxy.

The same rules as those of the C++ client; "Addresses of clients" in server/OPERATIONS.md.
"""

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import quote, unquote

from kvcompress.errors import InvalidArgumentError

_MAX_SOCKET_BYTES = 107
_MAX_PORT = 65535
_ELSEWHERE = ("unix-abstract:", "vsock:")
_RESOLVED = ("xds:", "google-c2p:")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a server.

    Attributes:
        name: As gRPC takes it. The path of a Unix socket is encoded as that of a URI.
        hosts: In lower case, without ports; none for sockets of this machine, and an empty one
            where gRPC alone can know.
    """

    name: str
    hosts: tuple[str, ...] = ()

    def avoids_proxy(self) -> bool:
        """Returns whether it is reached directly, whatever proxy the environment names.

        Sockets of this machine and loopback addresses are, and other hosts where `no_grpc_proxy`,
        or else `no_proxy`, has an entry for them.
        """
        # The names that gRPC reads, in lower case.
        excluded = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112
        entries = [entry.strip().lower() for entry in excluded.split(",")]
        return all(
            _is_loopback(host) or any(_matches(host, entry) for entry in entries)
            for host in self.hosts
        )


def parse_target(text: str) -> Target:
    """Reads an address as callers write it.

    Raises:
        InvalidArgumentError: A port is not from 1 to 65,535, or the path of a Unix socket is
            empty, has more than 107 bytes or a comma, reason `INVALID_ADDRESS`.
    """
    if text.startswith("unix:"):
        return _socket(text)
    if text.startswith(_ELSEWHERE):
        return Target(text)
    if text.startswith(_RESOLVED):
        return Target(text, ("",))
    return Target(text, tuple(_host(text, each) for each in _addresses(text).split(",")))


def _bad_target(text: str, why: str, limit: int | None = None) -> InvalidArgumentError:
    """Makes the error for an address."""
    return InvalidArgumentError(f"the address {text} {why}", reason="INVALID_ADDRESS", limit=limit)


def _socket(text: str) -> Target:
    """Reads the address of a Unix socket."""
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise _bad_target(text, "is none: expected unix:PATH or unix:///PATH")
    size = len(os.fsencode(path))
    if not size:
        raise _bad_target(text, "has no path: expected unix:PATH")
    if size > _MAX_SOCKET_BYTES:
        raise _bad_target(
            text,
            f"has a path of {size} bytes, and that of a Unix socket may have {_MAX_SOCKET_BYTES}: "
            "use a shorter one, such as a link in /tmp",
            _MAX_SOCKET_BYTES,
        )
    if "," in path:
        raise _bad_target(
            text,
            "has a comma in its path, at which gRPC would cut it: use a path without one, such as "
            "a link in /tmp",
        )
    return Target(f"unix:{quote(os.fsencode(path))}")


def _addresses(text: str) -> str:
    """Returns hosts and ports, separated by commas: a target without its scheme."""
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in {"dns", "ipv4", "ipv6", "passthrough"}:
        return text
    # An authority, such as that of a name server, stands between slashes.
    path = rest[2:].partition("/")[2] if rest.startswith("//") else rest.removeprefix("/")
    return unquote(path)


def _host(text: str, address: str) -> str:
    """Returns the host of one of the addresses of a target, in lower case.

    Raises:
        InvalidArgumentError: Its port is none.
    """
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    elif address.count(":") == 1:
        host, colon, port = address.partition(":")
    else:
        host, colon, port = address, "", ""
    # gRPC keeps the lower 16 bits of a larger number.
    is_number = port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT
    if colon and not is_number and port not in {"http", "https"}:
        raise _bad_target(text, "has a port that is not a number from 1 to 65535", _MAX_PORT)
    return host.lower().removesuffix(".")


def _address(host: str) -> _Address | None:
    """Returns the IP address that a host is, if it is one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_loopback(host: str) -> bool:
    """Returns whether a host is this machine by its name."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _matches(host: str, entry: str) -> bool:
    """Returns whether an entry of `no_proxy` is for a host; both in lower case."""
    if entry == "*":
        return True
    address = _address(host)
    if address is None:
        domain = entry.removeprefix(".").removesuffix(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))
    entry = entry.removeprefix("[").removesuffix("]")
    network, slash, bits = entry.partition("/")
    if not slash:
        return _address(network) == address
    try:
        return bits.isdigit() and address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
