# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A new codec, option and metric take as many files as docs/architecture.md says, and work.

The patches add a codec `toy`, an option of it, and a metric with a bound, one after the other.
Where one no longer applies, change it by hand as the tree around it was changed.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TITLES = {
    "codec": "A codec",
    "option": "An option of a codec",
    "metric": "A metric of quality with a bound",
}


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Returns what the command prints, and fails with it."""
    found = subprocess.run(
        [*command], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    printed = found.stdout.decode()
    assert found.returncode == 0, printed[-10_000:]
    return printed


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The tree, with the files of it that git does not ignore."""
    tree = tmp_path / "tree"
    run("git", "init", "--quiet", tree, cwd=tmp_path)
    listed = "git ls-files -z --cached --others --exclude-standard"
    packed = "tar --create --null --files-from=- --ignore-failed-read"
    run("bash", "-c", f"{listed} | {packed} | tar --extract -C {tree}", cwd=REPOSITORY)
    return tree


def test_as_many_files_as_are_documented(copy: Path) -> None:
    """Without golden files and what is generated, and with the line of the changelog."""
    text = (copy / "docs" / "architecture.md").read_text()
    for addition, title in TITLES.items():
        patch = HERE / f"{addition}.patch"
        run("git", "apply", "-p0", "-C1", patch, cwd=copy)
        files = re.findall(r"^\+\+\+ (\S+)", patch.read_text(), re.MULTILINE)
        documented = re.search(rf"\*\*{title}: (\d+) files\.\*\*", text)
        assert documented, title
        assert len(files) == int(documented[1]), files


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_what_was_added_works(copy: Path) -> None:
    """The tests that report missing parts pass, and the programs have it."""
    for addition in TITLES:
        run("git", "apply", "-p0", "-C1", HERE / f"{addition}.patch", cwd=copy)
    run(sys.executable, copy / "client/python/generate", cwd=copy)
    run(copy / "deploy/build", cwd=copy)
    unit_tests = copy / "build/release/tests/unit/kvcompress_unit_tests"
    run(unit_tests, "--gtest_filter=Toy*:Metric*:Registry*:*Decoder*", cwd=copy)
    environment = {"PYTHONPATH": str(copy / "client/python/src"), "PATH": "/usr/bin:/bin"}
    golden = copy / "tests/golden/add-from-service"
    run(sys.executable, golden, copy / "bin", cwd=copy, environment=environment)
    tests = ["contract/test_codecs.py", "contract/test_codec_strings.py"]
    tests += ["contract/oracle/test_differential.py", "golden/test_golden_service.py"]
    pytest_of_copy = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "-q"]
    chosen = [f"tests/{test}" for test in tests]
    run(*pytest_of_copy, *chosen, cwd=copy, environment=environment)

    sample, program = "tests/data/smollm2_kjv_96_bf16.safetensors", copy / "bin/kv-compress"
    for codec in ("toy", "toy:0.25"):
        run(program, "compress", "-force", "-codec", codec, "-o", "sample.kvc", sample, cwd=copy)
        run(program, "verify", "sample.kvc", cwd=copy)
    measured: list[str | Path] = [program, "measure", "-json", "-codec", "toy:0.25", sample]
    assert '"relative_max_error"' in run(*measured, cwd=copy)
    bounded = [*measured, "-thresholds", "max_relative_error=0.0001"]
    found = subprocess.run(bounded, cwd=copy, stdout=subprocess.PIPE, text=True, check=False)
    assert found.returncode != 0
    assert "is not below 0.0001" in found.stdout
