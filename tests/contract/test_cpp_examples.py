# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The examples of client/cpp/examples, as CMake built them, and the quotation of one."""

import re
import subprocess
from pathlib import Path

import pytest
from documents import REPOSITORY, claimed_blocks

from oracle.fixtures import SAMPLE
from oracle.server import Server

BUILT = REPOSITORY / "build" / "release" / "client" / "cpp" / "examples"


def run_example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs an example; skips where the release build is not there."""
    if not (BUILT / name).is_file():
        pytest.skip(f"no {name} in {BUILT}: build with tests first")
    command = [str(BUILT / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def printed_by(name: str, *arguments: str | Path) -> str:
    """What an example prints that succeeds."""
    done = run_example(name, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compress_file(server: Server, tmp_path: Path) -> None:
    """Over a server: an artefact that is smaller than the cache by the ratio it prints."""
    artefact = tmp_path / "cache.kvc.safetensors"
    printed = printed_by("compress_file", server.target, SAMPLE, artefact)
    match = re.fullmatch(r"(\d+\.\d\d)x smaller, RMSE 0\.\d{4}\n", printed)
    assert match, printed
    elements = 60 * 3 * 96 * 64
    assert 2 * elements / artefact.stat().st_size == pytest.approx(float(match[1]), abs=0.005)


def test_compress_file_without_a_server(tmp_path: Path) -> None:
    """Fails with the reason, and leaves no output."""
    artefact = tmp_path / "cache.kvc.safetensors"
    done = run_example("compress_file", f"unix:{tmp_path}/none", SAMPLE, artefact)
    assert done.returncode == 1
    assert done.stderr.startswith("compress_file: UNAVAILABLE")
    assert list(tmp_path.iterdir()) == []


def test_compress_tensor() -> None:
    """In memory: twice 64 KiB of F32 become a quarter, and come back nearly as they were."""
    printed = printed_by("compress_tensor")
    match = re.search(r"artefact (\d+) bytes, first key (\S+), restored as (\S+)", printed)
    assert match, printed
    assert int(match[1]) < 32768
    assert abs(float(match[2]) - float(match[3])) < 0.05


def test_quotation() -> None:
    """The documents' C++ stands, line by line, in an example."""
    source = (REPOSITORY / "client/cpp/examples/compress_file.cc").read_text()
    known = {line.strip() for line in source.splitlines()}
    [block] = claimed_blocks("C++")
    assert [line for line in block.splitlines() if line.strip() not in known] == []
