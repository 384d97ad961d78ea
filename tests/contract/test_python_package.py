# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a newcomer does: installs the package, and runs the lines of its README."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from documents import claimed, claimed_blocks, claimed_line, run_line, substituted

from oracle.fixtures import REPOSITORY

PACKAGE = REPOSITORY / "client" / "python"
EXTRAS = (
    "import importlib.metadata as m; print(*(m.metadata('kvcompress').get_all('Provides-Extra')))"
)


def readme_example() -> str:
    """The ten lines of the README."""
    [block] = claimed_blocks("ten lines")
    assert len([line for line in block.splitlines() if line]) <= 10
    assert block in (PACKAGE / "examples" / "compress_arrays.py").read_text()
    return block


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
    assert 4 < float(ratio) < 5
    assert 18 < float(snr_db) < 25
    assert shape.strip() == "(1, 8, 256, 64)"


def test_lines_of_the_readme(bin_dir: Path) -> None:
    run_example(sys.executable, bin_dir, PYTHONPATH=str(PACKAGE / "src"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_installed_package(bin_dir: Path, tmp_path: Path) -> None:
    """From the folder into a fresh environment, by pip alone, as the documents have it."""
    source = tmp_path / "client" / "python"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build"))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    pip = f"{python} -m pip --disable-pip-version-check --quiet"
    run_line(f"{pip} wheel --no-deps -w wheels {source}", tmp_path, seconds=300)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for path in (PACKAGE / "src").rglob("*"):
        if path.suffix in {".py", ".pyi", ".typed"} or path.name == "py.typed":
            assert str(path.relative_to(PACKAGE / "src")) in names
    run_line(substituted(claimed_line("pip"), pip=pip), tmp_path, seconds=300)
    run_example(python, bin_dir)
    # The console script comes first on the PATH, and is passed over.
    folders = os.pathsep.join(map(str, (python.parent, bin_dir.resolve(), "/usr/bin")))
    for program in (f"{python} -m kvcompress", "kv-compress"):
        unset = "env --unset PYTHONPATH --unset KVCOMPRESS_BIN_DIR"
        printed = run_line(f"{unset} PATH={folders} {program} -version", tmp_path)
        assert printed.startswith("kv-compress 0."), program
    extras = run_line(f"{python} -c {shlex.quote(EXTRAS)}", tmp_path).split()
    for line in claimed("pip, with extras"):
        # What Ray and torch ask for would be gigabytes.
        large = re.search(r"\[(batch|gpu)\]", line)
        command = f"{line} --no-deps" if large else line
        run_line(command.replace("pip", pip, 1), tmp_path, seconds=300)
        assert re.findall(r"\[(\w+)\]", line)[0] in extras
    run_line(f"{python} -c 'import tqdm'", tmp_path)
