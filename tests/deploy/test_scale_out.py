# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Many servers and one client: load spread evenly, and nothing lost while servers come and go."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool import HeadlessService, Network, Server
from tools import REPOSITORY, Fact

import kvcompress

SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
WORKERS = 6
CALLS = 240  # of a window in which load is compared
UNEVEN = 0.10
PATIENCE = 120
# As a client of a headless service sets them. Kubernetes names the pods that are ready;
# gRPC asks again when a connection ends, and no more often than this.
OPTIONS = [
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.dns_min_time_between_resolutions_ms", 200),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
# Retried by the caller, and not by gRPC: grpcio 1.85.1 with retries of its own aborted the
# process in three of seven runs, when servers went (promise_based_filter.cc, "ILLEGAL STATE:
# FORWARDED_BATCH"); and it retries only what has not begun to be answered. A call that meets
# a server at the very moment it stops ends with CANCELLED.
PASSING = (kvcompress.UnavailableError, kvcompress.CallCancelledError)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Load:
    """Workers that compress the same cache until asked to stop, and check what comes back."""

    def __init__(self, target: str) -> None:
        """Starts them."""
        self._client = kvcompress.Client(target, options=OPTIONS, attempts=1)
        self._cache = SAMPLE.read_bytes()
        self._expected = self._client.compress(self._cache, codec="int4").artefact
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.done = self.again = 0
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work) for _ in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._one()
        except BaseException as error:  # for the test to look at
            self.errors.append(error)

    def _one(self) -> None:
        for attempt in range(5):
            try:
                artefact = self._client.compress(self._cache, codec="int4").artefact
            except PASSING:
                if attempt == 4:
                    raise
                with self._lock:
                    self.again += 1
                continue
            assert artefact == self._expected
            with self._lock:
                self.done += 1
            return

    def wait(self, calls: int) -> None:
        """Until that many more calls are done."""
        goal, deadline = self.done + calls, time.monotonic() + PATIENCE
        while self.done < goal and not self.errors:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not self.errors, self.errors

    def stop(self) -> None:
        """Lets every worker finish its call."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts that are gone after the test."""
    network = Network()
    yield network
    network.close()


def unevenness(load: Load, servers: list[Server]) -> float:
    """By how much the busiest and the idlest server differ from the mean, over a window."""
    before = [server.calls() for server in servers]
    load.wait(CALLS)
    calls = [server.calls() - b for server, b in zip(servers, before, strict=True)]
    mean = sum(calls) / len(calls)
    return max(abs(count - mean) for count in calls) / mean


def test_servers_come_and_go(network: Network, tmp_path: Path, fact: Fact) -> None:
    """Every call gets its artefact, the right one; load is even before and after."""
    service = HeadlessService()
    servers: list[Server] = []
    load = None

    def start(host: int) -> None:
        flags = ["--drain-delay-seconds", "1", "--max-connection-age-seconds", "4"]
        servers.append(Server(network, host, tmp_path, *flags))
        service.addresses.append(servers[-1].address)

    def stop(number: signal.Signals) -> None:
        server = servers.pop(0)
        service.addresses.remove(server.address)
        server.stop(number)

    try:
        for host in (1, 2, 3):
            start(host)
        load = Load(service.target)
        load.wait(WORKERS)
        even = [unevenness(load, servers)]
        stop(signal.SIGKILL)
        load.wait(WORKERS)
        stop(signal.SIGTERM)
        load.wait(WORKERS)
        for host in (4, 5, 6):
            start(host)
        deadline = time.monotonic() + PATIENCE
        while any(server.calls() == 0 for server in servers):
            assert time.monotonic() < deadline, "a new server gets no calls"
            load.wait(1)
        # Until the connections that knew fewer servers have ended.
        time.sleep(5)
        even.append(unevenness(load, servers))
        load.stop()
        assert not load.errors, load.errors
    finally:
        if load is not None:
            load.stop()
        for server in servers:
            server.stop(signal.SIGKILL)
        service.close()
    where = "network namespaces" if network.has_namespaces else "addresses of loopback"
    fact(
        f"{where}: 3 servers, one killed, one stopped, 3 added under load: {load.done} calls, none "
        f"lost, {load.again} tried again by the caller; load within {even[0]:.1%} of even before, "
        f"{even[1]:.1%} after"
    )
    assert max(even) < UNEVEN
