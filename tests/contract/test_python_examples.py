# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The examples of the Python package run, and its README quotes them as they are."""

import doctest
import os
import shutil
from pathlib import Path

import pytest
from documents import claimed, claimed_blocks, run_line

import kvcompress
from kvcompress import _client
from oracle.fixtures import REPOSITORY, SAMPLE
from oracle.server import Server

EXAMPLES = REPOSITORY / "client" / "python" / "examples"


@pytest.fixture
def folder(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the caches that the README names."""
    monkeypatch.delenv("KVCOMPRESS_SERVER", raising=False)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    (tmp_path / "client").symlink_to(REPOSITORY / "client")
    shutil.copy(SAMPLE, tmp_path / "cache.safetensors")
    (tmp_path / "caches").mkdir()
    for name in ("one", "two"):
        shutil.copy(SAMPLE, tmp_path / "caches" / f"{name}.safetensors")
    return tmp_path


def test_every_example_is_executable() -> None:
    """And begins with what it does."""
    paths = list(EXAMPLES.glob("*.py"))
    assert len(paths) > 3
    for path in paths:
        assert os.access(path, os.X_OK), path
        assert path.read_text().splitlines()[2].startswith('"""'), path


def test_commands_of_the_readme(folder: Path) -> None:
    """One file, and a folder."""
    file, all_files = claimed("examples in Python")
    assert run_line(file, folder).startswith("4.3")
    assert "layer_0_key" in kvcompress.payload.read(folder / "small.safetensors")
    lines = [line.split() for line in run_line(all_files, folder).splitlines()]
    assert [name for name, _ in lines] == ["one.safetensors", "two.safetensors"]
    assert all(float(ratio) > 4 for _, ratio in lines)
    assert len(list((folder / "compressed").iterdir())) == 2


def test_the_first_lines(folder: Path) -> None:
    """Of the README: from a file to a file and back, by a server that the client starts."""
    [block] = claimed_blocks("five lines")
    (folder / "block.py").write_text(block)
    ratio, decibels, passed = run_line("python block.py", folder).split()
    assert float(ratio) > 4
    assert float(decibels) > 18
    assert passed == "True"
    assert (folder / "back.safetensors").stat().st_size == SAMPLE.stat().st_size


def test_a_file_by_a_server(folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """There and back, with no native program to start."""
    program = f"{EXAMPLES / 'compress_file.py'} --server {server.target}"
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(folder))
    run_line(f"{program} cache.safetensors artefact --codec lossless", folder)
    printed = run_line(f"{program} artefact restored --decompress", folder)
    assert printed == "60 tensors, every checksum right\n"
    restored = kvcompress.load_arrays((folder / "restored").read_bytes())[0]
    assert restored.keys() == kvcompress.load_arrays(SAMPLE.read_bytes())[0].keys()
    refused = run_line(f"! {program} cache.safetensors nothing --decompress 2>&1", folder)
    assert refused.startswith("Error: FAILED_PRECONDITION"), refused


def test_readme_quotes_the_asyncio_example() -> None:
    [block] = claimed_blocks("asyncio")
    assert block in (EXAMPLES / "compress_folder.py").read_text()


def test_examples_in_docstrings(folder: Path) -> None:
    """Which `help` shows; they start a server of their own."""
    done = doctest.testmod(_client, optionflags=doctest.ELLIPSIS)
    assert done.failed == 0
    assert done.attempted > 5
