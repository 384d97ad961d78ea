# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Disks that are full or cannot be written: kv-compress says so and leaves nothing."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server_process import BINARY, Start, environment

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
KIB = 1 << 10

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def mount(*arguments: object) -> None:
    """Runs mount, or skips the test where that is not allowed."""
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={256 * KIB}", "tmpfs", folder)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def program(start: Start) -> Run:
    """kv-compress, with the server running elsewhere."""
    variables = environment({"KVCOMPRESS_SERVER": start().addresses[0]})

    def run(*arguments: object, limit: int | None = None) -> "subprocess.CompletedProcess[str]":
        # Not by a function between fork and exec: gRPC, in this process, has threads.
        limited = [] if limit is None else ["prlimit", f"--fsize={limit}:{limit}"]
        return subprocess.run(
            [*limited, BINARY.with_name("kv-compress"), *map(str, arguments)],
            env=variables,
            capture_output=True,
            text=True,
            timeout=100,
            restore_signals=False,  # SIGXFSZ stays ignored: too large a file is an error to write
        )

    return run


def refused(done: "subprocess.CompletedProcess[str]", words: str) -> None:
    """Holds a run to its message, its status and its silence."""
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: "), done.stderr
    assert words in done.stderr.lower()


def test_full_disk(program: Run, small_disk: Path, tmp_path: Path) -> None:
    """Compressing and restoring; what was there before stays."""
    old = small_disk / "out"
    old.write_text("precious")
    refused(program("-input", SAMPLE, "-output", old), "no space left on device")
    assert [(path.name, path.read_text()) for path in small_disk.iterdir()] == [("out", "precious")]
    artefact = tmp_path / "artefact"
    assert program("-input", SAMPLE, "-output", artefact).returncode == 0
    refused(program("-decompress", "-input", artefact, "-output", old), "no space left on device")
    assert [(path.name, path.read_text()) for path in small_disk.iterdir()] == [("out", "precious")]


def test_largest_file(program: Run, tmp_path: Path) -> None:
    """A limit on the size of files is met like a full disk."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for limit in (0, 1000, 200 * KIB):
        done = program("-input", SAMPLE, "-output", folder / "out", limit=limit)
        refused(done, "file too large")
        assert list(folder.iterdir()) == []


def test_disk_that_is_read_only(program: Run, small_disk: Path) -> None:
    """Nothing is sent before it is known that there is a place for the result."""
    mount("-o", "remount,ro", small_disk)
    refused(program("-input", SAMPLE, "-output", small_disk / "out"), "read-only file system")
    assert list(small_disk.iterdir()) == []
