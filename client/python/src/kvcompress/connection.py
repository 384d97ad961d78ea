# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How a client reaches its server: address, channel options, TLS, retries."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import grpc

from kvcompress._child import ChildServer
from kvcompress._requests import PathOrStr, is_rereadable
from kvcompress._target import Target, parse_target
from kvcompress.errors import FailedPreconditionError, UnavailableError

_MAX_ATTEMPTS = 5
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
            is sent again once more. A server of this client's own that has ended is started
            again before, at most 5 times.
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
        owner: The process that the connection is of.
    """

    target: str
    options: list[tuple[str, Any]]
    credentials: grpc.ChannelCredentials | None
    server: ChildServer | None
    attempts: int = 1
    shared_directory: PathOrStr | None = None
    owner: int = field(default_factory=os.getpid)

    def is_inherited(self) -> bool:
        """Returns whether this is a forked process, which has no part in the connection."""
        return os.getpid() != self.owner

    def check_process(self) -> None:
        """Refuses to go on in a forked process, where gRPC would wait for threads it has not.

        Raises:
            FailedPreconditionError: This is one, reason `FORKED`.
        """
        if self.is_inherited():
            raise FailedPreconditionError(
                f"the client was made in process {self.owner}, and connections cannot be used in "
                f"a process forked from it, such as this one, {os.getpid()}: make a client there, "
                "as in worker_init_fn of a DataLoader",
                reason="FORKED",
            )

    def open_channel(self) -> grpc.Channel:
        """Returns a channel, which connects when it is first used."""
        if self.credentials is None:
            return grpc.insecure_channel(self.target, self.options)
        return grpc.secure_channel(self.target, self.credentials, self.options)

    def retries(self, source: object = None) -> "Retries":
        """Returns what decides on further attempts of a call that sends `source`."""
        return Retries(self.server, self.attempts if is_rereadable(source) else 1)

    def close(self) -> None:
        """Stops the server that was started for this connection. May be called again."""
        if self.server is not None:
            self.server.stop()


class Retries:
    """Decides whether a call is tried again, and when.

    How long to wait is never what a server says, which may be days.
    """

    def __init__(self, server: ChildServer | None, attempts: int) -> None:
        """Takes the client's own server, if it has one, and how often a call is tried in all."""
        self._server = server
        self._delays = _backoff_delays(attempts)

    def delay_after(self, error: UnavailableError) -> float:
        """Returns the seconds to wait before the next attempt. Starts a server that has ended.

        Raises:
            UnavailableError: There is no further attempt: the error that was given, or one that
                says how the client's own server ended, reason `SERVER_ENDED`.
            OSError: The server cannot be started again.
        """
        delay = next(self._delays, None)
        ended = None if self._server is None else self._server.ended()
        if self._server is not None and ended is not None:
            if delay is None or not self._server.restart(ended):
                text = f"{ended}; it is not started again for this call: make another client"
                raise UnavailableError(text, reason="SERVER_ENDED") from error
        elif delay is None:
            raise error
        return delay


def _backoff_delays(attempts: int) -> Iterator[float]:
    """Yields the seconds to wait after each failed attempt but the last."""
    for failed in range(attempts - 1):
        yield min(_INITIAL_BACKOFF * 2**failed, _MAX_BACKOFF) * random.uniform(0.8, 1.2)  # noqa: S311


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
    """Returns what a channel is made of; starts a server where there is no target.

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
    named = None if target is None else parse_target(target)
    server = ChildServer.start(profile_directory) if target is None else None
    address = named or Target(server.target if server is not None else "")
    own_options = _own_options(address, own_server=server is not None)
    return Connection(
        target=address.name,
        options=list({**own_options, **dict(options)}.items()),
        credentials=grpc.ssl_channel_credentials(*pems) if secure else None,
        server=server,
        attempts=attempts,
        shared_directory=shared_directory,
    )


def _own_options(target: Target, *, own_server: bool) -> dict[str, Any]:
    """Returns the channel options that callers may override."""
    options = {
        # A trailer lists every tensor, so that its size has no useful bound.
        "grpc.max_receive_message_length": -1,
        # Notices a peer that is gone. Any server tolerates a ping every five minutes; only with
        # pings does gRPC ask TCP to end a connection where what was sent is not acknowledged
        # for 20 seconds. Without, the channel cannot be closed until TCP gives up, after a
        # quarter of an hour (issue 20026 of gRPC).
        "grpc.keepalive_time_ms": 6 * 60 * 1000,
    }
    # Calls are tried again by the clients, none by gRPC: its own way waits for as long as a server
    # says, and of streams it ends the process, or never ends the call, when a server dies at the
    # wrong moment (issue 40283 of gRPC).
    if target.avoids_proxy():
        options["grpc.enable_http_proxy"] = 0
    if own_server:  # so that a further attempt, after as long, finds one that was started again
        options["grpc.initial_reconnect_backoff_ms"] = round(1000 * _INITIAL_BACKOFF)
    return options


def _pem(given: bytes | PathOrStr | None) -> bytes | None:
    """Returns the bytes of a key or of certificates."""
    return Path(given).read_bytes() if isinstance(given, str | os.PathLike) else given
