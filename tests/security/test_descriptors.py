# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Connections and file descriptors run out; service comes back, and health says so meanwhile."""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import health
import pytest
from authority import Authority
from calls import metric
from health import NOT_SERVING, SERVING
from server_process import PATIENCE, ServerProcess, Start, run, wait_until

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
IDLE = 320
TENSORS = 60
DESCRIPTORS = {resource.RLIMIT_NOFILE: 256}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    """A TCP connection that says nothing."""
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), PATIENCE, (source, 0))


@contextlib.contextmanager
def idle(address: str, count: int) -> Iterator[None]:
    """So many connections, at once."""
    with contextlib.ExitStack() as opened:
        for _ in range(count):
            opened.enter_context(connect(address))
        yield


def healthz(server: ServerProcess) -> bool:
    """Whether /healthz says SERVING."""
    return server.get("/healthz")[0] == 200


def serves(server: ServerProcess, client: dict[str, Any] | None = None) -> bool:
    """Whether a client, with these arguments, gets an answer.

    A new connection is refused until the server has read that others are closed.
    """
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE, **(client or {})) as caller:
        try:
            return caller.measure(SAMPLE).tensor_count == TENSORS
        except kvcompress.UnavailableError:
            return False


def security(kind: str, authority: Authority) -> tuple[list[str], dict[str, Any]]:
    """Flags of a server, and arguments of a client that it takes."""
    if kind == "plain text":
        return [], {}
    flags = authority.sign("server").server_flags
    if kind == "TLS":
        return flags, {"root_certificates": authority.certificate}
    pair = authority.sign("client")
    return [*flags, "--tls-client-ca", str(authority.certificate)], {
        "root_certificates": authority.certificate,
        "private_key": pair.key,
        "certificate_chain": pair.certificate,
    }


@pytest.mark.parametrize("kind", ["plain text", "TLS", "mutual TLS"])
def test_idle_connections_do_not_end_the_service(
    start: Start, authority: Authority, kind: str
) -> None:
    """More of them than there are descriptors; the listener lives on when they have gone."""
    flags, client = security(kind, authority)
    server = start(*flags, limits=DESCRIPTORS)
    with idle(server.addresses[0], IDLE):
        wait_until(lambda: not healthz(server), "health says that no connection is to be had")
        assert metric(server, "kvcompress_reachable") == 0
        assert metric(server, 'kvcompress_connections_refused_total{reason="host_limit"}') > 0
        assert len(server.descriptors()) < DESCRIPTORS[resource.RLIMIT_NOFILE]
    wait_until(lambda: serves(server, client), "a call is served again")
    wait_until(lambda: healthz(server), "health says that service is back")
    assert metric(server, "kvcompress_reachable") == 1
    assert server.send_and_wait()[0] == 0


def test_a_watch_is_told_of_what_others_cannot_reach(start: Start) -> None:
    """Who got in before is served on, and notified."""
    server = start(limits=DESCRIPTORS)
    with server.channel() as channel:
        watch = health.Watch(channel)
        assert watch.first == SERVING
        with idle(server.addresses[0], IDLE):
            assert int(next(watch.call).status) == NOT_SERVING
            assert health.check(channel, "", PATIENCE) == NOT_SERVING
        assert int(next(watch.call).status) == SERVING
        watch.call.cancel()


def test_one_host_does_not_take_all_connections(start: Start) -> None:
    """Others are let in next to a host that has its share."""
    server = start("--max-connections", "40", "--max-connections-per-host", "30")
    with idle(server.addresses[0], 60), connect(server.addresses[0], "127.0.0.2") as other:
        other.sendall(PREFACE)
        assert other.recv(9)[3] == 4, "no frame of settings"
        assert metric(server, 'kvcompress_connections_refused_total{reason="host_limit"}') >= 30
        assert metric(server, 'kvcompress_connections_refused_total{reason="limit"}') == 0
    wait_until(lambda: serves(server), "service is back")


