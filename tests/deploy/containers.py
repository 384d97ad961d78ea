# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The container image, built, and podman to run it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import claimed_line
from tools import CANNOT, REPOSITORY

IMAGE = "localhost/kvcompress:test"

# Works where there is neither systemd nor a delegated cgroup, in a container too.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
"""


class Podman:
    """Podman on the storage that the image was built in."""

    def __init__(self, storage: Path) -> None:
        """Takes the folder that tests/tools/image filled."""
        places = ["--root", str(storage / "root"), "--runroot", str(storage / "run")]
        driver = (storage / "driver").read_text().strip()
        # Below fatal is what podman says where there is no systemd to run health checks.
        quiet = ["--log-level", "fatal"]
        podman = shutil.which("podman") or "podman"
        self._command = [podman, *places, "--storage-driver", driver, *quiet]
        self._configuration = storage / "containers.conf"
        self._configuration.write_text(CONTAINERS_CONF)

    def __call__(self, *arguments: str) -> str:
        """Runs a command of podman; returns what it printed on either stream."""
        done = subprocess.run(
            [*self._command, *arguments],
            env={**os.environ, "CONTAINERS_CONF": str(self._configuration)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """The image, built."""
    storage = tmp_path_factory.mktemp("containers")
    script = REPOSITORY / "tests" / "tools" / "image"
    build = [str(script), str(storage), claimed_line("image")]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    podman = Podman(storage)
    yield podman
    podman("rm", "--all", "--force", "--time", "0")
    podman("rmi", "--all", "--force")
