# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a newcomer does: installs the package, and runs the lines of its README."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from oracle.fixtures import REPOSITORY

PACKAGE = REPOSITORY / "client" / "python"


def readme_example() -> str:
    """The ten lines of the README."""
    found = re.search("```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert found is not None
    assert len([line for line in found[1].splitlines() if line]) <= 10
    return found[1]


def run_example(python: Path | str, bin_dir: Path, **environment: str) -> None:
    """Runs the ten lines, with the binaries on the PATH alone."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("KVCOMPRESS_")}
    path = os.pathsep.join([str(bin_dir.resolve()), variables["PATH"]])
    done = subprocess.run(
        [str(python), "-c", readme_example()],
        capture_output=True,
        env={**variables, **environment, "PATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    ratio, snr_db, shape = done.stdout.decode().split(maxsplit=2)
    assert 1.8 < float(ratio) < 2
    assert 40 < float(snr_db) < 60
    assert shape.strip() == "(1, 8, 256, 64)"


def test_lines_of_the_readme(bin_dir: Path) -> None:
    run_example(sys.executable, bin_dir, PYTHONPATH=str(PACKAGE / "src"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_installed_package(bin_dir: Path, tmp_path: Path) -> None:
    """From the folder into a fresh environment, by pip alone."""
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build"))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels = str(tmp_path / "wheels")
    subprocess.run([*pip, "wheel", "--no-deps", "-w", wheels, str(source)], check=True, timeout=300)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for path in (PACKAGE / "src").rglob("*"):
        if path.suffix in {".py", ".pyi", ".typed"} or path.name == "py.typed":
            assert str(path.relative_to(PACKAGE / "src")) in names
    subprocess.run([*pip, "install", str(wheel)], check=True, timeout=300)
    run_example(python, bin_dir)
    module = [str(python), "-m", "kvcompress", "-version"]
    assert subprocess.run(module, capture_output=True, timeout=60).returncode == 0
