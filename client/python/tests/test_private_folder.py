# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Folders for temporary files: what a killed process leaves, and what a forked one keeps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvcompress._private_folder import PrivateFolder

PROGRAM = """
import sys
from kvcompress._private_folder import PrivateFolder
folder = PrivateFolder("kvcompress-test-")
(folder.path / "large").write_bytes(b"large")
print(folder.path, flush=True)
sys.stdin.read()
"""


def process() -> "tuple[subprocess.Popen[bytes], Path]":
    """Starts a process that uses a folder."""
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert started.stdout is not None
    return started, Path(os.fsdecode(started.stdout.readline().strip()))


def test_folder_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of one that goes on is left alone, and so is what has no lock yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    living, kept = process()
    killed, left = process()
    killed.kill()
    killed.communicate(timeout=20)
    unlocked = tmp_path / "kvcompress-test-0"
    unlocked.mkdir()
    link = tmp_path / "kvcompress-test-1"
    link.symlink_to(kept)
    assert left.exists()
    folder = PrivateFolder("kvcompress-test-")
    assert {*tmp_path.iterdir()} == {kept, unlocked, link, folder.path}
    assert (kept / "large").read_bytes() == b"large"
    folder.remove()
    living.communicate(timeout=20)
    assert {*tmp_path.iterdir()} == {unlocked, link}


def test_forked_process_leaves_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = PrivateFolder("kvcompress-test-")
    owner = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: owner + 1)
    folder.remove()
    assert [*tmp_path.iterdir()] == [folder.path]
