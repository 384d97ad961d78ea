# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How a client reaches its server: address, channel options, TLS, retries."""

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import grpc

from kvcompress._child import ChildServer
from kvcompress._requests import PathOrStr, is_rereadable
from kvcompress.v1 import compression_service_pb2

_SERVICE = compression_service_pb2.DESCRIPTOR.services_by_name["CompressionService"]
_UNARY = [
    method.name
    for method in _SERVICE.methods
    if not method.client_streaming and not method.server_streaming
]
_MAX_ATTEMPTS = 5  # what gRPC allows
# Seconds; doubled after each attempt.
_INITIAL_BACKOFF, _MAX_BACKOFF = 0.1, 1


class ConnectionArguments(TypedDict, total=False):
    """Keyword arguments of both clients. What is left out takes the default.

    Attributes:
        options: Channel options of gRPC, which win over the client's own.
        tls: Whether to use TLS. Default: where one of the next three is given.
        root_certificates: Certificates that the server's must be signed by, PEM, as bytes or
            the path of a file. Default: those that gRPC trusts.
        private_key: This client's key for mutual TLS, PEM, as bytes or a path.
        certificate_chain: This client's certificate for mutual TLS, PEM, as bytes or a path.
        attempts: How often a call is tried in all while the answer is UNAVAILABLE and
            nothing has come back, 1 to 5. Default 4, within about a second. A pipe cannot be
            read twice: a call that compresses one is not tried again. Progress counts what
            is sent again once more.
        shared_directory: Where this process sees the directory that the server shares, when
            that is not where the server sees it: a volume that two containers mount at
            different paths. Files in it are named, not sent, over a unix socket.
        profile_directory: Without a target: the directory with the profiles of the server that
            is started, files NAME.profile. Default: what KVCOMPRESS_PROFILE_DIRECTORY says.
    """

    options: Sequence[tuple[str, Any]]
    tls: bool | None
    root_certificates: bytes | PathOrStr | None
    private_key: bytes | PathOrStr | None
    certificate_chain: bytes | PathOrStr | None
    attempts: int
    shared_directory: PathOrStr | None
    profile_directory: PathOrStr | None


@dataclass(frozen=True, slots=True)
class Connection:
    """What a channel is made of.

    Attributes:
        target: Address as gRPC writes it.
        options: Channel options.
        credentials: TLS; None for none.
        server: The server that was started for this connection, if one was.
        attempts: How often a call is tried in all.
        shared_directory: Where this process sees the directory that the server shares; None:
            where the server sees it.
    """

    target: str
    options: list[tuple[str, Any]]
    credentials: grpc.ChannelCredentials | None
    server: ChildServer | None
    attempts: int = 1
    shared_directory: PathOrStr | None = None

    def open_channel(self) -> grpc.Channel:
        """Gives a channel, which connects when it is first used."""
        if self.credentials is None:
            return grpc.insecure_channel(self.target, self.options)
        return grpc.secure_channel(self.target, self.credentials, self.options)

    def backoff_delays(self, source: object) -> Iterator[float | None]:
        """Gives the seconds to wait after each failed attempt to send `source`; None: give up."""
        if is_rereadable(source):
            for failed in range(self.attempts - 1):
                yield min(_INITIAL_BACKOFF * 2**failed, _MAX_BACKOFF) * random.uniform(0.8, 1.2)  # noqa: S311
        yield None

    def close(self) -> None:
        """Stops the server that was started for this connection. May be called again."""
        if self.server is not None:
            self.server.stop()


def connect(
    target: str | None,
    *,
    options: Sequence[tuple[str, Any]] = (),
    tls: bool | None = None,
    root_certificates: bytes | PathOrStr | None = None,
    private_key: bytes | PathOrStr | None = None,
    certificate_chain: bytes | PathOrStr | None = None,
    attempts: int = 4,
    shared_directory: PathOrStr | None = None,
    profile_directory: PathOrStr | None = None,
) -> Connection:
    """Gives what a channel is made of; starts a server where there is no target.

    Raises:
        OSError: A file with a key or a certificate cannot be read, or a server cannot be
            started: FileNotFoundError when there is no kv-compressd.
        TypeError: An argument has a name that there is not.
        ValueError: The arguments do not go together.
    """
    pems = [_pem(each) for each in (root_certificates, private_key, certificate_chain)]
    if (private_key is None) != (certificate_chain is None):
        raise ValueError("private_key and certificate_chain go together")
    given = any(pem is not None for pem in pems)
    if tls is False and given:
        raise ValueError("certificates are given, and tls is False")
    secure = given if tls is None else tls
    if secure and target is None:
        raise ValueError("TLS needs a target")
    if not 1 <= attempts <= _MAX_ATTEMPTS:
        raise ValueError(f"attempts is {attempts}, not 1 to {_MAX_ATTEMPTS}")
    if profile_directory is not None and target is not None:
        raise ValueError("profile_directory goes with a server that is started: without a target")
    server = ChildServer.start(profile_directory) if target is None else None
    return Connection(
        target=server.target if server is not None else str(target),
        options=list({**_own_options(attempts), **dict(options)}.items()),
        credentials=grpc.ssl_channel_credentials(*pems) if secure else None,
        server=server,
        attempts=attempts,
        shared_directory=shared_directory,
    )


def _own_options(attempts: int) -> dict[str, Any]:
    """Gives the channel options that callers may override."""
    options: dict[str, Any] = {
        # A trailer lists every tensor, so that its size has no useful bound.
        "grpc.max_receive_message_length": -1,
        # Notices a peer that is gone. Any server tolerates a ping every five minutes; only with
        # pings does gRPC ask TCP to end a connection where what was sent is not acknowledged
        # for 20 seconds. Without, the channel cannot be closed until TCP gives up, after a
        # quarter of an hour (issue 20026 of gRPC).
        "grpc.keepalive_time_ms": 6 * 60 * 1000,
    }
    if attempts > 1:
        policy = {
            "maxAttempts": attempts,
            "initialBackoff": f"{_INITIAL_BACKOFF}s",
            "maxBackoff": f"{_MAX_BACKOFF}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
        # Streams are tried again by the clients. gRPC's own way of doing it ends the process,
        # or never ends the call, when a server dies at the wrong moment (issue 40283 of gRPC).
        names = [{"service": _SERVICE.full_name, "method": method} for method in _UNARY]
        methods = [{"name": names, "retryPolicy": policy}]
        options["grpc.service_config"] = json.dumps({"methodConfig": methods})
    return options


def _pem(given: bytes | PathOrStr | None) -> bytes | None:
    """Gives the bytes of a key or of certificates."""
    return Path(given).read_bytes() if isinstance(given, str | os.PathLike) else given
