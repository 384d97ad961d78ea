# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The programs that the deployment tests run, fetched or built by tests/tools."""

import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CANNOT = 3

Tool = Callable[..., Path]
# Takes a sentence for the account at the end of a run.
Fact = Callable[[str], None]


@pytest.fixture(scope="session")
def tool() -> Tool:
    """Returns the folder that a script of tests/tools prints; skips where it cannot."""

    def run(script: str, *arguments: str) -> Path:
        command = [str(REPOSITORY / "tests" / "tools" / script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == CANNOT:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip().splitlines()[-1])

    return run


def program(name: str, package: str, tool: Tool) -> str:
    """A program of a Debian package: the one on the PATH, or the package's own."""
    return shutil.which(name) or str(tool("debian-package", package) / "usr" / "bin" / name)


def output(*command: object) -> str:
    """Runs a program that must succeed; what it printed on standard output."""
    done = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
