# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A real kv-compressd for each test.

The binary is `bin/kv-compressd` of the repository, or that of the directory
KVCOMPRESS_BIN_DIR. The Python package `kvcompress` must be importable.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server_process import BINARY, ServerProcess, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers with the given flags; they are killed after the test."""
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is not built")
    servers: list[ServerProcess] = []

    def starter(*flags: str, **variables: str) -> ServerProcess:
        servers.append(ServerProcess(flags, variables, tmp_path))
        servers[-1].wait_until_serving()
        return servers[-1]

    yield starter
    for server in servers:
        server.kill()
