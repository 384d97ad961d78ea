# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server in a control group of little memory: it refuses, and is not killed."""

import os
import re
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy
import pytest
import server_process
from calls import MIB, cache, metric
from flood import Flood, many_streams
from health import SERVING
from http2 import RST_STREAM, frame
from process_memory import peak
from server_process import BINARY, PATIENCE, ServerProcess, Start, wait_until

import kvcompress
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

LIMIT = 256 * MIB
CLIENTS = 32
FLOODS = 4


class Group:
    """A memory control group, of version 2 or 1."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Makes the group.

        Raises:
            OSError: The machine does not let us.
        """
        self.folder = folder
        folder.mkdir()
        try:
            version2 = (folder / "memory.max").exists()
            self._limit = folder / ("memory.max" if version2 else "memory.limit_in_bytes")
            self.set_limit(limit)
            events = folder / ("memory.events" if version2 else "memory.oom_control")
            self._events = events
            self.kills()
        except OSError:
            folder.rmdir()
            raise

    def set_limit(self, limit: int) -> None:
        """Sets another limit in bytes."""
        self._limit.write_text(str(limit))

    def kills(self) -> int:
        """How many processes the kernel has killed in it."""
        found = re.search(r"^oom_kill (\d+)$", self._events.read_text(), re.MULTILINE)
        if found is None:
            raise OSError("the kernel does not count what it kills")
        return int(found[1])


def candidates() -> Iterator[Path]:
    """Where a group might be made: below the one that this process is in."""
    name = f"kvcompress-test-{os.getpid()}"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield Path("/sys/fs/cgroup/memory") / path.lstrip("/") / name
            yield Path("/sys/fs/cgroup/memory") / name
        elif controllers == "":
            yield Path("/sys/fs/cgroup") / path.lstrip("/") / name


@pytest.fixture
def group() -> Iterator[Group]:
    """A group, removed in the end: by then the test has ended what ran in it."""
    reasons = []
    for folder in candidates():
        try:
            made = Group(folder, LIMIT)
        except OSError as error:
            reasons.append(str(error))
            continue
        yield made
        subprocess.run(["rmdir", folder], check=True)
        return
    pytest.skip(f"no memory control group can be made here: {'; '.join(reasons)}")


@pytest.fixture
def start_within(
    group: Group, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Start:
    """Starts servers in the group."""
    launcher = tmp_path / "launcher"
    launcher.write_text(
        f'#!/bin/sh\necho $$ > "{group.folder}/cgroup.procs" && exec "{BINARY}" "$@"\n'
    )
    launcher.chmod(0o755)
    monkeypatch.setattr(server_process, "BINARY", launcher)
    return start


def serves(server: ServerProcess) -> bool:
    """Whether a cache is compressed; what is left of floods may still hold the budget."""
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        try:
            client.compress({"layer_0_key": numpy.zeros((1, 2, 8, 16), numpy.float16)})
        except kvcompress.ResourceExhaustedError:
            return False
    return True


@pytest.mark.parametrize("kind", ["open", "reset"])
def test_indexed_headers_killed_a_container(group: Group, start_within: Start, kind: str) -> None:
    """Two megabytes of streams with headers of six bytes became as much memory as there was."""
    group.set_limit(512 * MIB)
    server = start_within()
    after = frame(RST_STREAM, 0, 0, struct.pack(">I", 8)) if kind == "reset" else b""
    floods = [Flood(server, lambda: many_streams("Compress", after)) for _ in range(FLOODS)]
    for flood in floods:
        flood.wait()
    most = peak(server.pid)
    sent = sum(flood.sent for flood in floods)
    print(f"{kind}: {sent / MIB:.1f} MiB sent, {most / MIB:.0f} MiB at most")
    assert group.kills() == 0
    assert metric(server, "kvcompress_connections_shed_total") >= FLOODS
    wait_until(lambda: serves(server))
    assert server.check() == SERVING
    assert group.kills() == 0
    server.kill()


def test_load_above_the_memory_limit(group: Group, start_within: Start) -> None:
    """The budget follows the limit of the group, and what does not fit is refused."""
    server = start_within()
    budget = metric(server, "kvcompress_inflight_budget_bytes")
    assert budget == (LIMIT - 64 * MIB) / 2

    def attempt(_: int) -> grpc.StatusCode:
        """One call of 16 MiB, from a connection of its own."""
        with server.channel() as channel:
            try:
                *begun, last = CompressionServiceStub(channel).Compress(
                    cache(16 * MIB), timeout=100
                )
            except grpc.RpcError as error:
                return error.code()
        assert begun
        assert last.trailer.original_size_bytes == 16 * MIB
        return grpc.StatusCode.OK

    with ThreadPoolExecutor(CLIENTS) as pool:
        codes = list(pool.map(attempt, range(4 * CLIENTS)))
    print({code.name: codes.count(code) for code in set(codes)})
    assert group.kills() == 0
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert grpc.StatusCode.OK in codes
    assert server.check() == SERVING
    server.kill()
