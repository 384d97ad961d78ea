# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress as a process under test."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import BINARY, environment

CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kv_compress(tmp_path: Path) -> CommandLine:
    """Runs it in a folder of its own."""

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [str(BINARY.with_name("kv-compress")), *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=100
        )

    return run
