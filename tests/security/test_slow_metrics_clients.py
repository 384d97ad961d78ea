# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Clients that hold connections to the metrics port open do not silence /healthz and /metrics."""

import contextlib
import json
import resource
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from health import SERVING
from process_memory import peak
from server_process import PATIENCE, ServerProcess, Start, wait_until
from slow_clients import KINDS, ask, read_answer, slow_clients

import kvcompress

MIB = 1 << 20
# What the endpoint may hold of answers and requests, and the allocator around it.
MOST_GROWTH = 96 * MIB
CLIENTS = 600
LONG = (pytest.mark.slow, pytest.mark.nightly)
SAMPLE = {
    f"layer_0_{role}": np.random.default_rng(0).normal(size=(1, 2, 64, 32)).astype(np.float32)
    for role in ("key", "value")
}


def wait_for_descriptors(server: ServerProcess, wanted: int) -> None:
    """Waits until it has no more than that."""
    wait_until(lambda: len(server.descriptors()) <= wanted, f"{wanted} descriptors at most")


def wait_for_health(server: ServerProcess) -> None:
    """Waits until /healthz says SERVING."""
    wait_until(lambda: ask(server.http, "/healthz", PATIENCE)[0] == 200, "SERVING")


def value(page: str, series: str) -> float:
    """Of a series on the page of metrics."""
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(series))


def timed(
    server: ServerProcess, path: str, most: float, expected: tuple[int, ...] = (200,)
) -> tuple[float, int]:
    """Seconds until the answer, within `most`, and how often it took another connection.

    A client that is put to sleep between connecting and asking, on a busy machine, is taken for
    one of the attackers, who have its address.
    """
    begin = time.monotonic()
    resets = 0
    while True:
        try:
            status, body = ask(server.http, path, most - (time.monotonic() - begin))
        except ConnectionError:
            resets += 1
            assert time.monotonic() - begin < most, (path, resets)
            continue
        assert status in expected, (path, status, body)
        return time.monotonic() - begin, resets


def assert_answers(server: ServerProcess) -> None:
    """Each path returns what it should."""
    assert ask(server.http, "/healthz", PATIENCE) == (200, "SERVING\n")
    status, page = ask(server.http, "/metrics", PATIENCE)
    assert status == 200
    assert value(page, "kvcompress_build_info") == 1
    assert value(page, "kvcompress_http_connections ") == 1
    assert "kv-compressd: SERVING" in ask(server.http, "/statusz", PATIENCE)[1]
    assert ask(server.http, "/other", PATIENCE)[0] == 404
    assert server.check() == SERVING


def use_every_codec(server: ServerProcess) -> None:
    """Makes the page of metrics as long as it gets: longer than what sockets buffer unread."""
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        for codec in client.server_info().codecs:
            client.compress(SAMPLE, codec=codec.name)


