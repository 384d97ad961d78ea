# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A folder on a file system of its own, that is soon full."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """Makes a folder with space for one page; returns what frees space for more.

    Skips the test where nothing can be mounted.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    resize = ["mount", "-o", "remount,size=4m", str(folder)]
    unmount = ["umount", "--lazy", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    def enlarge() -> None:
        subprocess.run(resize, check=True)

    try:
        yield enlarge
    finally:
        subprocess.run(unmount, check=True)
