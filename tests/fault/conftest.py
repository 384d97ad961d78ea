# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests: real servers, the real command line, and proxies between them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
sys.path.insert(0, str(Path(__file__).parents[1] / "load"))
sys.path.insert(0, str(Path(__file__).parent))

from server_process import BINARY, environment, start

__all__ = ["kv_compress", "start"]

CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kv_compress(tmp_path: Path) -> CommandLine:
    """Runs kv-compress in a folder of its own."""

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [str(BINARY.with_name("kv-compress")), *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=100
        )

    return run