@pytest.mark.parametrize(
    ("kinds", "seconds"),
    [
        pytest.param(KINDS, 5, id="mixed-5"),
        pytest.param(KINDS, 30, id="mixed-30", marks=LONG),
        pytest.param(("unread",), 10, id="unread-10", marks=pytest.mark.slow),
    ],
)
def test_slow_clients_do_not_silence_health_and_metrics(
    start: Start, kinds: tuple[str, ...], seconds: int
) -> None:
    """From the address of the prober itself, twice as many as one address may have."""
    server = start()
    use_every_codec(server)
    assert_answers(server)
    before, peak_before = len(server.descriptors()), peak(server.pid)
    health, metrics, held = [], [], 0
    with slow_clients(server.http, CLIENTS, seconds, kinds) as attack:
        while attack.poll() is None:
            health.append(timed(server, "/healthz", 1))
            held = max(held, len(server.descriptors()) - before)
            if len(health) % 10 == 0:
                metrics.append(timed(server, "/metrics", 5))
            time.sleep(0.05)
        assert attack.stdout is not None
        opened = json.load(attack.stdout)["opened"]
    print(f"{opened} connections, {held} held; {(peak(server.pid) - peak_before) / MIB:.0f} MiB")
    for path, answers in (("/healthz", health), ("/metrics", metrics)):
        slowest, resets = max(answers)[0], sum(answer[1] for answer in answers)
        print(f"{path} {len(answers)} times, {slowest:.3f} s at most, {resets} resets")
    assert sum(resets for _, resets in health) <= len(health) / 10
    assert opened >= CLIENTS
    assert 200 < held < CLIENTS
    assert peak(server.pid) - peak_before < MOST_GROWTH
    wait_for_descriptors(server, before)
    assert_answers(server)
    page = ask(server.http, "/metrics", PATIENCE)[1]
    assert value(page, 'kvcompress_http_connections_closed_total{reason="address_limit"}') > 0


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=LONG)])
def test_health_comes_back_where_descriptors_run_out(start: Start, seconds: int) -> None:
    """The bounds on connections are those of a process that may have far more descriptors."""
    server = start()
    before = len(server.descriptors())
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (256, 256))
    answered, failed = [], 0
    with slow_clients(server.http, CLIENTS, seconds) as attack:
        while attack.poll() is None:
            try:
                # NOT_SERVING is true while gRPC has no descriptor for a connection.
                answered.append(timed(server, "/healthz", 1, (200, 503))[0])
            except OSError:
                failed += 1
            time.sleep(0.05)
    slowest = max(answered, default=0)
    print(f"/healthz {len(answered)} times, {slowest:.3f} s at most; {failed} times not")
    assert answered
    timed(server, "/healthz", 5, (200, 503))
    wait_for_health(server)
    wait_for_descriptors(server, before)
    assert_answers(server)


def test_health_answers_while_grpc_has_all_descriptors(start: Start, tmp_path: Path) -> None:
    """And afterwards it says what gRPC's health says."""
    unix = f"unix:{tmp_path}/kv.sock"
    server = start("--listen", f"127.0.0.1:0,{unix}")
    before = len(server.descriptors())
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (128, 128))
    host, port = server.addresses[0].rsplit(":", 1)
    with contextlib.ExitStack() as idle:
        for _ in range(200):
            idle.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
        give_up = time.monotonic() + PATIENCE
        while len(server.descriptors()) < 128 and time.monotonic() < give_up:
            time.sleep(0.01)
        held = len(server.descriptors())
        begin = time.monotonic()
        for _ in range(100):
            assert ask(server.http, "/healthz", PATIENCE)[0] in (200, 503)
        page = ask(server.http, "/metrics", PATIENCE)[1]
        print(f"{held} descriptors; 100 probes in {time.monotonic() - begin:.3f} s")
        # A page made without descriptors shows how few there are.
        assert value(page, "process_open_fds") > 100
        assert value(page, "process_max_fds") == 128
        assert value(page, "process_resident_memory_bytes") > MIB
    wait_for_descriptors(server, before + 8)
    healthy = server.check(address=unix) == SERVING
    assert ask(server.http, "/healthz", PATIENCE)[0] == (200 if healthy else 503)


def test_many_scrapes_at_once_are_all_answered(start: Start) -> None:
    """With health in between, and no more than a moment late."""
    server = start()
    before = len(server.descriptors())
    host, port = server.http.removeprefix("http://").rsplit(":", 1)
    with contextlib.ExitStack() as open_sockets:
        scrapes = []
        for _ in range(200):
            scrape = socket.create_connection((host, int(port)), timeout=PATIENCE)
            scrapes.append(open_sockets.enter_context(scrape))
            scrape.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        health = [timed(server, "/healthz", 1)[0] for _ in range(20)]
        for scrape in scrapes:
            status, page = read_answer(scrape, time.monotonic() + PATIENCE)
            assert status == 200
            assert value(page, "kvcompress_build_info") == 1
            assert page.endswith("\n")
    print(f"/healthz {max(health):.3f} s at most")
    wait_for_descriptors(server, before)
    assert_answers(server)
