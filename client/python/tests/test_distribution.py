# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The source distribution and the wheel hold what an installation needs."""

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
PROGRAMS = ("kv-compress", "kv-compressd")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the folder, as somebody downloads it."""
    folder = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "build", "bin", "*.egg-info")
    shutil.copytree(PACKAGE, folder, ignore=ignored)
    return folder


def build(source: Path, kind: str) -> Path:
    """Builds a distribution without a network, with the setuptools that are installed."""
    program = f"from setuptools import build_meta; print(build_meta.build_{kind}('dist'))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return source / "dist" / done.stdout.splitlines()[-1]


def test_wheel(source: Path) -> None:
    """One for every platform, with types, the license, the command line and where to look."""
    before = {*source.rglob("*")}
    path = build(source, "wheel")
    assert {*source.rglob("*")} - before == {path, path.parent}, "and nothing else is left behind"
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name).decode() for name in wheel.namelist()}
    [information] = [name.split("/")[0] for name in files if name.endswith("/METADATA")]
    metadata = email.message_from_string(files[f"{information}/METADATA"])
    links = {link.split(", ")[0] for link in metadata.get_all("Project-URL", [])}
    assert links == {"Source", "Documentation", "Changelog", "Issues"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in files[f"{information}/licenses/LICENSE"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    scripts = files[f"{information}/entry_points.txt"]
    assert "kv-compress = kvcompress.__main__:main" in scripts
    assert "kv-compressd = kvcompress.__main__:serve" in scripts
    assert "kvcompress = kvcompress.integrations._vllm_plugin:register" in scripts
    [manual] = [text for name, text in files.items() if name.endswith("man1/kvcompress-store.1")]
    assert ".TH" in manual
    assert {"kvcompress/py.typed", "kvcompress/v1/quality_pb2.pyi"} <= files.keys()
    assert not [name for name in files if name.startswith(("kvcompress/bin/", "tests/"))]


def test_wheel_with_programs(source: Path) -> None:
    """Those that were put into the package, as they can be run."""
    folder = source / "src" / "kvcompress" / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    with zipfile.ZipFile(build(source, "wheel")) as wheel:
        for name in PROGRAMS:
            assert wheel.getinfo(f"kvcompress/bin/{name}").external_attr >> 16 & 0o111 == 0o111


def test_source_distribution(source: Path) -> None:
    """A wheel can be built from it."""
    with tarfile.open(build(source, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"LICENSE", "README.md", "pyproject.toml", "src/kvcompress/py.typed"}
    expected |= {"src/kvcompress/v1/quality_pb2.pyi", "man/kvcompress-store.1"}
    expected |= {f"examples/{path.name}" for path in (PACKAGE / "examples").glob("*.py")}
    assert expected <= names
