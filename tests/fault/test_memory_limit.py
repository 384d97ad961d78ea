# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server in a control group of little memory: it refuses, and is not killed."""

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import server_process
from calls import MIB, cache, metric
from health import SERVING
from server_process import BINARY, Start

from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

LIMIT = 256 * MIB
CLIENTS = 32


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
            name = "memory.max" if version2 else "memory.limit_in_bytes"
            (folder / name).write_text(str(limit))
            events = folder / ("memory.events" if version2 else "memory.oom_control")
            self._events = events
            self.kills()
        except OSError:
            folder.rmdir()
            raise

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


def test_load_above_the_memory_limit(
    group: Group, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget follows the limit of the group, and what does not fit is refused."""
    launcher = tmp_path / "launcher"
    launcher.write_text(
        f'#!/bin/sh\necho $$ > "{group.folder}/cgroup.procs" && exec "{BINARY}" "$@"\n'
    )
    launcher.chmod(0o755)
    monkeypatch.setattr(server_process, "BINARY", launcher)
    server = start()
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