def test_a_unix_socket_is_served_beside_a_flood_of_tcp(start: Start, tmp_path: Path) -> None:
    """It counts as a host of its own."""
    path = f"unix:{tmp_path}/kv.sock"
    server = start("--listen", "127.0.0.1:0", "--listen", path, limits=DESCRIPTORS)
    with idle(server.addresses[0], IDLE), kvcompress.Client(path, timeout=PATIENCE) as client:
        assert client.measure(SAMPLE).tensor_count == TENSORS


def test_connections_that_say_nothing_are_given_up(start: Start) -> None:
    """After the time for a handshake, so that they do not hold a place for ever."""
    server = start("--max-connections", "20")
    with idle(server.addresses[0], 10):
        wait_until(lambda: not healthz(server), "the host has its share")
        begin = time.monotonic()
        while not healthz(server):
            assert time.monotonic() - begin < 3 * PATIENCE
            time.sleep(0.5)
        assert metric(server, "kvcompress_connections") <= 1


def test_connections_that_carry_no_call_are_given_up(start: Start) -> None:
    """Those that answer pings too."""
    server = start("--max-connection-idle-seconds", "1")
    with connect(server.addresses[0]) as connection:
        connection.sendall(PREFACE)
        connection.settimeout(PATIENCE)
        while connection.recv(4096):
            pass
    assert server.check() == SERVING


def set_descriptors(server: ServerProcess, limit: int) -> None:
    """Changes the limit of a running server."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, hard))


def first_free(server: ServerProcess) -> int:
    """The lowest number that no descriptor of the server has."""
    taken = server.descriptors()
    return next(number for number in range(len(taken) + 1) if number not in taken)


@pytest.mark.parametrize("spare", [True, False])
def test_no_descriptor_for_a_while(start: Start, spare: bool) -> None:
    """Connections are refused, or wait where not even a spare one is left; all is well after it."""
    server = start()
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0]
    with server.channel() as channel:
        watch = health.Watch(channel)
        set_descriptors(server, first_free(server) if spare else 3)
        assert int(next(watch.call).status) == NOT_SERVING
        waiting = [connect(server.addresses[0]) for _ in range(20)]
        if spare:
            assert [connection.recv(1) for connection in waiting] == [b""] * 20
        set_descriptors(server, before)
        assert int(next(watch.call).status) == SERVING
        watch.call.cancel()
    for connection in waiting:
        connection.close()
    assert server.check() == SERVING
    refused = metric(server, 'kvcompress_connections_refused_total{reason="descriptors"}')
    assert (refused >= 20) == spare
    assert server.send_and_wait()[0] == 0


def test_a_server_that_nobody_reaches_ends(start: Start) -> None:
    """With an error, and not before the time that was given."""
    server = start("--unreachable-exit-seconds", "4")
    set_descriptors(server, 3)
    begin = time.monotonic()
    assert server.wait() == 1
    assert time.monotonic() - begin > 3
    assert any("nobody could reach this server" in message for message in server.messages)


def test_a_full_server_does_not_end(start: Start) -> None:
    """Being full is no fault: calls that run are not cut off for it."""
    server = start("--max-connections", "10", "--unreachable-exit-seconds", "2")
    with server.channel() as channel:
        assert health.check(channel, "", PATIENCE) == SERVING
        with idle(server.addresses[0], 20):
            wait_until(lambda: not healthz(server), "it is full")
            time.sleep(4)
            assert health.check(channel, "", PATIENCE) == NOT_SERVING
    wait_until(lambda: healthz(server), "service is back")


def test_limits_that_cannot_be_held_are_refused() -> None:
    """At the start, with what is needed."""
    refused = run("--max-connections", "1000000")
    assert refused.returncode == 1
    assert "--max-connections is 1000000, but the limit of" in refused.stderr


def test_calls_on_open_connections_go_on_without_descriptors(start: Start) -> None:
    """They need none."""
    server = start()
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0]
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        client.server_info()
        set_descriptors(server, 3)
        assert client.measure(SAMPLE).tensor_count == TENSORS
        set_descriptors(server, before)
    wait_until(lambda: serves(server), "service is back")
